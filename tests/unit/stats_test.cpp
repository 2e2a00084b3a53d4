#include "core/query/answers/stats.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "core/model/figures/quantile_sketch.h"
#include "core/model/op.h"
#include "core/query/launch_queue.h"
#include "core/query/sampler.h"
#include "tests/support/memory_snapshot.h"

namespace ingero {
namespace {

constexpr uint64_t us = 1'000;
constexpr uint64_t ms = 1'000'000;
constexpr uint64_t second = 1'000'000'000;
constexpr OpId launch = op::cudaLaunchKernel;
constexpr OpId driver_launch = op::cuLaunchKernel;
constexpr OpId copy = op::cudaMemcpy;
constexpr OpId stream_sync = op::cudaStreamSync;
constexpr OpId device_sync = op::cudaDeviceSync;

Event call(OpId op, uint64_t start_ns, uint64_t duration_ns, uint32_t pid = 100) {
    Event event;
    event.op = op;
    event.start_ns = start_ns;
    event.duration_ns = duration_ns;
    event.tgid = event.tid = pid;
    event.process_start_ns = pid * second;
    return event;
}

Process process(uint32_t pid, uint32_t uid) {
    Process row;
    row.key = {pid, pid * second};
    row.uid = uid;
    row.comm = "program";
    return row;
}

StatsAnswer stats_of(const MemorySnapshot& snapshot, Filter filter = {}) {
    if (filter.window.to_ns == 0) filter.window = snapshot.whole();
    auto answer = compute_stats(snapshot, filter);
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? *answer : StatsAnswer{};
}

const OpStats* find(const StatsAnswer& answer, OpId op, uint32_t pid = 100) {
    for (const OpStats& stats : answer.ops) {
        if (stats.op == op && stats.pid == pid) return &stats;
    }
    return nullptr;
}

/// The definition, literally: the smallest value that at least `percent` of 100 do not exceed.
uint64_t nearest_rank(std::vector<uint64_t> values, double percent) {
    std::sort(values.begin(), values.end());
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(values.size())));
    return values[std::max<size_t>(rank, 1) - 1];
}

TEST(Stats, PercentilesAreExactByNearestRank) {
    for (const size_t count : {1u, 2u, 3u, 19u, 20u, 21u, 99u, 100u, 101u, 550u, 10'000u}) {
        MemorySnapshot snapshot(100 * second);
        std::mt19937_64 random(count);
        std::vector<uint64_t> durations;
        for (size_t i = 0; i < count; ++i) {
            durations.push_back(random() % ms);
            snapshot.add(call(launch, second + i * 10 * us, durations.back()));
        }
        const StatsAnswer answer = stats_of(snapshot);
        const OpStats* stats = find(answer, launch);
        ASSERT_TRUE(stats);
        EXPECT_EQ(stats->count, count);
        EXPECT_EQ(stats->p50_ns, nearest_rank(durations, 50)) << count;
        EXPECT_EQ(stats->p95_ns, nearest_rank(durations, 95)) << count;
        EXPECT_EQ(stats->p99_ns, nearest_rank(durations, 99)) << count;
        EXPECT_EQ(stats->max_ns, *std::max_element(durations.begin(), durations.end()));
    }
}

TEST(Stats, TwoProgramsOfOnePidAreTwoRows) {
    MemorySnapshot snapshot(100 * second);
    Event first = call(launch, second, 10 * us, 100);
    Event second_one = call(launch, 2 * second, 30 * us, 100);
    second_one.process_start_ns += second;
    snapshot.add(first);
    snapshot.add(second_one);
    const StatsAnswer answer = stats_of(snapshot);
    ASSERT_EQ(answer.ops.size(), 2u);
    EXPECT_EQ(answer.ops[0].total_ns, 30 * us);
    EXPECT_EQ(answer.ops[1].total_ns, 10 * us);
}

TEST(Stats, ErrorsAreCountedByCodeAndNoMoreCodesThanAreKept) {
    MemorySnapshot snapshot(100 * second);
    const auto returning = [&](int32_t code) {
        Event event = call(copy, second + snapshot.events().size() * us, us);
        event.return_code = code;
        snapshot.add(event);
    };
    for (const int32_t code : {700, 0, 2, 700}) returning(code);
    EXPECT_EQ(find(stats_of(snapshot), copy)->error_codes, (std::map<int32_t, uint64_t>{{2, 1}, {700, 2}}));
    for (int32_t code = 1'000; code < 1'100; ++code) returning(code);
    returning(2);
    const StatsAnswer answer = stats_of(snapshot);
    const OpStats* stats = find(answer, copy);
    EXPECT_EQ(stats->errors, 104u);
    EXPECT_EQ(stats->error_codes.size(), max_error_codes);
    EXPECT_EQ(stats->error_codes.at(2), 2u);
}

TEST(Stats, ByKernelLaunchesOfOneNameAreOneRowWhateverTheirHandles) {
    MemorySnapshot snapshot(100 * second);
    const auto launched = [&](uint64_t function, uint32_t pid, uint64_t duration) {
        Event event = call(launch, second + snapshot.events().size() * us, duration, pid);
        event.args[0] = function;
        snapshot.add(event);
    };
    snapshot.add(FunctionRow{call(launch, 0, 0, 100).process(), 1, 0, "_Z3addPfi"});
    snapshot.add(FunctionRow{call(launch, 0, 0, 100).process(), 2, 0, "_Z3addPfi"});
    snapshot.add(FunctionRow{call(launch, 0, 0, 200).process(), 1, 0, "plain"});
    for (const uint64_t function : {1, 2, 2, 3}) launched(function, 100, 10 * us);
    launched(1, 200, 5 * us);
    snapshot.add(call(copy, second, 90 * us));
    const auto answer =
        compute_stats(snapshot, {.window = snapshot.whole(), .uid = {}, .pid = {}}, {.by = StatsBy::kernel});
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->ops.size(), 3u);
    EXPECT_EQ(answer->ops[0].kernel, "add(float*, int)");
    EXPECT_EQ(answer->ops[0].count, 3u);
    EXPECT_EQ(answer->ops[0].pid, 100u);
    EXPECT_EQ(answer->ops[1].kernel, "") << "handle 3 has no name";
    EXPECT_EQ(answer->ops[2].kernel, "plain");
    EXPECT_EQ(answer->ops[2].pid, 200u);
}

TEST(Stats, OfOutermostCallsTheTimesAddUp) {
    MemorySnapshot snapshot(100 * second);
    Event inner = call(driver_launch, second + us, 8 * us);
    inner.depth = 1;
    snapshot.add(call(launch, second, 10 * us));
    snapshot.add(inner);
    snapshot.add(call(driver_launch, 2 * second, 5 * us));
    const auto answer =
        compute_stats(snapshot, {.window = snapshot.whole(), .uid = {}, .pid = {}}, {.outermost = true});
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->ops.size(), 2u);
    EXPECT_EQ(find(*answer, launch)->total_ns, 10 * us);
    EXPECT_EQ(find(*answer, driver_launch)->count, 1u);
    EXPECT_EQ(find(*answer, driver_launch)->total_ns, 5 * us);
    EXPECT_EQ(find(stats_of(snapshot), driver_launch)->count, 2u);
}

TEST(Stats, OpsAndProcessesAreKeptApartLargestTotalFirst) {
    MemorySnapshot snapshot(100 * second);
    snapshot.add(call(launch, second, 10 * us, 100));
    snapshot.add(call(launch, second, 30 * us, 200));
    snapshot.add(call(copy, second, 20 * us, 100));
    const StatsAnswer answer = stats_of(snapshot);
    ASSERT_EQ(answer.ops.size(), 3u);
    EXPECT_EQ(answer.ops[0].pid, 200u);
    EXPECT_EQ(answer.ops[1].op, copy);
    EXPECT_EQ(answer.ops[2].total_ns, 10 * us);
}

TEST(Stats, SplitErrorsAndBytesAreSummed) {
    MemorySnapshot snapshot(100 * second);
    for (int i = 0; i < 10; ++i) {
        Event event = call(copy, second + i * ms, 100 * us);
        event.runnable_ns = 20 * us;
        event.blocked_ns = 30 * us;
        event.args[0] = 4'096;
        event.return_code = i == 3 ? 700 : 0;
        snapshot.add(event);
    }
    Event launched = call(launch, second, 100 * us);
    launched.args[0] = 0xffff0000;  // a function, not bytes
    snapshot.add(launched);
    const StatsAnswer answer = stats_of(snapshot);
    const OpStats* stats = find(answer, copy);
    ASSERT_TRUE(stats);
    EXPECT_EQ(stats->errors, 1u);
    EXPECT_EQ(stats->bytes, 9 * 4'096u) << "what failed copied nothing";
    EXPECT_EQ(stats->runnable_ns, 200 * us);
    EXPECT_EQ(stats->blocked_ns, 300 * us);
    EXPECT_EQ(stats->device_wait_ns, 500 * us) << "a blocking copy spins for the device";
    EXPECT_EQ(stats->on_cpu_ns, 0u);
    EXPECT_EQ(find(answer, launch)->bytes, 0u);
    EXPECT_EQ(find(answer, launch)->on_cpu_ns, 100 * us);
    EXPECT_EQ(find(answer, launch)->device_wait_ns, 0u);
}

TEST(Stats, NestedDriverCallsHaveTheirOwnRowAndAreAddedToNothing) {
    MemorySnapshot snapshot(100 * second);
    snapshot.add(call(launch, second, 10 * us));
    Event nested = call(driver_launch, second + us, 8 * us);
    nested.depth = 1;
    snapshot.add(nested);
    const StatsAnswer answer = stats_of(snapshot);
    EXPECT_EQ(find(answer, launch)->total_ns, 10 * us);
    EXPECT_EQ(find(answer, driver_launch)->total_ns, 8 * us);
}

/// 600 launches of 5 µs, then 100 that spin for 105 µs.
void add_launches_into_a_full_queue(MemorySnapshot& snapshot, uint64_t sync_every) {
    uint64_t now = second;
    for (uint64_t i = 0; i < 700; ++i) {
        snapshot.add(call(launch, now, i < 600 ? 5 * us : 105 * us));
        now += 200 * us;
        if (sync_every && i % sync_every == sync_every - 1) {
            snapshot.add(call(device_sync, now, 50 * us));
            now += 100 * us;
        }
    }
}

TEST(Stats, LaunchesThatSpinOnAFullQueueWaitForTheDevice) {
    MemorySnapshot snapshot(100 * second);
    add_launches_into_a_full_queue(snapshot, 0);
    const StatsAnswer answer = stats_of(snapshot);
    const OpStats* stats = find(answer, launch);
    EXPECT_NEAR(static_cast<double>(stats->device_wait_ns), 100.0 * 100 * us, 0.01 * 100 * 100 * us);
    EXPECT_EQ(stats->on_cpu_ns + stats->device_wait_ns, stats->total_ns);
}

TEST(Stats, LaunchesAfterASynchronisationDoNotWaitForTheDevice) {
    MemorySnapshot snapshot(100 * second);
    add_launches_into_a_full_queue(snapshot, 100);
    const StatsAnswer answer = stats_of(snapshot);
    EXPECT_EQ(find(answer, launch)->device_wait_ns, 0u);
}

TEST(LaunchQueues, AreCountedByStreamAndEmptiedByWhatSynchronisesThem) {
    std::vector<Event> block;
    const auto launches = [&](uint64_t stream, size_t count) {
        for (size_t i = 0; i < count; ++i) {
            block.push_back(call(launch, second + block.size() * us, us));
            block.back().stream = stream;
        }
    };
    launches(7, 513);
    launches(8, 1);
    block.push_back(call(stream_sync, second + block.size() * us, us));
    block.back().stream = 8;
    launches(7, 1);
    block.push_back(call(stream_sync, second + block.size() * us, us));
    block.back().stream = 7;
    launches(7, 1);
    LaunchQueues queues;
    const std::vector<uint8_t> full = queues.observe(block);
    EXPECT_EQ(full[511], 0);
    EXPECT_EQ(full[512], 1) << "512 launches precede it";
    EXPECT_EQ(full[513], 0) << "another stream";
    EXPECT_EQ(full[515], 1) << "another stream was synchronised";
    EXPECT_EQ(full[517], 0) << "its stream was synchronised";
}

TEST(LaunchQueues, TakeRowsOfABlockInAnyOrder) {
    std::vector<Event> rows;
    std::mt19937_64 random(1);
    for (uint64_t i = 0; i < 4'000; ++i) {
        rows.push_back(call(i % 900 == 899 ? stream_sync : i % 3 ? launch : driver_launch, second + i * us, us));
        rows.back().sequence = i;
    }
    LaunchQueues in_order;
    const std::vector<uint8_t> expected = in_order.observe(rows);
    EXPECT_GT(std::count(expected.begin(), expected.end(), 1), 1'000);
    for (int round = 0; round < 5; ++round) {
        std::vector<Event> mixed = rows;
        if (round == 0) {
            std::stable_sort(mixed.begin(), mixed.end(), [](const Event& a, const Event& b) { return a.op < b.op; });
        } else {
            std::shuffle(mixed.begin(), mixed.end(), random);
        }
        LaunchQueues queues;
        const std::vector<uint8_t> full = queues.observe(mixed);
        for (size_t row = 0; row < mixed.size(); ++row) ASSERT_EQ(full[row], expected[mixed[row].sequence]);
    }
}

TEST(Stats, AnswersOnlyForTheAskedUser) {
    MemorySnapshot snapshot(100 * second);
    snapshot.add(process(100, 1'000));
    snapshot.add(process(200, 2'000));
    for (const uint32_t pid : {100u, 200u, 300u}) snapshot.add(call(launch, second, 10 * us, pid));
    Event reused = call(launch, second, 10 * us, 100);
    reused.process_start_ns = 1;  // the same pid, another process: nobody knows whose
    snapshot.add(reused);
    EXPECT_EQ(stats_of(snapshot).ops.size(), 4u);
    Filter filter;
    filter.uid = 1'000;
    const StatsAnswer own = stats_of(snapshot, filter);
    ASSERT_EQ(own.ops.size(), 1u);
    EXPECT_EQ(own.ops[0].pid, 100u);
    EXPECT_EQ(own.ops[0].count, 1u);
    filter.uid = 3'000;
    EXPECT_TRUE(stats_of(snapshot, filter).ops.empty());
}

TEST(Stats, AnswersOnlyForTheAskedProcessAndWindow) {
    MemorySnapshot snapshot(100 * second);
    snapshot.add(call(launch, second, 10 * us, 100));
    snapshot.add(call(launch, 50 * second, 10 * us, 100));
    snapshot.add(call(launch, second, 10 * us, 200));
    Filter filter;
    filter.pid = 100;
    EXPECT_EQ(stats_of(snapshot, filter).ops.at(0).count, 2u);
    filter.window = {MemorySnapshot::realtime_at_zero_ns, MemorySnapshot::realtime_at_zero_ns + 2 * second};
    EXPECT_EQ(stats_of(snapshot, filter).ops.at(0).count, 1u);
}

TEST(Stats, LossIsReportedByOp) {
    MemorySnapshot snapshot(100 * second);
    snapshot.add(call(launch, second, 10 * us));
    snapshot.add(call(copy, second, 10 * us));
    LossRow row;
    row.from_ns = second;
    row.to_ns = 2 * second;
    row.op = launch;
    row.lost_ring = 3;
    row.lost_depth = 4;
    snapshot.add(row);
    row.lost_frames = UINT64_MAX;
    row.op = stream_sync;
    snapshot.add(row);
    const StatsAnswer answer = stats_of(snapshot);
    EXPECT_EQ(find(answer, launch)->lost, 7u);
    EXPECT_EQ(find(answer, copy)->lost, 0u);
}

TEST(Stats, ExtremeValuesNeitherWrapNorCrash) {
    MemorySnapshot snapshot(100 * second);
    for (int i = 0; i < 100; ++i) {
        Event event = call(i % 2 ? copy : launch, second, UINT64_MAX - i);
        event.runnable_ns = event.blocked_ns = event.args[0] = UINT64_MAX;
        snapshot.add(event);
    }
    const StatsAnswer answer = stats_of(snapshot);
    EXPECT_EQ(find(answer, copy)->total_ns, UINT64_MAX);
    EXPECT_EQ(find(answer, copy)->bytes, UINT64_MAX);
    EXPECT_EQ(find(answer, launch)->on_cpu_ns, 0u);
}

TEST(Stats, MoreRowsThanAreKeptOneByOneComeOutWithinOnePercent) {
    constexpr uint64_t rows = 4'200'000;
    GeneratedSnapshot snapshot(100 * second, rows, [](uint64_t row, Event& event) {
        event = call(copy, second + row, 1'000 + row);
        event.sequence = row + 1;
    });
    const StatsAnswer answer = stats_of(snapshot);
    const OpStats* stats = find(answer, copy);
    ASSERT_TRUE(stats);
    EXPECT_EQ(stats->count, rows);
    EXPECT_EQ(stats->max_ns, rows + 999);
    EXPECT_NEAR(static_cast<double>(stats->p50_ns), rows * 0.50 + 1'000, rows * 0.50 * 0.01);
    EXPECT_NEAR(static_cast<double>(stats->p99_ns), rows * 0.99 + 1'000, rows * 0.99 * 0.01);
}

/// Of a child that does it, more than it had before.
size_t peak_kib_of(const std::function<bool()>& act) {
    int report[2];
    if (pipe(report) != 0) return SIZE_MAX;
    const pid_t child = fork();
    if (child == 0) {
        rusage before{}, after{};
        getrusage(RUSAGE_SELF, &before);
        const bool done = act();
        getrusage(RUSAGE_SELF, &after);
        const size_t kib = done ? static_cast<size_t>(after.ru_maxrss - before.ru_maxrss) : SIZE_MAX;
        _exit(write(report[1], &kib, sizeof kib) == sizeof kib ? 0 : 1);
    }
    size_t kib = SIZE_MAX;
    close(report[1]);
    if (read(report[0], &kib, sizeof kib) != sizeof kib) kib = SIZE_MAX;
    close(report[0]);
    waitpid(child, nullptr, 0);
    return kib;
}

TEST(Stats, ThousandsOfKindsOfThinnedCallsTakeLittleMemory) {
    constexpr uint32_t kinds = 16'384;
    MemorySnapshot snapshot(100 * second);
    for (uint32_t pid = 1; pid <= kinds; ++pid) {
        Event event = call(pid % 2 ? launch : copy, second, pid * us, pid);
        event.weight = 600;  // of launches enough for the next one to find its stream's queue full
        snapshot.add(event);
        event.start_ns += second;
        snapshot.add(event);
    }
    const size_t kib = peak_kib_of([&] { return stats_of(snapshot).ops.size() == kinds; });
    EXPECT_LT(kib, 128u << 10) << "where a worker has 1 GiB for everything";
}

TEST(Stats, AFailedScanIsAnErrorNotAnEmptyAnswer) {
    MemorySnapshot snapshot(100 * second);
    snapshot.fail_scans({ErrorCode::corrupt, "block 7 is damaged", ""});
    const auto answer = compute_stats(snapshot, {snapshot.whole(), {}, {}});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::corrupt);
}

TEST(Stats, TooManyProcessesAreRefusedWithAHint) {
    MemorySnapshot snapshot(100 * second);
    for (uint32_t pid = 1; pid <= 65'537; ++pid) snapshot.add(call(launch, second, 10 * us, pid));
    const auto answer = compute_stats(snapshot, {snapshot.whole(), {}, {}});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::limit);
    EXPECT_FALSE(answer.error().hint.empty());
}

TEST(QuantileSketch, IsWithinOnePercentAtEveryScale) {
    std::mt19937_64 random(2);
    for (int i = 0; i < 2'000; ++i) {
        const uint64_t value = random() >> (random() % 64);
        QuantileSketch histogram;
        histogram.add(value);
        const double error = std::abs(static_cast<double>(histogram.value_at_rank(1)) - static_cast<double>(value));
        ASSERT_LE(error, 0.01 * static_cast<double>(value)) << value;
    }
    QuantileSketch all;
    std::vector<uint64_t> values;
    for (int i = 0; i < 100'000; ++i) all.add(values.emplace_back(random() % (1ULL << (10 + i % 20))));
    for (const int percent : {1, 50, 95, 99}) {
        const double exact = static_cast<double>(nearest_rank(values, percent));
        EXPECT_NEAR(static_cast<double>(all.value_at_rank(values.size() * percent / 100)), exact, 0.01 * exact);
    }
}

TEST(QuantileSketch, AddsUpWhatValuesHaveOverAFloor) {
    QuantileSketch sketch;
    uint64_t sum = 0;
    for (uint64_t value = 100; value < 100'000; value += 7) {
        sketch.add(value, 3);
        sum += 3 * (value > 20'000 ? value - 20'000 : 0);
    }
    EXPECT_NEAR(static_cast<double>(sketch.sum_above(20'000)), static_cast<double>(sum),
                0.001 * static_cast<double>(sum));
    EXPECT_EQ(sketch.sum_above(200'000), 0u);
    EXPECT_EQ(QuantileSketch().sum_above(0), 0u);
}

TEST(Sampler, KeepsTheSameWhateverTheOrderAndNeverTooMuch) {
    std::vector<uint32_t> hashes;
    for (uint64_t i = 0; i < 100'000; ++i) hashes.push_back(static_cast<uint32_t>(mix_bits(i)));
    const auto sample = [&] {
        Sampler<uint32_t> sampler;
        for (const uint32_t hash : hashes) sampler.add(hash, hash);
        std::vector<uint32_t> kept;
        for (const auto& [value, hash] : sampler.kept()) kept.push_back(value);
        std::sort(kept.begin(), kept.end());
        return kept;
    };
    const std::vector<uint32_t> first = sample();
    EXPECT_GE(first.size(), 150u);
    EXPECT_LE(first.size(), 512u);
    std::reverse(hashes.begin(), hashes.end());
    EXPECT_EQ(sample(), first);
    hashes.assign(10'000, 0);  // a damaged store: all rows with one identity
    EXPECT_LE(sample().size(), 512u);
}

TEST(Sampler, ThatMayKeepFewerLaterKeepsWhatItWouldHaveFromTheStart) {
    const auto sample = [](uint64_t limited_at) {
        Sampler<uint64_t> sampler;
        for (uint64_t i = 0; i < 10'000; ++i) {
            if (i == limited_at) sampler.limit(64);
            sampler.add(static_cast<uint32_t>(mix_bits(i)), i);
        }
        std::vector<uint64_t> kept;
        for (const auto& [value, hash] : sampler.kept()) kept.push_back(value);
        return kept;
    };
    const std::vector<uint64_t> from_the_start = sample(0);
    EXPECT_LT(from_the_start.size(), 64u);
    EXPECT_GE(from_the_start.size(), 16u);
    for (const uint64_t limited_at : {1u, 600u, 9'999u}) EXPECT_EQ(sample(limited_at), from_the_start) << limited_at;
}

}  // namespace
}  // namespace ingero
