// Which processes that call nothing are told of, and when it is found that they have ended.
#include "daemon/ingerod/live/host_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "core/model/host_event.h"
#include "tests/support/daemon.h"
#include "tests/unit/process_parts.h"

using namespace ingero;
using testing::Each;
using testing::Pair;

namespace {

class Bystanders : public testing::Test {
  protected:
    static constexpr uint32_t first_pid = 1'000'000;

    Bystanders() {
        for (const uint32_t pid : pids_) {
            std::filesystem::create_directory(folder(pid));
            write_stat(pid, 500);
            std::ofstream(folder(pid) / "status")
                << "Name:\tbackup\nTgid:\t" << pid << "\nPPid:\t1\nUid:\t7\t7\t7\t7\n";
        }
    }

    static std::vector<uint32_t> numbered(size_t count) {
        std::vector<uint32_t> pids(count);
        std::iota(pids.begin(), pids.end(), first_pid);
        return pids;
    }
    std::filesystem::path folder(uint32_t pid) const {
        return std::filesystem::path(proc_directory_.path()) / std::to_string(pid);
    }
    /// As proc_pid_stat(5) has it.
    void write_stat(uint32_t pid, int start) const {
        std::ofstream file(folder(pid) / "stat");
        file << pid << " (backup) S 1";
        for (int field = 5; field <= 52; ++field) file << ' ' << (field == 22 ? start : 0);
        file << '\n';
    }
    size_t ended() const {
        return static_cast<size_t>(
            std::count_if(told_.begin(), told_.end(), [](const auto& one) { return one.second == 1; }));
    }

    const test::TemporaryDirectory proc_directory_;
    const std::vector<uint32_t> pids_ = numbered(600);
    const ProcFs proc_{proc_directory_.path()};
    test::ProcessParts parts_{proc_};
    Processes processes_{parts_.loop, proc_, parts_.libraries, parts_.gate, parts_.owners, {}, {}};
    std::map<uint32_t, int> told_;  ///< by pid: how often with its end
    HostRows rows_{proc_,
                   processes_,
                   {.put_process = [this](const Process& one) { told_[one.key.pid] += one.exited_ns != 0; },
                    .put_event = [](const Event&) {}}};
};

TEST_F(Bystanders, AreToldOfOnceAndOfTheirEndOnceHoweverManyASweepLooksAt) {
    rows_.on_preemptors(pids_);
    rows_.on_preemptors(pids_);
    EXPECT_EQ(told_.size(), pids_.size());
    for (int sweep = 0; sweep < 5; ++sweep) rows_.sweep();
    EXPECT_EQ(ended(), 0u) << "they live";

    // Somewhere in a turn, every other one ends.
    size_t gone = 0;
    for (const uint32_t pid : pids_)
        if (pid % 2 == 0) gone += std::filesystem::remove_all(folder(pid)) != 0;
    rows_.sweep();
    EXPECT_GT(ended(), 0u);
    EXPECT_LT(ended(), gone) << "not all are looked at in one sweep";
    for (int sweep = 0; sweep < 3; ++sweep) rows_.sweep();
    EXPECT_EQ(ended(), gone);
    for (const auto& [pid, ends] : told_) EXPECT_EQ(ends, pid % 2 == 0) << pid;

    for (const uint32_t pid : pids_) std::filesystem::remove_all(folder(pid));
    for (int sweep = 0; sweep < 5; ++sweep) rows_.sweep();
    EXPECT_THAT(told_, Each(Pair(testing::_, 1)));
}

TEST_F(Bystanders, OneWhosePidIsAnothersByNowHasEnded) {
    rows_.on_preemptors({first_pid});
    write_stat(first_pid, 501);
    rows_.sweep();
    EXPECT_EQ(ended(), 1u);
}

}  // namespace
