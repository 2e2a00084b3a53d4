// The overhead budget: hot calls are thinned, what matters is kept, and sums over what is kept stay right.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <thread>

#include "core/model/op.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

constexpr OpId launch = op::cudaLaunchKernel;
constexpr OpId driver_launch = op::cuLaunchKernel;
constexpr uint64_t error_every = 997;
constexpr uint64_t slow_every = 4'999;
constexpr uint64_t slow_us = 200;
constexpr uint64_t many_slow_every = 19;
constexpr uint64_t many_slow_us = 60;
constexpr uint64_t most_memory_bytes = 96 << 20;
constexpr uint64_t most_waiting_bytes = 32 << 20;  ///< that a slow disk holds up besides

class Budget : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        std::ofstream(directory_ / "budget.conf") << "[capture]\noverhead_budget = 2\nslices = false\n";
    }

    std::vector<std::string> with_budget() const { return {"--config", directory_ / "budget.conf"}; }

    const TemporaryDirectory directory_;
};

struct Sums {
    uint64_t rows = 0, calls = 0, errors = 0, slow = 0;
    uint32_t heaviest = 1;
};

Sums sum_up(const StoreContents& store, uint32_t pid, OpId op, uint64_t slow_ns = slow_us * 1000) {
    Sums sums;
    for (const Event& event : store.events) {
        if (event.tgid != pid || event.op != op) continue;
        sums.rows++;
        sums.calls += event.weight;
        sums.errors += event.return_code != 0;
        sums.slow += event.duration_ns >= slow_ns;
        sums.heaviest = std::max(sums.heaviest, event.weight);
        EXPECT_TRUE(event.weight == 1 || event.return_code == 0) << "a failed call stands for itself alone";
    }
    return sums;
}

uint64_t lost_of(const StoreContents& store, OpId op) {
    uint64_t sum = 0;
    for (const LossRow& row : store.losses)
        if (row.op == op) sum += row.lost();
    return sum;
}

/// Losses are those of the host: other tests' programs may run beside this one.
bool is_alone(const StoreContents& store, uint32_t pid) {
    return std::none_of(store.events.begin(), store.events.end(),
                        [pid](const Event& event) { return event.tgid != pid && is_call(event.op); });
}

/// Each call made is recorded, stood for, or lost.
void expect_accounted(const StoreContents& store, uint32_t pid, uint64_t calls, uint64_t made) {
    const uint64_t lost = lost_of(store, launch);
    EXPECT_LE(calls, made);
    EXPECT_GE(calls + lost, made);
    if (is_alone(store, pid)) {
        EXPECT_EQ(calls + lost, made) << lost << " of them lost";
    }
}

/// What the daemon's log says of the price of a call.
struct Cost {
    double kept_ns = 0, unkept_ns = 0, calls = 0, unkept_calls = 0;
    double work_kept_ns = 0, work_unkept_ns = 0, work_entry_ns = 0, entry_ns = 0;
};

Cost cost_of(const std::string& log) {
    const std::regex line(
        R"(cost of a call: (\d+) ns recorded, (\d+) ns not recorded \((\d+) calls, (\d+) of them not recorded\); )"
        R"(with other work in the caches: (\d+) and (\d+) ns, entry (\d+) ns instead of (\d+) ns)");
    std::smatch found;
    if (!std::regex_search(log, found, line)) {
        ADD_FAILURE() << "it was not said what a call costs: " << log;
        return {};
    }
    const auto figure = [&](size_t number) { return std::stod(found[number]); };
    return {figure(1), figure(2), figure(3), figure(4), figure(5), figure(6), figure(7), figure(8)};
}

/// What the workload's last line says of `name`.
uint64_t figure_of(const std::string& output, const std::string& name) {
    const size_t at = output.rfind(" " + name + "=");
    return at == std::string::npos ? 0 : std::stoull(output.substr(at + name.size() + 2));
}

TEST_F(Budget, a_launch_storm_is_thinned_with_errors_and_slow_calls_kept_and_counts_right) {
    std::vector<std::string> options = with_budget();
    options.insert(options.end(), {"--log-level", "debug"});  // tells what a call was found to cost
    Daemon daemon(directory_ / "run", options);
    const std::string rules = "at=cudaLaunchKernel:/" + std::to_string(error_every) +
                              ":error=719,at=cudaLaunchKernel:/" + std::to_string(slow_every) +
                              ":spin=" + std::to_string(slow_us + 20);
    const std::string count = long_form() ? "20000000" : "3000000";
    Workload storm({"calls", "--op", "launch", "--count", count, "--rate", "0", "--threads", "2", "--standin", rules});
    ASSERT_TRUE(daemon.wait_traced(storm.pid()));
    const auto pid = static_cast<uint32_t>(storm.pid());
    storm.open_gate();
    uint64_t memory_bytes = 0;
    double measured_permille = 0, weight = 0;
    std::atomic<bool> ended{false};
    std::thread watcher([&] {
        for (; !ended; poll(nullptr, 0, 50)) {
            const nlohmann::json status = daemon.status();
            memory_bytes = std::max(memory_bytes, status.value("memory_bytes", uint64_t{0}));
            const nlohmann::json& overhead = status.at("overhead");
            if (overhead.at("measured_permille").is_number())
                measured_permille = std::max(measured_permille, overhead.at("measured_permille").get<double>());
            for (const nlohmann::json& thinned : overhead.at("thinned"))
                if (thinned.at("op") == "cudaLaunchKernel")
                    weight = std::max(weight, thinned.at("weight").get<double>());
        }
    });
    EXPECT_EQ(storm.finish(milliseconds(300'000)), 0) << storm.child().errors();
    ended = true;
    watcher.join();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();

    const StoreContents store = read_store(daemon.store());
    const uint64_t made = figure_of(storm.child().output(), "launches");
    const Sums runtime = sum_up(store, pid, launch), driver = sum_up(store, pid, driver_launch);
    std::cout << made << " launches: " << runtime.rows << " rows for " << runtime.calls << " calls, heaviest "
              << runtime.heaviest << ", " << runtime.errors << " errors, " << runtime.slow << " slow, lost "
              << lost_of(store, launch) << "; told: 1 in " << weight << ", overhead " << measured_permille
              << " permille, memory " << (memory_bytes >> 20) << " MiB\n";
    ASSERT_GT(made, 1'000'000u);
    const uint64_t lost = lost_of(store, launch);
    EXPECT_LT(runtime.rows, runtime.calls) << "it was not thinned";
    const Cost cost = cost_of(daemon.process().output());
    std::cout << "a recorded call costs " << cost.kept_ns << " ns, one without a record " << cost.unkept_ns << " ns\n";
    ASSERT_GT(cost.calls, 0);
    ASSERT_GT(cost.unkept_ns, 0);
    EXPECT_GT(cost.entry_ns, 0);
    EXPECT_GT(cost.work_entry_ns, 0);
    EXPECT_GE(cost.work_unkept_ns, cost.unkept_ns);
    EXPECT_GE(cost.work_kept_ns, cost.work_unkept_ns);
    EXPECT_GT(cost.unkept_calls, 0) << "what it costs to leave no record was not measured";
    expect_accounted(store, pid, runtime.calls, made);
    EXPECT_GE(runtime.errors + lost, made / error_every);
    EXPECT_LE(runtime.errors, made / error_every + 2);
    EXPECT_GE(runtime.slow + lost, made / slow_every - 1);
    EXPECT_NEAR(static_cast<double>(driver.calls + lost_of(store, driver_launch)), static_cast<double>(made),
                0.012 * static_cast<double>(made));
    EXPECT_GT(weight, 1);
    EXPECT_GT(measured_permille, 20);
    if (!sanitized) {
        EXPECT_LE(memory_bytes, most_memory_bytes + (full_form() ? 0 : most_waiting_bytes));
    }
}

TEST_F(Budget, what_a_full_ring_has_no_room_for_is_stood_for_and_no_error_is_lost) {
    Daemon daemon(directory_ / "run", with_budget());
    // More slow ones than a ring's last quarter has room for, as a busy CPU's preemptions make them.
    const std::string rules = "at=cudaLaunchKernel:/" + std::to_string(error_every) +
                              ":error=719,at=cudaLaunchKernel:/" + std::to_string(many_slow_every) +
                              ":spin=" + std::to_string(many_slow_us);
    Workload storm(
        {"calls", "--op", "launch", "--count", "600000", "--rate", "0", "--threads", "2", "--standin", rules});
    ASSERT_TRUE(daemon.wait_traced(storm.pid()));
    const auto pid = static_cast<uint32_t>(storm.pid());
    ASSERT_EQ(kill(daemon.process().pid(), SIGSTOP), 0);
    storm.open_gate();
    EXPECT_EQ(storm.finish(milliseconds(300'000)), 0) << storm.child().errors();
    ASSERT_EQ(kill(daemon.process().pid(), SIGCONT), 0);
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();

    const StoreContents store = read_store(daemon.store());
    const uint64_t made = figure_of(storm.child().output(), "launches");
    const Sums runtime = sum_up(store, pid, launch, many_slow_us * 1000);
    std::cout << made << " launches: " << runtime.rows << " rows for " << runtime.calls << " calls, heaviest "
              << runtime.heaviest << ", " << runtime.errors << " errors, lost " << lost_of(store, launch) << "\n";
    ASSERT_GE(made, 600'000u);
    EXPECT_GT(runtime.heaviest, 200u) << "the rings never filled";
    EXPECT_NEAR(static_cast<double>(runtime.errors), static_cast<double>(made / error_every), 2);
    expect_accounted(store, pid, runtime.calls, made);
    EXPECT_GE(runtime.slow + lost_of(store, launch), made / many_slow_every - 1) << "a slow call was left out unsaid";
    if (is_alone(store, pid)) {
        EXPECT_LE(lost_of(store, launch), made / 8)
            << "more than slow calls, and what no record of a thread came to stand for at its end";
    }
}

TEST_F(Budget, calls_within_the_budget_and_synchronisations_all_have_records_of_their_own) {
    Daemon daemon(directory_ / "run", with_budget());
    // Each has two records, which on a slow machine may cost 10 us each: 4 ms a second of 20 that are allowed.
    Workload calm({"calls", "--op", "launch", "--count", "600", "--rate", "200"});
    // Beyond its budget for four of the windows that it is held to; but a ring has room for all records, so that none
    // is left out for want of room, however late the daemon reads.
    Workload storm({"calls", "--op", "malloc", "--count", "8000", "--rate", "20000"});
    ASSERT_TRUE(daemon.wait_traced(calm.pid()));
    ASSERT_TRUE(daemon.wait_traced(storm.pid()));
    const auto calm_pid = static_cast<uint32_t>(calm.pid()), storm_pid = static_cast<uint32_t>(storm.pid());
    calm.open_gate();
    storm.open_gate();
    EXPECT_EQ(storm.finish(), 0);
    EXPECT_EQ(calm.finish(), 0);
    std::cout << "told: " << daemon.status().at("overhead") << "\n";
    ASSERT_EQ(daemon.stop(), 0);
    const StoreContents store = read_store(daemon.store());
    uint64_t calm_launches = 0, allocations = 0;
    for (const Event& event : store.events) {
        if (event.tgid != calm_pid && event.tgid != storm_pid) continue;
        EXPECT_EQ(event.weight, 1u) << op_name(event.op);
        if (event.tgid == calm_pid && event.op == launch) calm_launches += event.weight;
        if (event.tgid == storm_pid && event.op == op::cudaMalloc) allocations += event.weight;
    }
    EXPECT_EQ(calm_launches + lost_of(store, launch), 600u);
    EXPECT_EQ(allocations + lost_of(store, op::cudaMalloc), 4'000u);
}

}  // namespace
