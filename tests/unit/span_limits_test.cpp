#include "daemon/ingerod/spans/span_limits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

using namespace ingero;

namespace {

constexpr uint64_t second = 1'000'000'000;

SpanLimits::Party user(uint32_t uid, const std::string& cgroup = "/") {
    return {.user = uid == 0 ? "root" : SpanLimits::user_of(uid),
            .group = SpanLimits::group_of(cgroup),
            .is_root = uid == 0};
}

uint64_t take_all(SpanLimits& limits, const SpanLimits::Party& party, uint64_t now_ns, uint64_t most = 100'000) {
    uint64_t taken = 0;
    while (taken < most && limits.take(party, 1, now_ns)) ++taken;
    return taken;
}

TEST(SpanLimitsTest, ConnectionsAreCountedByUserByServiceAndInAll) {
    SpanLimits limits(
        {.connections = 10, .unprivileged_connections = 8, .connections_per_user = 3, .connections_per_group = 4});
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(limits.connect(user(1, "/a.service")));
    EXPECT_FALSE(limits.may_look_at(SpanLimits::user_of(1), second));
    EXPECT_FALSE(limits.connect(user(1, "/b.service")));
    EXPECT_TRUE(limits.connect(user(2, "/a.service")));
    EXPECT_FALSE(limits.connect(user(2, "/a.service"))) << "the service's fifth";
    EXPECT_TRUE(limits.connect(user(2, "/"))) << "the root of the hierarchy is no service";
    EXPECT_TRUE(limits.connect(user(2)));
    EXPECT_TRUE(limits.connect(user(3)));
    EXPECT_TRUE(limits.connect(user(4)));
    EXPECT_EQ(limits.connections(), 8u);
    EXPECT_FALSE(limits.connect(user(5))) << "the rest is root's";
    EXPECT_TRUE(limits.connect(user(0)));
    EXPECT_TRUE(limits.connect(user(0)));
    EXPECT_FALSE(limits.connect(user(0)));
    limits.disconnect(user(1, "/a.service"));
    EXPECT_TRUE(limits.connect(user(2, "/")) == false) << "user 2 has three";
    EXPECT_TRUE(limits.connect(user(5, "/a.service")));
}

TEST(SpanLimitsTest, ARateIsAUsersHoweverOftenTheyConnect) {
    SpanLimits limits({.spans_per_s = 100, .burst = 200});
    const auto one = user(1);
    ASSERT_TRUE(limits.connect(one));
    EXPECT_EQ(take_all(limits, one, 10 * second), 200u);
    limits.disconnect(one);
    ASSERT_TRUE(limits.connect(one));
    EXPECT_EQ(take_all(limits, one, 10 * second), 0u);
    EXPECT_EQ(take_all(limits, one, 11 * second), 100u);
    EXPECT_EQ(take_all(limits, user(2), 11 * second), 200u) << "another user's own";
    EXPECT_EQ(take_all(limits, one, 100 * second), 200u) << "never more than the burst";
}

TEST(SpanLimitsTest, WithoutABurstItIsTwiceTheRateAndAnotherQuotaIsTakenUp) {
    SpanLimits limits({.connections_per_user = 1, .spans_per_s = 100});
    const auto one = user(1);
    EXPECT_EQ(take_all(limits, one, 10 * second), 200u);
    ASSERT_TRUE(limits.connect(one));
    EXPECT_FALSE(limits.connect(one));
    limits.set_quota({.connections_per_user = 2, .spans_per_s = 100, .burst = 7});
    EXPECT_EQ(take_all(limits, one, 10 * second), 7u);
    EXPECT_TRUE(limits.connect(one));
}

TEST(SpanLimitsTest, CgroupsThatAUserMakesAreOneGroup) {
    const std::string slice = "/user.slice/user-1000.slice";
    EXPECT_EQ(SpanLimits::group_of(slice + "/user@1000.service/a.service"), slice);
    EXPECT_EQ(SpanLimits::group_of(slice + "/session-2.scope"), slice);
    EXPECT_EQ(SpanLimits::group_of(slice), slice);
    EXPECT_EQ(SpanLimits::group_of("/system.slice/a.service"), "/system.slice/a.service");
    EXPECT_EQ(SpanLimits::group_of("/"), "");
    EXPECT_EQ(SpanLimits::group_of(""), "");
}

TEST(SpanLimitsTest, WhoComesTooOftenIsNotLookedAt) {
    SpanLimits limits({});
    int looks = 0;
    while (looks < 1'000 && limits.may_look_at("uid 1", second)) ++looks;
    EXPECT_EQ(looks, 64);
    EXPECT_TRUE(limits.may_look_at("uid 2", second));
    EXPECT_TRUE(limits.may_look_at("uid 1", 2 * second));
}

TEST(SpanLimitsTest, ALargeSpanCountsMore) {
    SpanLimits limits({.spans_per_s = 100, .burst = 200});
    EXPECT_TRUE(limits.take(user(1), 199, second));
    EXPECT_FALSE(limits.take(user(1), 2, second));
    EXPECT_TRUE(limits.take(user(1), 1, second)) << "nothing was taken for the one before";
}

TEST(SpanLimitsTest, ARateIsAServicesWhicheverUserSends) {
    SpanLimits limits({.spans_per_s = 100, .burst = 200});
    EXPECT_EQ(take_all(limits, user(1, "/a.service"), second), 200u);
    EXPECT_EQ(take_all(limits, user(2, "/a.service"), second), 0u);
    EXPECT_EQ(take_all(limits, user(2, "/b.service"), second), 200u) << "what a.service had no room for was not taken";
}

}  // namespace
