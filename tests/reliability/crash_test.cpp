// Nothing that was acknowledged is lost when the daemon or a worker is killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <optional>
#include <set>

#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

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

// What the live diagnosis found, and the state of the host, are as whole as calls: for the daemon that comes next, for
// who asks the closed store, and in a merged one.
TEST_F(Crash, of_the_daemon_leaves_the_incidents_and_states_that_it_told_of) {
    if (sanitized) GTEST_SKIP() << "timing";
    const TemporaryDirectory directory;
    const std::string config = directory / "exact.conf";
    std::ofstream(config) << "[capture]\noverhead_budget = 0\n";
    Daemon first(directory / "run", {"--config", config});
    Workload workload({"train", "--duration", "60", "--cpu", "0", "--kernel-us", "100", "--standin",
                       "at=cudaLaunchKernel:/500:mutex=20000"});
    // Other programs on this host have incidents too.
    const std::string of_incidents =
                          "SELECT id, lost_ns, opened_ns, closed_ns FROM incidents WHERE kind = 'lock-wait' "
                          "AND pid = " +
                          std::to_string(workload.pid()) + " ORDER BY opened_ns",
                      of_states = "SELECT COUNT(*), MIN(timestamp) FROM states";
    const auto rows = [](Daemon& daemon, const std::string& sql) {
        const auto answer = daemon.try_call("query", {{"sql", sql}});
        return answer ? answer->at("rows") : (ADD_FAILURE() << answer.error().message, json::array());
    };
    ASSERT_TRUE(first.wait_traced(workload.pid()));
    workload.open_gate();
    const uint64_t give_up_ns = monotonic_now_ns() + 60'000 * ms;
    json told, states;
    do {
        told = rows(first, of_incidents);
        states = rows(first, of_states);
        ASSERT_FALSE(HasFailure());
        ASSERT_LT(monotonic_now_ns(), give_up_ns) << "no incident, or no state of the host";
    } while (told.empty() || states[0][0] == 0);
    EXPECT_TRUE(told[0][3].is_null()) << told;
    first.kill();
    workload.child().signal(SIGKILL);

    // The wall clock is laid onto a boot by its latest reading.
    const auto is_same_time = [](const json& a, const json& b) {
        return std::abs(a.get<int64_t>() - b.get<int64_t>()) < static_cast<int64_t>(ms);
    };
    const auto expect_kept = [&](const json& kept, const json& kept_states, const std::string& where) {
        ASSERT_FALSE(kept.empty()) << where;
        EXPECT_EQ(kept[0][0], told[0][0]) << where;
        EXPECT_GE(kept[0][1], told[0][1]) << where;
        EXPECT_TRUE(is_same_time(kept[0][2], told[0][2])) << where << kept << told;
        EXPECT_TRUE(kept[0][3].is_number()) << where << ": it is over since its daemon ended, " << kept;
        EXPECT_GE(kept_states[0][0], states[0][0]) << where;
        EXPECT_TRUE(is_same_time(kept_states[0][1], states[0][1])) << where << kept_states << states;
    };
    Daemon second(directory / "run", {"--config", config});
    expect_kept(rows(second, of_incidents), rows(second, of_states), "the next daemon");
    EXPECT_EQ(second.stop(), 0);
    const Finished merged = run({INGEROCTL_PROGRAM, "merge", second.store(), "-o", directory / "merged"});
    ASSERT_EQ(merged.status, 0) << merged.errors;
    for (const std::string& store : {second.store(), directory / "merged"}) {
        const auto stored = [&](const std::string& sql) {
            const Finished asked = run({INGEROCTL_PROGRAM, "--db", store, "--json", "query", sql});
            EXPECT_EQ(asked.status, 0) << asked.errors;
            const json answer = json::parse(asked.output, nullptr, false);
            return answer.is_object() ? answer["rows"] : json::array();
        };
        expect_kept(stored(of_incidents), stored(of_states), store);
    }
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
    const nlohmann::json stats = daemon.call_when_stored("stats", {{"pid", pid}});
    uint64_t launches = 0;
    for (const nlohmann::json& row : stats.at("ops"))
        if (row.at("op") == "cudaLaunchKernel" || row.at("op") == "cuLaunchKernel")
            launches += row.at("count").get<uint64_t>();
    EXPECT_LE(launches, 200'000u);
    // Of all programs of the host.
    const uint64_t lost = daemon.status().at("events").at("lost");
    EXPECT_GE(launches + lost, 200'000u) << "what the rings still held is in the answer";
    EXPECT_EQ(daemon.stop(), 0);
}

}  // namespace
