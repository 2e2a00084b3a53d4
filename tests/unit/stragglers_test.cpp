// Ranks that keep coming last: when that begins, what is said of it, and when it ends.
#include "core/diagnosis/stragglers.h"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "core/model/host_event.h"
#include "core/render/stragglers.h"
#include "tests/support/memory_snapshot.h"

namespace ingero::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t us = 1'000, ms = 1'000 * us, second = 1'000 * ms;
constexpr uint64_t world = 0xabc;

ProcessKey process_of(uint32_t rank) {
    return {100 + rank, 1 + rank};
}

uint64_t told_ns(const StragglerEpisode& episode) {
    uint64_t sum = 0;
    for (const MeanwhilePart& part : episode.meanwhile) sum += part.ns;
    return sum;
}

class Stragglers : public testing::Test {
  protected:
    Stragglers() : snapshot_(1'000 * second) { make(4); }

    void make(uint32_t ranks, uint64_t hash = world) {
        hash_ = hash;
        ranks_ = ranks;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            CommunicatorRow row;
            row.process = process_of(rank);
            row.id = row.hash = hash;
            row.rank = static_cast<int32_t>(rank);
            row.ranks = ranks;
            row.origin = CommunicatorOrigin::init_rank;
            snapshot_.add(row);
            Process process;
            process.key = process_of(rank);
            process.uid = 1'000 + rank;
            process.comm = "trainer-" + std::to_string(rank);
            snapshot_.add(process);
        }
    }
    Event& add(OpId op, uint32_t rank, uint64_t start_ns, uint64_t duration_ns) {
        Event event;
        event.op = op;
        event.start_ns = start_ns;
        event.duration_ns = duration_ns;
        event.tgid = event.tid = process_of(rank).pid;
        event.process_start_ns = process_of(rank).start_ns;
        event.stream = 0x77;
        event.device = 0;
        end_ns_ = std::max(end_ns_, event.end_ns());
        return snapshot_.add(event);
    }
    /// Each computes for its time, enters the next collective and waits until all have.
    void step(const std::vector<uint64_t>& compute_ns, uint64_t device_ns = ms) {
        const uint64_t done_ns = now_ + *std::max_element(compute_ns.begin(), compute_ns.end()) + device_ns;
        ++sequence_;
        for (uint32_t rank = 0; rank < compute_ns.size(); ++rank) {
            const uint64_t arrival_ns = now_ + compute_ns[rank];
            add(*op_of_name("ncclAllReduce"), rank, arrival_ns, 5 * us).args = {
                4096, hash_, uint64_t{sequence_} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
            add(*op_of_name("cudaStreamSync"), rank, arrival_ns + 10 * us, done_ns - arrival_ns - 10 * us);
        }
        now_ = done_ns;
    }
    /// Rank `late` computes so much longer.
    void steps(int number, uint64_t compute_ns, std::optional<uint32_t> late = {}, uint64_t more_ns = 0) {
        for (int i = 0; i < number; ++i) {
            std::vector<uint64_t> compute;
            for (uint32_t rank = 0; rank < ranks_; ++rank)
                compute.push_back(static_cast<uint64_t>(static_cast<double>(compute_ns) * spread_(random_)));
            if (late) compute[*late] += more_ns;
            step(compute);
        }
    }
    /// A wait of the rank in its latest compute time; it is watched.
    Event& waits(uint32_t rank, uint64_t start_ns, uint64_t blocked_ns, uint64_t runnable_ns = 0) {
        Event& wait = add(op_wait, rank, start_ns, blocked_ns + runnable_ns);
        wait.blocked_ns = blocked_ns;
        wait.runnable_ns = runnable_ns;
        return wait;
    }

    StragglersAnswer answer(std::optional<uint32_t> uid = {}, const StragglerOptions& options = {}) {
        const Filter filter{.window = {MemorySnapshot::realtime_at_zero_ns,
                                       MemorySnapshot::realtime_at_zero_ns + std::max(end_ns_, now_) + 1},
                            .uid = uid,
                            .pid = {}};
        auto found = compute_stragglers(snapshot_, filter, options);
        EXPECT_TRUE(found) << found.error().message;
        return found ? std::move(*found) : StragglersAnswer();
    }
    std::vector<StragglerEpisode> episodes(const StragglerOptions& options = {}) {
        StragglersAnswer found = answer({}, options);
        return found.boots.empty() ? std::vector<StragglerEpisode>() : std::move(found.boots[0].episodes);
    }

    /// A hundred steps to which rank 2 comes some 30 ms late, and what it did meanwhile by far the most; empty: not
    /// known.
    std::string cause_where(const std::function<void(uint64_t from_ns)>& meanwhile) {
        make(4, ++hash_);
        for (int i = 0; i < 100; ++i) {
            const uint64_t from_ns = now_;
            steps(1, 20 * ms, 2, 30 * ms);
            meanwhile(from_ns);
        }
        for (const StragglerEpisode& one : episodes())
            if (one.hash == hash_ && one.cause()) return meanwhile_text(*one.cause());
        return "";
    }

    MemorySnapshot snapshot_;
    uint64_t now_ = second, end_ns_ = 0, hash_ = world;
    uint32_t sequence_ = 0, ranks_ = 4;
    std::mt19937_64 random_{7};
    std::uniform_real_distribution<> spread_{0.95, 1.05};
};

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

// Requests, of which each has a thread for a moment.
TEST_F(Stragglers, WhereThreadsComeAndGoTheOnesThatWaitStayKnown) {
    ThreadHistory history(1'000 * second);
    const ProcessKey rank = process_of(2);
    const auto wait = [&](uint32_t tid, uint64_t start_ns) {
        Event event;
        event.op = op_wait;
        event.tgid = rank.pid;
        event.process_start_ns = rank.start_ns;
        event.tid = tid;
        event.start_ns = start_ns;
        event.duration_ns = event.blocked_ns = 4 * ms;
        event.blocked_reason = BlockedReason::disk;
        history.take(event);
    };
    const uint32_t main_tid = rank.pid;
    for (uint32_t i = 0; i < 20'000; ++i) {
        wait(100'000 + i, second + i * 10 * ms);
        wait(main_tid, second + i * 10 * ms);
    }
    const uint64_t last_ns = second + 19'999 * 10 * ms;
    auto parts = history.parts(rank, main_tid, {last_ns, last_ns + 4 * ms});
    ASSERT_THAT(parts, SizeIs(1));
    EXPECT_EQ(parts[0].kind, "own-io-wait");
    // One that comes back after its rows went: what it did before is not known.
    wait(100'000, last_ns + 10 * ms);
    parts = history.parts(rank, 100'000, {last_ns, last_ns + 10 * ms});
    ASSERT_THAT(parts, SizeIs(1));
    EXPECT_EQ(parts[0].kind, "not-known");
}

TEST_F(Stragglers, TimeWithoutWaitsIsOwnWorkOnlyWhereWaitsAreWatched) {
    steps(100, 20 * ms, 2, 30 * ms);
    auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].cause(), nullptr);
    EXPECT_EQ(found[0].meanwhile.at(0).kind, "not-known");
    EXPECT_EQ(straggler_finding(found[0], "", {0, 0, 0}).verdict, Verdict::partial);
    waits(2, second, ms);
    found = episodes();
    ASSERT_TRUE(found.at(0).cause());
    EXPECT_EQ(found[0].cause()->kind, "own-work");
}

TEST_F(Stragglers, OfWhoeverEndedAWaitOnlyTheHolderOfALockIsNamed) {
    const auto cause_of = [&](BlockedReason reason, uint32_t waker, WakerKind kind = WakerKind::task) {
        return cause_where([&](uint64_t from_ns) {
            Event& wait = waits(2, from_ns + 21 * ms, 28 * ms);
            wait.blocked_reason = reason;
            wait.waker_kind = kind;
            wait.waker_tgid = waker;
            wait.waker_comm = to_comm("other-program");
        });
    };
    EXPECT_EQ(cause_of(BlockedReason::futex, 777), "waiting for a lock of other-program (pid 777)");
    EXPECT_EQ(cause_of(BlockedReason::futex, process_of(2).pid), "") << "its own thread may have had no work for it";
    EXPECT_EQ(cause_of(BlockedReason::futex, 0, WakerKind::interrupt), "asleep until a timer ran out");
    EXPECT_EQ(cause_of(BlockedReason::socket, 777), "waiting for the network")
        << "it may have brought what others sent";
    EXPECT_EQ(cause_of(BlockedReason::pipe, 777), "waiting for a pipe");
    EXPECT_EQ(cause_of(BlockedReason::other, 777), "") << "which says nothing";
}

// A call of 28 ms of which 27 are one wait, which is a row of its own where the process is watched.
TEST_F(Stragglers, WhatACallWaitedForIsItsDeviceOnlyWhereTheDriverSleepsForIt) {
    const auto cause_of = [&](const char* op, BlockedReason reason, bool is_watched) {
        return cause_where([&](uint64_t from_ns) {
            Event& call = add(*op_of_name(op), 2, from_ns + 21 * ms, 28 * ms);
            call.blocked_ns = call.longest_sleep_ns = 27 * ms;
            call.blocked_reason = reason;
            if (!is_watched) return;
            Event& wait = waits(2, from_ns + 21 * ms, 27 * ms);
            wait.blocked_reason = reason;
            wait.depth = 1;
        });
    };
    for (const bool is_watched : {false, true}) {
        EXPECT_EQ(cause_of("cudaMemcpy", BlockedReason::futex, is_watched), "waiting for its device in cudaMemcpy");
        EXPECT_EQ(cause_of("cudaMemcpy", BlockedReason::disk, is_watched), "waiting for the disk");
        EXPECT_EQ(cause_of("cudaMemcpy", BlockedReason::page_fault, is_watched), "waiting for pages of memory");
        EXPECT_EQ(cause_of("cudaMalloc", BlockedReason::futex, is_watched), "");
    }
}

TEST_F(Stragglers, AQuotaIsOneInsideACallToo) {
    EXPECT_EQ(cause_where([&](uint64_t from_ns) {
                  Event& call = add(*op_of_name("cudaMemcpy"), 2, from_ns + 21 * ms, 28 * ms);
                  call.runnable_ns = call.preempted_ns = call.preemptor_ns = 27 * ms;
                  call.preemptor_tgid = 777;
                  call.preemptor_comm = to_comm("stress-hog");
                  Event& wait = waits(2, from_ns + 21 * ms, 0, 27 * ms);
                  wait.return_code = wait_throttled;
                  wait.depth = 1;
              }),
              "without a CPU: its cgroup had used up its quota");
}

TEST_F(Stragglers, OneOfManyWhoHadTheCpuIsNamedForItsOwnTime) {
    EXPECT_EQ(cause_where([&](uint64_t from_ns) {
                  Event& wait = waits(2, from_ns + 21 * ms, 0, 27 * ms);
                  wait.preempted_ns = 27 * ms;
                  wait.preemptor_ns = 3 * ms;
                  wait.preemptor_tgid = 777;
                  wait.preemptor_comm = to_comm("one-of-many");
              }),
              "waiting for a CPU that other tasks had");
    EXPECT_EQ(cause_where([&](uint64_t from_ns) {
                  Event& wait = waits(2, from_ns + 21 * ms, 0, 27 * ms);
                  wait.preempted_ns = wait.preemptor_ns = 27 * ms;
                  wait.preemptor_tgid = 777;
                  wait.preemptor_comm = to_comm("kworker/0:1");
              }),
              "waiting for a CPU")
        << "who does what others asked for is no culprit";
}

TEST_F(Stragglers, OfACallThatBeganEarlierOnlyWhatMustLieWithinIsTold) {
    // It slept for its first 40 ms, before others waited.
    const auto cause = cause_where([&](uint64_t from_ns) {
        Event& call = add(*op_of_name("cudaMalloc"), 2, from_ns - 21 * ms, 70 * ms);
        call.blocked_ns = call.longest_sleep_ns = 40 * ms;
        call.blocked_reason = BlockedReason::disk;
    });
    EXPECT_EQ(cause, "");
}

TEST_F(Stragglers, WhatShortWaitsTookIsNoWork) {
    const auto cause_of = [&](uint64_t summed_ns) {
        return cause_where([&](uint64_t from_ns) {
            Event& sum = add(op_waits_summed, 2, from_ns, summed_ns);
            sum.args[1] = 50 * ms;
        });
    };
    EXPECT_EQ(cause_of(5 * ms), "at work between its calls");
    EXPECT_EQ(cause_of(45 * ms), "");
}

TEST_F(Stragglers, WhatThereIsNoRoomForIsNotKnown) {
    for (uint32_t i = 0; i < 200; ++i) {
        const uint64_t from_ns = now_;
        steps(1, 20 * ms, 2, 30 * ms);
        Event& wait = waits(2, from_ns + 21 * ms, 0, 26 * ms);
        wait.preemptor_ns = 26 * ms;
        wait.preemptor_tgid = 1'000 + i;
        wait.preemptor_comm = to_comm("cc1");
    }
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(told_ns(found[0]), found[0].lost_ns);
    EXPECT_EQ(found[0].meanwhile.at(0).kind, "not-known");
}

TEST_F(Stragglers, WaitsThatOverlapAreToldOnce) {
    for (int i = 0; i < 100; ++i) {
        const uint64_t from_ns = now_;
        steps(1, 20 * ms, 2, 30 * ms);
        waits(2, from_ns + 20 * ms, 6 * ms).blocked_reason = BlockedReason::disk;
        waits(2, from_ns + 26 * ms, 24 * ms).blocked_reason = BlockedReason::timer;
        // Claimed by a store that somebody else may have written.
        waits(2, from_ns + 26 * ms, 24 * ms).blocked_reason = BlockedReason::disk;
    }
    const auto found = episodes();
    ASSERT_THAT(found, SizeIs(1));
    ASSERT_TRUE(found[0].cause());
    EXPECT_EQ(found[0].cause()->kind, "sleep");
    EXPECT_EQ(told_ns(found[0]), found[0].lost_ns);
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
