// Calls of other threads share the loop with all else that it does.
#include "daemon/ingerod/loop/posted_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

using namespace ingero;

namespace {

constexpr uint64_t turn_within_us = 60'000'000;

TEST(PostedCallsOfOthers, leave_the_loop_turns_for_all_else_however_many_there_are) {
    constexpr size_t many = 1'000;
    EventLoop loop;
    PostedCalls calls(loop, 0);
    size_t made = 0;
    std::optional<size_t> made_before_other;
    for (size_t i = 0; i < many; ++i) calls.post([&made] { ++made; });
    const auto other = loop.defer([&] { made_before_other = made; });
    for (size_t before = 0; made < many && sd_event_run(loop.get(), turn_within_us) > 0; before = made)
        ASSERT_LE(made, before + 1) << "one call a turn, where a call takes all of it";
    ASSERT_TRUE(made_before_other);
    EXPECT_LE(*made_before_other, 2U);
}

TEST(PostedCallsOfOthers, are_made_in_the_order_in_which_they_were_posted) {
    EventLoop loop;
    PostedCalls calls(loop);
    std::vector<int> made;
    std::thread poster([&] {
        for (int i = 0; i < 10'000; ++i) calls.post([&made, i] { made.push_back(i); });
    });
    while (made.size() < 10'000 && sd_event_run(loop.get(), turn_within_us) > 0) continue;
    poster.join();
    ASSERT_EQ(made.size(), 10'000U);
    EXPECT_TRUE(std::is_sorted(made.begin(), made.end()));
}

TEST(PostedCallsOfOthers, that_are_left_in_the_end_are_made_as_long_as_there_is_time) {
    EventLoop loop;
    PostedCalls calls(loop);
    int made = 0;
    for (int i = 0; i < 5; ++i) calls.post([&made] { ++made; });
    EXPECT_EQ(calls.run_rest(0), 4U);
    EXPECT_EQ(made, 1);
    EXPECT_EQ(calls.run_rest(turn_within_us * 1'000), 0U);
    EXPECT_EQ(made, 5);
}

}  // namespace
