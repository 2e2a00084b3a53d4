// Nothing that was acknowledged is lost when the daemon or a worker is killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <future>
#include <optional>
#include <set>

#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

class Crash : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }
};

TEST_F(Crash, of_the_daemon_loses_nothing_that_was_committed) {
    const TemporaryDirectory directory;
    const int kills = long_form() ? 50 : 5;
    uint64_t acknowledged = 0;
    for (int round = 0; round < kills; ++round) {
        Daemon daemon(directory / "run");
        Workload workload({"calls", "--count", "10000000", "--rate", "20000", "--op", "launch", "--cpu", "0"});
        ASSERT_TRUE(daemon.wait_traced(workload.pid()));
        workload.open_gate();
        // Different moments of a batch's life: the first commit seen, then some more events.
        uint64_t committed = acknowledged, recorded = 0;
        while (committed <= acknowledged || recorded < static_cast<uint64_t>(2000 + 1777 * (round % 7))) {
            const auto answer = daemon.status();
            ASSERT_TRUE(answer.contains("events"));
            committed = answer.at("events").at("committed");
            recorded = answer.at("events").at("recorded");
        }
        daemon.kill();
        acknowledged = committed;
        const StoreContents store = read_store(daemon.store());
        std::set<uint64_t> sequences;
        for (const Event& event : store.events) sequences.insert(event.sequence);
        ASSERT_EQ(sequences.size(), store.events.size()) << "a number was used twice";
        for (uint64_t sequence = 1; sequence <= acknowledged; ++sequence)
            ASSERT_TRUE(sequences.contains(sequence)) << sequence << " of " << acknowledged << " in round " << round;
        acknowledged = *sequences.rbegin();
    }
    Daemon daemon(directory / "run");
    EXPECT_GE(daemon.status().at("events").at("committed"), acknowledged);
    EXPECT_EQ(daemon.stop(), 0);
    const StoreContents store = read_store(daemon.store());
    ASSERT_EQ(store.sessions.size(), static_cast<size_t>(kills) + 1);
    for (size_t i = 0; i + 1 < store.sessions.size(); ++i) EXPECT_FALSE(store.sessions[i].ended_cleanly);
    EXPECT_TRUE(store.sessions.back().ended_cleanly);
}

TEST_F(Crash, of_a_worker_fails_its_query_alone) {
    const TemporaryDirectory directory;
    const std::string config = directory / "one-worker.conf";
    std::ofstream(config) << "[workers]\ncount = 1\n[capture]\noverhead_budget = 0\nwait_floor = \"off\"\n";
    Daemon daemon(directory / "run", {"--config", config});
    Workload workload({"calls", "--count", "100000", "--rate", "20000", "--op", "launch", "--cpu", "0"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    // Stopped, the only worker holds its query until it is killed. Whether the query had reached it by then is not
    // seen from outside: a query that came later is answered by the next worker, so this is done until one was hit.
    std::optional<Error> hit;
    for (int attempt = 0; attempt < 20 && !hit; ++attempt) {
        ASSERT_TRUE(daemon.try_call("stats"));
        const std::vector<int> workers = daemon.workers();
        // One for queries, and one that reads files.
        ASSERT_FALSE(workers.empty());
        ASSERT_LE(workers.size(), 2u);
        for (const int pid : workers) kill(pid, SIGSTOP);
        auto answer = std::async(std::launch::async, [&] { return daemon.try_call("stats"); });
        for (int i = 0; i < 100; ++i) ASSERT_TRUE(daemon.try_call("status")) << "a query must not hold back the daemon";
        for (const int pid : workers) kill(pid, SIGKILL);
        const auto result = answer.get();
        if (!result) hit = result.error();
    }
    ASSERT_TRUE(hit);
    EXPECT_NE(hit->message.find("worker"), std::string::npos) << hit->message;
    EXPECT_FALSE(hit->hint.empty());
    const auto next = daemon.try_call("stats");
    EXPECT_TRUE(next) << next.error().message;
    const int pid = workload.pid();
    ASSERT_EQ(workload.finish(), 0);
    const auto stats = daemon.try_call("stats", {{"pid", pid}});
    ASSERT_TRUE(stats) << "reads what the rings still hold";
    uint64_t launches = 0;
    for (const nlohmann::json& row : stats->at("ops"))
        if (row.at("op") == "cudaLaunchKernel" || row.at("op") == "cuLaunchKernel")
            launches += row.at("count").get<uint64_t>();
    EXPECT_EQ(launches, 200'000);
    EXPECT_EQ(daemon.stop(), 0);
}

}  // namespace
