// A program that waits as it is told to and says when, and what the daemon tells of its waits.
#pragma once

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/model/time.h"
#include "test_paths.h"
#include "tests/support/control_groups.h"
#include "tests/support/daemon.h"

namespace ingero::test {

using nlohmann::json;

struct Span {
    uint64_t from = 0, to = 0, busy = 0;
    uint64_t duration() const { return to - from; }
    uint64_t idle() const { return duration() - std::min(duration(), busy); }
};

/// Of a chain: when it began to wait, when its waker was about to wake it, and when it was back.
struct Link {
    uint64_t from = 0, to = 0, back = 0;
};

class Host : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        start_daemon("200us");
    }

    void start_daemon(const std::string& floor) {
        std::ofstream(directory_ / "ingerod.conf")
            << "[capture]\noverhead_budget = 0\nwait_floor = \"" + floor + "\"\n";
        daemon_.reset();
        daemon_.emplace(directory_ / "run", std::vector<std::string>{"--config", directory_ / "ingerod.conf"});
    }

    void start(std::vector<std::string> arguments, const ChildOptions& options = {}) {
        arguments.insert(arguments.begin(), {HOST_PROGRAM, CUDART_LIBRARY});
        program_.emplace(arguments, options);
        ASSERT_TRUE(program_->wait_for_line("ready")) << program_->errors();
        pid_ = program_->pid();
        ASSERT_TRUE(daemon_->wait_traced(pid_));
    }
    /// Lets it go on, and returns the waits that it tells of.
    std::vector<Span> finish() {
        program_->write_line("go");
        std::vector<Span> waits;
        while (const auto line = program_->read_line()) {
            if (*line == "done") break;
            std::istringstream words(*line);
            std::string word;
            words >> word;
            if (word == "threads")
                for (int id = 0; words >> id;) threads_.push_back(id);
            Span wait;
            if (word == "chain")
                for (Link& link : chains_.emplace_back()) words >> link.from >> link.to >> link.back;
            if (word == "wait" && words >> wait.from >> wait.to >> wait.busy) waits.push_back(wait);
        }
        return waits;
    }
    void end() {
        program_->close_input();
        EXPECT_EQ(program_->wait(), 0) << program_->errors();
    }

    json query(const std::string& sql) {
        const json answer = daemon_->call("query", {{"sql", sql}});
        return answer.value("rows", json::array());
    }
    /// Its rows once there are so many: what is read from the rings is stored within a second.
    json until_there(const std::string& sql, size_t at_least = 1) {
        Patience limit;
        json found;
        while ((found = query(sql)).size() < at_least && limit.lasts()) {
        }
        EXPECT_GE(found.size(), at_least) << sql << query("SELECT op, COUNT(*) FROM events GROUP BY op").dump();
        return found;
    }
    /// Those of the main thread.
    json rows(const std::string& what, size_t at_least, const std::string& where = "1") {
        return until_there("SELECT " + what + " FROM waits WHERE tid = " + std::to_string(pid_) + " AND " + where +
                               " ORDER BY start_ns",
                           at_least);
    }
    static uint64_t total(const std::vector<Span>& spans) {
        return std::accumulate(spans.begin(), spans.end(), uint64_t{0},
                               [](uint64_t sum, const Span& span) { return sum + span.duration(); });
    }
    static uint64_t total(const json& rows, size_t column) {
        return std::accumulate(rows.begin(), rows.end(), uint64_t{0},
                               [&](uint64_t sum, const json& row) { return sum + row.at(column).get<uint64_t>(); });
    }
    /// Within 5 %, or so many ms.
    static void expect_near(uint64_t found, uint64_t expected, double within_ms = 1) {
        const double difference = std::abs(static_cast<double>(found) - static_cast<double>(expected));
        EXPECT_LE(difference, std::max(0.05 * static_cast<double>(expected), within_ms * 1e6))
            << format_duration(found) << " in place of " << format_duration(expected);
    }

    /// Of waits that began in it.
    static std::string inside(const Span& span) {
        const auto realtime = std::chrono::system_clock::now().time_since_epoch();
        const uint64_t offset = static_cast<uint64_t>(std::chrono::nanoseconds(realtime).count()) - monotonic_now_ns();
        return "start_ns BETWEEN " + std::to_string(offset + span.from) + " AND " + std::to_string(offset + span.to);
    }
    /// Whether the daemon told that it lost one in it, as it must where the kernel kept a switch from it.
    bool is_told_as_lost(const Span& wait) {
        return !query(
                    "SELECT 1 FROM host_events WHERE op = 'sched_switch_summary' AND split_uncertain AND waits = 1 "
                    "AND tid = " +
                    std::to_string(pid_) + " AND " + inside(wait))
                    .empty();
    }
    /// By a limit, which lets the first ones pass. Others may have had the CPU meanwhile, which is told apart.
    void expect_held_up(const std::vector<Span>& waits, const std::string& blocked_on) {
        uint64_t idle_ns = 0, found_ns = 0, so_blocked_ns = 0, blocked_ns = 0;
        size_t held_up = 0, so_held_up = 0;
        for (const Span& wait : waits) {
            if (wait.duration() <= 5 * ms) continue;
            json found;
            EXPECT_TRUE(wait_until([&] {
                found = rows("blocked_ns + runnable_ns, blocked_ns", 0, inside(wait));
                return !found.empty() || is_told_as_lost(wait);
            })) << "nothing is told of "
                << format_duration(wait.idle());
            if (found.empty()) continue;
            const json so = rows("blocked_ns", 0, inside(wait) + " AND blocked_on = '" + blocked_on + "'");
            ++held_up;
            so_held_up += !so.empty();
            idle_ns += wait.idle();
            found_ns += total(found, 0);
            blocked_ns += total(found, 1);
            so_blocked_ns += total(so, 0);
            std::cout << "for " << format_duration(wait.idle()) << ": " << found << ", of them " << so << "\n";
        }
        ASSERT_GE(so_held_up, 3u) << "it was not throttled";
        expect_near(found_ns, idle_ns, 1 + 0.1 * static_cast<double>(held_up));
        expect_near(so_blocked_ns, blocked_ns);
    }

    TemporaryDirectory directory_;
    std::optional<Daemon> daemon_;
    std::optional<Child> program_;
    int pid_ = 0;
    std::vector<int> threads_;  ///< as the program told
    std::vector<std::array<Link, 4>> chains_;
};

}  // namespace ingero::test
