// Which processes that call nothing are told of, and when it is found that they have ended; whose sockets are, and how
// often that is looked up.
#include "daemon/ingerod/live/host_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/model/host_event.h"
#include "tests/support/daemon.h"
#include "tests/unit/process_parts.h"

using namespace ingero;
using testing::Each;
using testing::Pair;

namespace {

class OfProcesses : public testing::Test {
  protected:
    void write_process(uint32_t pid) const {
        std::filesystem::create_directory(folder(pid));
        write_stat(pid, 500);
        std::ofstream(folder(pid) / "status") << "Name:\tbackup\nTgid:\t" << pid << "\nPPid:\t1\nUid:\t7\t7\t7\t7\n";
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

    const test::TemporaryDirectory proc_directory_;
    const ProcFs proc_{proc_directory_.path()};
    test::ProcessParts parts_{proc_};
};

class Bystanders : public OfProcesses {
  protected:
    static constexpr uint32_t first_pid = 1'000'000;

    Bystanders() {
        for (const uint32_t pid : pids_) write_process(pid);
    }

    static std::vector<uint32_t> numbered(size_t count) {
        std::vector<uint32_t> pids(count);
        std::iota(pids.begin(), pids.end(), first_pid);
        return pids;
    }
    size_t ended() const {
        return static_cast<size_t>(
            std::count_if(told_.begin(), told_.end(), [](const auto& one) { return one.second == 1; }));
    }

    const std::vector<uint32_t> pids_ = numbered(600);
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

/// Two processes are traced, whose pids are those of processes that live: each is watched for its end.
class Sockets : public OfProcesses {
  protected:
    static constexpr uint32_t first = 1;

    Sockets() {
        for (const uint32_t pid : {first, second_}) {
            write_process(pid);
            std::filesystem::create_directory(folder(pid) / "fd");
            processes_.on_call({pid, proc_.start_of(pid).value_or(0)});
        }
    }
    void SetUp() override { ASSERT_EQ(processes_.traced(), 2u); }

    void open(uint32_t pid, uint64_t inode) const {
        const std::string number = std::to_string(inode);
        std::filesystem::create_symlink("socket:[" + number + "]", folder(pid) / "fd" / number);
    }
    /// By the row that is stored of it; 0 where none is.
    uint32_t owner_of(uint64_t inode) {
        owner_ = 0;
        SocketRow row;
        row.event.op = op_retransmit;
        row.inode = inode;
        rows_.on_socket(row);
        return owner_;
    }

    const uint32_t second_ = static_cast<uint32_t>(getpid());
    Processes processes_{parts_.loop,
                         proc_,
                         parts_.libraries,
                         parts_.gate,
                         parts_.owners,
                         {},
                         {.on_change = [] {},
                          .put_process = [](const Process&) {},
                          .on_not_traced = [](const ProcessKey&) {},
                          .put_gap = [](const GapRow&) {},
                          .look_at_program = [](uint32_t, const Mapping&, uint64_t) {},
                          .on_exec = [](const ProcessKey&) {},
                          .on_evicted = [](const ProcessKey&) {}}};
    uint64_t now_ns_ = 1'000'000 * test::ms;
    uint64_t reading_takes_ns_ = 0;  ///< from each time that the clock is asked for to the next
    uint32_t owner_ = 0;
    HostRows rows_{proc_,
                   processes_,
                   {.put_process = [](const Process&) {}, .put_event = [this](const Event& one) { owner_ = one.tgid; }},
                   [this] { return std::exchange(now_ns_, now_ns_ + reading_takes_ns_); }};
};

TEST_F(Sockets, AreThoseOfTracedProcessesAndLookedForFiveTimesASecondAtMost) {
    open(first, 100);
    EXPECT_EQ(owner_of(100), first);
    open(second_, 200);
    EXPECT_EQ(owner_of(200), 0u) << "it was just looked for all of them";
    now_ns_ += 199 * test::ms;
    EXPECT_EQ(owner_of(200), 0u);
    now_ns_ += 1 * test::ms;
    EXPECT_EQ(owner_of(200), second_);
    EXPECT_EQ(owner_of(100), first);
    now_ns_ += 200 * test::ms;
    EXPECT_EQ(owner_of(300), 0u) << "it is nobody's who is traced";
}

TEST_F(Sockets, WhereALookTakesLongItGoesOnLaterFromWhereItStopped) {
    open(first, 100);
    open(second_, 200);
    reading_takes_ns_ = 100 * test::ms;
    EXPECT_EQ(owner_of(200), 0u) << "the first process took too long for the second one to be read";
    reading_takes_ns_ = 0;
    EXPECT_EQ(owner_of(100), first);

    // The look began at the second reading and ended at the third one, from which on the clock moved once more.
    const uint64_t looked_ns = now_ns_ - 100 * test::ms;
    open(first, 101);
    now_ns_ = looked_ns + 20 * 100 * test::ms - 1;
    EXPECT_EQ(owner_of(200), 0u) << "a pause of twenty times the look";
    now_ns_ += 1;
    EXPECT_EQ(owner_of(200), second_);
    EXPECT_EQ(owner_of(100), first);
    EXPECT_EQ(owner_of(101), 0u) << "the first process was not read again";
    now_ns_ += 200 * test::ms;
    EXPECT_EQ(owner_of(101), first);
}

}  // namespace
