// Who is sent which notices, how many wait for one who does not read, and how many may listen.
#include "daemon/ingerod/live/live_notices.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "daemon/ingerod/live/subscriptions.h"

using namespace ingero;
using nlohmann::json;

namespace {

constexpr Caller root{.uid = 0, .pid = 1, .sees_all = true};
constexpr Caller user{.uid = 1000, .pid = 2, .sees_all = false};
constexpr Caller stranger{.uid = 1001, .pid = 3, .sees_all = false};

class Notices : public testing::Test {
  protected:
    std::unique_ptr<LiveStream> subscribe(const Caller& caller) {
        auto stream = notices_.subscribe(caller, [this] { ++ready_; });
        EXPECT_TRUE(stream);
        return stream ? std::move(*stream) : nullptr;
    }
    void send(const char* id, std::optional<uint32_t> uid) { notices_.send({{"id", id}}, uid); }

    /// The ids of all that waits, in order, and how many were left out.
    static std::pair<std::vector<std::string>, uint64_t> read(LiveStream& stream) {
        std::pair<std::vector<std::string>, uint64_t> all;
        while (const auto chunk = stream.next()) {
            all.second += chunk->at("skipped").get<uint64_t>();
            for (const json& notice : chunk->at("notices")) all.first.push_back(notice.at("id"));
        }
        return all;
    }
    using Ids = std::vector<std::string>;

    LiveNotices notices_{[](uint32_t uid) { return uid; }};
    int ready_ = 0;
};

TEST_F(Notices, of_a_process_are_for_its_user_and_for_who_sees_all) {
    const auto all = subscribe(root), own = subscribe(user), others = subscribe(stranger);
    send("of a user", user.uid);
    send("of root", 0);
    send("of the host", std::nullopt);
    EXPECT_EQ(read(*all).first, (Ids{"of a user", "of root", "of the host"}));
    EXPECT_EQ(read(*own).first, (Ids{"of a user"}));
    EXPECT_EQ(read(*others).first, Ids{});
    EXPECT_EQ(ready_, 4);
}

TEST_F(Notices, that_are_not_read_in_time_are_left_out_and_counted_the_oldest_first) {
    const auto stream = subscribe(root);
    constexpr size_t more = 3;
    for (size_t i = 0; i < LiveNotices::max_waiting + more; ++i) send(std::to_string(i).c_str(), 0);
    const auto [ids, skipped] = read(*stream);
    EXPECT_EQ(skipped, more);
    ASSERT_EQ(ids.size(), LiveNotices::max_waiting);
    EXPECT_EQ(ids.front(), std::to_string(more));
    EXPECT_EQ(ids.back(), std::to_string(LiveNotices::max_waiting + more - 1));
    send("the next", 0);
    EXPECT_EQ(read(*stream), (std::pair(Ids{"the next"}, uint64_t{0})));
}

TEST_F(Notices, are_for_so_many_and_one_who_ends_makes_room) {
    std::vector<std::unique_ptr<LiveStream>> streams;
    for (size_t i = 0; i < max_of_a_user; ++i) streams.push_back(subscribe(user));
    const auto refused = notices_.subscribe(user, [] {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::busy);
    for (size_t i = max_of_a_user; i < max_unprivileged; ++i) streams.push_back(subscribe(stranger));
    EXPECT_FALSE(notices_.subscribe({.uid = 1002, .pid = 4, .sees_all = false}, [] {}));
    for (size_t i = max_unprivileged; i < max_subscribers; ++i) streams.push_back(subscribe(root));
    EXPECT_FALSE(notices_.subscribe(root, [] {}));
    streams.pop_back();
    EXPECT_TRUE(notices_.subscribe(root, [] {}));
}

TEST_F(Notices, outlive_the_daemons_part) {
    auto notices = std::make_unique<LiveNotices>(OwnerOf());
    auto stream = notices->subscribe(root, [] {});
    ASSERT_TRUE(stream);
    notices.reset();
    EXPECT_FALSE((*stream)->next());
    stream->reset();
}

}  // namespace
