// What rows of the detection matrix have in common: a daemon, a program with a fault, and what is found of it.
#pragma once

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "test_paths.h"
#include "tests/support/daemon.h"

namespace ingero::test {

using nlohmann::json;

/// Adds to the file what one test found; tests of one run may follow each other in any order.
inline void note_in_matrix(const std::function<void(json&)>& change) {
    const std::filesystem::path path = MATRIX_FILE;
    std::filesystem::create_directories(path.parent_path());
    const UniqueFd lock(open((path.string() + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
    ASSERT_TRUE(lock);
    ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
    std::ifstream before(path);
    json matrix = json::parse(before, nullptr, false);
    if (!matrix.is_object()) matrix = {{"rows", json::object()}, {"healthy", json::array()}};
    change(matrix);
    const std::string next = path.string() + ".next";
    std::ofstream(next) << matrix.dump(1) << "\n";
    std::filesystem::rename(next, path);
}

inline json row_of(const json& finding) {
    const json& culprits = finding["culprits"];
    return {{"kind", finding["kind"]},
            {"severity", finding["severity"]},
            {"culprit", culprits.empty() ? json(nullptr) : culprits[0]["name"]},
            {"explained_fraction", finding["explained_fraction"]}};
}

class Detection : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        if (sanitized) GTEST_SKIP() << "a slow daemon on two CPUs is itself a fault";
    }

    /// Runs it to its end; the findings about it.
    json findings(
        Daemon& daemon, const std::vector<std::string>& arguments,
        const std::function<void(int pid)>& prepare = [](int) {}) {
        const json answer = explained(daemon, arguments, prepare);
        return answer.is_object() ? answer["findings"] : json::array();
    }

    /// The same with all that is said besides. `begin` and `end`: right before it calls anything, and once it has
    /// ended.
    json explained(
        Daemon& daemon, const std::vector<std::string>& arguments,
        const std::function<void(int pid)>& prepare = [](int) {}, const std::function<void()>& begin = [] {},
        const std::function<void()>& end = [] {}) {
        Workload workload(arguments);
        const int pid = workload.pid();
        prepare(pid);
        EXPECT_TRUE(daemon.wait_traced(workload.pid()));
        begin();
        workload.open_gate();
        siginfo_t ended{};
        EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT), 0);
        uint64_t ran_ns = 0;
        std::ifstream("/proc/" + std::to_string(pid) + "/schedstat") >> ran_ns >> run_delay_ns_;
        EXPECT_EQ(workload.finish(), 0) << workload.child().errors();
        end();
        // All of it: the long form takes ten minutes.
        const Finished explain = run({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json", "explain", "--since",
                                      "15m", "--pid", std::to_string(pid)});
        EXPECT_EQ(explain.status, 0) << explain.errors;
        const json answer = json::parse(explain.output, nullptr, false);
        if (!answer.is_object()) return ADD_FAILURE() << explain.output, json();
        EXPECT_GT(answer["calls"], 100) << answer;
        return answer;
    }

    /// With waits, which tests of calls leave out, and every call of its own.
    std::vector<std::string> config(const std::string& more = "") const {
        const std::string path = directory_ / "ingerod.conf";
        std::ofstream(path) << "[capture]\noverhead_budget = 0\n" << more;
        return {"--config", path};
    }

    const TemporaryDirectory directory_;
    uint64_t run_delay_ns_ = 0;  ///< of the workload's main thread, by the kernel's own account
};

}  // namespace ingero::test
