// Ranks that wait for each other: which is named, and when nobody is.
#include <gmock/gmock.h>

#include <set>

#include "core/diagnosis/live/live_window.h"
#include "tests/unit/ranks_fixture.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using LateRanks = Ranks;

TEST_F(LateRanks, TheOneOfFourThatIsSlowIsNamedByThoseThatWaitAndAsAStraggler) {
    make(4);
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank);
    for (int number = 0; number < 100; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[3] += 20 * ms;
        step(compute);
    }
    auto found = explain();
    ASSERT_THAT(found, SizeIs(2));
    const std::vector<Finding>& waits = found["collective-wait"];
    ASSERT_THAT(waits, SizeIs(3));
    for (const Finding& wait : waits) {
        EXPECT_EQ(wait.verdict, Verdict::proven);
        EXPECT_EQ(wait.severity, Severity::high);
        ASSERT_THAT(wait.culprits, SizeIs(1));
        EXPECT_EQ(wait.culprits[0].name, "rank 3 (trainer-3, pid 103)");
        EXPECT_EQ(wait.culprits[0].pid, 103u);
        EXPECT_NEAR(static_cast<double>(wait.lost_ns), 100 * 20.0 * ms, 100 * 0.6 * ms);
        EXPECT_NE(wait.pid, 103u);
        EXPECT_THAT(wait.summary, HasSubstr("100 times"));
        EXPECT_FALSE(wait.fix.empty() || wait.confirm.empty() || wait.evidence.empty());
    }
    ASSERT_THAT(found["straggler"], SizeIs(1));
    const Finding& straggler = found["straggler"][0];
    EXPECT_EQ(straggler.pid, 103u);
    EXPECT_EQ(straggler.verdict, Verdict::proven);
    EXPECT_THAT(straggler.summary, AllOf(HasSubstr("rank 3"), HasSubstr("4 ranks"),
                                         HasSubstr("in 100 of 100 rounds, late by a median of 2"),
                                         HasSubstr("the late rank's calls do not show")));
}

// Of rank 0, which is late all the time.
TEST_F(LateRanks, AreComparedUpToWhereNumbersWereInterrupted) {
    const uint64_t interrupted_ns = now_ + second;
    make(4, world, 0, interrupted_ns);
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank);
    uint64_t before = 0;
    for (int number = 0; number < 100; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[0] += 20 * ms;
        step(compute);
        before += now_ <= interrupted_ns;
    }
    EXPECT_LT(before, 50u);
    auto found = explain();
    EXPECT_THAT(found["straggler"], IsEmpty());
    ASSERT_THAT(found["collective-wait"], SizeIs(3));
    for (const Finding& wait : found["collective-wait"])
        EXPECT_NEAR(static_cast<double>(wait.lost_ns), static_cast<double>(before) * 20.0 * ms, 30.0 * ms);
}

TEST_F(LateRanks, WhatTheLateOneMetOnItsOwnThreadIsItsCause) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        std::vector<uint64_t> compute = usual(4);
        for (uint32_t rank = 0; rank < 4; ++rank)
            for (uint64_t launch = 0; launch < 10; ++launch)
                call("cudaLaunchKernel", rank, now_ + launch * 20 * us, 6 * us).args[0] = 0x1000;
        compute[2] += 20 * ms;
        Event& preempted = call("cudaLaunchKernel", 2, now_ + compute[2] - 21 * ms, 20 * ms + 6 * us);
        preempted.args[0] = 0x1000;
        preempted.runnable_ns = preempted.preempted_ns = preempted.preemptor_ns = 20 * ms;
        preempted.preemptor_tgid = 777;
        preempted.preemptor_comm = to_comm("stress-hog");
        step(compute);
    }
    auto found = explain();
    ASSERT_THAT(found["straggler"], SizeIs(1));
    EXPECT_EQ(found["straggler"][0].culprits.at(0).name, "stress-hog");
    EXPECT_EQ(found["straggler"][0].culprits.at(0).pid, 777u);
    EXPECT_THAT(found["collective-wait"], SizeIs(3));
    EXPECT_THAT(found["collective-wait"],
                Each(Field(&Finding::summary, AllOf(HasSubstr("; meanwhile rank 2 lost "),
                                                    HasSubstr(" to cpu-contention (stress-hog)")))));
}

TEST_F(LateRanks, OneThatWaitsForItsDeviceIsToldSoAndWhatIsWorseOfIt) {
    const auto found_with = [&](uint64_t hash, bool waits_for_device) {
        hash_ = hash;
        make(4, hash);
        const uint64_t from_ns = now_;
        for (int number = 0; number < 100; ++number) {
            std::vector<uint64_t> compute = usual(4);
            compute[3] += 20 * ms;
            if (waits_for_device) call("cudaStreamSync", 3, now_ + compute[3] - 20 * ms, 19 * ms);
            step(compute);
        }
        for (uint64_t at_ns = from_ns; at_ns < now_; at_ns += 100 * ms) {
            for (uint32_t rank = 0; rank < 4; ++rank) {
                StateRow row;
                row.time_ns = at_ns;
                row.source = "gpu:GPU-" + std::to_string(rank);
                row.values = {{"gpu_index", rank}, {"pcie_width", rank == 3 ? 1 : 16}, {"pcie_max_width", 16}};
                row.texts = {{"processes", "[[" + std::to_string(100 + rank) + ",1024]]"}};
                snapshot_.add(row);
            }
        }
        auto found = explain(0, from_ns);
        EXPECT_THAT(found["straggler"], SizeIs(1));
        EXPECT_THAT(found["collective-wait"], SizeIs(3));
        for (const Finding& wait : found["collective-wait"])
            EXPECT_EQ(wait.summary.find("PCIe lanes") != std::string::npos, waits_for_device) << wait.summary;
        return found["straggler"].empty() ? Finding() : found["straggler"][0];
    };
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank);
    const Finding straggler = found_with(world, true);
    EXPECT_THAT(straggler.summary, HasSubstr("meanwhile it was waiting for its device in cudaStreamSync for 1.89 s"));
    EXPECT_THAT(straggler.summary, HasSubstr("; its GPU 3 is on 1 of 16 PCIe lanes"));
    EXPECT_THAT(straggler.fix, AllOf(HasSubstr("Compare what"), HasSubstr("lspci")));
    // It may be slow in Python.
    EXPECT_THAT(found_with(other_world, false).summary,
                AllOf(HasSubstr("do not show what it did meanwhile"), testing::Not(HasSubstr("GPU"))));
}

// Between its calls: as `ingeroctl stragglers` tells it too.
TEST_F(LateRanks, WhatTheLateOneWaitedForBetweenItsCallsIsItsCause) {
    const auto [told, culprit] = late_by([&](uint64_t at_ns) { slept(2, at_ns - 20 * ms, 19 * ms, 300); });
    EXPECT_THAT(told, HasSubstr("meanwhile it was waiting for a lock of pt_data_worker (pid 300)"));
    EXPECT_EQ(culprit, "pt_data_worker");
}

TEST_F(LateRanks, OneThatSleepsIsToldApartFromOneThatWorks) {
    const auto [told, culprit] = late_by([&](uint64_t at_ns) { slept(2, at_ns - 20 * ms, 19 * ms); });
    EXPECT_THAT(told, HasSubstr("meanwhile it was asleep until a timer ran out"));
    EXPECT_EQ(culprit, "rank 2 (pid 102), asleep until a timer ran out");
}

TEST_F(LateRanks, OneThatHadNoCpuNamesWhoHadIt) {
    const auto [told, culprit] = late_by([&](uint64_t at_ns) {
        Event& wait = slept(2, at_ns - 20 * ms, 19 * ms);
        wait.blocked_ns = ms;
        wait.runnable_ns = wait.preempted_ns = wait.preemptor_ns = 18 * ms;
        wait.preemptor_tgid = 777;
        wait.preemptor_comm = to_comm("stress-hog");
    });
    EXPECT_THAT(told, HasSubstr("meanwhile it was waiting for a CPU that stress-hog (pid 777) had"));
    EXPECT_EQ(culprit, "stress-hog");
}

TEST_F(LateRanks, NothingIsMadeUpOfWhatItsWaitsBetweenCallsDoNotShow) {
    const std::string nothing = "neither the late rank's calls nor its waits show what it did meanwhile";
    // It works, or spins, or sleeps for short times.
    auto [told, culprit] = late_by([&](uint64_t at_ns) { slept(2, at_ns - 20 * ms, ms); });
    EXPECT_THAT(told, HasSubstr(nothing));
    EXPECT_EQ(culprit, "rank 2 (pid 102)");
    // A call that always takes so long: it may wait for its device.
    hash_ = other_world;
    std::tie(told, culprit) = late_by([&](uint64_t at_ns) { slept(2, at_ns - 20 * ms, 19 * ms, 300).depth = 1; });
    EXPECT_THAT(told, HasSubstr(nothing));
}

// Autograd's thread, which enters the last collective, waits for the main one to have something for it.
TEST_F(LateRanks, WaitingForAnotherThreadOfItsOwnIsNoLock) {
    const auto [told, culprit] = late_by([&](uint64_t at_ns) { slept(2, at_ns - 20 * ms, 19 * ms, 102); });
    EXPECT_THAT(told, HasSubstr("neither the late rank's calls nor its waits show what it did meanwhile"));
    EXPECT_EQ(culprit, "rank 2 (pid 102)");
}

// A server that has nothing to do: its workers wait for what rank 0 sends them.
TEST_F(LateRanks, TheRootOfABroadcastIsNotLateToIt) {
    const auto late_to = [&](uint64_t hash, uint32_t root) {
        hash_ = hash;
        make(4, hash);
        const uint64_t from_ns = now_;
        for (int number = 0; number < 100; ++number) {
            const uint64_t last_ns = now_ + 30 * ms;
            ++sequence_;
            for (uint32_t rank = 0; rank < 4; ++rank) {
                const uint64_t arrival_ns = rank == 0 ? last_ns : now_ + rank * us;
                collective(rank, sequence_, arrival_ns, 4'096, hash, "ncclBroadcast").args[2] |=
                    uint64_t{root + 1} << INGERO_COLLECTIVE_PEER_SHIFT;
                call("cudaStreamSync", rank, arrival_ns + 10 * us, last_ns + ms - arrival_ns);
            }
            now_ = last_ns + 2 * ms;
        }
        auto found = explain(0, from_ns);
        return found["straggler"].size() + found["collective-wait"].size();
    };
    EXPECT_EQ(late_to(world, 0), 0u);
    EXPECT_EQ(late_to(other_world, 3), 4u);
}

TEST_F(LateRanks, AWaitThatClaimsMoreThanItsTimeIsToldForItsTime) {
    const auto [told, culprit] = late_by([&](uint64_t at_ns) {
        slept(2, at_ns - 20 * ms, us, 300).blocked_ns = UINT64_MAX;
        slept(2, at_ns - 19 * ms, 18 * ms);
    });
    EXPECT_THAT(told, HasSubstr("meanwhile it was asleep until a timer ran out for"));
}

TEST_F(LateRanks, OfTheTimeBeforeTheWindowNothingIsSaid) {
    make(2);
    slept(1, now_, ms);
    for (int number = 0; number < 10; ++number) {
        const uint64_t late_ns = number == 5 ? 30 * second : 0;
        if (late_ns != 0) slept(1, now_ + ms, late_ns - 2 * second, 300);
        step({10 * ms, 10 * ms + late_ns});
    }
    slept(1, now_, ms);
    auto found = explain(0, now_ - second);
    ASSERT_THAT(found["collective-wait"], SizeIs(1));
    EXPECT_THAT(found["collective-wait"][0].summary,
                HasSubstr("neither the late rank's calls nor its waits show what it did"));
}

TEST_F(LateRanks, ALoopThatSynchronisesEveryTenStepsStillNamesTheStraggler) {
    make(4);
    for (int number = 0; number < 300; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[1] += 20 * ms;
        step(compute, number % 10 == 9);
    }
    auto found = explain();
    ASSERT_THAT(found["straggler"], SizeIs(1));
    EXPECT_EQ(found["straggler"][0].pid, 101u);
}

TEST_F(LateRanks, AnOddStallIsAWaitAndNoStraggler) {
    make(4);
    for (int number = 0; number < 200; ++number) {
        std::vector<uint64_t> compute = usual(4);
        if (number == 120) compute[2] += 500 * ms;
        step(compute);
    }
    auto found = explain();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_THAT(found["collective-wait"], SizeIs(3));
    EXPECT_THAT(found["collective-wait"],
                Each(Field(&Finding::summary, AllOf(HasSubstr("for rank 2"), HasSubstr("once")))));
}

TEST_F(LateRanks, JitterOfHealthyOnesNamesNobody) {
    for (const uint32_t ranks : {2u, 4u, 8u}) {
        hash_ = world + ranks;
        make(ranks, hash_);
        for (int number = 0; number < 1'000; ++number) step(usual(ranks, 0.3));
    }
    expect_nothing();
}

TEST_F(LateRanks, WhoEntersInTimeAndWorksBeforeItSynchronisesIsNotLate) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            collective(rank, sequence_, now_ + rank * 10 * us);
            // The device needs 20 ms. Rank 3 does other work for so long and waits for nothing.
            const uint64_t from_ns = now_ + (rank == 3 ? 20 * ms : ms);
            call("cudaStreamSync", rank, from_ns, now_ + 20 * ms + 10 * us - from_ns);
        }
        now_ += 21 * ms;
    }
    expect_nothing();
}

TEST_F(LateRanks, RanksThatAllWaitForASlowDeviceAccuseNobody) {
    make(4);
    for (int number = 0; number < 100; ++number) step(usual(4), true, number < 50 ? ms : 40 * ms);
    expect_nothing();
}

TEST_F(LateRanks, WhereTheDevicesWereAtWorkNearlyAsLongNothingIsProven) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[3] += 20 * ms;
        step(compute, true, 15 * ms);
    }
    const auto found = explain();
    EXPECT_THAT(found, SizeIs(2));
    for (const auto& [kind, findings] : found) {
        EXPECT_THAT(findings, Each(Field(&Finding::verdict, Verdict::partial))) << kind;
        EXPECT_THAT(findings, Each(Field(&Finding::severity, Severity::low))) << kind;
        EXPECT_THAT(findings, Each(Field(&Finding::lost_low_ns, 0u))) << kind;
        EXPECT_THAT(findings, Each(Field(&Finding::summary, HasSubstr("so the wait may have cost nothing")))) << kind;
    }
}

// It waits for an event of before the collective, and leaves by chance as the late one comes.
TEST_F(LateRanks, WhoWaitsForAnEventShowsNotWhenTheOthersLeft) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        const uint64_t last_ns = now_ + 30 * ms, done_ns = last_ns + 30 * ms;
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const uint64_t own_ns = rank == 3 ? last_ns : now_ + 10 * ms + rank * us;
            collective(rank, sequence_, own_ns);
            const bool for_event = rank == 1;
            call(for_event ? "cudaEventSynchronize" : "cudaStreamSync", rank, own_ns + 10 * us,
                 (for_event ? last_ns + 100 * us : done_ns) - own_ns - 10 * us);
        }
        now_ = done_ns;
    }
    expect_nothing();
}

// Of programs whose devices are the bottleneck, one is always the last to have enqueued its work.
TEST_F(LateRanks, WhereTheDevicesWereAtWorkForLongerNobodyIsLate) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[3] += 20 * ms;
        step(compute, true, 30 * ms);
    }
    expect_nothing();
}

// Rank 0 waits for the first of two collectives, and writes a log for so long; the others but rank 3 wait for the
// second. Rank 3 comes later than the others by 25 ms.
class LateRanksThatSynchroniseApart : public LateRanks {
  protected:
    std::map<std::string, std::vector<Finding>> explain_steps(uint64_t log_ns, uint64_t late_ns = 25 * ms) {
        make(4);
        for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank);
        for (int number = 0; number < 100; ++number) {
            std::vector<uint64_t> compute = usual(4);
            compute[3] += late_ns;
            const uint64_t first_ns = now_ + *std::max_element(compute.begin(), compute.end()) + ms;
            const uint64_t done_ns = first_ns + log_ns + ms;
            sequence_ += 2;
            for (uint32_t rank = 0; rank < 4; ++rank) {
                const uint64_t arrival_ns = now_ + compute[rank];
                collective(rank, sequence_ - 1, arrival_ns);
                if (rank == 0) call("cudaStreamSync", rank, arrival_ns + 10 * us, first_ns - arrival_ns - 10 * us);
                collective(rank, sequence_, rank == 0 ? first_ns + log_ns : arrival_ns + 20 * us);
                if (rank == 1 || rank == 2)
                    call("cudaStreamSync", rank, arrival_ns + 30 * us, done_ns - arrival_ns - 30 * us);
            }
            now_ = done_ns + 100 * us;
        }
        return explain();
    }
};

TEST_F(LateRanksThatSynchroniseApart, NameTheOneThatDoesNotSynchroniseThere) {
    auto found = explain_steps(us);
    ASSERT_THAT(found["collective-wait"], SizeIs(1));
    EXPECT_EQ(found["collective-wait"][0].pid, 100u);
    EXPECT_THAT(found["collective-wait"][0].summary, HasSubstr("for rank 3 (trainer-3, pid 103)"));
    ASSERT_THAT(found["straggler"], SizeIs(1));
    const Finding& straggler = found["straggler"][0];
    EXPECT_EQ(straggler.pid, 103u);
    EXPECT_EQ(straggler.verdict, Verdict::proven);
    EXPECT_THAT(straggler.summary, AllOf(HasSubstr("of 4 ranks of this host"), HasSubstr("in 100 of 100 rounds")));
    EXPECT_NEAR(static_cast<double>(straggler.lost_ns), 100 * 25.0 * ms, 100 * 1.0 * ms);
}

TEST_F(LateRanksThatSynchroniseApart, NameTheOneThatGoesOnLateForWhatItDidSince) {
    auto found = explain_steps(40 * ms, 0);
    ASSERT_THAT(found["straggler"], SizeIs(1));
    EXPECT_EQ(found["straggler"][0].pid, 100u);
    EXPECT_NEAR(static_cast<double>(found["straggler"][0].lost_ns), 100 * 40.0 * ms, 100 * 1.0 * ms);
    ASSERT_THAT(found["collective-wait"], SizeIs(2)) << "rank 3 waits for nothing";
    for (const Finding& wait : found["collective-wait"])
        EXPECT_NEAR(static_cast<double>(wait.lost_ns), 100 * 40.0 * ms, 100 * 1.0 * ms) << wait.summary;
}

// A thread of rank 0 enters the second one while its main thread waits for the first; the others wait for the second.
TEST_F(LateRanks, WhatOthersWaitForAtTheSameTimeIsLostOnce) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        const uint64_t last_ns = now_ + 30 * ms, done_ns = last_ns + ms;
        sequence_ += 2;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const uint64_t own_ns = rank == 3 ? last_ns : now_ + 10 * ms + rank * us;
            collective(rank, sequence_ - 1, own_ns).tid = 900 + rank;
            collective(rank, sequence_, own_ns + 20 * us).tid = 900 + rank;
            if (rank != 3)
                call("cudaStreamSync", rank, own_ns + (rank == 0 ? 10 : 30) * us, done_ns - own_ns - 30 * us);
        }
        now_ = done_ns;
    }
    auto found = explain();
    ASSERT_THAT(found["straggler"], SizeIs(1));
    EXPECT_EQ(found["straggler"][0].pid, 103u);
    EXPECT_NEAR(static_cast<double>(found["straggler"][0].lost_ns), 100 * 20.0 * ms, 100 * 0.5 * ms);
}

TEST_F(LateRanks, JitterOfHealthyOnesOfWhichOneAloneSynchronisesNamesNobody) {
    make(4);
    for (int number = 0; number < 1'000; ++number) {
        std::vector<uint64_t> compute = usual(4, 0.3);
        compute[0] += 2'500 * us;  // that one itself comes last in most
        const uint64_t done_ns = now_ + *std::max_element(compute.begin(), compute.end()) + ms;
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) collective(rank, sequence_, now_ + compute[rank]);
        call("cudaStreamSync", 0, now_ + compute[0] + 10 * us, done_ns - now_ - compute[0] - 10 * us);
        now_ = done_ns;
    }
    expect_nothing();
}

// Rank 0 alone synchronises, and is the last one itself but for some steps.
TEST_F(LateRanks, OneThatIsSeldomLateToTheOnlyOneThatSynchronisesIsNoStraggler) {
    make(4);
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank);
    for (int number = 0; number < 200; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[number % 10 == 0 ? 3 : 0] += 20 * ms;
        const uint64_t done_ns = now_ + *std::max_element(compute.begin(), compute.end()) + ms;
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) collective(rank, sequence_, now_ + compute[rank]);
        call("cudaStreamSync", 0, now_ + compute[0] + 10 * us, done_ns - now_ - compute[0] - 10 * us);
        now_ = done_ns;
    }
    EXPECT_THAT(explain()["straggler"], IsEmpty());
}

TEST_F(LateRanks, OneThatWaitsForItsDataIsNamedWhateverTheDevicesHaveToDoThen) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[2] += 100 * ms;
        slept(2, now_ + ms, 100 * ms, 300);
        step(compute, true, 200 * ms);
    }
    auto found = explain();
    ASSERT_THAT(found["straggler"], SizeIs(1));
    const Finding& straggler = found["straggler"][0];
    EXPECT_EQ(straggler.pid, 102u);
    EXPECT_EQ(straggler.severity, Severity::low);
    EXPECT_EQ(straggler.verdict, Verdict::partial);
    EXPECT_THAT(straggler.summary, HasSubstr("waiting for a lock of pt_data_worker (pid 300)"));
    EXPECT_THAT(found["collective-wait"], SizeIs(3));
}

// As long as its host comes later, its device has nothing to do; or has work from before.
TEST_F(LateRanks, OneWhoseDeviceHasNothingToDoMeanwhileSurelyCostsThat) {
    const auto found_with = [&](uint64_t hash, bool launches_first) {
        hash_ = hash;
        make(4, hash);
        const uint64_t from_ns = now_;
        for (int number = 0; number < 100; ++number) {
            std::vector<uint64_t> compute = usual(4);
            compute[2] += 100 * ms;
            for (uint32_t rank = 0; rank < 4; ++rank) {
                const uint64_t at_ns = rank == 2 && !launches_first ? compute[2] - ms : ms;
                call("cudaLaunchKernel", rank, now_ + at_ns, 6 * us).args[0] = 0x1000;
            }
            step(compute, true, 200 * ms);
        }
        return explain(0, from_ns);
    };
    auto found = found_with(world, false);
    ASSERT_THAT(found["straggler"], SizeIs(1));
    const Finding& straggler = found["straggler"][0];
    EXPECT_EQ(straggler.pid, 102u);
    EXPECT_EQ(straggler.severity, Severity::high);
    EXPECT_EQ(straggler.verdict, Verdict::proven);
    EXPECT_NEAR(static_cast<double>(straggler.lost_ns), 100 * 100.0 * ms, 100 * 1.0 * ms);
    EXPECT_THAT(found["collective-wait"], SizeIs(3));
    EXPECT_THAT(found["collective-wait"], Each(Field(&Finding::verdict, Verdict::proven)));
    found = found_with(other_world, true);
    EXPECT_THAT(found["straggler"], IsEmpty());
    EXPECT_THAT(found["collective-wait"], IsEmpty());
}

// Which of several devices is the rank's is not known.
TEST_F(LateRanks, OneOfAProcessWithSeveralDevicesIsNotSaidToLeaveItsOwnIdle) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[2] += 100 * ms;
        for (uint32_t rank = 0; rank < 4; ++rank) call("cudaLaunchKernel", rank, now_ + ms, 6 * us).args[0] = 0x1000;
        for (const auto& [name, at_ns] : {std::pair("cudaLaunchKernel", ms),
                                          {"cudaStreamSync", 2 * ms},
                                          {"cudaLaunchKernel", 99 * ms},
                                          {"cudaStreamSync", 100 * ms}}) {
            Event& other = call(name, 2, now_ + at_ns, 6 * us);
            other.device = 7;
            other.stream = 0x88;
        }
        step(compute, true, 200 * ms);
    }
    auto found = explain();
    EXPECT_THAT(found["straggler"], IsEmpty());
    EXPECT_THAT(found["collective-wait"], IsEmpty());
}

// Tensor and data parallel, and a pipeline: it is late since another communicator's rank was.
TEST_F(LateRanks, OneThatWaitedForOtherRanksIsNotSaidToHaveWaitedForItsDevice) {
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank);
    const auto found_with = [&](uint64_t hash, uint64_t awaited, const std::string& awaited_call) {
        hash_ = hash;
        make(4, hash);
        make(4, awaited);
        const uint64_t from_ns = now_;
        for (int number = 0; number < 100; ++number) {
            std::vector<uint64_t> compute = usual(4);
            compute[3] += 20 * ms;
            const uint64_t at_ns = now_ + compute[3] - 20 * ms;
            if (!awaited_call.empty())
                collective(3, static_cast<uint32_t>(number + 1), at_ns - 20 * us, 4'096, awaited, awaited_call);
            call("cudaStreamSync", 3, at_ns, 19 * ms);
            step(compute);
        }
        auto found = explain(0, from_ns);
        EXPECT_THAT(found["straggler"], SizeIs(1));
        EXPECT_THAT(found["collective-wait"], SizeIs(3));
        for (const Finding& wait : found["collective-wait"])
            EXPECT_EQ(wait.severity, awaited_call.empty() ? Severity::high : Severity::low) << wait.summary;
        return found["straggler"].empty() ? Finding() : found["straggler"][0];
    };
    uint64_t hash = world;
    for (const std::string name : {"ncclAllReduce", "ncclRecv"}) {
        ++hash;
        const Finding straggler = found_with(hash, hash + 100, name);
        EXPECT_EQ(straggler.severity, Severity::low);
        EXPECT_EQ(straggler.verdict, Verdict::partial);
        EXPECT_THAT(straggler.summary, HasSubstr("meanwhile it was waiting for other ranks or for its device for 1."));
    }
    const Finding straggler = found_with(hash + 1, hash + 101, "");
    EXPECT_EQ(straggler.severity, Severity::high);
    EXPECT_EQ(straggler.verdict, Verdict::proven);
}

TEST_F(LateRanks, WhoLeftBeforeTheLastOneCameDidNotWaitForIt) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const uint64_t arrival_ns = now_ + (rank == 3 ? 30 * ms : 0);
            collective(rank, sequence_, arrival_ns);
            call("cudaStreamSync", rank, arrival_ns + 10 * us, 5 * ms);
        }
        now_ += 40 * ms;
    }
    expect_nothing();
}

TEST_F(LateRanks, AreFoundInTheLiveWindowToo) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[3] += 20 * ms;
        step(compute);
    }
    for (uint32_t rank = 0; rank < 3; ++rank) collective(rank, sequence_ + 1, now_);
    const Communicators communicators(snapshot_.communicators().value());
    LiveWindow window("boot", {.since_ns = 1});
    std::vector<Event> events = snapshot_.events();
    std::stable_sort(events.begin(), events.end(),
                     [](const Event& a, const Event& b) { return a.start_ns < b.start_ns; });
    for (size_t i = 0; i < events.size(); ++i) events[i].sequence = i + 1;
    window.add(std::move(events));
    const auto kinds = [&](uint64_t at_ns, const Communicators& known) {
        Process ended;
        ended.key = process_of(3);
        ended.exited_ns = now_ + ms;
        std::set<std::string> found;
        window.set_communicators(known);
        for (const Finding& finding : window.pass({at_ns, at_ns, MemorySnapshot::realtime_at_zero_ns + at_ns}, {ended}))
            found.insert(finding.kind);
        return found;
    };
    EXPECT_THAT(kinds(end_ns_, communicators), ElementsAre("collective-wait", "straggler"));
    EXPECT_THAT(kinds(end_ns_ + 11 * second, communicators), ElementsAre("nccl-hang")) << "the others are long ago";
    EXPECT_THAT(kinds(end_ns_ + 11 * second, Communicators()), IsEmpty());
}

}  // namespace
}  // namespace ingero::test
