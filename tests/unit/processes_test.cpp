// However many processes a user has, and whatever they do, what the daemon holds and does for them is bounded.
#include "daemon/ingerod/targets/processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/model/unique_fd.h"
#include "tests/support/daemon.h"
#include "tests/unit/process_parts.h"

using namespace ingero;

namespace {

constexpr uint64_t waiting_us = 60'000'000;
constexpr uint32_t usual_uid = 4'000'001;

/// A process that waits to be ended, of another user where this one is root.
class Child {
  public:
    Child() : pid_(fork()) {
        if (pid_ != 0) return;
        if (geteuid() == 0 && setuid(usual_uid) != 0) _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    ~Child() { end(); }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    void end() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(std::exchange(pid_, 0), nullptr, 0);
    }
    uint32_t pid() const { return static_cast<uint32_t>(pid_); }

  private:
    pid_t pid_;
};

class WatchedProcesses : public testing::Test {
  protected:
    static constexpr uint64_t most = 3;

    explicit WatchedProcesses(uint64_t look_period_ns = ProcessLimits{}.look_period_ns, const ProcFs& proc = ProcFs())
        : limits_{.total = 100, .of_a_user = most, .look_burst = 20, .look_period_ns = look_period_ns}, proc_(proc) {}
    void SetUp() override {
        if (getuid() == 0 && geteuid() != 0) GTEST_SKIP() << "its children would be root's, who has no limit";
    }

    ProcessKey key_of(const Child& child) {
        // Its uid is that of the one who starts it for a moment.
        const uint32_t uid = geteuid() == 0 ? usual_uid : getuid();
        while (proc_.user_of(child.pid()) != uid) sched_yield();
        return {child.pid(), proc_.start_of(child.pid()).value_or(0)};
    }
    ingero_process_record change_of(const ProcessKey& key, ingero_process_change change) const {
        ingero_process_record record{};
        record.type = INGERO_RECORD_PROCESS;
        record.change = change;
        record.time_ns = monotonic_now_ns();
        record.process_start_ns = key.start_ns;
        record.tgid = key.pid;
        record.uid = geteuid() == 0 ? usual_uid : getuid();
        return record;
    }
    /// Until one has to wait.
    void use_up_looks(const ProcessKey& key) {
        while (processes_.late() == 0) processes_.on_change(change_of(key, INGERO_PROCESS_EXEC));
    }
    void wait_for_looks() {
        while (processes_.late() != 0 && sd_event_run(parts_.loop.get(), waiting_us) > 0) continue;
    }

    const ProcessLimits limits_;

    const ProcFs proc_;
    test::ProcessParts parts_{proc_};
    static constexpr ProcessKey everyone{};
    std::vector<ProcessKey> executed_, evicted_, interrupted_;
    uint64_t interrupted_until_ = 0;
    std::vector<GapRow> gaps_;
    std::map<ProcessKey, Process> rows_;
    Processes processes_{parts_.loop,
                         proc_,
                         parts_.libraries,
                         parts_.gate,
                         parts_.owners,
                         limits_,
                         {.on_change = [] {},
                          .put_process = [this](const Process& process) { rows_[process.key] = process; },
                          .on_not_traced = [](const ProcessKey&) {},
                          .put_gap = [this](GapRow gap) { gaps_.push_back(std::move(gap)); },
                          .look_at_program = [](uint32_t, const Mapping&, uint64_t) {},
                          .on_exec = [this](const ProcessKey& key) { executed_.push_back(key); },
                          .on_evicted = [this](const ProcessKey& key) { evicted_.push_back(key); },
                          .on_interrupted =
                              [this](std::optional<ProcessKey> key, const Window& time) {
                                  interrupted_.push_back(key.value_or(everyone));
                                  interrupted_until_ = time.to_ns;
                              }}};
};

using OfAUser = WatchedProcesses;

/// No look is allowed beyond those at once.
class OfABusyUser : public WatchedProcesses {
  protected:
    OfABusyUser() : WatchedProcesses(3'600'000'000'000) {}
};

struct HasFolder {
    const test::TemporaryDirectory folder_;
};

/// Of which a pipe that nobody writes to is what a file of /proc should be.
class AProcessThatIsHeldUp : public HasFolder, public WatchedProcesses {
  protected:
    AProcessThatIsHeldUp()
        : WatchedProcesses(ProcessLimits{}.look_period_ns,
                           ProcFs(folder_.path(), {.patience = std::chrono::milliseconds(20)})) {
        std::filesystem::create_directory(folder_ / std::to_string(child_.pid()));
        const std::string uid = std::to_string(usual_uid);
        std::ofstream(of("status")) << "Tgid:\t" << child_.pid() << "\nUid:\t" << uid << "\n";
        std::ofstream(of("stat")) << child_.pid() << " (x) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1000 1";
        std::ofstream(of("maps")) << "1000-2000 r-xp 00000000 08:01 7 /lib/libcudart.so.12\n";
    }
    std::string of(const std::string& file) const { return folder_ / (std::to_string(child_.pid()) + "/" + file); }
    void hold_up(const std::string& file) {
        std::filesystem::rename(of(file), folder_ / file);
        ASSERT_EQ(mkfifo(of(file).c_str(), 0600), 0);
    }
    void let_go(const std::string& file) {
        const UniqueFd end(open(of(file).c_str(), O_RDWR | O_CLOEXEC));  // whoever waits for it goes on
        std::filesystem::rename(folder_ / file, of(file));
    }
    void hold_back(const std::string& file) const { std::filesystem::rename(of(file), folder_ / file); }
    void bring_back(const std::string& file) const { std::filesystem::rename(folder_ / file, of(file)); }
    void expect_found_once_let_go(const std::string& file) {
        EXPECT_TRUE(processes_.all().empty());
        let_go(file);
        while (rows_.empty() && sd_event_run(parts_.loop.get(), waiting_us) > 0) continue;
        ASSERT_EQ(rows_.size(), 1U);
        EXPECT_EQ(rows_.begin()->first.pid, child_.pid());
    }

    const Child child_;
};

using AProcessThatEnds = AProcessThatIsHeldUp;

TEST_F(AProcessThatEnds, stays_what_it_was) {
    const auto mapping = parse_maps_line("1000-2000 r-xp 00000000 08:01 7 /lib/libcudart.so.12");
    const auto look = [&](const std::string& cgroup, const std::string& environment, uint32_t flags) {
        std::ofstream(of("cgroup")) << "0::" << cgroup << "\n";
        std::ofstream(of("environ")) << environment;
        std::ofstream(of("stat")) << child_.pid() << " (x) S 1 7 7 0 -1 " << flags
                                  << " 1 0 0 0 0 0 0 0 20 0 1 0 4242 1000 1";
        processes_.on_mapping(child_.pid(), mapping.value(), monotonic_now_ns());
        return rows_.empty() ? Process{} : rows_.begin()->second;
    };
    constexpr uint32_t running = 0x400000, ending = running | 4;
    EXPECT_EQ(look("/a.service", "RANK=3", running).facts.rank, 3U);
    EXPECT_EQ(look("/b.service", "RANK=4", running).unit, "b.service");
    const Process row = look("/", "", ending);
    EXPECT_EQ(row.cgroup, "/b.service");
    EXPECT_EQ(row.facts.rank, 4U);
    ASSERT_EQ(processes_.all().size(), 1U);
    EXPECT_EQ(processes_.all().begin()->second.process.unit, "b.service");
}

TEST_F(AProcessThatIsHeldUp, as_it_maps_a_library_is_looked_at_again) {
    hold_up("stat");
    const auto mapping = parse_maps_line("1000-2000 r-xp 00000000 08:01 7 /lib/libcudart.so.12");
    processes_.on_mapping(child_.pid(), mapping.value(), monotonic_now_ns());
    expect_found_once_let_go("stat");
}

TEST_F(AProcessThatIsHeldUp, as_all_are_looked_at_is_looked_at_again) {
    hold_up("maps");
    processes_.scan(monotonic_now_ns());
    expect_found_once_let_go("maps");
}

TEST_F(AProcessThatIsHeldUp, once_its_mappings_are_known_is_looked_at_again) {
    hold_up("stat");
    processes_.scan(monotonic_now_ns());
    expect_found_once_let_go("stat");
}

TEST_F(AProcessThatIsHeldUp, as_it_is_spared_is_told_of_once_it_is_let_go) {
    hold_up("stat");
    const ProcessKey key{child_.pid(), 42'420'000'000};
    const auto spared = change_of(key, INGERO_PROCESS_SPARED);
    processes_.on_change(spared);
    expect_found_once_let_go("stat");
    ASSERT_TRUE(processes_.find(key));
    EXPECT_EQ(processes_.find(key)->spared_ns, spared.time_ns);
    EXPECT_EQ(processes_.state_of(*processes_.find(key)), "failed");
    processes_.close_gaps();
    EXPECT_TRUE(std::any_of(gaps_.begin(), gaps_.end(), [&](const GapRow& gap) {
        return gap.process == key && gap.reason == GapReason::refused && gap.from_ns == spared.time_ns;
    }));
}

TEST_F(AProcessThatIsHeldUp, as_it_is_spared_is_no_longer_once_it_runs_another_program) {
    hold_up("stat");
    const ProcessKey key{child_.pid(), 42'420'000'000};
    processes_.on_change(change_of(key, INGERO_PROCESS_SPARED));
    processes_.on_change(change_of(key, INGERO_PROCESS_EXEC));
    processes_.on_mapping(child_.pid(), parse_maps_line("1000-2000 r-xp 00000000 08:01 7 /lib/libcudart.so.12").value(),
                          monotonic_now_ns());
    expect_found_once_let_go("stat");
    ASSERT_TRUE(processes_.find(key));
    EXPECT_EQ(processes_.find(key)->spared_ns, std::nullopt);
}

/// With a library that cannot be opened, so that a gap tells since when the scan says it has it.
class AProcessThatAScanFinds : public AProcessThatIsHeldUp {
  protected:
    AProcessThatAScanFinds() {
        std::ofstream(of("stat")) << child_.pid() << " (x) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 0 1000 1";
    }
    void run() {
        while (sd_event_run(parts_.loop.get(), 0) > 0) continue;
    }

    const uint64_t loss_ns_ = monotonic_now_ns();
};

TEST_F(AProcessThatAScanFinds, has_a_gap_since_the_loss_that_the_scan_is_for) {
    hold_back("maps");
    processes_.scan_in_turns(loss_ns_ - 2'000);
    run();
    bring_back("maps");
    processes_.scan_in_turns(loss_ns_);
    run();
    ASSERT_EQ(gaps_.size(), 1U);
    EXPECT_EQ(gaps_[0].from_ns, loss_ns_) << "the loss before has been made good";
}

TEST_F(AProcessThatAScanFinds, has_a_gap_since_the_earlier_loss_where_the_scan_for_that_was_not_done) {
    processes_.scan_in_turns(loss_ns_);
    processes_.scan_in_turns(loss_ns_ + 1'000);
    run();
    ASSERT_EQ(gaps_.size(), 1U);
    EXPECT_EQ(gaps_[0].from_ns, loss_ns_);
}

TEST(LateLooks, since_when_a_process_waits_is_known) {
    constexpr uint64_t hour_ns = 3'600'000'000'000;
    constexpr uint32_t owner = 1'000;
    const ProcessKey mapped{7, 70}, called{8, 80}, other{9, 90};
    EventLoop loop;
    LateLooks looks(loop, 1, hour_ns, [](const ProcessKey&, uint64_t) {});
    looks.add(owner, mapped, 500);
    looks.add(owner, called, 0);
    EXPECT_EQ(looks.since(mapped, 900), 500U);
    EXPECT_EQ(looks.since(mapped, 100), 100U);
    EXPECT_EQ(looks.since(called, 900), 900U) << "it is known of a call alone";
    EXPECT_EQ(looks.since(other, 900), 900U);
    looks.add(owner, mapped, 700);
    looks.add(owner, mapped, 0);
    looks.add(owner, called, 600);
    EXPECT_EQ(looks.since(mapped, 900), 500U) << "the first of what it mapped was not seen either";
    EXPECT_EQ(looks.since(called, 900), 600U);
}

TEST_F(OfAUser, beyond_a_bound_the_oldest_is_no_longer_watched_and_a_gap_says_so) {
    const std::vector<Child> children(most + 2);
    std::vector<ProcessKey> keys;
    for (const Child& child : children) {
        keys.push_back(key_of(child));
        processes_.on_call(keys.back());
        EXPECT_LE(processes_.all().size(), most);
    }
    EXPECT_THAT(evicted_, testing::ElementsAre(keys[0], keys[1]));
    for (size_t i = 2; i < keys.size(); ++i) EXPECT_NE(processes_.find(keys[i]), nullptr);
    ASSERT_EQ(gaps_.size(), 1U);
    EXPECT_EQ(gaps_[0].reason, GapReason::too_many);
    EXPECT_EQ(gaps_[0].uid, rows_.at(keys[0]).uid);
    EXPECT_EQ(gaps_[0].to_ns, 0U);
}

TEST_F(OfAUser, whose_calls_may_go_unseen_has_its_ranks_compared_no_more) {
    const Child one, other;
    for (const Child* child : {&one, &other}) processes_.on_call(key_of(*child));
    processes_.on_change(change_of(key_of(one), INGERO_PROCESS_EXEC));
    EXPECT_THAT(interrupted_, testing::IsEmpty());
    processes_.on_change(change_of(key_of(one), INGERO_PROCESS_SPARED));
    EXPECT_THAT(interrupted_, testing::ElementsAre(key_of(one)));
    EXPECT_EQ(interrupted_until_, UINT64_MAX) << "its threads stay under the filter";
    processes_.on_change(change_of(key_of(one), INGERO_PROCESS_EXEC));
    EXPECT_THAT(interrupted_, testing::ElementsAre(key_of(one), key_of(one)));
    EXPECT_LE(interrupted_until_, monotonic_now_ns()) << "it runs another program";
    processes_.look_again();
    EXPECT_THAT(interrupted_, testing::ElementsAre(key_of(one), key_of(one), everyone));
    EXPECT_GT(interrupted_until_, monotonic_now_ns()) << "its probes come back only then";
}

TEST_F(OfAUser, that_is_no_longer_watched_still_has_its_end_stored) {
    const std::vector<Child> children(most + 1);
    for (const Child& child : children) processes_.on_call(key_of(child));
    const ProcessKey oldest = key_of(children[0]);
    ingero_process_record end = change_of(oldest, INGERO_PROCESS_EXIT);
    end.exit_code = 9;
    processes_.on_change(end);
    EXPECT_EQ(rows_.at(oldest).exited_ns, end.time_ns);
    EXPECT_EQ(rows_.at(oldest).exit_code, 9);
    EXPECT_EQ(rows_.at(oldest).parent_pid, static_cast<uint32_t>(getpid())) << "what was known of it is kept";
    EXPECT_TRUE(processes_.has_ended(oldest));
}

TEST_F(OfAUser, that_ends_without_a_record_ended_in_an_unknown_way_until_the_record_comes) {
    Child child;
    const ProcessKey key = key_of(child);
    processes_.on_call(key);
    ASSERT_EQ(rows_.count(key), 1U);
    child.end();
    while (rows_.at(key).exited_ns == 0 && sd_event_run(parts_.loop.get(), waiting_us) > 0) continue;
    EXPECT_NE(rows_.at(key).exited_ns, 0U);
    EXPECT_EQ(rows_.at(key).exit_code, exit_status_unknown) << "that is no success";
    EXPECT_TRUE(processes_.has_ended(key));

    ingero_process_record end = change_of(key, INGERO_PROCESS_EXIT);
    end.time_ns = rows_.at(key).exited_ns - 1;
    end.exit_code = SIGKILL;
    processes_.on_change(end);
    EXPECT_EQ(rows_.at(key).exit_code, SIGKILL);
    EXPECT_EQ(rows_.at(key).exited_ns, end.time_ns);
    EXPECT_EQ(rows_.at(key).parent_pid, static_cast<uint32_t>(getpid())) << "what was known of it is kept";
    rows_.clear();
    processes_.on_change(end);
    EXPECT_THAT(rows_, testing::IsEmpty()) << "it is complete";
}

TEST(EndedProcesses, keep_the_latest_rows_alone_that_do_not_say_how_they_ended) {
    EndedProcesses ended;
    const auto key = [](size_t number) { return ProcessKey{static_cast<uint32_t>(number), 1}; };
    for (size_t number = 1; number <= EndedProcesses::max_processes + 1; ++number) {
        Process row;
        row.key = key(number);
        row.exited_ns = number;
        if (number == 3) row.exit_code = 0;
        ended.put(row);
    }
    EXPECT_FALSE(ended.contains(key(1)));
    EXPECT_FALSE(ended.take_without_status(key(1))) << "there is no room for it any more";
    const auto row = ended.take_without_status(key(2));
    ASSERT_TRUE(row);
    EXPECT_EQ(row->exited_ns, 2U);
    EXPECT_FALSE(ended.take_without_status(key(2)));
    EXPECT_FALSE(ended.take_without_status(key(3))) << "it is known how that ended";
    EXPECT_TRUE(ended.has_row(key(2)) && ended.has_row(key(3)));
}

TEST_F(OfAUser, the_gap_ends_once_there_is_room_again) {
    std::vector<Child> children(most + 1);
    std::vector<ProcessKey> keys;
    for (const Child& child : children) processes_.on_call(keys.emplace_back(key_of(child)));
    for (size_t i = 1; i < keys.size(); ++i) processes_.on_change(change_of(keys[i], INGERO_PROCESS_EXIT));
    ASSERT_EQ(gaps_.size(), 2U);
    EXPECT_NE(gaps_[1].to_ns, 0U);
    EXPECT_TRUE(processes_.all().empty());
}

TEST_F(OfABusyUser, that_executes_programs_without_end_is_looked_at_now_and_then) {
    const Child child;
    const ProcessKey key = key_of(child);
    processes_.on_call(key);
    for (int i = 0; i < 1'000; ++i) processes_.on_change(change_of(key, INGERO_PROCESS_EXEC));
    EXPECT_EQ(executed_.size(), limits_.look_burst - 1) << "one look was for its first call";
    EXPECT_EQ(processes_.late(), 1U) << "its latest program waits, and those between are not looked at";
}

TEST_F(OfABusyUser, that_calls_and_ends_before_it_is_looked_at_is_known_by_its_end) {
    const Child busy, gone;
    processes_.on_call(key_of(busy));
    use_up_looks(key_of(busy));
    const ProcessKey ended = key_of(gone);
    processes_.on_call(ended);
    EXPECT_EQ(processes_.find(ended), nullptr);
    EXPECT_EQ(processes_.late(), 2U);
    processes_.on_change(change_of(ended, INGERO_PROCESS_EXIT));
    EXPECT_EQ(rows_.count(ended), 1U);
    EXPECT_EQ(processes_.late(), 1U);
}

TEST_F(OfAUser, who_keeps_us_busy_has_all_looked_at_in_the_end) {
    const Child busy, caller;
    processes_.on_call(key_of(busy));
    use_up_looks(key_of(busy));
    const size_t looks = executed_.size();
    processes_.on_call(key_of(caller));
    wait_for_looks();
    EXPECT_GT(executed_.size(), looks);
    EXPECT_NE(processes_.find(key_of(caller)), nullptr);
}

}  // namespace
