// What a late rank did while others waited for it.
#include <gmock/gmock.h>

#include "core/diagnosis/stragglers.h"
#include "core/model/host_event.h"
#include "tests/unit/stragglers_fixture.h"

namespace ingero::test {
namespace {

using testing::SizeIs;

/// For the disk.
Event wait_of(const ProcessKey& process, uint32_t tid, uint64_t start_ns) {
    Event event;
    event.op = op_wait;
    event.tgid = process.pid;
    event.process_start_ns = process.start_ns;
    event.tid = tid;
    event.start_ns = start_ns;
    event.duration_ns = event.blocked_ns = 4 * ms;
    event.blocked_reason = BlockedReason::disk;
    return event;
}

/// What the thread did all the time; empty: various things.
std::string kind_in(const ThreadHistory& history, const ProcessKey& process, uint32_t tid, const Window& time) {
    const auto parts = history.parts(process, tid, time);
    return parts.size() == 1 ? parts[0].kind : std::string();
}

// Requests, of which each has a thread for a moment.
TEST_F(Stragglers, WhereThreadsComeAndGoTheOnesThatWaitStayKnown) {
    ThreadHistory history(1'000 * second);
    const ProcessKey rank = process_of(2);
    const auto wait = [&](uint32_t tid, uint64_t start_ns) { history.take(wait_of(rank, tid, start_ns)); };
    const uint32_t main_tid = rank.pid;
    for (uint32_t i = 0; i < 20'000; ++i) {
        wait(100'000 + i, second + i * 10 * ms);
        wait(main_tid, second + i * 10 * ms);
    }
    const uint64_t last_ns = second + 19'999 * 10 * ms;
    EXPECT_EQ(kind_in(history, rank, main_tid, {last_ns, last_ns + 4 * ms}), "own-io-wait");
    // One that comes back after its rows went: what it did before is not known.
    wait(100'000, last_ns + 10 * ms);
    EXPECT_EQ(kind_in(history, rank, 100'000, {last_ns, last_ns + 10 * ms}), "not-known");
    EXPECT_GT(history.rows(), 2'048u);
    history.forget(rank);
    EXPECT_EQ(history.rows(), 0u);
}

// A thread for each epoch, for hours.
TEST_F(Stragglers, WhatThreadsDidThatCameToAnEndIsForgotten) {
    constexpr uint64_t keep_ns = 30 * second;
    constexpr uint32_t threads = 1'000, each = 2'048;
    ThreadHistory history(keep_ns);
    const ProcessKey rank = process_of(2);
    uint64_t end_ns = 0;
    for (uint32_t thread = 0; thread < threads; ++thread) {
        const uint64_t begin_ns = second + thread * 60 * second;
        for (uint32_t i = 0; i < each; ++i) history.take(wait_of(rank, 100'000 + thread, begin_ns + i * 10 * ms));
        end_ns = begin_ns + (each - 1) * 10 * ms + 4 * ms;
        history.trim(end_ns);
        ASSERT_EQ(history.rows(), each) << thread;
    }
    const uint32_t last = 100'000 + threads - 1;
    EXPECT_EQ(kind_in(history, rank, last, {end_ns - 4 * ms, end_ns}), "own-io-wait");
    const uint64_t now_ns = end_ns + keep_ns + second;
    history.trim(now_ns);
    EXPECT_EQ(history.rows(), 0u);
    EXPECT_EQ(kind_in(history, rank, last, {end_ns - second, end_ns}), "not-known");
    EXPECT_EQ(kind_in(history, rank, last, {end_ns, now_ns}), "own-work") << "it has not waited since";
}

TEST_F(Stragglers, SumsOfShortWaitsAreForgottenWhenTheThreadIsSilent) {
    ThreadHistory history(30 * second);
    constexpr uint32_t sums = 40;
    Event sum = wait_of(process_of(2), process_of(2).pid, second);
    sum.op = op_waits_summed;
    sum.args[1] = second;
    for (uint32_t i = 0; i < sums; ++i, sum.start_ns += second) history.take(sum);
    const uint64_t end_ns = sum.start_ns;
    history.trim(end_ns);
    EXPECT_EQ(history.rows(), sums);
    history.trim(end_ns + 31 * second);
    EXPECT_EQ(history.rows(), 0u);
}

TEST_F(Stragglers, AProcessThatWaitsVeryMuchTakesNoRoomOfOthers) {
    constexpr uint32_t few = 100, threads = 200, each = 2'048;
    ThreadHistory history(1'000 * second);
    const ProcessKey modest = process_of(1), busy = process_of(2);
    for (uint32_t i = 0; i < few; ++i) history.take(wait_of(modest, modest.pid, second + i * 10 * ms));
    for (uint32_t thread = 0; thread < threads; ++thread)
        for (uint32_t i = 0; i < each; ++i) {
            history.take(wait_of(busy, 100'000 + thread, second + i * 10 * ms));
            ASSERT_LE(history.rows(), 262'144u);
        }
    EXPECT_GT(history.rows(), 100'000u);
    const Window first{second, second + 4 * ms};
    EXPECT_EQ(kind_in(history, modest, modest.pid, first), "own-io-wait");
    EXPECT_EQ(kind_in(history, busy, 100'000, first), "not-known") << "the older half of its rows went";
    EXPECT_EQ(kind_in(history, busy, 100'000 + threads - 1, first), "own-io-wait");
    history.forget(busy);
    EXPECT_EQ(history.rows(), few);
    history.forget(modest);
    EXPECT_EQ(history.rows(), 0u);
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

}  // namespace
}  // namespace ingero::test
