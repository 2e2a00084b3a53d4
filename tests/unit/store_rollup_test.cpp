// Rollups: what the store keeps of calls that have gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lmdb.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "core/model/call_time.h"
#include "core/query/answers/stats.h"
#include "core/store/rows/rows.h"
#include "tests/unit/history_fixture.h"

namespace ingero {
namespace {

struct Sums {
    uint64_t calls = 0, errors = 0, total_ns = 0, on_cpu_ns = 0, runnable_ns = 0, blocked_ns = 0, sketched = 0;
    bool operator==(const Sums&) const = default;
};
using SumsByOp = std::map<OpId, Sums>;

void add(SumsByOp& sums, const std::vector<Event>& events) {
    for (const Event& event : events) {
        const CallTime time = call_time(event);
        Sums& sum = sums[event.op];
        sum.calls += event.weight;
        sum.errors += event.return_code != 0 ? event.weight : 0;
        sum.total_ns += time.duration_ns * event.times();
        sum.on_cpu_ns += time.on_cpu_ns * event.times();
        sum.runnable_ns += time.runnable_ns * event.times();
        sum.blocked_ns += time.blocked_ns * event.times();
        sum.sketched += event.weight;
    }
}

/// Of rollups and rows together.
SumsByOp stored_sums(const StoreSnapshot& snapshot) {
    SumsByOp sums;
    const auto events = scan_all(snapshot);
    EXPECT_TRUE(events);
    add(sums, *events);
    const auto rollups = snapshot.rollups(0, everything);
    EXPECT_TRUE(rollups) << rollups.error().message;
    for (const RollupRow& row : *rollups) {
        Sums& sum = sums[row.op];
        sum.calls += row.calls;
        sum.errors += row.errors;
        sum.total_ns += row.total_ns;
        sum.on_cpu_ns += row.on_cpu_ns;
        sum.runnable_ns += row.runnable_ns;
        sum.blocked_ns += row.blocked_ns;
        sum.sketched += row.durations.count();
    }
    return sums;
}

class ARollup : public AHistory {
  protected:
    Batch next_batch(size_t count = 8'192, uint64_t step_ns = second / 100) {
        Batch batch;
        batch.events = usual_events(next_, count, now_.monotonic_ns, step_ns);
        next_ += count;
        pass(count * step_ns);
        batch.covered_until_ns = now_.monotonic_ns;
        return batch;
    }

    void fill_twice(StoreWriter& writer, SumsByOp& sums) {
        while (writer.figures().events_dropped_for_space < 1'000'000) {
            const Batch batch = next_batch();
            add(sums, batch.events);
            commit(writer, batch);
            ASSERT_TRUE(writer.tidy());
        }
    }

    uint64_t next_ = 1;
};

TEST_F(ARollup, AndTheRowsThatAreLeftCountEachCallOnce) {
    const auto writer = start();
    SumsByOp sums;
    fill_twice(*writer, sums);
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_EQ(stored_sums(*snapshot), sums);
    const auto rollups = snapshot->rollups(0, everything);
    EXPECT_EQ(rollups->front().minute_ns, minute);
    for (const RollupRow& row : *rollups) ASSERT_EQ(row.minute_ns % minute, 0u);
    const Session& session = snapshot->sessions().front();
    EXPECT_EQ(session.rolled_up_from_ns, minute);
    EXPECT_GT(session.first_covered_ns, minute + 1'000'000 * (second / 100));
}

TEST_F(ARollup, HasTheQuantilesOfItsCallsWithinItsAccuracy) {
    const auto writer = start();
    std::map<std::pair<OpId, uint32_t>, std::vector<uint64_t>> durations;
    while (writer->figures().events_dropped_for_space < 50'000) {
        const Batch batch = next_batch();
        for (const Event& event : batch.events)
            if (event.start_ns < 2 * minute)
                durations[{event.op, event.tgid}].insert(durations[{event.op, event.tgid}].end(), event.weight,
                                                         event.duration_ns);
        commit(*writer, batch);
    }
    const auto rows = open_snapshot(directory_.path())->rollups(0, {minute, 2 * minute});
    ASSERT_TRUE(rows);
    ASSERT_EQ(rows->size(), durations.size());
    for (const RollupRow& row : *rows) {
        auto& values = durations.at({row.op, row.process.pid});
        std::sort(values.begin(), values.end());
        ASSERT_EQ(row.calls, values.size());
        EXPECT_EQ(row.max_ns, values.back());
        for (const uint64_t percent : {1, 50, 95, 99}) {
            const uint64_t rank = (values.size() * percent + 99) / 100;
            const auto exact = static_cast<double>(values[rank - 1]);
            EXPECT_NEAR(static_cast<double>(row.durations.value_at_rank(rank)), exact, exact * 0.008);
        }
    }
}

TEST_F(ARollup, IsRightAfterTheWriterWasKilled) {
    // No more in all than rollups have room for, should no round be ended before its last batch.
    constexpr int batches_a_round = 20;
    std::mt19937 random(11);
    SumsByOp sums;
    // Full, so that each round rolls rows up.
    for (const auto writer = start(); writer->figures().events_dropped_for_space == 0;) {
        const Batch batch = next_batch();
        add(sums, batch.events);
        commit(*writer, batch);
        ASSERT_TRUE(writer->tidy());
    }
    for (int round = 0; round < 10; ++round) {
        // After some batches, and so far into the next, by the writer's own time: on a machine of any speed.
        const int whole = static_cast<int>(random() % batches_a_round);
        const itimerval end{.it_interval = {},
                            .it_value = {.tv_sec = 0, .tv_usec = static_cast<suseconds_t>(1 + random() % 10'000)}};
        const pid_t child = fork();
        if (child == 0) {
            const auto writer = start();
            for (int count = 0; count < batches_a_round; ++count) {
                if (count == whole) setitimer(ITIMER_PROF, &end, nullptr);  // SIGPROF ends it
                if (!writer->commit(next_batch())) _exit(2);
                if (!writer->tidy()) _exit(3);
            }
            raise(SIGKILL);
        }
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
        const auto snapshot = open_snapshot(directory_.path());
        ASSERT_TRUE(snapshot);
        const uint64_t reached = snapshot->figures().last_sequence;
        while (next_ <= reached) add(sums, next_batch().events);
        ASSERT_EQ(next_, reached + 1);
        const auto kept = snapshot->rollups(0, everything);
        ASSERT_FALSE(kept->empty());
        ASSERT_EQ(kept->front().minute_ns, minute) << "so many that the first had to go";
        ASSERT_EQ(stored_sums(*snapshot), sums) << "round " << round;
    }
}

TEST_F(ARollup, TellsTheProcessesOfACrowdedMinuteTogether) {
    const auto writer = start();
    SumsByOp sums;
    while (writer->figures().events_dropped_for_space < 100'000) {
        Batch batch = next_batch(4'000, 1'000);
        for (Event& event : batch.events) event.tgid = static_cast<uint32_t>(1 + event.sequence);
        add(sums, batch.events);
        commit(*writer, batch);
    }
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_EQ(stored_sums(*snapshot), sums);
    EXPECT_EQ(snapshot->rollups(0, everything)->size(), max_rollup_rows + 5);
}

TEST_F(ARollup, TellsOfLossesAndOfTheUser) {
    const auto writer = start();
    Batch first = next_batch();
    const uint64_t at = first.events.front().start_ns;
    first.losses = {{.from_ns = at, .to_ns = at + second, .op = 0x103, .lost_ring = 5, .thinned = 3},
                    {.from_ns = at + second, .to_ns = at + 2 * second, .op = 0x103, .lost_depth = 1}};
    first.processes = {
        {.key = {10, 77}, .uid = 1'234, .comm = "x", .cgroup = "", .unit = "", .first_seen_ns = 1, .exited_ns = 2}};
    commit(*writer, first);
    SumsByOp sums;
    fill_twice(*writer, sums);
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_TRUE(snapshot->losses(0, everything)->empty());
    uint64_t lost = 0, thinned = 0;
    const auto rollups = snapshot->rollups(0, everything);
    for (const RollupRow& row : *rollups) {
        lost += row.lost;
        thinned += row.thinned;
        if (row.minute_ns == minute && row.process.pid != 0) {
            EXPECT_EQ(row.uid, row.process.pid == 10 ? 1'234 : UINT32_MAX);
        }
    }
    EXPECT_EQ(lost, 6u);
    EXPECT_EQ(thinned, 3u);
}

TEST_F(ARollup, ReplacesCallsThatAreTooOld) {
    options_.max_age_ns = 30 * minute;
    options_.max_rollup_age_ns = 120 * minute;
    const auto writer = start();
    SumsByOp sums;
    for (int round = 0; round < 60; ++round) {
        Batch batch = next_batch(600, second / 10);
        batch.spans = {make_span("r" + std::to_string(round), batch.events.front().start_ns, now_.monotonic_ns)};
        add(sums, batch.events);
        commit(*writer, batch);
    }
    {
        const auto snapshot = open_snapshot(directory_.path());
        EXPECT_EQ(stored_sums(*snapshot), sums);
        EXPECT_NEAR(static_cast<double>(scan_all(*snapshot)->size()), 30 * 600, 2 * 600);
        EXPECT_NEAR(static_cast<double>(snapshot->spans(0, everything)->size()), 30, 2);
        EXPECT_TRUE(snapshot->spans_of("r0", {})->empty());
        EXPECT_EQ(snapshot->spans_of("r59", {})->size(), 1u);
        EXPECT_NEAR(static_cast<double>(snapshot->rollups(0, everything)->back().minute_ns), 31.0 * minute,
                    2.0 * minute);
    }
    EXPECT_EQ(writer->figures().events_dropped_for_space, 0u) << "age is not space";
    for (int round = 0; round < 100; ++round, pass(minute)) commit(*writer, {});
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_TRUE(scan_all(*snapshot)->empty());
    const auto rollups = snapshot->rollups(0, everything);
    ASSERT_FALSE(rollups->empty());
    EXPECT_NEAR(static_cast<double>(rollups->front().minute_ns), static_cast<double>(now_.monotonic_ns - 120 * minute),
                2.0 * minute);
    EXPECT_GE(snapshot->clocks(0, everything)->front().clock.monotonic_ns, rollups->front().minute_ns - minute);
    EXPECT_LE(snapshot->sessions().front().rolled_up_from_ns, rollups->front().minute_ns);
    EXPECT_GT(snapshot->sessions().front().rolled_up_from_ns, rollups->front().minute_ns - 2 * minute);
}

TEST_F(ARollup, OfEarlierBootsAgesByTheWallClock) {
    options_.max_age_ns = 30 * minute;
    options_.max_rollup_age_ns = 60 * minute;
    {
        const auto writer = start("boot-a");
        for (int round = 0; round < 10; ++round) commit(*writer, next_batch(600, second / 10));
    }
    now_.monotonic_ns = now_.boottime_ns = second;
    now_.realtime_ns += 25 * minute;
    const auto writer = start("boot-b");
    commit(*writer, {});
    EXPECT_NEAR(static_cast<double>(scan_all(*open_snapshot(directory_.path()))->size()), 5 * 600, 600);
    pass(10 * minute);
    commit(*writer, {});
    EXPECT_TRUE(scan_all(*open_snapshot(directory_.path()))->empty());
    EXPECT_EQ(open_snapshot(directory_.path())->rollups(0, everything)->size(), 10u * 15);
    pass(60 * minute);
    commit(*writer, {});
    const auto snapshot = open_snapshot(directory_.path());
    EXPECT_TRUE(snapshot->rollups(0, everything)->empty());
    ASSERT_EQ(snapshot->sessions().size(), 1u) << "nothing tells of the first session any more";
    EXPECT_EQ(snapshot->sessions().front().boot_id, "boot-b");
}

TEST_F(ARollup, AnswersStatisticsOfCallsThatHaveGone) {
    const ClockTriple begun = now_;
    const auto writer = start();
    SumsByOp all, early;
    std::map<OpId, std::vector<uint64_t>> durations;
    while (writer->figures().events_dropped_for_space < 500'000) {
        Batch batch = next_batch();
        add(all, batch.events);
        commit(*writer, batch);
        std::erase_if(batch.events, [](const Event& event) { return event.start_ns >= 11 * minute; });
        add(early, batch.events);
        for (const Event& event : batch.events)
            durations[event.op].insert(durations[event.op].end(), event.weight, event.duration_ns);
    }
    const auto snapshot = open_snapshot(directory_.path());
    const auto stats = [&](Window realtime, Filter filter = {}, const StatsOptions& options = {}) {
        filter.window = realtime;
        auto answer = compute_stats(*snapshot, filter, options);
        EXPECT_TRUE(answer);
        return answer ? std::move(*answer) : StatsAnswer{};
    };
    const auto sums = [](const StatsAnswer& answer) {
        SumsByOp result;
        for (const OpStats& op : answer.ops) {
            Sums& sum = result[op.op];
            sum.calls += op.count;
            sum.sketched += op.count;
            sum.errors += op.errors;
            sum.total_ns += op.total_ns;
            sum.on_cpu_ns += op.on_cpu_ns + op.device_wait_ns;
            sum.runnable_ns += op.runnable_ns;
            sum.blocked_ns += op.blocked_ns;
        }
        return result;
    };
    const uint64_t wall = begun.realtime_ns;
    const Window first_minutes{wall, wall + 10 * minute};
    const StatsAnswer gone = stats(first_minutes);
    EXPECT_EQ(sums(gone), early);
    EXPECT_FALSE(gone.coverage.complete);
    ASSERT_EQ(gone.coverage.gaps.size(), 1u);
    EXPECT_TRUE(gone.coverage.gaps[0].partial);
    EXPECT_EQ(gone.coverage.gaps[0].reason, "rolled-up: whole minutes");
    EXPECT_EQ(gone.coverage.gaps[0].to_ns, wall + 10 * minute);
    ASSERT_EQ(gone.ops.size(), 15u);
    for (const OpStats& op : gone.ops) {
        EXPECT_TRUE(op.approximate);
        auto& values = durations.at(op.op);
        std::sort(values.begin(), values.end());
        const auto exact = static_cast<double>(values[(values.size() * 95 + 99) / 100 - 1]);
        EXPECT_NEAR(static_cast<double>(op.p95_ns), exact, exact * 0.03) << "of one process of three";
        EXPECT_LE(op.p99_ns, op.max_ns);
    }
    const StatsAnswer whole = stats({wall - minute, now_.realtime_ns});
    EXPECT_EQ(sums(whole), all) << "rows and rollups together";
    EXPECT_FALSE(whole.coverage.gaps.front().partial) << "before the first record";
    // What is still there in rows alone is answered by them alone.
    const Window rest = whole_trace(*snapshot);
    const StatsAnswer exact = stats(rest);
    EXPECT_TRUE(exact.coverage.gaps.empty());
    uint64_t calls = 0;
    const Session& session = snapshot->sessions().front();
    const auto left = scan_all(*snapshot, 0, {session.first_covered_ns, session.last_covered_ns});
    for (const Event& event : *left) calls += event.weight;
    uint64_t counted = 0;
    for (const OpStats& op : exact.ops) counted += op.count;
    EXPECT_EQ(counted, calls);
    EXPECT_TRUE(stats(first_minutes, {.window = {}, .uid = 5, .pid = {}}).ops.empty()) << "nobody knows whose they are";
    EXPECT_EQ(stats(first_minutes, {.window = {}, .uid = {}, .pid = 11}).ops.size(), 5u);
    const StatsAnswer by_kernel = stats(first_minutes, {}, {.by = StatsBy::kernel});
    EXPECT_TRUE(by_kernel.ops.empty());
    EXPECT_FALSE(by_kernel.coverage.gaps.front().partial);
    const StatsAnswer outermost = stats(first_minutes, {}, {.outermost = true});
    EXPECT_TRUE(outermost.ops.empty()) << "rollups do not know which were inside others";
    EXPECT_FALSE(outermost.coverage.gaps.front().partial);
}

TEST_F(ARollup, NeverTakesMoreThanItsShare) {
    const auto writer = start();
    for (int round = 0; round < 900; ++round) {
        Batch batch = next_batch(2'000, second / 20);
        for (Event& event : batch.events) event.tgid = static_cast<uint32_t>(1 + event.sequence % 900);
        commit(*writer, batch);
        ASSERT_LE(std::filesystem::file_size(directory_.data_file()), cap);
    }
    const auto snapshot = open_snapshot(directory_.path());
    const auto rollups = snapshot->rollups(0, everything);
    ASSERT_TRUE(rollups);
    uint64_t bytes = 0;
    for (const RollupRow& row : *rollups) bytes += encode_row(row).size();
    EXPECT_LT(bytes, cap / 4);
    EXPECT_GT(bytes, cap / 16);
    EXPECT_GT(snapshot->sessions().front().rolled_up_from_ns, 2 * minute) << "the oldest went";
    EXPECT_GT(scan_all(*snapshot)->size(), 100'000u) << "calls keep theirs";
}

}  // namespace
}  // namespace ingero
