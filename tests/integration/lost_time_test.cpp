// What the daemon says a cause cost, against what the same calls would have taken without it.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/model/time.h"
#include "tests/support/control_groups.h"
#include "tests/support/daemon.h"
#include "tests/support/undisturbed.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

struct Case {
    std::string name;
    std::string standin;  ///< its options
    uint64_t kernel_us = 0;
    bool hog = false;
    std::string kind;
    bool bounds_only = false;    ///< each cycle is disturbed alike
    bool costs_nothing = false;  ///< the device works on
    uint64_t quota_us = 0;       ///< of a CPU in each 100 ms; 0: no such limit
};

void PrintTo(const Case& one, std::ostream* out) {
    *out << one.name;
}

class LostTime : public testing::TestWithParam<Case> {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        if (sanitized) GTEST_SKIP() << "the daemon's sanitizer build is a hog of its own";
    }
};

TEST_P(LostTime, is_what_the_same_calls_took_longer) {
    const Case& one = GetParam();
    const TemporaryDirectory directory;
    const std::string log = directory / "truth";
    std::ofstream(directory / "with-waits.conf") << "[capture]\noverhead_budget = 0\n";
    Daemon daemon(directory / "run", {"--config", directory / "with-waits.conf"});
    Workload workload({"--standin", one.standin, "--kernel-us", std::to_string(one.kernel_us), "--cpu", "0", "--log",
                       log, "--duration", full_form() ? "5" : "3", "train", "--launches", "50", "--batch-kib", "1"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const auto pid = static_cast<uint32_t>(workload.pid());
    std::optional<CpuControlGroup> group;
    if (one.quota_us != 0) {
        group.emplace(one.quota_us);
        if (!group->usable()) GTEST_SKIP() << "SKIPPED: no cgroup with a cpu controller";
        group->take(workload.pid());
    }
    std::optional<Hog> hog;
    if (one.hog) hog.emplace(0, "cpu-hog");
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0);
    hog.reset();
    const Finished explain =
        run({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json", "explain", "--pid", std::to_string(pid)});
    ASSERT_EQ(daemon.stop(), 0);
    const json answer = json::parse(explain.output, nullptr, false);
    ASSERT_TRUE(answer.is_object()) << explain.output << explain.errors;
    const auto truth = standin::GroundTruth::open(log);
    ASSERT_TRUE(truth);
    const auto replayed = replay_undisturbed(*truth, pid, one.kernel_us * 1'000);
    ASSERT_TRUE(replayed);
    const auto lost = static_cast<double>(replayed->lost_ns());

    // Whatever else runs on this machine is a cause of its own, with a finding of its own.
    double low = 0, point = 0, high = 0, low_of_kind = 0, high_of_kind = 0;
    bool is_found = one.kind.empty();
    for (const json& finding : answer["findings"]) {
        const bool is_of_kind = finding["kind"] == one.kind;
        is_found |= is_of_kind;
        low += finding["lost_low_ns"].get<double>();
        point += finding["lost_ns"].get<double>();
        high += finding["lost_high_ns"].get<double>();
        if (is_of_kind) low_of_kind += finding["lost_low_ns"].get<double>();
        if (is_of_kind) high_of_kind += finding["lost_high_ns"].get<double>();
        std::cout << "  " << finding["summary"].get<std::string>() << "\n";
    }
    std::cout << one.name << ": of " << format_duration(replayed->took_ns) << " really lost "
              << format_duration(replayed->lost_ns()) << ", told " << point / 1e9 << " s (" << low / 1e9 << " to "
              << high / 1e9 << ")\n";
    EXPECT_TRUE(is_found) << answer["findings"].dump(1);
    // It never says more than was lost, whatever the machine does. The rest wants a host at rest: what others took of
    // it in parts too small for a finding is in the truth.
    const double next_to_nothing = 0.01 * static_cast<double>(replayed->took_ns);
    EXPECT_LE(low, lost + (one.costs_nothing ? next_to_nothing : 0));
    if (one.costs_nothing) {
        EXPECT_LE(low_of_kind, next_to_nothing);
    }
    if (!full_form()) return;
    if (one.costs_nothing) {
        EXPECT_LE(high_of_kind, next_to_nothing);
        return;
    }
    EXPECT_GE(high, lost);
    if (one.bounds_only) return;
    EXPECT_LE(high - low, 0.5 * lost);
    EXPECT_NEAR(point, lost, 0.2 * lost);
}

INSTANTIATE_TEST_SUITE_P(
    Of, LostTime,
    testing::Values(Case{"a_hog_beside_a_wait_that_spins", "sync=spin", 190, true, "cpu-contention"},
                    Case{"a_hog_beside_a_wait_that_sleeps", "sync=block", 190, true, "cpu-contention"},
                    Case{"a_hog_beside_a_wait_that_yields", "sync=yield", 190, true, "cpu-contention", true},
                    Case{"a_hog_beside_launches", "call_ns=50000", 1, true, "cpu-contention"},
                    Case{"a_lock_before_launches", "at=cudaLaunchKernel:/500:mutex=20000", 190, false, "lock-wait"},
                    Case{"a_lock_behind_which_the_device_works", "at=cudaLaunchKernel:/500:mutex=5000", 190, false,
                         "lock-wait", false, true},
                    Case{"a_read_before_launches", "at=cudaLaunchKernel:/500:disk=16384", 190, false, "own-io-wait"},
                    Case{"a_quota_of_its_cgroup", "sync=spin", 190, false, "cpu-contention", false, false, 60'000},
                    Case{"nothing_amiss", "sync=spin", 190, false, "", false, true}),
    [](const auto& one) { return one.param.name; });

}  // namespace
