// The published traces, imported unchanged: what must come out of them. Read from INGERO_TRACES, in the environment or
// as the build was told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <map>
#include <tuple>

#include "core/diagnosis/explain.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "test_paths.h"
#include "tests/unit/trace_fixture.h"

namespace ingero {
namespace {

std::string traces_directory() {
    const char* named = std::getenv("INGERO_TRACES");
    return named && *named ? named : INGERO_TRACES;
}

class RealTrace : public testing::Test {
  protected:
    /// Imports it, or skips.
    void open(const std::string& name) {
        path_ = traces_directory() + "/" + name;
        if (traces_directory().empty() || !std::filesystem::exists(path_))
            GTEST_SKIP() << "SKIPPED: no " << name << " in the directory INGERO_TRACES names";
        std::filesystem::copy_file(path_, folder_.trace());
        const std::string before = read_file(folder_.trace());
        // Of the processor: how long the disk takes is not the import's, and others may be at it.
        const std::clock_t began = std::clock();
        const auto imported = folder_.import();
        const double took_s = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
        ASSERT_TRUE(imported) << imported.error().message;
        summary_ = *imported;
        EXPECT_LT(took_s, 2);
        EXPECT_EQ(read_file(folder_.trace()), before);
        EXPECT_THAT(folder_.names_beside_trace(), testing::ElementsAre("trace.db"));
        const std::string store = folder_.store_bytes();
        const auto again = folder_.import();
        ASSERT_TRUE(again);
        EXPECT_TRUE(again->already_there);
        EXPECT_EQ(folder_.store_bytes(), store);
        compare_with_database();
    }

    /// Each op and process: number, sum, percentiles by nearest rank, largest, as SQLite gives them.
    void compare_with_database() {
        using Key = std::tuple<OpId, uint32_t>;
        std::map<Key, std::vector<uint64_t>> expected;
        sqlite3* database = nullptr;
        ASSERT_EQ(sqlite3_open_v2(("file:" + path_ + "?immutable=1").c_str(), &database,
                                  SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr),
                  SQLITE_OK);
        sqlite3_stmt* rows = nullptr;
        ASSERT_EQ(sqlite3_prepare_v2(database, "SELECT source*256+op, pid, duration FROM events ORDER BY duration", -1,
                                     &rows, nullptr),
                  SQLITE_OK);
        while (sqlite3_step(rows) == SQLITE_ROW)
            expected[{static_cast<OpId>(sqlite3_column_int(rows, 0)),
                      static_cast<uint32_t>(sqlite3_column_int64(rows, 1))}]
                .push_back(static_cast<uint64_t>(sqlite3_column_int64(rows, 2)));
        sqlite3_finalize(rows);
        sqlite3_close(database);
        const auto stats = folder_.stats();
        ASSERT_TRUE(stats) << stats.error().message;
        EXPECT_EQ(stats->ops.size(), expected.size());
        for (const OpStats& op : stats->ops) {
            const auto& durations = expected[{op.op, op.pid}];
            ASSERT_EQ(op.count, durations.size()) << op_name(op.op) << " of " << op.pid;
            const auto rank = [&](size_t percent) {
                return durations[std::max<size_t>((durations.size() * percent + 99) / 100, 1) - 1];
            };
            EXPECT_EQ(op.p50_ns, rank(50)) << op_name(op.op);
            EXPECT_EQ(op.p95_ns, rank(95)) << op_name(op.op);
            EXPECT_EQ(op.p99_ns, rank(99)) << op_name(op.op);
            EXPECT_EQ(op.max_ns, durations.back()) << op_name(op.op);
        }
    }

    OpStats stats_of(const std::string& name) {
        const auto stats = folder_.stats();
        OpStats sum;
        for (const OpStats& op : stats->ops) {
            if (op_name(op.op) != name) continue;
            EXPECT_EQ(sum.count, 0u) << "of one process only";
            sum = op;
        }
        return sum;
    }
    uint64_t count_of(const std::string& name) {
        const auto stats = folder_.stats();
        uint64_t count = 0;
        for (const OpStats& op : stats->ops) count += op_name(op.op) == name ? op.count : 0;
        return count;
    }

    std::string path_;
    test::TraceFolder folder_;
    ImportSummary summary_;
};

double rounded_us(uint64_t ns) {
    return std::round(static_cast<double>(ns) / 100) / 10;
}

TEST_F(RealTrace, VllmHasItsLaunchesExactly) {
    open("vllm-37343-logprobs-amplification.db");
    if (IsSkipped()) return;
    EXPECT_EQ(summary_.events, 10'869u);
    EXPECT_EQ(summary_.unreadable, 0u);
    EXPECT_EQ(summary_.stacks, 110u);
    const OpStats launch = stats_of("cudaLaunchKernel");
    EXPECT_EQ(launch.count, 550u);
    EXPECT_EQ(rounded_us(launch.p50_ns), 20.3);
    EXPECT_EQ(rounded_us(launch.p99_ns), 5'079.4);
    EXPECT_EQ(rounded_us(launch.max_ns), 70'847.6);
    EXPECT_EQ(count_of("sched_switch"), 7'757u);
    EXPECT_EQ(count_of("net_recv"), 63u);
}

TEST_F(RealTrace, OneLaunchOfVllmWasOffTheCpu) {
    open("vllm-37343-logprobs-amplification.db");
    if (IsSkipped()) return;
    std::vector<Event> off;
    for (const Event& event : folder_.events()) {
        const bool launch = event.op == op::cudaLaunchKernel;
        if (launch && event.duration_ns > 1'000'000 && event.blocked_ns * 2 > event.duration_ns) off.push_back(event);
    }
    ASSERT_EQ(off.size(), 1u);
    EXPECT_EQ(rounded_us(off[0].duration_ns), 3'005.0);
    EXPECT_NEAR(static_cast<double>(off[0].blocked_ns) / static_cast<double>(off[0].duration_ns), 0.902, 0.001);
}

TEST_F(RealTrace, TheSlowLaunchesOfVllmAreFirstUses) {
    open("vllm-37343-logprobs-amplification.db");
    if (IsSkipped()) return;
    const auto snapshot = folder_.snapshot();
    const auto answer = explain(*snapshot, {.window = whole_trace(*snapshot), .uid = {}, .pid = {}});
    ASSERT_TRUE(answer) << answer.error().message;
    ASSERT_EQ(answer->findings.size(), 1u) << answer->summary;
    const Finding& finding = answer->findings[0];
    EXPECT_EQ(finding.kind, "cold-start");
    EXPECT_EQ(finding.pid, 72'801u);
    EXPECT_EQ(finding.verdict, Verdict::proven);
    // It calls no CUDA.
    for (const Culprit& culprit : finding.culprits) EXPECT_NE(culprit.pid, 72'783u) << culprit.name;
    // 81 launches of more than 100 us take 155.7 ms, 14 of them first uses with 142.6 ms.
    EXPECT_GE(static_cast<double>(finding.culprits[0].ns), 0.9 * 155.7e6);
    EXPECT_LE(static_cast<double>(finding.culprits[0].ns), 142.6e6);
    double scheduler = 0;
    for (const RejectedHypothesis& one : answer->rejected)
        if (one.hypothesis.starts_with("cpu-contention") || one.hypothesis == "wake-up latency")
            scheduler += static_cast<double>(one.ns);
    EXPECT_LE(scheduler, 0.03 * 155.7e6);
}

TEST_F(RealTrace, TheDataLoaderStarvesTheDeviceByItsOwnWorkAndHasOneFindingOfFirstUse) {
    open("pytorch-dataloader-starvation.db");
    if (IsSkipped()) return;
    const auto snapshot = folder_.snapshot();
    const auto answer = explain(*snapshot, {.window = whole_trace(*snapshot), .uid = {}, .pid = {}});
    ASSERT_TRUE(answer) << answer.error().message;
    ASSERT_EQ(answer->findings.size(), 2u) << answer->summary;
    const Finding& starvation = answer->findings[0];
    EXPECT_EQ(starvation.kind, "data-starvation");
    EXPECT_EQ(starvation.verdict, Verdict::proven);
    EXPECT_EQ(starvation.severity, Severity::high);
    // The slow phase is 49.6 s. When the kernels of its first batch ended is not known: 6.4 s of it are not told.
    EXPECT_NEAR(static_cast<double>(starvation.lost_ns), 43.2e9, 0.2e9);
    ASSERT_FALSE(starvation.culprits.empty());
    EXPECT_EQ(starvation.culprits[0].name, "python3, on the CPU between its calls");
    EXPECT_GE(static_cast<double>(starvation.culprits[0].ns), 0.99 * static_cast<double>(starvation.lost_ns));
    EXPECT_GE(starvation.explained_fraction, 0.98);
    for (const RejectedHypothesis& one : starvation.rejected)
        if (one.hypothesis.starts_with("cpu-contention") || one.hypothesis.starts_with("no CPU")) {
            EXPECT_EQ(one.ns, 0u) << one.hypothesis;
        }
    EXPECT_EQ(answer->findings[1].kind, "cold-start");
    EXPECT_NEAR(static_cast<double>(answer->findings[1].worst.event.duration_ns), 25.8e6, 0.1e6);
}

TEST_F(RealTrace, TheDataLoaderHasNoOffCpuTimeInACall) {
    open("pytorch-dataloader-starvation.db");
    if (IsSkipped()) return;
    EXPECT_EQ(summary_.events, 3'807u);
    EXPECT_EQ(summary_.unreadable, 0u);
    EXPECT_EQ(summary_.stacks, 21u);
    EXPECT_EQ(summary_.chains, 316u);
    EXPECT_EQ(summary_.snapshots, 40u);
    EXPECT_EQ(summary_.left_out, (std::map<std::string, uint64_t>{{"cgroup_schedstat", 217}}));
    uint64_t calls = summary_.events;
    const auto rollups = folder_.snapshot()->rollups(0, {0, UINT64_MAX});
    ASSERT_TRUE(rollups);
    for (const RollupRow& row : *rollups) calls += row.calls;
    EXPECT_EQ(calls, 1'623'496u) << "what the agent counted";
    EXPECT_EQ(count_of("sched_switch"), 3'676u);
    EXPECT_EQ(stats_of("cudaLaunchKernel").count, 16u);
    for (const Event& event : folder_.events()) {
        if (is_call(event.op)) {
            EXPECT_EQ(event.blocked_ns, 0u) << op_name(event.op);
        }
    }
}

TEST_F(RealTrace, NodeOneReadsItsDisk) {
    open("sample-gpu-node-01.db");
    if (IsSkipped()) return;
    EXPECT_EQ(summary_.events, 200u);
    ASSERT_EQ(summary_.nodes.size(), 1u);
    EXPECT_EQ(summary_.nodes[0].name, "gpu-node-01");
    EXPECT_EQ(summary_.unused_stacks, 8u);
    EXPECT_EQ(count_of("sched_switch"), 99u);
    EXPECT_EQ(count_of("block_read"), 98u);
    EXPECT_EQ(count_of("block_write"), 3u);
    // What it waited for are its own reads, not another task.
    uint64_t off_cpu_ns = 0, disk_ns = 0;
    for (const Event& event : folder_.events()) {
        if (event.op != op_wait) continue;
        off_cpu_ns += event.duration_ns;
        disk_ns += event.blocked_reason == BlockedReason::disk ? event.blocked_ns : 0;
    }
    EXPECT_GT(disk_ns, off_cpu_ns * 95 / 100);
}

TEST_F(RealTrace, NodeTwoSleepsAndHasNoFinding) {
    open("sample-gpu-node-02.db");
    if (IsSkipped()) return;
    EXPECT_EQ(summary_.events, 200u);
    EXPECT_EQ(summary_.nodes[0].name, "gpu-node-02");
    EXPECT_EQ(count_of("sched_switch"), 62u);
    EXPECT_EQ(count_of("cuMemAlloc"), 40u);
    EXPECT_EQ(count_of("block_write"), 98u);
    const auto snapshot = folder_.snapshot();
    const auto answer = explain(*snapshot, {.window = whole_trace(*snapshot), .uid = {}, .pid = {}});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(answer->findings.empty()) << answer->findings[0].summary;
}

}  // namespace
}  // namespace ingero
