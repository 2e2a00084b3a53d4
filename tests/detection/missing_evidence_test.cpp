// Faults of the matrix injected where what proves them is not recorded: waits off, a set of probes turned off, records
// lost. What is said then is that, and what is missing; never another cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "test_paths.h"
#include "tests/detection/detection.h"
#include "tests/support/bus.h"

using namespace ingero;
using namespace ingero::test;
using testing::HasSubstr;

namespace {

class MissingEvidence : public Detection {
  protected:
    /// Nothing is proven, and no cause but `kind` is named above low.
    void expect_nothing_proven(const std::string& row, const json& answer, const std::string& kind) {
        ASSERT_TRUE(answer.is_object());
        std::cout << row << ": " << answer["summary"] << "\n";
        EXPECT_FALSE(answer["healthy"]) << answer["summary"];
        json rows = json::array();
        for (const json& finding : answer["findings"]) {
            rows.push_back(row_of(finding));
            if (is_of_others(finding)) continue;
            EXPECT_NE(finding["verdict"], "proven") << finding.dump(1);
            if (finding["severity"] == "low") continue;  // a device that was late on a busy host, too
            EXPECT_EQ(finding["kind"], kind) << finding.dump(1);
        }
        note_in_matrix([&](json& matrix) { matrix["rows"][row] = rows; });
    }

    /// The host's other programs, which no test can keep away, had its CPU for so long: the kernel says so too.
    bool is_of_others(const json& finding) const {
        if (finding["kind"] != "cpu-contention" && finding["kind"] != "noisy-neighbour") return false;
        return finding["severity"] == "low" || finding["lost_ns"] <= run_delay_ns_ + run_delay_ns_ / 20;
    }

    const std::vector<std::string> starving_ = {"train",     "--duration",  "8",     "--cpu",        "0", "--loader",
                                                "workers:1", "--loader-us", "15000", "--loader-cpu", "1"};
};

/// On a bus of its own, by which its sets of probes are turned off.
class DaemonOnBus {
  public:
    DaemonOnBus(const std::string& run_directory, std::vector<std::string> options)
        : daemon_(run_directory, on_bus(std::move(options))) {
        EXPECT_TRUE(names_.read_until("NameOwnerChanged")) << daemon_.process().output();
    }
    Daemon& operator*() { return daemon_; }
    Daemon* operator->() { return &daemon_; }
    static void turn_off(const std::string& set) {
        const Finished off = call_manager({"SetProbe", "sb", set, "false"});
        EXPECT_EQ(off.status, 0) << off.errors;
    }

  private:
    static std::vector<std::string> on_bus(std::vector<std::string> options) {
        options.insert(options.end(), {"--bus", "system"});
        return options;
    }

    const PrivateBus bus_;
    Subscriber names_{"sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='io.ingero.Ingero1'"};
    Daemon daemon_;
};

TEST_F(MissingEvidence, without_waits_a_starved_device_is_seen_and_nobody_is_blamed) {
    Daemon daemon(directory_ / "run", config("wait_floor = \"off\"\n"));
    const json answer = explained(daemon, starving_);
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    expect_nothing_proven("data-starvation, waits off", answer, "data-starvation");
    bool told = false;
    for (const json& finding : answer["findings"]) {
        if (finding["kind"] != "data-starvation") continue;
        told = true;
        EXPECT_EQ(finding["verdict"], "insufficient-evidence") << finding.dump(1);
        EXPECT_THAT(finding["summary"].get<std::string>(), HasSubstr("waited for between calls was not recorded"));
    }
    EXPECT_TRUE(told) << answer.dump(1);
}

TEST_F(MissingEvidence, with_a_set_of_probes_turned_off_the_set_is_named) {
    if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << "SKIPPED: " << why;
    DaemonOnBus daemon(directory_ / "run", config());
    const json answer = explained(*daemon, starving_, [](int) { DaemonOnBus::turn_off("sync"); });
    ASSERT_EQ(daemon->stop(), 0) << daemon->process().output();
    expect_nothing_proven("data-starvation, synchronisations off", answer, "data-starvation");
    EXPECT_THAT(answer["summary"].get<std::string>(), HasSubstr("insufficient evidence: "));
    EXPECT_THAT(answer["summary"].get<std::string>(), HasSubstr("probe set sync was turned off"));
}

TEST_F(MissingEvidence, without_the_calls_of_nccl_no_late_rank_is_named_and_nobody_else) {
    if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << "SKIPPED: " << why;
    DaemonOnBus daemon(directory_ / "run", config());
    DaemonOnBus::turn_off("nccl");
    Child ranks({COLLECTIVES_PROGRAM, "--gate", "loop", "--ranks", "4", "--processes", "4", "--steps", "100",
                 "--sync-every", "1", "--compute-ms", "10", "--late-rank", "2", "--late-ms", "15"});
    ASSERT_TRUE(ranks.wait_for_line("ready")) << ranks.errors();
    ASSERT_TRUE(daemon->wait_traced(ranks.pid()));
    ranks.write_line("go");
    ASSERT_EQ(ranks.wait(), 0) << ranks.errors();
    const Finished explain = run({INGEROCTL_PROGRAM, "--socket", daemon->socket(), "--json", "explain"});
    ASSERT_EQ(explain.status, 0) << explain.errors;
    ASSERT_EQ(daemon->stop(), 0) << daemon->process().output();
    const json answer = json::parse(explain.output, nullptr, false);
    expect_nothing_proven("collective-wait, NCCL off", answer, "collective-wait");
    EXPECT_THAT(answer["summary"].get<std::string>(), HasSubstr("probe set nccl was turned off"));
}

// All probes are let go and attached anew: some ranks make one more collective meanwhile than others.
TEST_F(MissingEvidence, after_a_set_of_probes_was_turned_off_ranks_are_not_compared_by_numbers_of_before) {
    if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << "SKIPPED: " << why;
    DaemonOnBus daemon(directory_ / "run", config());
    Child ranks({COLLECTIVES_PROGRAM, "--gate", "loop", "--ranks", "4", "--processes", "4", "--steps", "3000",
                 "--sync-every", "1", "--compute-ms", "5", "--late-rank", "2", "--late-ms", "10"});
    ASSERT_TRUE(ranks.wait_for_line("ready")) << ranks.errors();
    ASSERT_TRUE(daemon->wait_traced(ranks.pid()));
    ranks.write_line("go");
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto wait_for = [&](const std::string& sql, uint64_t least) {
        uint64_t found = 0;
        while (found < least && std::chrono::steady_clock::now() < until)
            found = daemon->call("query", {{"sql", sql}})["rows"][0][0].get<uint64_t>();
        EXPECT_GE(found, least) << sql;
    };
    wait_for("SELECT count(*) FROM collectives", 200);
    DaemonOnBus::turn_off("launch");
    wait_for("SELECT count(*) FROM communicators WHERE interrupted_at IS NOT NULL", 4);
    wait_for(
        "SELECT count(*) FROM collectives WHERE start_ns > (SELECT max(interrupted_at) + 1000000000 FROM "
        "communicators)",
        200);
    const json seen = daemon->call("stragglers");
    const json answer = daemon->call("explain");
    const json after = daemon->call("query", {{"sql", "SELECT max(interrupted_at) FROM communicators"}})["rows"][0][0];
    ranks.signal(SIGTERM);
    ranks.wait();
    ASSERT_EQ(daemon->stop(), 0) << daemon->process().output();
    ASSERT_EQ(seen["communicators"].size(), 1u);
    const Finished stored = run({INGEROCTL_PROGRAM, "--db", directory_ / "run" + "/store", "--json", "query",
                                 "SELECT count(*) FROM collectives WHERE start_ns < " + after.dump()});
    ASSERT_EQ(stored.status, 0) << stored.errors;
    // Each range has one collective of each of the four.
    const uint64_t whole = json::parse(stored.output)["rows"][0][0].get<uint64_t>() / 4;
    EXPECT_LE(seen["communicators"][0]["ranges"].get<uint64_t>(), whole + 1);
    EXPECT_GE(seen["communicators"][0]["ranges"].get<uint64_t>(), whole / 2);
    EXPECT_THAT(answer["summary"].get<std::string>(), HasSubstr("ranks of 1 communicator were not compared"));
}

TEST_F(MissingEvidence, what_was_lost_is_told_and_proves_nothing) {
    Daemon daemon(directory_ / "run", config());
    const int pid = daemon.process().pid();
    // Far more calls than the rings have room for while nobody reads them, some of which wait for a lock.
    const json answer = explained(
        daemon,
        {"calls", "--op", "launch", "--count", "1000000", "--rate", "0", "--standin",
         "at=cudaLaunchKernel:/10000:mutex=4000"},
        [](int) {}, [pid] { ASSERT_EQ(kill(pid, SIGSTOP), 0); },
        [&] {
            ASSERT_EQ(kill(pid, SIGCONT), 0);
            // It has much to catch up with: each round waits for its answer.
            const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
            uint64_t committed = 0, recorded = 1;
            while (committed < recorded && std::chrono::steady_clock::now() < until) {
                const json events = daemon.status().at("events");
                recorded = std::max<uint64_t>(events.at("recorded").get<uint64_t>(), 1);
                committed = events.at("committed").get<uint64_t>();
            }
        });
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    ASSERT_GT(answer["coverage"]["lost"], 100'000);
    expect_nothing_proven("lock-wait, records lost", answer, "lock-wait");
    EXPECT_THAT(answer["summary"].get<std::string>(), HasSubstr("insufficient evidence: "));
    EXPECT_THAT(answer["summary"].get<std::string>(), HasSubstr("calls were lost"));
}

}  // namespace
