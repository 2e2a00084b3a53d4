// Programs of many threads and of many processes are followed whole: every call of every thread, as its own process's.
#include <gtest/gtest.h>
#include <signal.h>

#include <iostream>
#include <map>
#include <set>

#include "tests/support/daemon.h"
#include "tests/support/side_by_side.h"

using namespace ingero;
using namespace ingero::test;

namespace {

class ThreadsAndForks : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    /// Traces the workload to its end; its log is then open in truth_.
    StoreContents trace(std::vector<std::string> arguments) {
        const std::string log = directory_ / "truth";
        arguments.insert(arguments.end(), {"--log", log});
        Daemon daemon(directory_ / "run");
        Workload workload(arguments);
        EXPECT_TRUE(daemon.wait_traced(workload.pid()));
        pid_ = static_cast<uint32_t>(workload.pid());
        workload.open_gate();
        EXPECT_EQ(workload.finish(), 0) << workload.child().errors();
        EXPECT_EQ(daemon.stop(), 0) << daemon.process().output();
        truth_ = standin::GroundTruth::open(log);
        EXPECT_TRUE(truth_);
        return read_store(daemon.store());  // each call of the log is looked for in it
    }

    const TemporaryDirectory directory_;
    std::optional<standin::GroundTruth> truth_;
    uint32_t pid_ = 0;
};

TEST_F(ThreadsAndForks, a_program_of_500_threads_is_one_process_whose_threads_are_followed_whole) {
    const unsigned threads = emulated() ? 50 : 500;
    const StoreContents store = trace({"--threads", std::to_string(threads), "calls", "--op", "mixed", "--count",
                                       std::to_string(40 * threads), "--rate", "20000"});
    ASSERT_TRUE(truth_);
    const std::vector<Process> rows = rows_of(store, pid_);
    ASSERT_EQ(rows.size(), 1u);
    const SideBySide trace = lay_side_by_side(*truth_, store.events, rows[0].key);
    ASSERT_GE(trace.calls.size(), 2u * 40 * threads);
    expect_all_the_same(*truth_, trace);

    std::map<uint32_t, size_t> outermost;
    uint64_t last_end_ns = 0;
    for (const Event& event : trace.events) {
        outermost[event.tid] += event.depth == 0;
        last_end_ns = std::max(last_end_ns, event.end_ns());
    }
    EXPECT_EQ(outermost.size(), threads);
    for (const auto& [tid, calls] : outermost) EXPECT_EQ(calls, 40u) << "thread " << tid;
    for (const Process& row : store.processes)
        EXPECT_TRUE(row.key.pid == pid_ || !outermost.contains(row.key.pid)) << "thread " << row.key.pid;
    for (const Event& event : store.events)
        EXPECT_TRUE(event.tgid == pid_ || !outermost.contains(event.tgid)) << "thread " << event.tgid;
    // Each thread ends with its last call: none of those ends is the process's.
    EXPECT_GE(rows[0].exited_ns, last_end_ns);
    EXPECT_EQ(rows[0].exit_code, 0);
}

TEST_F(ThreadsAndForks, a_program_that_forks_200_workers_is_200_processes_with_their_parent) {
    const unsigned workers = emulated() ? 20 : 200;
    const StoreContents store =
        trace({"--fork", std::to_string(workers), "calls", "--op", "mixed", "--count", "48", "--rate", "500"});
    ASSERT_TRUE(truth_);
    std::set<uint32_t> pids;
    for (const standin::Record& record : truth_->records()) pids.insert(record.pid);
    pids.erase(pid_);
    ASSERT_EQ(pids.size(), workers);

    size_t calls = 0;
    for (const uint32_t pid : pids) {
        const std::vector<Process> rows = rows_of(store, pid);
        ASSERT_EQ(rows.size(), 1u) << "worker " << pid;
        EXPECT_EQ(rows[0].parent_pid, pid_) << "worker " << pid;
        EXPECT_EQ(rows[0].comm, "standin-workloa") << "worker " << pid;
        EXPECT_EQ(rows[0].exit_code, 0) << "worker " << pid;
        const SideBySide trace = lay_side_by_side(*truth_, store.events, rows[0].key);
        ASSERT_GE(trace.calls.size(), 96u);
        expect_all_the_same(*truth_, trace);
        ASSERT_FALSE(HasFailure()) << "worker " << pid;
        EXPECT_GE(rows[0].exited_ns, trace.events.back().end_ns()) << "worker " << pid;
        calls += trace.calls.size();
    }
    size_t events = 0;
    for (const Event& event : store.events) events += event.tgid == pid_ || pids.contains(event.tgid);
    const std::vector<Process> parent = rows_of(store, pid_);
    ASSERT_EQ(parent.size(), 1u);
    EXPECT_EQ(events, calls + lay_side_by_side(*truth_, store.events, parent[0].key).calls.size());
}

TEST_F(ThreadsAndForks, workers_that_end_after_a_single_call_have_their_rows_too) {
    const StoreContents store = trace({"--fork", "200", "calls", "--op", "launch", "--count", "1"});
    ASSERT_TRUE(truth_);
    std::set<uint32_t> pids;
    for (const standin::Record& record : truth_->records()) pids.insert(record.pid);
    pids.erase(pid_);
    EXPECT_EQ(pids.size(), 200u);
    for (const uint32_t pid : pids) {
        const std::vector<Process> rows = rows_of(store, pid);
        ASSERT_EQ(rows.size(), 1u) << "worker " << pid;
        EXPECT_EQ(rows[0].parent_pid, pid_);
        expect_all_the_same(*truth_, lay_side_by_side(*truth_, store.events, rows[0].key));
        ASSERT_FALSE(HasFailure()) << "worker " << pid;
    }
}

// Its last waits are recorded after its end, and it is in /proc until its parent has waited for it.
TEST_F(ThreadsAndForks, workers_that_are_killed_and_that_nobody_waits_for_keep_their_rows) {
    const unsigned workers = emulated() ? 8 : 64;
    Daemon daemon(directory_ / "run");
    Workload workload({"--fork", std::to_string(workers), "blocked", "--op", "sync", "--us", "2000", "--count",
                       "1000000", "--gap-us", "0"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    Patience limit;
    while (daemon.status()["processes"] < workers + 1) ASSERT_TRUE(limit.lasts());
    workload.child().signal(SIGSTOP);
    const std::vector<int> pids = children_of(workload.pid());
    ASSERT_EQ(pids.size(), workers);
    for (const int pid : pids) ASSERT_EQ(kill(pid, SIGKILL), 0);
    while (daemon.status()["processes"] > 1) ASSERT_TRUE(limit.lasts());
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const StoreContents store = read_store(daemon.store());
    for (const int pid : pids) {
        const std::vector<Process> rows = rows_of(store, static_cast<uint32_t>(pid));
        ASSERT_EQ(rows.size(), 1u) << "worker " << pid;
        EXPECT_NE(rows[0].exited_ns, 0u) << "worker " << pid;
        EXPECT_EQ(rows[0].exit_code, SIGKILL) << "worker " << pid;
        EXPECT_NE(rows[0].facts.command, "") << "worker " << pid;
    }
    workload.child().signal(SIGKILL);
}

// The kernel side reports the end of who has called alone.
TEST_F(ThreadsAndForks, a_program_that_is_killed_before_it_calls_has_ended_in_an_unknown_way) {
    Daemon daemon(directory_ / "run");
    Workload workload({"calls", "--op", "launch", "--count", "1"});
    const auto pid = static_cast<uint32_t>(workload.pid());
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.child().signal(SIGKILL);
    ASSERT_EQ(workload.finish(), 128 + SIGKILL);
    const std::string sql =
        "SELECT exit_code FROM process_names WHERE exited_at IS NOT NULL AND pid = " + std::to_string(pid);
    nlohmann::json ended;
    EXPECT_TRUE(wait_until([&] { return !(ended = daemon.call("query", {{"sql", sql}}).at("rows")).empty(); }));
    EXPECT_EQ(ended.dump(), "[[null]]");
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const std::vector<Process> rows = rows_of(read_store(daemon.store()), pid);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_NE(rows[0].exited_ns, 0u);
    EXPECT_EQ(rows[0].exit_code, exit_status_unknown);
}

}  // namespace
