// Weeks of load in minutes, by a clock of its own, into a store whose cap it fills ten times over: nothing grows,
// nothing slows down, and the first day can still be told of. With INGERO_LONG=1 it is a month and a thousand million
// events.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "core/query/answers/stats.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

constexpr uint64_t minute = 60'000'000'000;
constexpr uint64_t day = 1'440 * minute;
constexpr size_t batch_rows = 32'768;

struct Load {
    uint64_t events;
    uint64_t length_ns;
    uint64_t cap_bytes;
};

Load load() {
    const char* text = getenv("INGERO_LONG");
    if (text && *text && *text != '0') return {1'000'000'000, 30 * day, 800ULL << 20};
    return {20'000'000, 2 * day, 16ULL << 20};
}

/// On the clock, and of the CPU: what else the machine does is in the first only. A CPU that is shared with others
/// unseen is slower at times, by a half and more: so also by the time of a fixed piece of work right before and after.
struct Took {
    double wall_ms = 0;
    double cpu_ms = 0;
    double pieces = 0;
};

double now_ms(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double piece_ms() {
    // As decoding does, it keeps all of a core busy, which is what another on the same core takes most of.
    [[maybe_unused]] static volatile uint64_t sink;
    const double cpu = now_ms(CLOCK_THREAD_CPUTIME_ID);
    uint64_t sum = 0;
    for (size_t i = 0; i < 100'000; ++i) sum ^= noise(i, 10);
    sink = sum;
    return now_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
}

template <class Run>
Took measure(const Run& run) {
    const double before = piece_ms();
    const double wall = now_ms(CLOCK_MONOTONIC), cpu = now_ms(CLOCK_THREAD_CPUTIME_ID);
    run();
    const double wall_ms = now_ms(CLOCK_MONOTONIC) - wall, cpu_ms = now_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return {wall_ms, cpu_ms, 2 * cpu_ms / (before + piece_ms())};
}

Took median(std::span<const Took> all) {
    const auto middle = [&](double Took::*part) {
        std::vector<double> values;
        for (const Took& took : all) values.push_back(took.*part);
        std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
        return values[values.size() / 2];
    };
    return {middle(&Took::wall_ms), middle(&Took::cpu_ms), middle(&Took::pieces)};
}

/// Other work on the machine makes the wall clock noisy.
void expect_no_slower(const char* what, const Took& first, const Took& last) {
    printf("%s: %.2f ms (CPU %.2f, %.2f pieces), at the end %.2f ms (CPU %.2f, %.2f)\n", what, first.wall_ms,
           first.cpu_ms, first.pieces, last.wall_ms, last.cpu_ms, last.pieces);
    if (std::getenv("INGERO_FULL") == nullptr) return;
    EXPECT_LT(last.pieces, 1.5 * first.pieces) << what;
    EXPECT_LT(last.wall_ms, 4 * first.wall_ms + 20) << what;
}

class AMonth : public testing::Test {
  protected:
    AMonth() : load_(load()), step_ns_(load_.length_ns / load_.events) {
        batch_.events.resize(batch_rows);
        for (size_t i = 0; i < batch_rows; ++i) {
            Event& event = batch_.events[i];
            event.op = static_cast<OpId>(noise(i, 1) % 8 == 0 ? 0x104 : 0x103);
            event.duration_ns = 2'000 + noise(i, 2) % 4'000;
            event.runnable_ns = noise(i, 3) % 16 == 0 ? noise(i, 4) % 2'000 : 0;
            event.args = {noise(i, 5) % 4 * 4'096, noise(i, 9) >> 32, 0};
            event.stream = noise(i, 6) % 4;
            event.process_start_ns = 77;
            event.tgid = 100;
            event.tid = 100 + static_cast<uint32_t>(noise(i, 7) % 4);
            event.stack = 1 + static_cast<uint32_t>(noise(i, 8) % 50);
        }
    }

    /// The next batch; its last rows are as old as the clock.
    const Batch& next() {
        for (size_t i = 0; i < batch_rows; ++i) {
            batch_.events[i].sequence = ++sequence_;
            batch_.events[i].start_ns = begun_.monotonic_ns + sequence_ * step_ns_;
        }
        const uint64_t passed = sequence_ * step_ns_ + minute;
        now_ = {begun_.monotonic_ns + passed, begun_.boottime_ns + passed, begun_.realtime_ns + passed};
        batch_.covered_until_ns = now_.monotonic_ns;
        return batch_;
    }

    StatsAnswer ask(StoreReader& reader, Window realtime) {
        const auto snapshot = reader.snapshot();
        EXPECT_TRUE(snapshot);
        auto answer = compute_stats(**snapshot, {.window = realtime, .uid = {}, .pid = {}});
        EXPECT_TRUE(answer);
        return answer ? std::move(*answer) : StatsAnswer{};
    }

    /// Of 31, for the hour before now.
    Took last_hour(StoreReader& reader) {
        const Window hour{now_.realtime_ns - 60 * minute, now_.realtime_ns};
        std::vector<Took> times;
        for (int i = 0; i < 31; ++i) {
            times.push_back(measure([&] {
                uint64_t calls = 0;
                const StatsAnswer answer = ask(reader, hour);
                for (const OpStats& op : answer.ops) calls += op.count;
                EXPECT_NEAR(static_cast<double>(calls), 59.0 * minute / static_cast<double>(step_ns_), 10);
                EXPECT_TRUE(answer.coverage.complete);
            }));
        }
        return median(times);
    }

    const Load load_;
    const uint64_t step_ns_;
    const ClockTriple begun_{minute, minute, 1'700'000'000'000'000'000};
    ClockTriple now_ = begun_;
    uint64_t sequence_ = 0;
    Batch batch_;
    TemporaryDirectory directory_;
};

TEST_F(AMonth, NeitherGrowsNorSlowsDownAndTellsOfItsFirstDay) {
    StoreOptions options;
    options.max_size_bytes = load_.cap_bytes;
    options.clock = [this] { return now_; };
    const auto writer = open_writer(directory_.path(), options);
    ASSERT_TRUE(writer);
    Session session = make_session("boot-a");
    session.clock = begun_;
    ASSERT_TRUE(writer->begin_session(session));
    writer->set_first_covered(begun_.monotonic_ns);
    auto reader = StoreReader::open(directory_.path());
    ASSERT_TRUE(reader);

    std::vector<Took> commits;  // once the cap was reached
    Took hour_when_full;
    uint64_t written_when_full = 0;
    while (sequence_ < load_.events) {
        const Batch& batch = next();
        const Took took = measure([&] {
            const auto committed = writer->commit(batch);
            ASSERT_TRUE(committed) << committed.error().message;
        });
        ASSERT_LE(std::filesystem::file_size(directory_.data_file()), load_.cap_bytes);
        if (writer->figures().events_dropped_for_space == 0) continue;
        if (commits.empty()) {
            written_when_full = sequence_;
            hour_when_full = last_hour(**reader);
        }
        commits.push_back(took);
    }
    EXPECT_GE(sequence_, 10 * written_when_full) << "the load was too small for the cap";

    const size_t tenth = commits.size() / 10;
    ASSERT_GT(tenth, 10u);
    const std::span all(commits);
    expect_no_slower("a commit", median(all.first(tenth)), median(all.last(tenth)));
    expect_no_slower("the last hour", hour_when_full, last_hour(**reader));

    // Minutes begin where the clock says so: a day from the first on is as many of them as it has.
    const StatsAnswer first_day = ask(**reader, {begun_.realtime_ns, begun_.realtime_ns + day});
    uint64_t calls = 0;
    for (const OpStats& op : first_day.ops) {
        calls += op.count;
        EXPECT_NEAR(static_cast<double>(op.p50_ns), 4'000, 150);
        EXPECT_TRUE(op.approximate);
    }
    EXPECT_EQ(calls, (day - 1) / step_ns_);
    EXPECT_EQ(first_day.ops.size(), 2u);
    ASSERT_EQ(first_day.coverage.gaps.size(), 1u);
    EXPECT_TRUE(first_day.coverage.gaps[0].partial);
}

}  // namespace
}  // namespace ingero
