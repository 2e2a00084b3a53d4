// What users take of the daemon, and who counts as one user.
#include "daemon/ingerod/limits/shares.h"

#include <gtest/gtest.h>

#include "daemon/ingerod/limits/uid_owners.h"

using namespace ingero;

namespace {

TEST(SharesOfUsers, with_a_limit_for_each_end_there_and_where_nothing_is_left) {
    Shares shares(10, 4);
    for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(shares.may_take(1000, 1));
        shares.take(1000, 1);
    }
    EXPECT_FALSE(shares.may_take(1000, 1));
    EXPECT_TRUE(shares.may_take(1001, 4));
    EXPECT_FALSE(shares.may_take(1001, 5));
    EXPECT_TRUE(shares.may_take(0, 6)) << "root has no limit but what there is";
    EXPECT_FALSE(shares.may_take(0, 7));
    shares.give_back(1000, 4);
    EXPECT_EQ(shares.users(), 0U) << "nothing is kept of a user who has nothing";
    EXPECT_EQ(shares.left(), 10U);
}

TEST(SharesOfUsers, of_what_has_no_total_are_bounded_for_each) {
    Shares shares(Shares::without_limit, 4);
    shares.take(1000, 3);
    EXPECT_TRUE(shares.may_take(1000, 1));
    EXPECT_FALSE(shares.may_take(1000, 2));
    EXPECT_TRUE(shares.may_take(0, 1'000'000));
}

TEST(SharesOfUsers, where_nothing_is_left_are_given_up_by_who_has_most) {
    Shares shares(6);
    shares.take(1000, 3);
    shares.take(1001, 2);
    shares.take(1002, 1);
    EXPECT_EQ(shares.who_gives_way_to(1003), 1000U);
    EXPECT_EQ(shares.who_gives_way_to(1002), 1000U);
    EXPECT_EQ(shares.who_gives_way_to(1001), std::nullopt) << "it would have more than who gave way";
    EXPECT_EQ(shares.who_gives_way_to(1000), std::nullopt);
    EXPECT_EQ(Shares(6).who_gives_way_to(1000), std::nullopt);
}

TEST(RatesOfUsers, are_forgotten_once_they_are_whole_again) {
    RateShares rates(2, 10);
    for (uint32_t user = 1; user <= 10'000; ++user) EXPECT_TRUE(rates.take(user, 1'000 + user));
    EXPECT_LT(rates.users(), 200U) << "those of the last few instants, and as many again";
    EXPECT_TRUE(rates.take(7, 20'000));
    EXPECT_TRUE(rates.take(7, 20'000));
    EXPECT_FALSE(rates.take(7, 20'000));
}

std::optional<uint32_t> find_user(const std::string& name) {
    if (name == "ada") return 1000;
    if (name == "grace") return 1001;
    if (name == "root") return 0;
    return std::nullopt;
}

TEST(UidsOfARange, are_their_owners) {
    const auto owners = UidOwners::parse("ada:100000:65536\ngrace:165536:65536\n1002:300000:10\n", find_user);
    EXPECT_EQ(owners.owner_of(1000), 1000U);
    EXPECT_EQ(owners.owner_of(99'999), 99'999U);
    EXPECT_EQ(owners.owner_of(100'000), 1000U);
    EXPECT_EQ(owners.owner_of(165'535), 1000U);
    EXPECT_EQ(owners.owner_of(165'536), 1001U);
    EXPECT_EQ(owners.owner_of(300'009), 1002U);
    EXPECT_EQ(owners.owner_of(300'010), 300'010U);
    EXPECT_EQ(owners.owner_of(0), 0U);
}

TEST(UidsOfARange, of_root_are_their_containers_and_never_root) {
    const auto owners = UidOwners::parse("root:1000000:1000000000\n", find_user);
    EXPECT_EQ(owners.owner_of(1'000'000), 1'000'000U);
    EXPECT_EQ(owners.owner_of(1'065'535), 1'000'000U);
    EXPECT_EQ(owners.owner_of(1'065'536), 1'065'536U);
}

TEST(UidsOfARange, are_taken_from_the_lines_that_make_sense) {
    const auto owners = UidOwners::parse(
        "# comment\n\nnobody here:1:2\nada:5:0\nada:-5:7\nada:4294967290:65536\n:5:5\nada:2000:10:x\n"
        "ada:100000:65536\ngrace:100005:10\ngrace:99999:2\nunknown:200000:5\nada:4294967290:6",
        find_user);
    EXPECT_EQ(owners.owner_of(5), 5U);
    EXPECT_EQ(owners.owner_of(2'000), 2'000U);
    EXPECT_EQ(owners.owner_of(99'999), 99'999U);
    EXPECT_EQ(owners.owner_of(100'005), 1000U);
    EXPECT_EQ(owners.owner_of(200'000), 200'000U);
    EXPECT_EQ(owners.owner_of(4'294'967'295), 1000U);
}

TEST(UidsOfARange, may_be_none) {
    EXPECT_EQ(UidOwners().owner_of(100'000), 100'000U);
    EXPECT_EQ(UidOwners::parse("", find_user).owner_of(100'000), 100'000U);
}

}  // namespace
