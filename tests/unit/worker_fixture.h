// A pool of real workers, and requests to it that are waited for.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "daemon/ingerod/workers/worker_pool.h"
#include "test_paths.h"
#include "tests/unit/store_fixture.h"

namespace ingero {

using nlohmann::json;

/// Long enough that only a hang reaches it.
inline constexpr uint64_t patience_us = 60'000'000;

class WorkerPoolTest : public testing::Test {
  protected:
    WorkerPool& start(WorkerOptions options) {
        pool_ = std::make_unique<WorkerPool>(loop_, std::move(options));
        return *pool_;
    }
    WorkerPool& start_one() { return start(one()); }
    static WorkerOptions one() {
        WorkerOptions options;
        options.program = INGERO_WORKER;
        options.count = 1;
        options.node = "test-node";
        return options;
    }

    using Answer = std::shared_ptr<std::optional<Result<json>>>;
    Answer send(const std::string& method, json params = json::object(), std::optional<int> fd = std::nullopt) {
        return send_for(no_user, method, std::move(params), fd);
    }
    Answer send_for(const WorkerUser& user, const std::string& method, json params = json::object(),
                    std::optional<int> fd = std::nullopt) {
        auto answer = std::make_shared<std::optional<Result<json>>>();
        pool_->request(user, method, std::move(params), fd, [answer](Result<json> result) {
            EXPECT_FALSE(answer->has_value()) << "done was called twice";
            *answer = std::move(result);
        });
        return answer;
    }
    Result<json> wait(const Answer& answer) {
        run_until([&] { return answer->has_value(); });
        return answer->value_or(fail(ErrorCode::internal, "no answer came"));
    }
    Result<json> ask_for(const WorkerUser& user) { return wait(send_for(user, "ping")); }
    Result<json> ask(const std::string& method, json params = json::object(), std::optional<int> fd = std::nullopt) {
        return wait(send(method, std::move(params), fd));
    }
    template <class Condition>
    void run_until(const Condition& condition) {
        while (!condition())
            if (sd_event_run(loop_.get(), patience_us) <= 0) FAIL() << "the loop has nothing left to do";
    }

    /// The only worker's pid, started if it is not yet.
    int worker() {
        EXPECT_TRUE(ask("ping"));
        EXPECT_EQ(pool_->pids().size(), 1u);
        return pool_->pids().empty() ? -1 : pool_->pids().front();
    }
    /// The same where the deadline is short: on a busy machine the start itself may take longer.
    int patient_worker() {
        while (!ask("ping")) {
        }
        return worker();
    }
    /// Returns once the worker has stopped.
    static void stop(int pid) {
        ASSERT_EQ(kill(pid, SIGSTOP), 0);
        siginfo_t info{};
        ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOWAIT), 0);
    }

    EventLoop loop_;
    std::unique_ptr<WorkerPool> pool_;
};

inline std::map<std::string, std::string> status_of(int pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/status");
    std::map<std::string, std::string> fields;
    for (std::string line; std::getline(in, line);) {
        const size_t colon = line.find(':');
        const size_t value = line.find_first_not_of(" \t", colon + 1);
        fields[line.substr(0, colon)] = value == std::string::npos ? "" : line.substr(value);
    }
    return fields;
}

inline std::set<int> descriptors_of(int pid) {
    std::set<int> result;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd"))
        result.insert(std::stoi(entry.path().filename()));
    return result;
}

}  // namespace ingero
