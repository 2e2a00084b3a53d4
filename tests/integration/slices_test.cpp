// The stage of slices: a storm's hot calls are seen for a share of the time only, and all else as before.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "core/model/op.h"
#include "core/model/unique_fd.h"
#include "core/store/verify.h"
#include "core/symbols/elf_symbols.h"
#include "tests/support/code.h"
#include "tests/support/daemon.h"
#include "tests/support/mount_point.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

constexpr OpId launch = op::cudaLaunchKernel;

class Slices : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        const std::string config = directory_ / "budget.conf";
        std::ofstream(config) << "[capture]\noverhead_budget = 2\nwait_floor = \"off\"\n";
        daemon_.emplace(run_, std::vector<std::string>{"--config", config});
        can_slice_ = daemon_->call("probes").at("attach_method") == "uprobe-session";
    }

    /// What `processes` says of it; null where nothing is.
    json slices_of(int pid) {
        const json answer = daemon_->call("processes");
        for (const json& process : answer.at("processes"))
            if (process.at("pid") == pid) return process.at("slices");
        return nullptr;
    }
    bool wait_sliced(int pid) {
        return wait_until([&] {
            const json slices = slices_of(pid);
            return slices.is_object() && slices.at("share").is_number() && slices.at("share") < 0.1;
        });
    }
    /// Coverage gaps of the process for this reason; those that last have no end.
    std::vector<json> gaps_of(int pid, const std::string& reason) {
        std::vector<json> found;
        const std::string of = " (pid " + std::to_string(pid) + ")";
        const json answer = daemon_->call_when_stored("stats", {{"since_ns", 600'000'000'000}});
        for (const json& gap : answer.at("coverage").at("gaps")) {
            const auto text = gap.at("reason").get<std::string>();
            if (text.starts_with(reason + ": ") && text.ends_with(of)) found.push_back(gap);
        }
        return found;
    }
    uint64_t calls_of(int pid) {
        uint64_t calls = 0;
        const json answer = daemon_->call("stats", {{"since_ns", 600'000'000'000}, {"pid", pid}});
        for (const json& op : answer.at("ops"))
            if (op.at("op") == "cudaLaunchKernel") calls += op.at("count").get<uint64_t>();
        return calls;
    }

    const TemporaryDirectory directory_;
    std::string run_ = directory_ / "run";
    std::optional<Daemon> daemon_;
    bool can_slice_ = false;
};

class SlicesOnASmallDisk : public Slices {
  protected:
    void SetUp() override {
        if (!disk_.mount("tmpfs", "size=24m")) GTEST_SKIP() << "needs the right to mount a tmpfs";
        run_ = disk_.path() + "/run";
        Slices::SetUp();
    }
    void TearDown() override { daemon_.reset(); }

    MountPoint disk_{directory_ / "disk"};
};

/// What the probes of a process's runtime changed in its code, and whether one stands at cudaLaunchKernel.
class RuntimeCode {
  public:
    explicit RuntimeCode(int pid) : pid_(pid) {
        const std::string path = mapped_cudart(pid);
        std::ifstream library(path, std::ios::binary);
        file_.assign(std::istreambuf_iterator<char>(library), {});
        const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
        const auto symbols = read_function_symbols(fd.get(), {"cudaLaunchKernel"}, false);
        if (symbols && symbols->functions.size() == 1)
            launch_ = symbols->functions[0].file_offset;
        else
            ADD_FAILURE() << path;
    }

    bool is_as_in_its_file() const { return changed_code(pid_, file_).empty(); }
    bool has_launch_probe() const { return changed_code(pid_, file_).contains(launch_); }
    /// Asks without a pause: a slice is short.
    bool wait_launch_probe() const {
        const uint64_t until_ns = monotonic_now_ns() + 60'000'000'000;
        while (monotonic_now_ns() < until_ns)
            if (has_launch_probe()) return true;
        return false;
    }

  private:
    int pid_;
    std::vector<char> file_;
    uint64_t launch_ = 0;
};

std::vector<std::string> launches(const std::string& count, const std::string& rate) {
    return {"calls", "--op", "launch", "--count", count, "--rate", rate};
}

TEST_F(Slices, a_storm_ends_in_slices_and_leaves_what_others_call_whole) {
    if (!can_slice_) GTEST_SKIP() << "this kernel cannot attach to one process alone";
    Workload storm(launches("1000000000", "0"));
    Workload before(launches("600", "200")), after(launches("600", "200"));
    ASSERT_TRUE(daemon_->wait_traced(storm.pid()));
    ASSERT_TRUE(daemon_->wait_traced(before.pid()));
    ASSERT_TRUE(daemon_->wait_traced(after.pid()));
    const int pids[] = {before.pid(), after.pid()};
    const uint64_t opened_ns = monotonic_now_ns();
    storm.open_gate();
    before.open_gate();
    ASSERT_TRUE(wait_sliced(storm.pid())) << daemon_->process().output();
    const json slices = slices_of(storm.pid());
    EXPECT_EQ(slices.at("ops"), json::array({"cudaLaunchKernel", "cuLaunchKernel"}));
    EXPECT_TRUE(slices.at("reason").is_null());
    EXPECT_EQ(daemon_->status().at("overhead").at("in_slices"), 1);
    const auto gaps = gaps_of(storm.pid(), "sliced");
    ASSERT_EQ(gaps.size(), 1u);
    EXPECT_TRUE(gaps[0].at("reason").get<std::string>().starts_with("sliced: cudaLaunchKernel, cuLaunchKernel"));

    // Estimates of one thread's time in calls, since before the first: mostly in slices.
    for (Patience slices_pass(milliseconds(5'000)); slices_pass.lasts();) {
    }
    const json stats = daemon_->call("stats", {{"since_ns", 600'000'000'000}, {"pid", storm.pid()}});
    const uint64_t passed_ns = monotonic_now_ns() - opened_ns;
    uint64_t in_launches_ns = 0;
    for (const json& op : stats.at("ops"))
        if (op.at("op") == "cudaLaunchKernel") in_launches_ns = op.at("total_ns");
    EXPECT_LE(in_launches_ns, passed_ns + passed_ns / 20) << "more time than there was";
    EXPECT_GE(in_launches_ns, passed_ns / 20);

    after.open_gate();
    EXPECT_EQ(before.finish(), 0);
    EXPECT_EQ(after.finish(), 0);
    EXPECT_TRUE(slices_of(storm.pid()).is_object());
    kill(storm.pid(), SIGKILL);
    storm.finish();
    ASSERT_EQ(daemon_->stop(), 0) << daemon_->process().output();

    const StoreContents store = read_store(daemon_->store());
    for (const int whole : pids) {
        uint64_t calls = 0;
        for (const Event& event : store.events)
            if (event.tgid == static_cast<uint32_t>(whole) && event.op == launch) calls += event.weight;
        EXPECT_LE(calls, 600u);
        EXPECT_GE(calls + store.lost_to_rings(), 600u) << (whole == pids[0] ? "before" : "after");
    }
}

TEST_F(Slices, a_process_that_calms_down_is_seen_in_full_again) {
    if (!can_slice_) GTEST_SKIP() << "this kernel cannot attach to one process alone";
    Workload storm(launches("1000000000", "0"));
    ASSERT_TRUE(daemon_->wait_traced(storm.pid()));
    const int pid = storm.pid();
    storm.open_gate();
    ASSERT_TRUE(wait_sliced(pid));
    ASSERT_EQ(kill(pid, SIGSTOP), 0);
    ASSERT_TRUE(wait_until([&] { return slices_of(pid).is_null(); })) << daemon_->process().output();
    const auto gaps = gaps_of(pid, "sliced");
    ASSERT_EQ(gaps.size(), 1u);
    const uint64_t called = calls_of(pid);
    ASSERT_EQ(kill(pid, SIGCONT), 0);
    EXPECT_TRUE(wait_until([&] { return calls_of(pid) > called; })) << "its calls are not seen any more";
    EXPECT_TRUE(wait_sliced(pid));
    kill(pid, SIGKILL);
    storm.finish();
    EXPECT_TRUE(wait_until([&] { return daemon_->status().at("overhead").at("in_slices") == 0; }));
    EXPECT_EQ(gaps_of(pid, "sliced").size(), 2u);
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Slices, one_that_comes_while_a_storm_is_in_slices_is_seen_and_its_first_calls_are_told_unseen) {
    if (!can_slice_) GTEST_SKIP() << "this kernel cannot attach to one process alone";
    Workload storm(launches("1000000000", "0"));
    ASSERT_TRUE(daemon_->wait_traced(storm.pid()));
    storm.open_gate();
    ASSERT_TRUE(wait_sliced(storm.pid()));
    Workload newcomer(launches("1000000000", "100"));
    ASSERT_TRUE(daemon_->wait_traced(newcomer.pid()));
    newcomer.open_gate();
    EXPECT_TRUE(wait_until([&] { return calls_of(newcomer.pid()) != 0; })) << daemon_->process().output();
    EXPECT_TRUE(wait_until([&] { return !gaps_of(newcomer.pid(), "late-attach").empty(); }));
    EXPECT_TRUE(slices_of(newcomer.pid()).is_null());
    for (Workload* one : {&storm, &newcomer}) {
        kill(one->pid(), SIGKILL);
        one->finish();
    }
    EXPECT_EQ(daemon_->stop(), 0);
}

// Whoever holds up the daemon holds up nobody else: no slice is open meanwhile.
TEST_F(Slices, a_daemon_that_stands_still_leaves_no_slice_open) {
    if (!can_slice_) GTEST_SKIP() << "this kernel cannot attach to one process alone";
    Workload storm(launches("1000000000", "0"));
    ASSERT_TRUE(daemon_->wait_traced(storm.pid()));
    storm.open_gate();
    ASSERT_TRUE(wait_sliced(storm.pid()));
    ASSERT_EQ(kill(daemon_->process().pid(), SIGSTOP), 0);
    const uint64_t stopped_ns = monotonic_now_ns();
    for (Patience still(milliseconds(3'000)); still.lasts();) {
    }
    const uint64_t until_ns = monotonic_now_ns();
    ASSERT_EQ(kill(daemon_->process().pid(), SIGCONT), 0);
    const auto pid = static_cast<uint32_t>(storm.pid());
    kill(storm.pid(), SIGKILL);
    storm.finish();
    ASSERT_EQ(daemon_->stop(), 0);
    const StoreContents store = read_store(daemon_->store());
    uint64_t hot = 0;
    // A slice that was open when it stopped ends by itself.
    for (const Event& event : store.events)
        hot += event.tgid == pid && event.op == launch && event.start_ns > stopped_ns + 200'000'000 &&
               event.start_ns < until_ns;
    EXPECT_EQ(hot, 0u);
}

// What it had attached to goes with it, also what was there for a moment only.
TEST_F(Slices, a_daemon_that_is_killed_in_a_slice_leaves_the_code_of_the_program_as_it_was) {
    if (!can_slice_) GTEST_SKIP() << "this kernel cannot attach to one process alone";
    if (is_beside_another_ingerod()) GTEST_SKIP() << "another ingerod has breakpoints of its own";
    Workload storm(launches("1000000000", "0"));
    ASSERT_TRUE(daemon_->wait_traced(storm.pid()));
    const RuntimeCode code(storm.pid());
    EXPECT_TRUE(code.has_launch_probe());
    storm.open_gate();
    ASSERT_TRUE(wait_sliced(storm.pid()));
    ASSERT_TRUE(wait_until([&] { return !code.has_launch_probe(); }));
    const bool in_slice = code.wait_launch_probe();
    kill(daemon_->process().pid(), SIGKILL);
    EXPECT_TRUE(in_slice);
    EXPECT_TRUE(wait_until([&] { return code.is_as_in_its_file(); }));
    kill(storm.pid(), SIGKILL);
    storm.finish();
}

// Slices come and go whatever becomes of what is to be stored.
TEST_F(SlicesOnASmallDisk, come_and_go_as_before_while_it_is_full) {
    if (!can_slice_) GTEST_SKIP() << "this kernel cannot attach to one process alone";
    if (is_beside_another_ingerod()) GTEST_SKIP() << "another ingerod has breakpoints of its own";
    Workload storm(launches("1000000000", "0"));
    ASSERT_TRUE(daemon_->wait_traced(storm.pid()));
    const RuntimeCode code(storm.pid());
    storm.open_gate();
    ASSERT_TRUE(wait_sliced(storm.pid()));
    std::ofstream others(disk_.path() + "/others", std::ios::binary);
    const std::string block(4'096, 'x');
    while (others.write(block.data(), 4'096).flush()) {
    }
    ASSERT_EQ(std::filesystem::space(disk_.path()).free, 0u);
    for (int slice = 0; slice < 3; ++slice) {
        ASSERT_TRUE(code.wait_launch_probe()) << slice;
        ASSERT_TRUE(wait_until([&] { return !code.has_launch_probe(); })) << slice;
    }
    EXPECT_TRUE(slices_of(storm.pid()).is_object());
    EXPECT_EQ(daemon_->stop(), 0) << daemon_->process().output();
    EXPECT_TRUE(wait_until([&] { return code.is_as_in_its_file(); }));
    kill(storm.pid(), SIGKILL);
    storm.finish();
    const auto verified = verify_store(daemon_->store());
    EXPECT_TRUE(verified && verified->is_clean());
}

}  // namespace
