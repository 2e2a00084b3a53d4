// What a blocked call waited for, who ended the wait, and who ran instead.
#include <gtest/gtest.h>

#include "core/model/op.h"
#include "tests/support/daemon.h"
#include "tests/support/others_work.h"

using namespace ingero;
using namespace ingero::test;

namespace {

struct Wait {
    const char* reason;  ///< of the workload's option
    BlockedReason expected;
    WakerKind waker;
};

void PrintTo(const Wait& wait, std::ostream* stream) {
    *stream << wait.reason;
}

class Waits : public testing::TestWithParam<Wait> {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }
};

TEST_P(Waits, are_classed_by_what_was_waited_for) {
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    Workload workload({"blocked", "--reason", GetParam().reason, "--count", "20"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0) << workload.child().errors();
    ASSERT_EQ(daemon.stop(), 0);
    size_t blocked = 0, right = 0, waker_right = 0;
    for (const Event& event : read_store(daemon.store()).events) {
        if (event.depth != 0 || event.longest_sleep_ns < 300'000) continue;
        blocked++;
        right += event.blocked_reason == GetParam().expected;
        waker_right += event.waker_kind == GetParam().waker;
        if (event.blocked_reason != GetParam().expected)
            std::cout << "  said " << to_string(event.blocked_reason) << ", system call " << event.blocked_syscall
                      << ", " << event.longest_sleep_ns << " ns\n";
    }
    ASSERT_GE(blocked, 10u);
    EXPECT_GE(right * 10, blocked * 9);
    EXPECT_GE(waker_right * 10, blocked * 9);
}

INSTANTIATE_TEST_SUITE_P(All, Waits,
                         testing::Values(Wait{"futex", BlockedReason::futex, WakerKind::task},
                                         Wait{"socket", BlockedReason::socket, WakerKind::task},
                                         Wait{"pipe", BlockedReason::pipe, WakerKind::task},
                                         Wait{"poll", BlockedReason::poll, WakerKind::task},
                                         Wait{"sleep", BlockedReason::timer, WakerKind::interrupt},
                                         Wait{"child", BlockedReason::child, WakerKind::task}),
                         [](const auto& info) { return std::string(info.param.reason); });

TEST(WaitsOnDisk, are_classed_as_disk) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    Workload workload({"blocked", "--reason", "disk", "--count", "50"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0) << workload.child().errors();
    ASSERT_EQ(daemon.stop(), 0);
    size_t slept = 0, disk = 0;
    for (const Event& event : read_store(daemon.store()).events) {
        if (event.depth != 0 || event.longest_sleep_ns < 30'000) continue;
        slept++;
        disk += event.blocked_reason == BlockedReason::disk;
    }
    ASSERT_GE(slept, 10u);
    EXPECT_GE(disk * 10, slept * 9);
}

TEST(DeviceWait, of_a_spinning_synchronisation_is_neither_work_nor_contention) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    Workload workload({"sync-loop", "--kernel-us", "2000", "--duration", "4", "--cpu", "0"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_EQ(workload.finish(), 0);
    const auto stats = daemon.call("stats");
    const auto explain = daemon.call("explain");
    ASSERT_EQ(daemon.stop(), 0);
    bool seen = false;
    for (const auto& op : stats.at("ops")) {
        if (op.at("op") != "cudaStreamSync") continue;
        seen = true;
        EXPECT_EQ(op.at("on_cpu_ns"), 0);
        // What others took of it is not waiting for the device.
        const double ran = op.at("total_ns").get<double>() - op.at("runnable_ns").get<double>();
        EXPECT_GE(op.at("device_wait_ns").get<double>(), 0.9 * ran);
    }
    EXPECT_TRUE(seen);
    if (sanitized) return;  // a sanitizer build of the daemon on two CPUs is itself a hog
    const uint64_t delay_ns = run_delay_ns(workload.child().output());
    EXPECT_EQ(not_others_work(explain.at("findings"), delay_ns), nlohmann::json::array()) << delay_ns;
}

}  // namespace
