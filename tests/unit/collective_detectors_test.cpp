// Ranks that wait for each other: which is named, and when nobody is.
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "core/diagnosis/explain.h"
#include "core/diagnosis/live/live_window.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "tests/support/memory_snapshot.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t us = 1'000, ms = 1'000 * us, second = 1'000 * ms;
constexpr uint64_t world = 0xabc, other_world = 0xdef;

ProcessKey process_of(uint32_t rank) {
    return {100 + rank, 1 + rank};
}

class Ranks : public testing::Test {
  protected:
    Ranks() : snapshot_(1'000 * second) {}

    void make(uint32_t ranks, uint64_t hash = world, uint32_t of = 0) {
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            CommunicatorRow row;
            row.process = process_of(rank);
            row.id = hash;
            row.hash = hash;
            row.rank = static_cast<int32_t>(rank);
            row.ranks = of ? of : ranks;
            row.origin = CommunicatorOrigin::init_rank;
            snapshot_.add(row);
        }
    }
    void add_process(uint32_t rank, uint64_t exited_ns = 0, int32_t exit_code = 0) {
        Process row;
        row.key = process_of(rank);
        row.comm = "trainer-" + std::to_string(rank);
        row.exited_ns = exited_ns;
        row.exit_code = exit_code;
        snapshot_.add(row);
    }
    Event& call(const std::string& name, uint32_t rank, uint64_t start_ns, uint64_t duration_ns) {
        Event event;
        event.op = op_of_name(name).value();
        event.start_ns = start_ns;
        event.duration_ns = duration_ns;
        event.tgid = event.tid = process_of(rank).pid;
        event.process_start_ns = process_of(rank).start_ns;
        event.stream = 0x77;
        event.device = static_cast<uint16_t>(rank);
        end_ns_ = std::max(end_ns_, event.end_ns());
        return snapshot_.add(event);
    }
    Event& collective(uint32_t rank, uint32_t sequence, uint64_t start_ns, uint64_t bytes = 4096, uint64_t hash = world,
                      const std::string& name = "ncclAllReduce") {
        Event& event = call(name, rank, start_ns, 10 * us);
        event.args = {bytes, hash, uint64_t{sequence} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
        return event;
    }

    /// For a lock of another task, or until a timer ran out.
    Event& slept(uint32_t rank, uint64_t start_ns, uint64_t ns, uint32_t waker = 0) {
        Event event;
        event.op = op_wait;
        event.start_ns = start_ns;
        event.duration_ns = event.blocked_ns = event.longest_sleep_ns = ns;
        event.tgid = event.tid = process_of(rank).pid;
        event.process_start_ns = process_of(rank).start_ns;
        event.blocked_reason = waker != 0 ? BlockedReason::futex : BlockedReason::timer;
        event.waits = 1;
        event.waker_kind = waker != 0 ? WakerKind::task : WakerKind::interrupt;
        event.waker_tgid = waker;
        event.waker_comm = to_comm(waker != 0 ? "pt_data_worker" : "");
        return snapshot_.add(event);
    }
    /// A hundred steps to which rank 2 comes 20 ms late, and what it did meanwhile: in its summary, and as culprit.
    std::pair<std::string, std::string> late_by(const std::function<void(uint64_t arrival_ns)>& meanwhile) {
        make(4);
        for (int number = 0; number < 100; ++number) {
            std::vector<uint64_t> compute = usual(4);
            compute[2] += 20 * ms;
            meanwhile(now_ + compute[2]);
            step(compute);
        }
        auto found = explain();
        const std::vector<Finding>& stragglers = found["straggler"];
        if (stragglers.size() != 1) return {};
        return {stragglers[0].summary, stragglers[0].culprits.at(0).name};
    }

    /// All begin at now_, compute for their time, enter the next collective, wait for it together and go on.
    void step(const std::vector<uint64_t>& compute_ns, bool synchronises = true, uint64_t device_ns = ms) {
        const uint64_t last_ns = now_ + *std::max_element(compute_ns.begin(), compute_ns.end());
        const uint64_t done_ns = last_ns + device_ns;
        ++sequence_;
        for (uint32_t rank = 0; rank < compute_ns.size(); ++rank) {
            const uint64_t arrival_ns = now_ + compute_ns[rank];
            collective(rank, sequence_, arrival_ns, 4096, hash_);
            if (synchronises) call("cudaStreamSync", rank, arrival_ns + 10 * us, done_ns - arrival_ns - 10 * us);
        }
        now_ = synchronises ? done_ns : last_ns + 20 * us;
    }
    uint64_t jitter(uint64_t ns, double spread) {
        return static_cast<uint64_t>(static_cast<double>(ns) *
                                     std::uniform_real_distribution<>(1 - spread, 1 + spread)(random_));
    }
    std::vector<uint64_t> usual(uint32_t ranks, double spread = 0.05) {
        std::vector<uint64_t> compute;
        for (uint32_t rank = 0; rank < ranks; ++rank) compute.push_back(jitter(10 * ms, spread));
        return compute;
    }

    std::map<std::string, std::vector<Finding>> explain(uint64_t until_ns = 0, uint64_t from_ns = 0) {
        const Filter filter{.window = {MemorySnapshot::realtime_at_zero_ns + from_ns,
                                       MemorySnapshot::realtime_at_zero_ns + (until_ns ? until_ns : end_ns_ + 1)},
                            .uid = {},
                            .pid = {}};
        auto answer = ingero::explain(snapshot_, filter);
        EXPECT_TRUE(answer) << answer.error().message;
        std::map<std::string, std::vector<Finding>> by_kind;
        if (answer)
            for (Finding& finding : answer->findings) by_kind[finding.kind].push_back(std::move(finding));
        return by_kind;
    }
    void expect_nothing(uint64_t until_ns = 0) {
        for (const auto& [kind, findings] : explain(until_ns)) {
            // Ranks that compute have nothing on their devices, and their waits are not made here.
            if (kind == "data-starvation") continue;
            for (const Finding& finding : findings) ADD_FAILURE() << kind << ": " << finding.summary;
        }
    }

    MemorySnapshot snapshot_;
    uint64_t now_ = second, end_ns_ = 0;
    uint32_t sequence_ = 0;
    uint64_t hash_ = world;
    std::mt19937_64 random_{7};
};

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
                                         HasSubstr("in 100 of 100 ranges, late by a median of 2"),
                                         HasSubstr("the late rank's calls do not show")));
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

TEST_F(LateRanks, AnotherThreadOfItsOwnIsNoCulprit) {
    const auto [told, culprit] = late_by([&](uint64_t at_ns) { slept(2, at_ns - 20 * ms, 19 * ms, 102); });
    EXPECT_THAT(told, HasSubstr("meanwhile it was waiting for a lock for"));
    EXPECT_EQ(culprit, "rank 2 (pid 102), waiting for a lock");
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

TEST_F(LateRanks, WhereTheDevicesWereAtWorkAsLongNothingIsProven) {
    make(4);
    for (int number = 0; number < 100; ++number) {
        std::vector<uint64_t> compute = usual(4);
        compute[3] += 20 * ms;
        step(compute, true, 30 * ms);
    }
    for (const auto& [kind, findings] : explain()) {
        EXPECT_THAT(findings, Each(Field(&Finding::verdict, Verdict::partial))) << kind;
        EXPECT_THAT(findings, Each(Field(&Finding::summary, HasSubstr("so the wait may have cost nothing")))) << kind;
    }
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
    window.add(std::move(events), 0);
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

using NcclHang = Ranks;

TEST_F(NcclHang, OfARankThatHasEndedIsProvenAndNamesIt) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    for (uint32_t rank = 0; rank < 3; ++rank) {
        add_process(rank);
        collective(rank, sequence_ + 1, now_ + rank * ms);
    }
    add_process(3, now_ + 5 * ms);
    auto found = explain(now_ + 20 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    const Finding& hang = found["nccl-hang"][0];
    EXPECT_EQ(hang.verdict, Verdict::proven) << hang.summary;
    EXPECT_EQ(hang.severity, Severity::high);
    EXPECT_EQ(hang.pid, 100u);
    ASSERT_THAT(hang.culprits, SizeIs(1));
    EXPECT_EQ(hang.culprits[0].name, "rank 3 (trainer-3, pid 103)");
    EXPECT_NEAR(static_cast<double>(hang.lost_ns), 20.0 * second, 1.0 * ms);
    EXPECT_THAT(hang.summary, AllOf(HasSubstr("collective 51 (ncclAllReduce)"), HasSubstr("3 of 4 ranks"),
                                    HasSubstr("its process has ended")));
    EXPECT_THAT(hang.evidence, SizeIs(3));
}

TEST_F(NcclHang, OfARankThatWasKilledInsideIsToldAndNotProven) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    step(usual(4), false);  // nobody comes out of waiting for the last one
    for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank);
    add_process(3, now_ + 5 * ms, 9);
    auto found = explain(now_ + 20 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    const Finding& hang = found["nccl-hang"][0];
    EXPECT_EQ(hang.verdict, Verdict::partial) << hang.summary;
    EXPECT_EQ(hang.severity, Severity::medium);
    EXPECT_THAT(hang.summary, AllOf(HasSubstr("3 of 4 ranks"), HasSubstr("pid 103) has not been recorded leaving it"),
                                    HasSubstr("its process has ended")));
}

TEST_F(NcclHang, OfARankThatEndedAsItShouldInTheLastCollectiveIsNone) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    step(usual(4), false);
    for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank);  // busy with something else
    add_process(3, now_ + 5 * ms);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, ALongCheckpointOfOneRankIsNoneAtFirstAndNeverProven) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    for (uint32_t rank = 1; rank < 4; ++rank) collective(rank, sequence_ + 1, now_);
    expect_nothing(now_ + 20 * second);
    const auto found = explain(now_ + 40 * second);
    ASSERT_EQ(found.count("nccl-hang"), 1u);
    EXPECT_EQ(found.at("nccl-hang").at(0).verdict, Verdict::partial);
    EXPECT_EQ(found.at("nccl-hang").at(0).severity, Severity::low);
    EXPECT_EQ(found.at("nccl-hang").at(0).culprits.at(0).pid, 100u);
}

TEST_F(NcclHang, RanksThatHaveBeenFarApartBeforeMayBeSoAgain) {
    make(2);
    step({5 * second, 10 * ms});
    collective(1, sequence_ + 1, now_);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, OfARankThatHasEndedIsToldSoonHoweverFarApartTheyHaveBeen) {
    make(2);
    step({5 * second, 10 * ms});
    collective(1, sequence_ + 1, now_);
    add_process(0, now_ + 5 * ms);
    add_process(1);
    auto found = explain(now_ + 20 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].verdict, Verdict::proven) << found["nccl-hang"][0].summary;
}

TEST_F(NcclHang, AJobThatIsEndedDuringALongCheckpointHasNone) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2));
    collective(1, sequence_ + 1, now_);
    add_process(0, now_ + 15 * second);
    add_process(1, now_ + 15 * second + ms);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, OfRanksThatEnterDifferentCollectivesSaysHowTheyDiffer) {
    make(2);
    for (int number = 0; number < 10; ++number) step(usual(2));
    collective(0, sequence_ + 1, now_, 4'096);
    collective(1, sequence_ + 1, now_ + ms, 8'192);
    auto found = explain(now_ + 15 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].verdict, Verdict::proven);
    EXPECT_THAT(found["nccl-hang"][0].summary, AllOf(HasSubstr("ncclAllReduce of 4096 bytes in pid 100"),
                                                     HasSubstr("ncclAllReduce of 8192 bytes in pid 101")));
}

TEST_F(NcclHang, OfRanksThatWaitForEachOtherInTwoCommunicatorsIsProven) {
    make(2);
    make(2, other_world);
    collective(0, 1, now_);
    collective(1, 1, now_ + ms, 4'096, other_world);
    auto found = explain(now_ + 15 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(2));
    EXPECT_THAT(found["nccl-hang"], Each(Field(&Finding::verdict, Verdict::proven)));
    EXPECT_THAT(found["nccl-hang"], Each(Field(&Finding::summary, HasSubstr("waits in another communicator"))));
}

TEST_F(NcclHang, RanksThatHaveAllEnteredAndEndHaveNone) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    step(usual(4), false);  // nobody waits for the last one
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank, now_ + rank * ms);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, WhoWaitsNoMoreSinceItEndedOrGaveUpItsCommunicatorHasNone) {
    make(3);
    for (int number = 0; number < 50; ++number) step(usual(3));
    collective(0, sequence_ + 1, now_);
    collective(1, sequence_ + 1, now_);
    add_process(0, now_ + 5 * ms);
    add_process(2, now_ + 5 * ms);
    call("ncclCommAbort", 1, now_ + 10 * ms, ms).args = {1, world, 0};
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, ACollectiveThatWasWaitedForHasEndedWhoeverWasNotSeenToEnterIt) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2));
    collective(0, sequence_ + 1, now_);
    call("cudaStreamSync", 0, now_ + ms, ms);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, OfARankWhoseBeginningWasNotSeenNothingIsSaid) {
    make(2);
    // The other one may have entered long before.
    now_ = 800 * second;
    collective(0, 1, now_);
    end_ns_ = now_;
    const Filter filter{.window = {MemorySnapshot::realtime_at_zero_ns + 790 * second,
                                   MemorySnapshot::realtime_at_zero_ns + 860 * second},
                        .uid = {},
                        .pid = {}};
    const auto answer = ingero::explain(snapshot_, filter);
    ASSERT_TRUE(answer);
    EXPECT_THAT(answer->findings, IsEmpty());
}

TEST_F(NcclHang, RanksThatAreLeftOutAreNotMissing) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2), false);
    const Filter filter{
        .window = {MemorySnapshot::realtime_at_zero_ns, MemorySnapshot::realtime_at_zero_ns + now_ + 60 * second},
        .uid = {},
        .pid = process_of(0).pid};
    const auto answer = ingero::explain(snapshot_, filter);
    ASSERT_TRUE(answer);
    EXPECT_THAT(answer->findings, IsEmpty());
}

TEST_F(NcclHang, RanksOfOtherHostsAreNotMissing) {
    make(1, world, 8);
    collective(0, 1, now_);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, OfCallsThatWereLostNothingIsProven) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2));
    collective(0, sequence_ + 1, now_);
    add_process(1, now_ + ms);
    LossRow lost;
    lost.from_ns = now_;
    lost.to_ns = now_ + second;
    lost.op = op_of_name("ncclAllReduce").value();
    lost.lost_ring = 1;
    snapshot_.add(lost);
    auto found = explain(now_ + 20 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].verdict, Verdict::partial);
}

}  // namespace
}  // namespace ingero::test
