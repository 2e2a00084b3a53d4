// Parts of the daemon that native stacks stand on.
#include <gtest/gtest.h>

#include "bpf/walk_cost.h"
#include "daemon/ingerod/config/config.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/limits/shares.h"

namespace ingero {
namespace {

/// Walks of `ns` each until so many were timed.
void walk(ingero_walk_cost& cost, unsigned samples, uint64_t ns) {
    while (samples != 0) {
        if (!ingero_is_walk_timed(&cost)) continue;
        ingero_note_walk(&cost, ns);
        samples--;
    }
}

constexpr uint64_t preempted_ns = 5'000'000'000;

TEST(CostOfWalks, IsNotKnownByOneSampleAndOfTwoIsTheLower) {
    for (const bool first_is_disturbed : {true, false}) {
        ingero_walk_cost cost{};
        walk(cost, 1, first_is_disturbed ? preempted_ns : 800);
        EXPECT_EQ(cost.ns, 0U);
        walk(cost, 1, first_is_disturbed ? 800 : preempted_ns);
        EXPECT_EQ(cost.ns, 800U);
        EXPECT_EQ(cost.walks, 32U);
    }
}

TEST(CostOfWalks, IsNotWhatADisturbedOneTook) {
    ingero_walk_cost cost{};
    walk(cost, 3, 800);
    for (int i = 0; i < 4; ++i) {
        walk(cost, 1, preempted_ns);
        EXPECT_EQ(cost.ns, 800U);
        walk(cost, 2, 800);
        EXPECT_EQ(cost.ns, 800U);
    }
}

TEST(CostOfWalks, FollowsWalksThatBecomeLongerOrShorter) {
    ingero_walk_cost cost{};
    walk(cost, 3, 800);
    walk(cost, 2, 9'000);
    EXPECT_EQ(cost.ns, 9'000U);
    walk(cost, 2, 500);
    EXPECT_EQ(cost.ns, 500U);
    walk(cost, 1, 600);
    walk(cost, 1, 700);
    EXPECT_EQ(cost.ns, 600U);
}

TEST(MapsLine, TellsTheOffsetAndWhetherTheFileIsDeleted) {
    const auto mapping = parse_maps_line("7f0a1000-7f0a2000 r-xp 0001f000 fd:01 1234 /tmp/lib.so (deleted)");
    ASSERT_TRUE(mapping);
    EXPECT_EQ(mapping->offset, 0x1f000U);
    EXPECT_TRUE(mapping->deleted);
    EXPECT_EQ(mapping->path, "/tmp/lib.so");
    EXPECT_FALSE(parse_maps_line("7f0a1000-7f0a2000 r-xp 0001f000 fd:01 1234 /tmp/lib.so")->deleted);
}

TEST(CaptureStacks, IsNativeOrOff) {
    Config config;
    EXPECT_TRUE(config.native_stacks);
    ASSERT_TRUE(apply_config_text(config, "[capture]\nstacks = \"off\"\n", "test"));
    EXPECT_FALSE(config.native_stacks);
    EXPECT_TRUE(applies_on_reload("capture.stacks"));
    EXPECT_EQ(changed_keys(Config{}, config), std::vector<std::string>{"capture.stacks"});
    const auto wrong = apply_config_text(config, "[capture]\nstacks = true\n", "test");
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().message, "test:2: capture.stacks must be \"native\" or \"off\"");
}

TEST(SharesOfUsers, LeaveAsMuchToOthersAsOneHas) {
    Shares shares(100);
    const auto take_all = [&](uint32_t uid) {
        uint64_t taken = 0;
        for (; shares.may_take(uid, 1); ++taken) shares.take(uid, 1);
        return taken;
    };
    EXPECT_EQ(take_all(1000), 50U);
    EXPECT_EQ(take_all(1001), 25U);
    EXPECT_EQ(take_all(1002), 12U);
    EXPECT_TRUE(shares.may_take(1003, 6)) << "the next one still finds some";
    EXPECT_FALSE(shares.may_take(1003, 7));
    shares.give_back(1000, 50);
    EXPECT_TRUE(shares.may_take(1003, 31));
    EXPECT_FALSE(shares.may_take(1003, 32));
    EXPECT_EQ(take_all(0), 63U) << "root may have all";
    EXPECT_FALSE(shares.may_take(0, 1));
}

}  // namespace
}  // namespace ingero
