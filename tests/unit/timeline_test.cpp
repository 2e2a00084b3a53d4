// compute_timeline over rows in memory, and against what going through all calls in order finds.
#include "core/query/answers/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/render/timeline.h"
#include "tests/support/memory_snapshot.h"

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t ms = 1'000'000;
constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t zero = MemorySnapshot::realtime_at_zero_ns;
constexpr OpId launch = op::cudaLaunchKernel;
constexpr OpId copy = op::cudaMemcpy;

Event call(uint64_t start_ns, uint64_t duration_ns, OpId op = launch, uint32_t tid = 100, uint32_t pid = 100) {
    Event event;
    event.op = op;
    event.start_ns = start_ns;
    event.duration_ns = duration_ns;
    event.tgid = pid;
    event.tid = tid;
    event.process_start_ns = pid;
    return event;
}

TimelineAnswer timeline_of(const MemorySnapshot& snapshot, TimelineQuery query = {}) {
    if (query.filter.window.to_ns == 0) query.filter.window = snapshot.whole();
    auto answer = compute_timeline(snapshot, query);
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? *answer : TimelineAnswer{};
}

std::vector<uint64_t> lengths(const std::vector<TimelineGap>& gaps) {
    std::vector<uint64_t> result;
    for (const TimelineGap& gap : gaps) result.push_back(gap.length_ns());
    return result;
}

TEST(Timeline, sums_by_thread_and_stream) {
    MemorySnapshot snapshot(10 * second);
    Event first = call(second, 10 * ms);
    first.runnable_ns = 2 * ms;
    first.blocked_ns = 3 * ms;
    snapshot.add(first);
    Event heavy = call(2 * second, 5 * ms, copy);
    heavy.args[0] = 1'000;
    heavy.stream = 7;
    heavy.weight = 3;
    snapshot.add(heavy);
    snapshot.add(call(3 * second, ms, launch, 101)).stream = unknown_stream;
    snapshot.add(call(3 * second, ms, launch, 100)).depth = 1;  // inside another
    const TimelineAnswer answer = timeline_of(snapshot);
    ASSERT_THAT(answer.threads, SizeIs(2));
    const TimelineThread& busiest = answer.threads[0];
    EXPECT_EQ(busiest.tid, 100u);
    EXPECT_EQ(busiest.calls, 4u);
    EXPECT_EQ(busiest.in_calls_ns, 25 * ms);
    EXPECT_EQ(busiest.runnable_ns, 2 * ms);
    EXPECT_EQ(busiest.blocked_ns, 3 * ms);
    EXPECT_EQ(busiest.first_ns, zero + second);
    EXPECT_EQ(busiest.last_ns, zero + 2 * second + 5 * ms);
    ASSERT_THAT(answer.streams, SizeIs(3));
    EXPECT_EQ(answer.streams[0].stream, 7u);
    EXPECT_EQ(answer.streams[0].copies, 3u);
    EXPECT_EQ(answer.streams[0].bytes_copied, 3'000u);
    EXPECT_EQ(answer.streams[1].launches, 1u);
    EXPECT_EQ(answer.streams[2].stream, std::nullopt);
    EXPECT_EQ(answer.all_calls, 5u);
    EXPECT_EQ(answer.all_threads, 2u);
    EXPECT_THAT(answer.calls, SizeIs(3));
}

TEST(Timeline, tells_work_from_waiting_in_a_gap_only_where_waits_were_recorded) {
    MemorySnapshot snapshot(100 * second);
    for (const uint32_t tid : {100U, 101U}) {
        snapshot.add(call(10 * second, second, copy, tid));
        snapshot.add(call(20 * second, second, launch, tid));
    }
    // Of the first thread: one wait that reaches into the gap, one in it, one elsewhere; a second thread has none.
    for (const auto& [from, length] : std::map<uint64_t, uint64_t>{{10, 2}, {15, 3}, {30, 5}})
        snapshot.add(call(from * second, length * second, op_wait));
    const TimelineAnswer answer = timeline_of(snapshot);
    ASSERT_THAT(answer.gaps, SizeIs(2));
    for (const TimelineGap& gap : answer.gaps) {
        EXPECT_EQ(gap.from_ns, zero + 11 * second);
        EXPECT_EQ(gap.to_ns, zero + 20 * second);
        EXPECT_EQ(gap.after, copy);
        EXPECT_EQ(gap.before, launch);
        EXPECT_EQ(gap.off_cpu_ns, gap.tid == 100 ? std::optional(4 * second) : std::nullopt);
    }
    const nlohmann::json told = to_json(answer, {}, {});
    for (const auto& gap : told["gaps"]) {
        EXPECT_EQ(gap["on_cpu_at_most_ns"], gap["tid"] == 100 ? nlohmann::json(5 * second) : nlohmann::json());
        EXPECT_EQ(gap["off_cpu_recorded_ns"].is_null(), gap["tid"] == 101);
    }
}

TEST(Timeline, sees_no_gap_where_a_long_call_reaches_over_short_ones) {
    MemorySnapshot snapshot(100 * second);
    snapshot.add(call(10 * second, 50 * second));
    snapshot.add(call(20 * second, ms));  // as an imported trace may have it
    snapshot.add(call(70 * second, ms));
    EXPECT_THAT(lengths(timeline_of(snapshot).gaps), ElementsAre(10 * second));
}

TEST(Timeline, gives_calls_in_order_and_in_pages) {
    MemorySnapshot snapshot(100 * second);
    for (uint64_t i = 0; i < 50; ++i) snapshot.add(call(second + i * second, (i * 37 % 50 + 1) * ms));
    std::vector<uint64_t> starts, durations;
    for (size_t before = 0; before < 50; before += 7) {
        for (const TimelineCall& one : timeline_of(snapshot, {.filter = {}, .calls = 7, .calls_before = before}).calls)
            starts.push_back(one.start_realtime_ns - zero);
        for (const TimelineCall& one :
             timeline_of(snapshot, {.filter = {}, .longest_first = true, .calls = 7, .calls_before = before}).calls)
            durations.push_back(one.event.duration_ns);
    }
    EXPECT_THAT(starts, SizeIs(50));
    EXPECT_TRUE(std::is_sorted(starts.begin(), starts.end()));
    EXPECT_THAT(durations, SizeIs(50));
    EXPECT_TRUE(std::is_sorted(durations.rbegin(), durations.rend()));
    EXPECT_EQ(durations.front(), 50 * ms);
    EXPECT_THAT(timeline_of(snapshot, {.filter = {}, .calls_before = 60}).calls, IsEmpty());
}

TEST(Timeline, shows_only_what_the_caller_may_see) {
    MemorySnapshot snapshot(100 * second);
    Process process;
    process.key = {100, 100};
    process.uid = 1'000;
    snapshot.add(process);
    for (const uint32_t pid : {100U, 200U})
        for (const uint64_t at : {10U, 50U}) snapshot.add(call(at * second, ms, launch, pid, pid));
    TimelineQuery query;
    query.filter.uid = 1'000;
    const TimelineAnswer theirs = timeline_of(snapshot, query);
    ASSERT_THAT(theirs.threads, SizeIs(1));
    EXPECT_EQ(theirs.threads[0].process.pid, 100u);
    EXPECT_THAT(theirs.gaps, SizeIs(1));
    EXPECT_THAT(theirs.calls, SizeIs(2));
    query.filter.uid = 1'001;
    EXPECT_THAT(timeline_of(snapshot, query).threads, IsEmpty());
    EXPECT_THAT(timeline_of(snapshot, {.filter = {.window = {}, .uid = {}, .pid = 200}}).threads, SizeIs(1));
}

/// As one finds them with all calls at hand.
std::vector<uint64_t> all_gaps(std::map<uint32_t, std::vector<std::pair<uint64_t, uint64_t>>> calls) {
    std::vector<uint64_t> result;
    for (auto& [tid, list] : calls) {
        std::sort(list.begin(), list.end());
        uint64_t end = list.front().first;
        for (const auto& [start, stop] : list) {
            if (start > end) result.push_back(start - end);
            end = std::max(end, stop);
        }
    }
    std::sort(result.rbegin(), result.rend());
    return result;
}

TEST(Timeline, finds_the_longest_gaps_of_any_calls) {
    for (unsigned seed = 1; seed <= 40; ++seed) {
        std::mt19937 random(seed);
        MemorySnapshot snapshot(100 * second);
        std::map<uint32_t, std::vector<std::pair<uint64_t, uint64_t>>> calls;
        const size_t count = 2 + random() % 3'000;
        for (size_t i = 0; i < count; ++i) {
            const uint32_t tid = 100 + random() % 3;
            const uint64_t start = second + random() % (90 * second);
            const uint64_t length = random() % 10 == 0 ? random() % (3 * second) : random() % (20 * ms);
            snapshot.add(call(start, length, launch, tid));
            calls[tid].emplace_back(start, start + length);
        }
        const TimelineAnswer answer = timeline_of(snapshot);
        auto expected = all_gaps(calls);
        expected.resize(std::min<size_t>(expected.size(), 8));
        // Shorter ones than the floor may be missing.
        std::erase_if(expected, [&](uint64_t gap) { return gap < answer.gap_floor_ns; });
        auto found = lengths(answer.gaps);
        ASSERT_GE(found.size(), expected.size()) << "seed " << seed;
        found.resize(expected.size());
        EXPECT_EQ(found, expected) << "seed " << seed;
    }
}

TEST(Timeline, survives_calls_that_no_clock_made) {
    MemorySnapshot snapshot(100 * second);
    constexpr uint64_t most = std::numeric_limits<uint64_t>::max();
    for (const uint64_t start : {uint64_t{0}, second, most - 1, most})
        for (const uint64_t length : {uint64_t{0}, second, most}) {
            Event event = call(start, length);
            event.weight = 0xffff'ffff;
            event.runnable_ns = event.blocked_ns = most;
            event.args[0] = most;
            snapshot.add(event);
            event.op = op_wait;
            snapshot.add(event);
        }
    EXPECT_FALSE(timeline_of(snapshot).threads.empty());
}

}  // namespace
}  // namespace ingero
