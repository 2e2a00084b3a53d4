// Calls that are entered and never returned from: each frame that is left is one loss, and the calls after it are
// right.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <thread>

#include "core/model/op.h"
#include "tests/support/daemon.h"
#include "tests/support/side_by_side.h"

using namespace ingero;
using namespace ingero::test;

namespace {

constexpr OpId launch_host_function = op::cudaLaunchHostFunc;
constexpr OpId driver_launch_host_function = op::cuLaunchHostFunc;

std::map<OpId, uint64_t> left_by_op(const standin::GroundTruth& truth, const SideBySide& trace) {
    std::map<OpId, uint64_t> left;
    for (const standin::Record* record : trace.left) left[*op_of_function(truth.name(*record))]++;
    return left;
}

/// Losses for any other reason fail the test: there is none.
std::map<OpId, uint64_t> lost_frames(const StoreContents& store) {
    std::map<OpId, uint64_t> lost;
    for (const LossRow& row : store.losses) {
        EXPECT_EQ(row.lost_ring, 0u) << op_name(row.op);
        EXPECT_EQ(row.lost_depth, 0u) << op_name(row.op);
        if (row.lost_frames) lost[row.op] += row.lost_frames;
    }
    return lost;
}

const AttachWay ways[] = {{"session", {}}, {"multi", by_uprobe_multi}, {"perf", by_perf_uprobes}};

class LostFrames : public testing::TestWithParam<std::tuple<const char*, AttachWay>> {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        log_ = directory_ / "truth";
    }
    std::string how() const { return std::get<0>(GetParam()); }
    const std::vector<std::string>& options() const { return std::get<1>(GetParam()).options; }

    const TemporaryDirectory directory_;
    std::string log_;
};

std::string name_of(const testing::TestParamInfo<std::tuple<const char*, AttachWay>>& info) {
    std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

class CallsLeftInAThread : public LostFrames {};

TEST_P(CallsLeftInAThread, are_one_loss_a_frame_and_the_next_calls_are_right) {
#if defined(__aarch64__)
    // Unwinding through a return probe reads the kernel's trampoline, which arm64 lets nobody read: the program ends.
    if (how() == "pthread-exit" || how() == "cancel") GTEST_SKIP() << "ends a probed program on arm64";
#endif
    constexpr uint64_t times = 20;
    Daemon daemon(directory_ / "run", options());
    Workload workload({"jump", "--how", how(), "--count", std::to_string(times), "--log", log_});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const auto pid = static_cast<uint32_t>(workload.pid());
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0) << workload.child().errors();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const auto truth = standin::GroundTruth::open(log_);
    ASSERT_TRUE(truth);
    const StoreContents store = read_store(daemon.store());
    const std::vector<Process> rows = rows_of(store, pid);
    ASSERT_EQ(rows.size(), 1u);
    const SideBySide trace = lay_side_by_side(*truth, store.events, rows[0].key);

    const std::map<OpId, uint64_t> expected = {{launch_host_function, times}, {driver_launch_host_function, times}};
    EXPECT_EQ(left_by_op(*truth, trace), expected);
    EXPECT_EQ(lost_frames(store), expected);
    expect_all_the_same(*truth, trace);
    // What the program calls after each, it calls from outside of all calls: told by no frame address.
    size_t after = 0;
    for (const Event& event : trace.events) {
        if (event.op != op::cudaLaunchKernel && event.op != op::cudaStreamSync) continue;
        EXPECT_EQ(event.depth, 0) << op_name(event.op);
        after++;
    }
    EXPECT_EQ(after, 2 * times);
}

INSTANTIATE_TEST_SUITE_P(by, CallsLeftInAThread,
                         testing::Combine(testing::Values("longjmp", "pthread-exit", "cancel", "thread-exit"),
                                          testing::ValuesIn(ways)),
                         name_of);

class CallsInAHandler : public LostFrames {};

// By uprobe multi and perf uprobes the kernel alone decides, and ends the program: `check` tells of it.
TEST_P(CallsInAHandler, on_a_stack_above_are_lost_and_end_nothing) {
    constexpr uint64_t times = 20;
    Daemon daemon(directory_ / "run", options());
    Workload workload({"jump", "--how", how(), "--count", std::to_string(times), "--log", log_});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const auto pid = static_cast<uint32_t>(workload.pid());
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0) << workload.child().errors();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const StoreContents store = read_store(daemon.store());
    const std::vector<Process> rows = rows_of(store, pid);
    ASSERT_EQ(rows.size(), 1u);
    std::map<OpId, uint64_t> seen, lost;
    for (const Event& event : store.events)
        if (event.process() == rows[0].key) seen[event.op]++;
    for (const LossRow& row : store.losses) {
        EXPECT_EQ(row.lost_frames, 0u) << op_name(row.op);
        if (row.lost_depth) lost[row.op] += row.lost_depth;
    }
    EXPECT_EQ(seen[launch_host_function], times);
    EXPECT_EQ(seen[driver_launch_host_function], times);
    // One launch in each handler, and one after it.
    const OpId launch = op::cudaLaunchKernel;
    EXPECT_EQ(seen[launch], times);
    EXPECT_EQ(lost[launch], times);
}

INSTANTIATE_TEST_SUITE_P(by, CallsInAHandler, testing::Combine(testing::Values("signal"), testing::Values(ways[0])),
                         name_of);

class CallsLeftByExec : public LostFrames {};

TEST_P(CallsLeftByExec, are_one_loss_a_frame_and_the_calls_of_the_new_program_are_right) {
    Daemon daemon(directory_ / "run", options());
    Workload workload({"jump", "--how", how(), "--count", "30", "--log", log_});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const auto pid = static_cast<uint32_t>(workload.pid());
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0) << workload.child().errors();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const auto before = standin::GroundTruth::open(log_), after = standin::GroundTruth::open(log_ + ".exec");
    ASSERT_TRUE(before && after);
    const StoreContents store = read_store(daemon.store());
    const std::vector<Process> rows = rows_of(store, pid);
    ASSERT_EQ(rows.size(), 1u) << "another program, and the same process";
    EXPECT_EQ(rows[0].exit_code, 0);

    std::vector<Event> old_events, new_events;
    for (const Event& event : store.events)
        (event.start_ns < after->header().opened.monotonic_ns ? old_events : new_events).push_back(event);
    const SideBySide old_trace = lay_side_by_side(*before, old_events, rows[0].key);
    const SideBySide new_trace = lay_side_by_side(*after, new_events, rows[0].key);
    const std::map<OpId, uint64_t> expected = {{launch_host_function, 1}, {driver_launch_host_function, 1}};
    EXPECT_EQ(left_by_op(*before, old_trace), expected);
    EXPECT_TRUE(left_by_op(*after, new_trace).empty());
    EXPECT_EQ(lost_frames(store), expected);
    expect_all_the_same(*before, old_trace);
    expect_all_the_same(*after, new_trace);
    EXPECT_EQ(std::count_if(new_trace.events.begin(), new_trace.events.end(),
                            [](const Event& event) { return event.depth == 0; }),
              30);
}

INSTANTIATE_TEST_SUITE_P(by, CallsLeftByExec,
                         testing::Combine(testing::Values("exec", "exec-inside"), testing::ValuesIn(ways)), name_of);

class CallsLeftByKill : public LostFrames {};

TEST_P(CallsLeftByKill, are_one_loss_a_frame_and_what_was_called_before_is_there) {
    constexpr size_t threads = 4, calls_before = 5;
    Daemon daemon(directory_ / "run", options());
    // After so many calls of each thread, or as many in all, calls sleep for longer than the test lasts.
    Workload workload({"--threads", std::to_string(threads), "blocked", "--op", "sync", "--us", "0", "--count", "1000",
                       "--gap-us", "0", "--log", log_, "--standin",
                       "at=" + how() + ":" + std::to_string(threads * calls_before + 1) + "+:sleep=600000000"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const auto pid = static_cast<uint32_t>(workload.pid());
    workload.open_gate();
    // How many frames it leaves is how many calls of a thread have begun and not ended: a runtime call, and where it is
    // the driver's that sleeps, that too.
    const size_t frames = how().starts_with("cuda") ? 1 : 2;
    Patience limit;
    const auto inside = [&] {
        const auto truth = standin::GroundTruth::open(log_);
        if (!truth) return false;
        size_t begun = 0, finished = 0;
        for (const standin::Record& record : truth->records()) {
            if (record.start_ns == 0 || truth->name(record) != how()) continue;
            begun++;
            finished += standin::finished(record);
        }
        return begun == threads * (calls_before + 1) && finished == threads * calls_before;
    };
    while (!inside()) {
        ASSERT_TRUE(limit.lasts()) << "its threads do not all sleep";
        std::this_thread::yield();
    }
    workload.child().signal(SIGKILL);
    ASSERT_EQ(workload.finish(), 128 + SIGKILL);
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const auto truth = standin::GroundTruth::open(log_);
    ASSERT_TRUE(truth);
    const StoreContents store = read_store(daemon.store());
    const std::vector<Process> rows = rows_of(store, pid);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].exit_code, SIGKILL);
    const SideBySide trace = lay_side_by_side(*truth, store.events, rows[0].key);
    EXPECT_EQ(trace.left.size(), threads * frames);
    EXPECT_EQ(lost_frames(store), left_by_op(*truth, trace));
    expect_all_the_same(*truth, trace);
}

INSTANTIATE_TEST_SUITE_P(by, CallsLeftByKill,
                         testing::Combine(testing::Values("cudaStreamSynchronize", "cuStreamSynchronize"),
                                          testing::ValuesIn(ways)),
                         name_of);

class CallsBesideTheEnd : public LostFrames {};

TEST_P(CallsBesideTheEnd, of_tracing_are_none_of_them_counted_as_left) {
    Daemon daemon(directory_ / "run", options());
    Workload workload({"calls", "--op", how(), "--count", "100000000", "--rate", "20000"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    const auto calls = [&] {
        uint64_t sum = 0;
        const auto answer = daemon.call("stats", {{"pid", workload.pid()}, {"since_ns", 60'000'000'000}});
        for (const auto& op : answer.at("ops")) sum += op.at("count").get<uint64_t>();
        return sum;
    };
    while (calls() < 1000) ASSERT_FALSE(HasFailure());
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    EXPECT_EQ(lost_frames(read_store(daemon.store())), (std::map<OpId, uint64_t>{}));
}

INSTANTIATE_TEST_SUITE_P(by, CallsBesideTheEnd, testing::Combine(testing::Values("launch"), testing::ValuesIn(ways)),
                         name_of);

}  // namespace
