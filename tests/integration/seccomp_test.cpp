// Kernels that let a program's seccomp filter meet the system call by which a probed call returns, as a test makes one
// of any: what is under a filter there has no return probed, and is told not to be traced.
#include <gmock/gmock.h>

#include <fstream>

#include "daemon/ingerod/probes/kernel/kernel_features.h"
#include "test_paths.h"
#include "tests/integration/attach_target.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

namespace {

/// The number that containers' profiles do not know. Refusing it is no matter where the kernel lets it pass.
constexpr const char* uretprobe = "filter 335";

class Seccomp : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }
    void start_daemon(std::vector<std::string> more) {
        const std::string config = directory_ / "ingerod.conf";
        std::ofstream(config) << "[capture]\noverhead_budget = 0\n";
        more.insert(more.end(), {"--config", config, "--deny-feature", "return-passes-filters"});
        daemon_.emplace(directory_ / "run", std::move(more));
    }
    uint64_t recorded(int pid) {
        const json answer = daemon_->call_when_stored("stats", {{"since_ns", 600'000'000'000}, {"pid", pid}});
        uint64_t sum = 0;
        for (const json& op : answer.at("ops"))
            if (op.at("op") == "cudaDeviceSync") sum += op.at("count").get<uint64_t>();
        return sum;
    }
    std::vector<std::string> gaps_of(int pid) {
        const json answer = daemon_->call("stats", {{"since_ns", 600'000'000'000}});
        std::vector<std::string> found;
        for (const json& gap : answer.at("coverage").at("gaps"))
            if (const std::string text = gap.at("reason"); text.ends_with(" (pid " + std::to_string(pid) + ")"))
                found.push_back(text);
        return found;
    }

    const TemporaryDirectory directory_;
    const std::string library_ = CUDART_LIBRARY;
    std::optional<Daemon> daemon_;
};

TEST_F(Seccomp, has_no_return_probed_of_a_thread_under_a_filter_that_the_return_would_meet) {
    KernelFeatures features;
    if (!features.has(Feature::uprobe_session)) GTEST_SKIP() << "no uprobe session: nothing is attached at all";
    start_daemon({});
    AttachTarget open, filtered, later;
    ASSERT_EQ(filtered.tell(uretprobe), "filtered");
    for (AttachTarget* target : {&open, &filtered, &later}) {
        target->load(library_);
        ASSERT_TRUE(daemon_->wait_traced(target->pid()));
    }
    for (AttachTarget* target : {&open, &filtered, &later}) ASSERT_EQ(target->tell("calls 1000"), "done");
    EXPECT_EQ(recorded(open.pid()), 1000u);
    EXPECT_EQ(recorded(filtered.pid()), 0u);
    EXPECT_EQ(recorded(later.pid()), 1000u);
    // Whenever a thread enters one.
    ASSERT_EQ(later.tell(uretprobe), "filtered");
    ASSERT_EQ(later.tell("calls 1000"), "done");
    EXPECT_EQ(recorded(later.pid()), 1000u);
    const auto told = testing::Contains(
        HasSubstr("refused: all calls: it has a seccomp filter, and this kernel could kill it when traced"));
    Patience limit;
    for (AttachTarget* target : {&filtered, &later}) {
        while (!testing::Value(gaps_of(target->pid()), told) && limit.lasts()) continue;
        EXPECT_THAT(gaps_of(target->pid()), told);
    }
    EXPECT_THAT(gaps_of(open.pid()), Not(told));
    EXPECT_EQ(daemon_->stop(), 0);
    EXPECT_THAT(daemon_->process().output(),
                AllOf(HasSubstr("no program with a seccomp filter (containers) is traced"),
                      ContainsRegex("not traced: all calls of process [0-9]+: it has a seccomp filter")));
}

/// They probe the return of all calls of a function, or of none.
TEST_F(Seccomp, leaves_libraries_alone_there_where_the_kernel_has_no_sessions) {
    start_daemon({"--deny-feature", "uprobe-session"});
    AttachTarget target;
    target.load(library_);
    const auto told = testing::Contains(HasSubstr(": this kernel may kill programs under a seccomp filter"));
    Patience limit;
    while (!testing::Value(gaps_of(target.pid()), told) && limit.lasts()) continue;
    EXPECT_THAT(gaps_of(target.pid()), told);
    ASSERT_EQ(target.tell("calls 1000"), "done");
    EXPECT_EQ(recorded(target.pid()), 0u);
    EXPECT_EQ(daemon_->stop(), 0);
    EXPECT_THAT(daemon_->process().output(), HasSubstr("no program is traced, since this kernel could kill it"));
}

}  // namespace
