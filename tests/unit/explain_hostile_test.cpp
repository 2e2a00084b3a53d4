// Properties that hold for any rows, those of a damaged or hostile file included.
#include <gtest/gtest.h>

#include <random>

#include "core/diagnosis/assign.h"
#include "core/diagnosis/explain.h"
#include "core/model/op.h"
#include "tests/support/memory_snapshot.h"

namespace ingero {
namespace {

constexpr uint64_t us = 1'000;
constexpr uint64_t ms = 1'000'000;
constexpr uint64_t second = 1'000'000'000;
constexpr OpId launch = op::cudaLaunchKernel;
constexpr uint32_t hog = 777;

/// Values as a damaged or hostile file may hold them: small, usual, huge, or all bits set.
class Hostile {
  public:
    explicit Hostile(uint64_t seed) : random_(seed) {}

    uint64_t value() {
        switch (random_() % 8) {
            case 0:
                return 0;
            case 1:
                return UINT64_MAX;
            case 2:
                return UINT64_MAX - random_() % 1'000;
            default:
                return random_() >> (random_() % 64);
        }
    }

    Event event() {
        Event event;
        event.sequence = random_() % 16 ? ++sequence_ : value();
        event.start_ns = random_() % 4 ? random_() % (100 * second) : value();
        event.duration_ns = value();
        event.runnable_ns = value();
        event.preempted_ns = value();
        event.blocked_ns = value();
        event.longest_sleep_ns = value();
        event.preemptor_ns = value();
        event.last_wait_ns = random_() % 4 ? value() : 0;
        event.last_runnable_ns = value();
        event.tail_ns = random_() % 2 ? random_() % 1'000 : value();
        event.last_reason = static_cast<BlockedReason>(random_() % 16);
        event.args = {random_() % 4 ? random_() % 64 : value(), value(), value()};
        event.stream = random_() % 4 ? random_() % 3 : value();
        event.process_start_ns = random_() % 8 ? 1 : value();
        event.tgid = static_cast<uint32_t>(random_() % 8 ? 100 : value());
        event.tid = static_cast<uint32_t>(random_() % 8 ? 100 : value());
        event.cpu = static_cast<uint32_t>(value());
        event.preemptor_tgid = static_cast<uint32_t>(value());
        event.waker_tgid = static_cast<uint32_t>(value());
        event.return_code = static_cast<int32_t>(value());
        event.op = random_() % 8 ? all_ops()[random_() % all_ops().size()].id : static_cast<OpId>(value());
        event.depth = random_() % 8 == 0;
        event.flags = static_cast<uint8_t>(random_() % 16 ? 0 : value());
        event.blocked_reason = static_cast<BlockedReason>(random_() % 16 ? random_() % 12 : random_() % 256);
        event.waker_kind = static_cast<WakerKind>(random_() % 16 ? random_() % 3 : random_() % 256);
        for (char& letter : event.preemptor_comm) letter = static_cast<char>(random_() % 8 ? 'a' : random_());
        return event;
    }

  private:
    std::mt19937_64 random_;
    uint64_t sequence_ = 0;
};

TEST(Assign, NeverBlamesANanosecondTwice) {
    Hostile hostile(1);
    std::mt19937_64 random(2);
    for (int round = 0; round < 1'000'000; ++round) {
        const Event event = hostile.event();
        const CallTime time = call_time(event);
        ASSERT_EQ(time.on_cpu_ns + time.runnable_ns + time.blocked_ns, event.duration_ns);
        const Baseline baseline{hostile.value(), hostile.value(), 9};
        const Op* op = find_op(event.op);
        const Assignment assignment = assign(event, time, op, baseline, random() % 2, random() % 2);
        ASSERT_EQ(assignment.excess_ns, saturating_subtract(event.duration_ns, baseline.expected_ns()));
        uint64_t left = assignment.excess_ns;
        for (const uint64_t ns : assignment.ns) {
            ASSERT_LE(ns, left);
            left -= ns;
        }
        ASSERT_LE(assignment.explained_ns(), assignment.excess_ns);
        // No cause gets more than the thread spent that way.
        ASSERT_LE(assignment[Cause::cpu_contention] + assignment[Cause::wake_up] + assignment[Cause::excluded_task],
                  time.runnable_ns);
        const uint64_t way_back_ns =
            std::min({time.runnable_ns, time.blocked_ns, saturating_multiply(event.waits, 200 * us)});
        ASSERT_LE(assignment[Cause::own_io_wait] + assignment[Cause::lock_wait] + assignment[Cause::memory_reclaim],
                  time.blocked_ns + way_back_ns);
    }
}

TEST(Assign, CountsTheWayBackFromASleepAsTheSleepsAndALateWakeUpAsItself) {
    const auto assigned = [](uint64_t runnable_ns, BlockedReason reason, uint64_t blocked_ns = 6 * ms) {
        Event event;
        event.op = launch;
        event.runnable_ns = runnable_ns;
        event.blocked_ns = blocked_ns;
        event.duration_ns = 5 * us + event.runnable_ns + event.blocked_ns;
        event.blocked_reason = reason;
        event.waits = 10;
        const Baseline baseline{5 * us, 0, 9};
        return assign(event, call_time(event), find_op(launch), baseline, false, false);
    };
    const Assignment usual = assigned(ms, BlockedReason::disk);
    EXPECT_EQ(usual[Cause::own_io_wait], 7 * ms);
    EXPECT_EQ(usual[Cause::wake_up], 0u);
    const Assignment late = assigned(5 * ms, BlockedReason::disk);
    EXPECT_EQ(late[Cause::own_io_wait], 8 * ms) << "a fifth of a millisecond each";
    EXPECT_EQ(late[Cause::wake_up], 3 * ms);
    const Assignment short_sleeps = assigned(ms, BlockedReason::futex, 10 * us);
    EXPECT_EQ(short_sleeps[Cause::lock_wait], 20 * us) << "which are not why it had no CPU for so long";
    EXPECT_EQ(short_sleeps[Cause::wake_up], ms - 10 * us);
    const Assignment socket = assigned(ms, BlockedReason::socket);
    EXPECT_EQ(socket[Cause::wake_up], ms) << "nothing is found by it, so nothing is added";
}

TEST(Assign, ExplainsAllOfAnExcessThatIsAllOffTheCpu) {
    std::mt19937_64 random(3);
    for (int round = 0; round < 100'000; ++round) {
        Event event;
        event.op = launch;
        event.runnable_ns = random() % ms;
        event.blocked_ns = random() % ms;
        event.duration_ns = 5 * us + event.runnable_ns + event.blocked_ns;
        event.blocked_reason = BlockedReason::disk;
        event.preemptor_tgid = hog;
        event.preemptor_ns = event.runnable_ns;
        const Baseline baseline{5 * us, 0, 9};
        const Assignment assignment = assign(event, call_time(event), find_op(launch), baseline, false, false);
        ASSERT_EQ(assignment.explained_ns(), event.duration_ns - 5 * us);
        if (event.runnable_ns) {
            ASSERT_EQ(assignment[Cause::cpu_contention], event.runnable_ns);
        }
        ASSERT_EQ(assignment[Cause::own_io_wait], event.blocked_ns);
    }
}

TEST(Explain, HostileRowsGiveBoundedAnswers) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
        MemorySnapshot snapshot(100 * second);
        Hostile hostile(seed);
        for (int row = 0; row < 50'000; ++row) snapshot.add(hostile.event());
        for (uint64_t id = 0; id < 64; ++id) {
            CommunicatorRow row;
            row.process = {id % 4 ? 100u : static_cast<uint32_t>(hostile.value()), id % 8 ? 1 : hostile.value()};
            row.id = id;
            row.hash = id % 5;
            row.rank = static_cast<int32_t>(hostile.value());
            row.ranks = static_cast<uint32_t>(hostile.value());
            snapshot.add(row);
        }
        const uint64_t from = seed % 2 ? 0 : MemorySnapshot::realtime_at_zero_ns;
        const auto explained = explain(snapshot, {{from, UINT64_MAX}, {}, {}});
        ASSERT_TRUE(explained);
        const ExplainAnswer& answer = *explained;
        EXPECT_LE(answer.explained_ns, answer.excess_ns);
        EXPECT_LE(answer.slow_calls.size(), 10u);
        for (const Finding& finding : answer.findings) {
            EXPECT_GE(finding.explained_fraction, 0);
            EXPECT_LE(finding.explained_fraction, 1);
            EXPECT_GE(finding.window_share, 0);
            EXPECT_LE(finding.window_share, 1);
            EXPECT_LE(finding.evidence.size(), 20u);
            EXPECT_LE(finding.culprits.size(), 11u);
            EXPECT_LE(finding.lost_low_ns, finding.lost_ns);
            EXPECT_LE(finding.lost_ns, finding.lost_high_ns);
        }
        for (const SlowCall& call : answer.slow_calls) EXPECT_LE(call.explained_ns, call.excess_ns);
    }
}

}  // namespace
}  // namespace ingero
