// All processes are visited, and the loop has its turns meanwhile.
#include "daemon/ingerod/discovery/process_walk.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/time.h"
#include "tests/support/daemon.h"

using namespace ingero;

namespace {

using testing::IsEmpty;
using testing::UnorderedElementsAre;

class AWalkOverAllProcesses : public testing::Test {
  protected:
    void start_process(uint32_t pid) const { std::filesystem::create_directory(folder_ / std::to_string(pid)); }
    void run() {
        while (sd_event_run(loop_.get(), 0) > 0) continue;
    }

    const test::TemporaryDirectory folder_;
    const ProcFs proc_{folder_.path()};
    EventLoop loop_;
    std::vector<uint32_t> visited_;
    size_t ends_ = 0;
    std::function<void(uint32_t)> on_visit_ = [](uint32_t) {};
    ProcessWalk walk_{loop_, proc_,
                      [this](uint32_t pid) {
                          visited_.push_back(pid);
                          on_visit_(pid);
                      },
                      [this] { ++ends_; }};
};

TEST_F(AWalkOverAllProcesses, visits_each_once_and_ends) {
    for (const uint32_t pid : {3U, 1U, 20U}) start_process(pid);
    walk_.begin();
    EXPECT_THAT(visited_, IsEmpty()) << "not before the next turn of the loop";
    run();
    EXPECT_THAT(visited_, UnorderedElementsAre(1U, 3U, 20U));
    EXPECT_EQ(ends_, 1U);
    EXPECT_FALSE(walk_.active());
}

TEST_F(AWalkOverAllProcesses, visits_those_too_that_begin_meanwhile) {
    start_process(1);
    on_visit_ = [this](uint32_t pid) {
        if (pid < 3) start_process(pid + 1);
    };
    walk_.begin();
    run();
    EXPECT_THAT(visited_, UnorderedElementsAre(1U, 2U, 3U));
    EXPECT_EQ(ends_, 1U);
}

TEST_F(AWalkOverAllProcesses, ends_where_processes_begin_all_the_time) {
    start_process(1);
    on_visit_ = [this](uint32_t pid) { start_process(pid + 1); };
    walk_.begin();
    run();
    EXPECT_EQ(ends_, 1U);
}

TEST_F(AWalkOverAllProcesses, leaves_the_loop_its_turns) {
    constexpr uint64_t longer_than_a_turn_ns = 6'000'000;
    constexpr uint32_t processes = 10;
    for (uint32_t pid = 1; pid <= processes; ++pid) start_process(pid);
    on_visit_ = [](uint32_t) {
        const uint64_t until_ns = monotonic_now_ns() + longer_than_a_turn_ns;
        while (monotonic_now_ns() < until_ns) continue;
    };
    size_t others = 0;
    EventLoop::Source other;
    std::function<void()> take_turn = [&] {
        ++others;
        other = ends_ == 0 ? loop_.defer(take_turn) : EventLoop::Source();
    };
    other = loop_.defer(take_turn);
    walk_.begin();
    run();
    EXPECT_EQ(visited_.size(), processes);
    EXPECT_GE(others, processes) << "one between two visits that take all of a turn each";
}

TEST_F(AWalkOverAllProcesses, that_is_begun_anew_visits_all_once_more) {
    for (const uint32_t pid : {1U, 2U}) start_process(pid);
    bool again = true;
    on_visit_ = [&](uint32_t) {
        if (std::exchange(again, false)) walk_.begin();
    };
    walk_.begin();
    run();
    EXPECT_EQ(visited_.size(), 3U) << "one of the first walk, two of the second";
    EXPECT_EQ(ends_, 1U);
}

TEST_F(AWalkOverAllProcesses, that_is_stopped_visits_no_more) {
    for (const uint32_t pid : {1U, 2U}) start_process(pid);
    on_visit_ = [this](uint32_t) { walk_.stop(); };
    walk_.begin();
    run();
    EXPECT_EQ(visited_.size(), 1U);
    EXPECT_EQ(ends_, 0U);
    EXPECT_FALSE(walk_.active());
}

}  // namespace
