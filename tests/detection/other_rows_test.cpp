// Further rows of the detection matrix: faults that take more than one program to inject, and two at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "core/model/time.h"
#include "test_paths.h"
#include "tests/detection/detection.h"

using namespace ingero;
using namespace ingero::test;
using testing::HasSubstr;

namespace {

class Other : public Detection {
  protected:
    /// All that is above low is of these kinds, and each of them is there; gives the first of each.
    std::map<std::string, json> expect_kinds(const std::string& row, const json& found,
                                             const std::vector<std::string>& kinds) {
        json rows = json::array();
        std::map<std::string, json> first;
        for (const json& finding : found) {
            rows.push_back(row_of(finding));
            const std::string kind = finding["kind"];
            std::cout << row << ": " << finding["summary"] << "\n";
            if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
                EXPECT_EQ(finding["severity"], "low") << finding.dump(1);
            }
            first.emplace(kind, finding);
        }
        note_in_matrix([&](json& matrix) { matrix["rows"][row] = rows; });
        for (const std::string& kind : kinds)
            EXPECT_TRUE(first.contains(kind)) << "no " << kind << ": " << found.dump(1);
        return first;
    }

    /// Of programs of that name: others on this host may have findings of their own.
    json explain(Daemon& daemon, const std::string& comm) {
        const Finished explain = run({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json", "explain"});
        EXPECT_EQ(explain.status, 0) << explain.errors;
        const json answer = json::parse(explain.output, nullptr, false);
        json found = json::array();
        if (!answer.is_object()) return found;
        for (const json& finding : answer["findings"])
            if (finding["comm"] == comm) found.push_back(finding);
        return found;
    }
};

TEST_F(Other, two_faults_at_once_are_both_found_and_no_time_is_told_twice) {
    Daemon daemon(directory_ / "run", config());
    const json found =
        findings(daemon, {"train", "--duration", "5", "--cpu", "0", "--loader", "workers:1", "--loader-us", "15000",
                          "--loader-cpu", "1", "--standin", "at=cudaLaunchKernel:/100:mutex=4000"});
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    auto first = expect_kinds("two faults", found, {"data-starvation", "lock-wait"});
    EXPECT_THAT(first["data-starvation"]["culprits"][0]["name"].get<std::string>(), HasSubstr("loader-worker"));
    EXPECT_THAT(first["lock-wait"]["culprits"][0]["name"].get<std::string>(), HasSubstr("standin-helper"));
    uint64_t lost_ns = 0;
    for (const json& finding : found) lost_ns += finding["lost_ns"].get<uint64_t>();
    EXPECT_LE(lost_ns, 5'500'000'000u) << "of one thread that ran for 5 s";
}

// What it slept for the lock cost it, and more: each time that it was woken late, too.
TEST_F(Other, the_interpreters_lock_that_another_thread_has_is_told_of_and_what_it_cost) {
    Daemon daemon(directory_ / "run", config());
    Child program({"/usr/bin/python3", "-B", std::string(INGERO_SOURCE_DIR) + "/tests/detection/interpreter_lock.py",
                   STANDIN_LIB, "6"});
    ASSERT_TRUE(program.wait_for_line("ready")) << program.errors();
    ASSERT_TRUE(daemon.wait_traced(program.pid())) << daemon.process().output();
    program.write_line("go");
    const auto line = program.wait_for_line("lost");
    ASSERT_TRUE(line) << program.errors();
    ASSERT_EQ(program.wait(), 0) << program.errors();
    const double lost_ns = json::parse(*line)["lost"].get<double>() * 1e9;
    const json found = explain(daemon, "python3");
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const auto of_lock =
        std::find_if(found.begin(), found.end(), [](const json& finding) { return finding["kind"] == "lock-wait"; });
    ASSERT_NE(of_lock, found.end()) << found.dump(1);
    std::cout << "lost " << lost_ns / 1e9 << " s: " << (*of_lock)["summary"] << "\n";
    note_in_matrix([&](json& matrix) { matrix["rows"]["lock-wait, interpreter"] = json::array({row_of(*of_lock)}); });
    EXPECT_LE((*of_lock)["lost_low_ns"].get<double>(), lost_ns);
    EXPECT_GE((*of_lock)["lost_high_ns"].get<double>(), 0.6 * lost_ns) << of_lock->dump(1);
    EXPECT_EQ((*of_lock)["waited_ns"], (*of_lock)["waited_between_calls_ns"]);
    EXPECT_THAT((*of_lock)["summary"].get<std::string>(), HasSubstr("(GIL)"));
}

/// Ranks that all-reduce; told once its output says so, or after a while.
class Collectives : public Other {
  protected:
    Child start(Daemon& daemon, std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {COLLECTIVES_PROGRAM, "--gate"});
        Child ranks(arguments);
        EXPECT_TRUE(ranks.wait_for_line("ready")) << ranks.errors();
        EXPECT_TRUE(daemon.wait_traced(ranks.pid()));
        ranks.write_line("go");
        return ranks;
    }
};

TEST_F(Collectives, a_late_rank_of_four_is_named_by_those_that_wait_and_as_a_straggler) {
    Daemon daemon(directory_ / "run", config());
    Child ranks = start(daemon, {"loop", "--ranks", "4", "--processes", "4", "--steps", "200", "--sync-every", "1",
                                 "--compute-ms", "10", "--late-rank", "2", "--late-ms", "15"});
    ASSERT_EQ(ranks.wait(), 0) << ranks.errors();
    const json found = explain(daemon, "standin-collect");
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    auto first = expect_kinds("collective-wait, straggler", found, {"collective-wait", "straggler"});
    EXPECT_THAT(first["collective-wait"]["culprits"][0]["name"].get<std::string>(), HasSubstr("rank 2"));
    EXPECT_THAT(first["straggler"]["culprits"][0]["name"].get<std::string>(), HasSubstr("rank 2"));
}

TEST_F(Collectives, ranks_whose_fellow_has_ended_hang) {
    Daemon daemon(directory_ / "run", config());
    Child ranks = start(daemon, {"loop", "--ranks", "4", "--processes", "4", "--steps", "200", "--sync-every", "1",
                                 "--compute-ms", "10", "--leaving-rank", "3", "--leave-at", "100"});
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    json found;
    const auto hangs = [](const json& finding) { return finding["kind"] == "nccl-hang"; };
    do found = explain(daemon, "standin-collect");
    while (std::none_of(found.begin(), found.end(), hangs) && std::chrono::steady_clock::now() < until);
    ranks.signal(SIGKILL);
    ranks.wait();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    auto first = expect_kinds("nccl-hang", found, {"nccl-hang"});
    EXPECT_THAT(first["nccl-hang"]["culprits"][0]["name"].get<std::string>(), HasSubstr("rank 3"));
}

/// ingero-relay with a libnvidia-ml that says what a script says.
class Relay {
  public:
    Relay(const std::string& script, const std::string& run_directory) {
        // Below folders that are root's alone.
        EXPECT_TRUE(mkdtemp(trusted_.data()));
        chmod(trusted_.c_str(), 0755);
        std::filesystem::copy_file(std::string(STANDIN_LIB) + "/nvml-now/libnvidia-ml.so.1",
                                   trusted_ + "/libnvidia-ml.so.1");
        std::ofstream(trusted_ + "/nvml.script") << script;
        relay_.emplace(std::vector<std::string>{RELAY_PROGRAM, "--socket", run_directory + "/relay.sock", "--library",
                                                trusted_ + "/libnvidia-ml.so.1", "--sysfs", trusted_ + "/sys"});
    }
    ~Relay() {
        relay_->signal(SIGTERM);
        relay_->wait();
        std::filesystem::remove_all(trusted_);
    }
    Relay(const Relay&) = delete;
    Relay& operator=(const Relay&) = delete;

  private:
    std::string trusted_ = std::string(TRUSTED_DIRECTORY) + "/ingero-relay-XXXXXX";
    std::optional<Child> relay_;
};

TEST_F(Collectives, a_gpu_that_throttles_is_named_for_the_rank_that_waits_for_it) {
    Daemon daemon(directory_ / "run", config("[relay]\ngpu_poll = \"100ms\"\n"));
    Child ranks = start(daemon, {"loop", "--ranks", "4", "--processes", "4", "--steps", "2000", "--sync-every", "1",
                                 "--compute-ms", "10", "--late-rank", "2", "--late-ms", "15", "--late-on-device"});
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    const auto ask_until = [&](const std::string& method, const json& parameters, auto has) {
        json answer = daemon.call(method, parameters);
        while (!has(answer) && std::chrono::steady_clock::now() < until) answer = daemon.call(method, parameters);
        EXPECT_TRUE(has(answer)) << answer.dump(1);
        return answer;
    };
    const json seen = ask_until("stragglers", json::object(), [](const json& answer) {
        return !answer["communicators"].empty() && answer["communicators"][0]["ranks"].size() == 4;
    });
    std::string script = "gpus 4\n";
    for (const json& rank : seen["communicators"][0]["ranks"]) {
        const std::string gpu = std::to_string(rank["rank"].get<int>());
        script += gpu + ".uuid GPU-" + gpu + "\n" + gpu + ".processes " + std::to_string(rank["pid"].get<int>()) +
                  " 1024\n" + gpu + ".max_clock1 1980\n" + gpu + (gpu == "2" ? ".throttle 64\n" : ".throttle 0\n") +
                  gpu + (gpu == "2" ? ".clock1 990\n" : ".clock1 1980\n");
    }
    const Relay relay(script, directory_ / "run");
    const std::string why =
        "its GPU 2, throttled (hw_thermal_slowdown), ran at 50 % of its highest clock (990 MHz), those of other ranks "
        "at "
        "100 %";
    const std::string sql = "SELECT summary FROM incidents WHERE kind = 'straggler'";
    ask_until("query", {{"sql", sql}}, [&](const json& answer) {
        return answer["rows"].size() == 1 && answer["rows"][0][0].get<std::string>().find(why) != std::string::npos;
    });
    const json late = daemon.call("stragglers")["stragglers"];
    const json found = explain(daemon, "standin-collect");
    ranks.signal(SIGTERM);
    ranks.wait();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    ASSERT_EQ(late.size(), 1u);
    EXPECT_EQ(late[0]["rank"], 2);
    EXPECT_EQ(late[0]["cause"]["kind"], "device-wait") << late.dump(1);
    ASSERT_EQ(late[0]["conditions"].size(), 1u) << late.dump(1);
    EXPECT_EQ(late[0]["conditions"][0]["kind"], "throttling");
    auto first = expect_kinds("straggler, throttled", found, {"collective-wait", "straggler"});
    EXPECT_THAT(first["straggler"]["summary"].get<std::string>(), HasSubstr(why));
    EXPECT_THAT(first["collective-wait"]["summary"].get<std::string>(), HasSubstr(why));
}

TEST_F(Other, a_gpu_that_throttles_is_named_for_the_slow_steps) {
    std::string throttle = "0.throttle", clock = "0.clock1";
    for (int poll = 0; poll < 45; ++poll) {
        throttle += " 0";
        clock += " 1980";
    }
    const std::string script =
        "gpus 1\n0.uuid GPU-11111111-2222-3333-4444-555555555555\n" + throttle + " 64\n" + clock + " 990\n";
    Daemon daemon(directory_ / "run", config("[relay]\ngpu_poll = \"100ms\"\n"));
    std::optional<Relay> relay;
    const json found = findings(
        daemon, {"train", "--duration", "8", "--cpu", "0", "--standin", "at=cudaStreamSynchronize:1600+:spin=5000"},
        [&](int) { relay.emplace(script, directory_ / "run"); });
    relay.reset();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    auto first = expect_kinds("throttling", found, {"throttling"});
    EXPECT_THAT(first["throttling"]["culprits"][0]["name"].get<std::string>(), HasSubstr("hw_thermal_slowdown"));
}

}  // namespace
