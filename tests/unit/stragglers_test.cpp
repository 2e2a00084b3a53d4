// Ranks that keep coming last: when that begins, what is said of it, and when it ends.
#include "core/diagnosis/stragglers.h"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/model/host_event.h"
#include "core/render/stragglers.h"
#include "tests/unit/stragglers_fixture.h"

namespace ingero::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

TEST_F(Stragglers, OneThatKeepsComingLastIsNamedFromWhenItBeganToWhenItEnded) {
    steps(200, 20 * ms);
    const uint64_t began_ns = now_;
    steps(200, 20 * ms, 2, 15 * ms);
    const uint64_t ended_ns = now_;
    steps(200, 20 * ms);
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    const StragglerEpisode& one = found[0];
    EXPECT_EQ(one.rank, 2u);
    EXPECT_EQ(one.process, process_of(2));
    EXPECT_EQ(one.ranks, 4u);
    EXPECT_GE(one.since_ns, began_ns);
    EXPECT_LT(one.since_ns, began_ns + 100 * ms);
    EXPECT_GT(one.detected_ns, began_ns);
    EXPECT_LT(one.detected_ns, began_ns + 5 * second);
    EXPECT_LE(one.resolved_ns, ended_ns);
    EXPECT_GT(one.resolved_ns, ended_ns - 100 * ms);
    EXPECT_NEAR(static_cast<double>(one.lateness_ns), 15.0 * ms, 2.0 * ms);
    EXPECT_EQ(one.late_ranges, 200u);
    EXPECT_NEAR(static_cast<double>(one.lost_ns), 200 * 15.0 * ms, 200 * 1.0 * ms);
    EXPECT_EQ(one.threshold_ns, 2 * ms);
    nlohmann::json answered = to_json(answer(), AnswerContext());
    EXPECT_EQ(answered["stragglers"][0]["severity"], "high");
    EXPECT_THAT(text_stragglers(answered), testing::Not(HasSubstr("  Incident ")));
    answered["stragglers"][0]["incident"] = "d55432e0f690392a";
    EXPECT_THAT(text_stragglers(answered), HasSubstr("  Incident    d55432e0f690392a"));
}

TEST_F(Stragglers, OneThatStillComesLastIsNotResolved) {
    steps(100, 20 * ms, 1, 10 * ms);
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].resolved_ns, 0u);
}

TEST_F(Stragglers, RanksThatEnterNothingAnyMoreAreNotLate) {
    steps(100, 20 * ms, 1, 10 * ms);
    const uint64_t ended_ns = now_;
    now_ += 20 * second;
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].resolved_ns, ended_ns);
}

TEST_F(Stragglers, JitterNamesNobody) {
    for (const uint32_t ranks : {2u, 4u, 8u}) {
        make(ranks, world + ranks);
        spread_ = std::uniform_real_distribution<>(0.7, 1.3);
        steps(1'000, 10 * ms);
    }
    EXPECT_THAT(episodes(), IsEmpty());
}

TEST_F(Stragglers, SlowLoopsAreJudgedByTheirLastTenSeconds) {
    steps(20, second);
    const uint64_t began_ns = now_;
    steps(12, second, 3, 300 * ms);
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_LT(found[0].detected_ns, began_ns + 10 * second);
}

TEST_F(Stragglers, HysteresisKeepsOneThatIsLateInHalfOfTheRanges) {
    steps(100, 20 * ms, 1, 10 * ms);
    for (int i = 0; i < 100; ++i) steps(1, 20 * ms, i % 2 == 0 ? std::optional<uint32_t>(1) : std::nullopt, 10 * ms);
    const auto still = episodes();
    ASSERT_THAT(still, SizeIs(1));
    EXPECT_EQ(still[0].resolved_ns, 0u);
}

TEST_F(Stragglers, HalfOfTheRangesDoNotMakeOne) {
    for (int i = 0; i < 200; ++i) steps(1, 20 * ms, i % 2 == 0 ? std::optional<uint32_t>(1) : std::nullopt, 10 * ms);
    EXPECT_THAT(episodes(), IsEmpty());
}

TEST_F(Stragglers, LatenessBelowAPartOfTheStepIsNone) {
    spread_ = std::uniform_real_distribution<>(0.999, 1.001);
    steps(100, 200 * ms, 1, 24 * ms);
    EXPECT_THAT(episodes({.step_percent = 15}), IsEmpty());
    EXPECT_THAT(episodes({.step_percent = 1}), SizeIs(1));
    EXPECT_THAT(episodes({.floor_ns = 50 * ms, .step_percent = 1}), IsEmpty());
}

// Each of three ranks waits for another of three collectives: a step is from one such wait to the next.
TEST_F(Stragglers, AStepIsOneOfTheSameRanksWhereOthersSynchroniseElsewhere) {
    const auto run = [&](uint64_t late_ns) {
        make(4, ++hash_);
        for (int i = 0; i < 100; ++i) {
            const uint64_t last_ns = now_ + 90 * ms + late_ns, done_ns = last_ns + ms;
            for (uint32_t rank = 0; rank < 4; ++rank) {
                const uint64_t own_ns = rank == 3 ? last_ns : now_ + 90 * ms;
                for (uint32_t number = 0; number < 3; ++number) {
                    Event& entered = add(op::ncclAllReduce, rank, own_ns + number * 10 * us, us);
                    entered.tid = 900 + rank;
                    entered.args = {
                        4'096, hash_,
                        uint64_t{3 * static_cast<uint32_t>(i) + number + 1} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
                }
                const uint64_t from_ns = own_ns + rank * 10 * us + 5 * us;
                if (rank != 3) add(op::cudaStreamSync, rank, from_ns, done_ns + rank * us - from_ns);
            }
            now_ = done_ns + 10 * us;
        }
        const auto found = episodes();
        return std::any_of(found.begin(), found.end(), [&](const auto& one) { return one.hash == hash_; });
    };
    EXPECT_FALSE(run(3 * ms)) << "less than a twentieth of a step";
    EXPECT_TRUE(run(8 * ms));
}

TEST_F(Stragglers, WhatTheLateOneDidMeanwhileIsItsCause) {
    for (int i = 0; i < 100; ++i) {
        const uint64_t from_ns = now_;
        steps(1, 20 * ms, 2, 30 * ms);
        Event& wait = waits(2, from_ns + 21 * ms, 0, 26 * ms);
        wait.preemptor_ns = 26 * ms;
        wait.preemptor_tgid = 777;
        wait.preemptor_comm = to_comm("stress-hog");
    }
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    const MeanwhilePart* cause = found[0].cause();
    ASSERT_TRUE(cause);
    EXPECT_EQ(cause->kind, "cpu-contention");
    EXPECT_EQ(cause->name, "stress-hog");
    EXPECT_EQ(cause->pid, 777u);
    EXPECT_NEAR(static_cast<double>(cause->ns), 100 * 26.0 * ms, 100 * 2.0 * ms);
    EXPECT_EQ(told_ns(found[0]), found[0].lost_ns);
    const Finding finding = straggler_finding(found[0], "trainer-2", {0, 0, 0});
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_EQ(finding.severity, Severity::high);
    EXPECT_EQ(finding.lost_low_ns, found[0].lost_ns);
    EXPECT_THAT(finding.summary, HasSubstr("rank 2 (trainer-2, pid 102) came last to the collectives of 4 ranks"));
    EXPECT_THAT(finding.summary, HasSubstr("waiting for a CPU that stress-hog (pid 777) had"));
    EXPECT_EQ(finding.culprits.at(0).name, "stress-hog");
}

// Rank 2 waits for its device, which throttles.
TEST_F(Stragglers, AGpuThatThrottlesIsNamedWhereTheLateRankWaitsForIt) {
    const auto measure = [&](uint64_t until_ns) {
        for (uint64_t at_ns = 0; at_ns < until_ns; at_ns += 200 * ms) {
            for (uint32_t rank = 0; rank < 4; ++rank) {
                StateRow row;
                row.time_ns = at_ns;
                row.source = "gpu:GPU-" + std::to_string(rank);
                row.values = {{"gpu_index", rank},
                              {"max_sm_clock_mhz", 1'980},
                              {"throttle_reasons", rank == 2 ? 0x40 : 0},
                              {"sm_clock_mhz", rank == 2 ? 990 : 1'980}};
                row.texts = {{"processes", "[[" + std::to_string(process_of(rank).pid) + ",1024]]"}};
                snapshot_.add(row);
            }
        }
    };
    const auto run = [&](const std::function<void(uint64_t)>& meanwhile) {
        make(4, ++hash_);
        for (int i = 0; i < 100; ++i) {
            const uint64_t from_ns = now_;
            steps(1, 20 * ms, 2, 30 * ms);
            meanwhile(from_ns + 21 * ms);
        }
    };
    run([&](uint64_t at_ns) {
        Event& call = add(*op_of_name("cudaStreamSync"), 2, at_ns, 28 * ms);
        call.stream = 0x99;
    });
    run([&](uint64_t at_ns) {
        Event& wait = waits(2, at_ns, 28 * ms);
        wait.blocked_reason = BlockedReason::futex;
        wait.waker_kind = WakerKind::task;
        wait.waker_tgid = 777;
        wait.waker_comm = to_comm("other-program");
    });
    measure(now_);
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(2));
    for (const StragglerEpisode& one : found) {
        const Finding finding = straggler_finding(one, "trainer-2", {0, 0, 0});
        ASSERT_TRUE(one.cause());
        if (one.cause()->kind == "device-wait") {
            ASSERT_THAT(one.conditions, SizeIs(1));
            EXPECT_EQ(one.conditions[0].kind, "throttling");
            EXPECT_THAT(finding.summary, HasSubstr("; its GPU 2, throttled (hw_thermal_slowdown), ran at 50 %"));
            EXPECT_THAT(finding.fix, testing::AllOf(HasSubstr("Compare what"), HasSubstr("too hot")));
        } else {
            EXPECT_EQ(one.cause()->kind, "lock-wait");
            EXPECT_THAT(one.conditions, IsEmpty()) << "who waits for another program's lock is late by that";
            EXPECT_THAT(finding.summary, testing::Not(HasSubstr("GPU")));
        }
    }
    const nlohmann::json answered = to_json(answer(), AnswerContext())["stragglers"];
    ASSERT_EQ(answered.size(), 2u);
    size_t conditions = 0;
    for (const auto& one : answered) conditions += one["conditions"].size();
    EXPECT_EQ(conditions, 1u);
}

TEST_F(Stragglers, ByWhatOthersWereLateToIsOfLowSeverity) {
    const auto finding_with = [&](bool of_another, OpId op) {
        make(4, ++hash_);
        const uint64_t late_to = hash_, awaited = of_another ? hash_ + 1 : hash_;
        if (of_another) make(4, awaited);
        hash_ = late_to;
        for (int i = 0; i < 100; ++i) {
            const uint64_t from_ns = now_ + 21 * ms;
            steps(1, 20 * ms, 2, 30 * ms);
            const uint32_t number = of_another ? static_cast<uint32_t>(i + 1) : 0;
            add(op, 2, from_ns - 10 * us, 5 * us).args = {4'096, awaited,
                                                          uint64_t{number} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
            add(op::cudaStreamSync, 2, from_ns, 28 * ms);
        }
        for (const StragglerEpisode& one : episodes())
            if (one.hash == late_to) return straggler_finding(one, "trainer-2", {0, 0, 0});
        return Finding();
    };
    for (const OpId op : {op::ncclAllReduce, op::ncclRecv}) {
        const Finding finding = finding_with(true, op);
        EXPECT_THAT(finding.summary, HasSubstr("waiting for other ranks or for its device"));
        EXPECT_EQ(finding.severity, Severity::low);
        EXPECT_EQ(finding.verdict, Verdict::partial);
    }
    const Finding finding = finding_with(false, op::ncclAllReduce);
    EXPECT_THAT(finding.summary, HasSubstr("waiting for its device in cudaStreamSync"));
    EXPECT_EQ(finding.severity, Severity::high);
}

// For less than half of the time: the rest is its own.
TEST_F(Stragglers, SeverityIsOfTheTimeInWhichItDidNotWaitForOthers) {
    const auto severity_with = [&](bool waits_for_others) {
        make(4, ++hash_);
        const uint64_t late_to = hash_, awaited = hash_ + 1;
        make(4, awaited);
        hash_ = late_to;
        for (int i = 0; i < 100; ++i) {
            const uint64_t from_ns = now_ + 201 * ms;
            step({200 * ms, 200 * ms, 240 * ms, 200 * ms});
            if (waits_for_others) {
                add(op::ncclAllReduce, 2, from_ns - 10 * us, 5 * us).args = {
                    4'096, awaited, uint64_t{static_cast<uint32_t>(i) + 1} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
                add(op::cudaStreamSync, 2, from_ns, 18 * ms);
            }
            waits(2, from_ns + 19 * ms, 10 * ms).blocked_reason = BlockedReason::disk;
        }
        for (const StragglerEpisode& one : episodes())
            if (one.hash == late_to) return straggler_finding(one, "", {0, 0, 0}).severity;
        return Severity::low;
    };
    EXPECT_EQ(severity_with(false), Severity::high);
    EXPECT_EQ(severity_with(true), Severity::medium);
}

// Rank 1 synchronises when the others' range has been judged.
TEST_F(Stragglers, ARangeCountsOnceHoweverLateOneOfItsRanksSynchronises) {
    for (int i = 0; i < 20; ++i) {
        const uint64_t arrival_ns = now_ + 50 * ms, last_ns = now_ + 350 * ms, done_ns = last_ns + ms;
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const uint64_t own_ns = rank == 3 ? last_ns : arrival_ns + rank * us;
            add(op::ncclAllReduce, rank, own_ns, 5 * us).args = {
                4'096, hash_, uint64_t{sequence_} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
            const uint64_t from_ns = rank == 1 ? done_ns + 1'600 * ms : own_ns + 10 * us;
            add(op::cudaStreamSync, rank, from_ns, rank == 1 ? us : done_ns - from_ns);
        }
        now_ += 2 * second;
    }
    StragglerOptions options;
    options.latest_ns = 30 * second;
    const StragglersAnswer found = answer({}, options);
    ASSERT_THAT(found.boots, SizeIs(1));
    ASSERT_THAT(found.boots[0].episodes, SizeIs(1));
    EXPECT_EQ(found.boots[0].episodes[0].rank, 3u);
    EXPECT_EQ(found.boots[0].episodes[0].late_ranges, 20u);
    const CommunicatorTotals& totals = found.boots[0].communicators.at(hash_);
    EXPECT_EQ(totals.ranges, 20u);
    EXPECT_EQ(totals.step_ns, 2 * second);
}

// Rank 3 does not synchronise at all.
TEST_F(Stragglers, OneThatNeverSynchronisesIsNamedAndCountedAllTheSame) {
    for (int i = 0; i < 100; ++i) {
        const uint64_t arrival_ns = now_ + 20 * ms, last_ns = now_ + 40 * ms, done_ns = last_ns + ms;
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const uint64_t own_ns = rank == 3 ? last_ns : arrival_ns + rank * us;
            add(op::ncclAllReduce, rank, own_ns, 5 * us).args = {
                4'096, hash_, uint64_t{sequence_} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
            if (rank != 3) add(op::cudaStreamSync, rank, own_ns + 10 * us, done_ns - own_ns - 10 * us);
        }
        now_ = done_ns;
    }
    const nlohmann::json answered = to_json(answer(), {});
    ASSERT_EQ(answered["stragglers"].size(), 1u);
    EXPECT_EQ(answered["stragglers"][0]["rank"], 3);
    const auto& late = answered["communicators"][0]["ranks"][3];
    EXPECT_EQ(late["ranges"], 100);
    EXPECT_EQ(late["late"], 100);
}

// Rank 0 waits for its device in each step, since it writes a log; the others run ahead and wait in every tenth alone.
TEST_F(Stragglers, OneThatFollowsItsDeviceWhileOthersRunAheadIsNotLate) {
    for (int number = 0; number < 300; ++number) {
        const uint64_t done_ns = now_ + 100 * ms;
        const uint64_t begun_ns = now_ - static_cast<uint64_t>(number % 10) * 99 * ms;
        ++sequence_;
        const bool all = number % 10 == 9;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const uint64_t own_ns = rank == 0 ? now_ + 200 * us : begun_ns + 500 * us + rank * us;
            add(op::ncclAllReduce, rank, own_ns, 5 * us).args = {
                4'096, hash_, uint64_t{sequence_} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
            if (rank == 0 || all) add(op::cudaStreamSync, rank, own_ns + 10 * us, done_ns - own_ns - 10 * us);
        }
        now_ = done_ns;
    }
    EXPECT_THAT(episodes(), IsEmpty());
}

// The ranges that it alone waits in show nothing of it.
TEST_F(Stragglers, OneThatSynchronisesMoreOftenThanTheOthersIsNamed) {
    for (int number = 0; number < 600; ++number) {
        const uint64_t last_ns = now_ + 40 * ms, done_ns = last_ns + ms;
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const uint64_t own_ns = rank == 2 ? last_ns : now_ + 20 * ms + rank * us;
            add(op::ncclAllReduce, rank, own_ns, 5 * us).args = {
                4'096, hash_, uint64_t{sequence_} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
            if (rank == 2 || number % 10 == 9)
                add(op::cudaStreamSync, rank, own_ns + 10 * us, done_ns - own_ns - 10 * us);
        }
        now_ = done_ns;
    }
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].rank, 2u);
    EXPECT_EQ(found[0].late_ranges, 60u);
    EXPECT_EQ(found[0].late, found[0].of_ranges);
}

TEST_F(Stragglers, WhereTheDevicesWereAtWorkNearlyAsLongNothingIsProven) {
    for (int i = 0; i < 200; ++i) {
        std::vector<uint64_t> compute(4, 20 * ms);
        compute[2] += 15 * ms;
        const uint64_t from_ns = now_;
        step(compute, 10 * ms);
        waits(2, from_ns + 20 * ms, 14 * ms).blocked_reason = BlockedReason::disk;
    }
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    const Finding finding = straggler_finding(found[0], "trainer-2", {0, 0, 0});
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_EQ(finding.severity, Severity::low);
    EXPECT_EQ(finding.lost_ns, found[0].lost_ns);
    EXPECT_EQ(finding.lost_low_ns, 0u);
    const nlohmann::json answered = to_json(answer(), AnswerContext());
    EXPECT_EQ(answered["stragglers"][0]["severity"], "low");
    EXPECT_THAT(text_stragglers(answered), Not(HasSubstr("Incident"))) << "it opens none";
}

// The loader of one, after each step: its device has nothing to do meanwhile, and has as much to do then as the
// others'.
TEST_F(Stragglers, OneThatWaitsForItsDataIsNamedWhateverTheDevicesHaveToDoThen) {
    for (const uint32_t tid_of_wait : {102u, 900u}) {
        make(4, ++hash_);
        for (int i = 0; i < 100; ++i) {
            std::vector<uint64_t> compute(4, 20 * ms);
            compute[2] += 100 * ms;
            Event& wait = waits(2, now_ + ms, 100 * ms);
            wait.blocked_reason = BlockedReason::pipe;
            wait.waker_kind = WakerKind::task;
            wait.tid = tid_of_wait;
            step(compute, 200 * ms);
        }
        const auto found = episodes();
        const auto named = std::find_if(found.begin(), found.end(), [&](const auto& one) { return one.hash == hash_; });
        ASSERT_EQ(named != found.end(), tid_of_wait == 102) << "what its other threads wait for says nothing";
        if (named == found.end()) continue;
        EXPECT_EQ(named->rank, 2u);
        ASSERT_TRUE(named->cause());
        EXPECT_EQ(meanwhile_text(*named->cause()), "waiting for a pipe");
        const Finding finding = straggler_finding(*named, "trainer-2", {0, 0, 0});
        EXPECT_EQ(finding.severity, Severity::low);
        EXPECT_EQ(finding.verdict, Verdict::partial);
        EXPECT_THAT(finding.summary, HasSubstr("so the wait may have cost nothing"));
    }
}

// All wait for the loss, behind the collective of the step before; the device of rank 2 needs longer for it.
TEST_F(Stragglers, OneWhoseOwnDeviceIsSlowInAnEarlierSynchronisationIsNamed) {
    for (int i = 0; i < 100; ++i) {
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const uint64_t loss_ns = now_ + (rank == 2 ? 30 : 0) * ms + rank * us;
            add(op::ncclAllReduce, rank, loss_ns + ms, 5 * us).args = {
                4'096, hash_, uint64_t{sequence_} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
            // Up to the next loss, 10 ms of work after the last one came.
            add(op::cudaStreamSync, rank, loss_ns + 2 * ms, 39 * ms);
        }
        now_ += 41 * ms;
    }
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].rank, 2u);
    ASSERT_TRUE(found[0].cause());
    EXPECT_EQ(found[0].cause()->kind, "device-wait");
    EXPECT_EQ(straggler_finding(found[0], "", {0, 0, 0}).severity, Severity::high);
}

// Then it alone synchronises any more, which shows nothing of how late it is.
TEST_F(Stragglers, OneOfWhichNothingIsSeenForHalfAMinuteIsOneNoLonger) {
    steps(100, 20 * ms, 1, 10 * ms);
    const uint64_t late_until_ns = now_;
    for (int i = 0; i < 400; ++i) {
        ++sequence_;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            add(op::ncclAllReduce, rank, now_ + ms + rank * us, 5 * us).args = {
                4'096, hash_, uint64_t{sequence_} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
            if (rank == 1) add(op::cudaStreamSync, rank, now_ + 2 * ms, 90 * ms);
        }
        now_ += 100 * ms;
    }
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].rank, 1u);
    EXPECT_EQ(found[0].resolved_ns, late_until_ns);
}

// It was late by little for long, and is by much now.
TEST_F(Stragglers, SeverityFollowsTheLatestRanges) {
    for (int i = 0; i < 4'000; ++i) {
        std::vector<uint64_t> compute(4, 20 * ms);
        compute[2] += 3 * ms;
        step(compute, 2 * ms);
    }
    const auto severity = [&] { return straggler_finding(episodes().at(0), "", {0, 0, 0}).severity; };
    EXPECT_EQ(severity(), Severity::low);
    steps(60, 20 * ms, 2, 30 * ms);
    EXPECT_EQ(severity(), Severity::high);
}

TEST_F(Stragglers, WhoseDevicesHaveWorkForLongerKeepNobodyWaiting) {
    for (int i = 0; i < 200; ++i) {
        std::vector<uint64_t> compute(4, 20 * ms);
        compute[2] += 15 * ms;
        step(compute, 16 * ms);
    }
    EXPECT_THAT(episodes(), IsEmpty());
    for (int i = 0; i < 200; ++i) {
        std::vector<uint64_t> compute(4, 20 * ms);
        compute[2] += 15 * ms;
        step(compute, 14 * ms);
    }
    EXPECT_THAT(episodes(), SizeIs(1));
}

TEST_F(Stragglers, WhoWaitedForWhomIsSummed) {
    steps(50, 20 * ms, 2, 15 * ms);
    const nlohmann::json answered = to_json(answer(), {});
    ASSERT_EQ(answered["communicators"].size(), 1u);
    const auto& communicator = answered["communicators"][0];
    EXPECT_EQ(communicator["size"], 4);
    EXPECT_EQ(communicator["ranges"], 50);
    EXPECT_EQ(communicator["ranks"][2]["late"], 50);
    EXPECT_EQ(communicator["ranks"][2]["waited_ns"], 0);
    ASSERT_EQ(communicator["waits"].size(), 3u);
    for (const auto& wait : communicator["waits"]) {
        EXPECT_EQ(wait["for_rank"], 2);
        EXPECT_EQ(wait["times"], 50);
    }
    EXPECT_THAT(text_stragglers(answered), HasSubstr("waited"));
}

TEST_F(Stragglers, RanksOfOtherUsersAreNotCompared) {
    steps(100, 20 * ms, 2, 15 * ms);
    const auto found = answer(1'002);
    ASSERT_THAT(found.boots, SizeIs(1));
    EXPECT_THAT(found.boots[0].episodes, IsEmpty());
    EXPECT_THAT(found.boots[0].communicators, IsEmpty());
}

TEST_F(Stragglers, ChangesAreToldOnceLiveToo) {
    steps(100, 20 * ms, 1, 10 * ms);
    const uint64_t ended_ns = now_;
    auto communicators = Communicators::read(snapshot_);
    ASSERT_TRUE(communicators);
    StragglerWatch watch(*communicators, {});
    watch.take(snapshot_.events());
    const auto opened = watch.settle(now_ + 1);
    ASSERT_THAT(opened, SizeIs(1));
    EXPECT_FALSE(opened[0].resolved);
    EXPECT_GT(opened[0].episode.threshold_ns, 0u);
    EXPECT_THAT(watch.open(), SizeIs(1));
    EXPECT_THAT(watch.quiet(now_ + 5 * second), IsEmpty());
    const auto over = watch.quiet(now_ + 11 * second);
    ASSERT_THAT(over, SizeIs(1));
    EXPECT_TRUE(over[0].resolved);
    EXPECT_EQ(over[0].episode.id, opened[0].episode.id);
    EXPECT_EQ(over[0].episode.resolved_ns, ended_ns);
    EXPECT_THAT(watch.open(), IsEmpty());
    EXPECT_THAT(watch.quiet(now_ + 12 * second), IsEmpty());
}

}  // namespace
}  // namespace ingero::test
