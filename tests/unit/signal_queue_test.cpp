// What waits to be told on the bus: bounded, coalesced by incident, in order.

#include "daemon/ingerod/bus/signal_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "daemon/ingerod/bus/dump_budget.h"

namespace ingero {
namespace {

using What = IncidentChange::What;
using testing::ElementsAre;

Incident incident(const std::string& id, uint64_t lost_ns = 1) {
    Incident result;
    result.id = id;
    result.lost_ns = lost_ns;
    return result;
}

/// "+a", "~a 7", "-a": opened, updated with its lost time, closed.
std::string words(const Notice& notice) {
    const auto* about = std::get_if<Incident>(&notice.about);
    const std::string id = about ? about->id : std::get<Straggler>(notice.about).id;
    switch (notice.what) {
        case What::opened:
            return "+" + id;
        case What::updated:
            return "~" + id + " " + std::to_string(about->lost_ns);
        case What::closed:
            return "-" + id;
    }
    return {};
}

std::vector<std::string> all_of(SignalQueue& queue) {
    std::vector<std::string> result;
    while (const auto notice = queue.pop()) result.push_back(words(*notice));
    EXPECT_TRUE(queue.empty());
    return result;
}

TEST(SignalQueue, WhatHasWaitedLongestLeavesFirst) {
    SignalQueue queue(10);
    queue.push({What::opened, incident("a")});
    queue.push({What::updated, incident("b", 5)});
    queue.push({What::closed, incident("c")});
    EXPECT_THAT(all_of(queue), ElementsAre("+a", "~b 5", "-c"));
}

TEST(SignalQueue, AnUpdateTakesTheEarlierOnesPlace) {
    SignalQueue queue(10);
    queue.push({What::updated, incident("a", 1)});
    queue.push({What::opened, incident("b")});
    queue.push({What::updated, incident("a", 2)});
    EXPECT_THAT(all_of(queue), ElementsAre("~a 2", "+b"));
    EXPECT_EQ(queue.dropped(), 0u) << "what is overtaken is not lost";
}

TEST(SignalQueue, AClosingTakesThePlaceOfUpdatesAndFollowsTheOpening) {
    SignalQueue queue(10);
    queue.push({What::opened, incident("a")});
    queue.push({What::updated, incident("a", 2)});
    queue.push({What::closed, incident("a")});
    queue.push({What::updated, incident("a", 3)});
    EXPECT_THAT(all_of(queue), ElementsAre("+a", "-a"));
}

TEST(SignalQueue, TheOpeningThatLeftIsNotToldAgain) {
    SignalQueue queue(10);
    queue.push({What::opened, incident("a")});
    queue.push({What::updated, incident("a", 2)});
    EXPECT_EQ(words(*queue.pop()), "+a");
    queue.push({What::updated, incident("a", 3)});
    EXPECT_THAT(all_of(queue), ElementsAre("~a 3"));
}

TEST(SignalQueue, BeyondTheLimitTheOldestUpdateGoesThenTheOldestClosing) {
    SignalQueue queue(3);
    queue.push({What::opened, incident("a")});
    queue.push({What::closed, incident("b")});
    queue.push({What::updated, incident("c")});
    queue.push({What::opened, incident("d")});
    EXPECT_EQ(queue.dropped(), 1u);
    queue.push({What::opened, incident("e")});
    EXPECT_EQ(queue.dropped(), 2u);
    EXPECT_THAT(all_of(queue), ElementsAre("+a", "+d", "+e"));
}

TEST(SignalQueue, AnIncidentDroppedWithItsOpeningCountsTwice) {
    SignalQueue queue(1);
    queue.push({What::opened, incident("a")});
    queue.push({What::closed, incident("a")});
    queue.push({What::opened, incident("b")});
    EXPECT_EQ(queue.dropped(), 2u);
    EXPECT_THAT(all_of(queue), ElementsAre("+b"));
}

TEST(SignalQueue, AStormStaysBounded) {
    constexpr size_t limit = 100;
    SignalQueue queue(limit);
    for (int i = 0; i < 10'000; ++i)
        for (const What what : {What::opened, What::updated, What::closed}) {
            queue.push({what, incident(std::to_string(i))});
            ASSERT_LE(queue.size(), limit);
        }
    EXPECT_EQ(all_of(queue).size(), 2 * limit);
    EXPECT_EQ(queue.dropped(), 2 * (10'000 - limit));
}

TEST(SignalQueue, StragglersWaitInTheSameLine) {
    SignalQueue queue(10);
    Straggler straggler;
    straggler.id = "s";
    straggler.subject = "rank 3";
    queue.detected(straggler);
    queue.push({What::opened, incident("a")});
    queue.resolved("s", 77);
    const auto detected = queue.pop();
    EXPECT_EQ(std::get<Straggler>(detected->about).subject, "rank 3");
    EXPECT_EQ(detected->what, What::opened);
    const auto resolved = queue.pop();
    EXPECT_EQ(resolved->what, What::closed);
    EXPECT_EQ(resolved->resolved_realtime_ns, 77u);
    EXPECT_THAT(all_of(queue), ElementsAre("+a"));
}

TEST(SignalQueue, AStragglerThatIsBackBeforeItsEndWasToldHasNotEnded) {
    SignalQueue queue(10);
    Straggler straggler;
    straggler.id = "s";
    queue.resolved("s", 1);
    queue.detected(straggler);
    EXPECT_THAT(all_of(queue), ElementsAre("+s"));
}

TEST(Burst, IsGrantedAnewAfterThePeriod) {
    using std::chrono::milliseconds;
    Burst burst(2, milliseconds(250));
    const Burst::Clock::time_point start{milliseconds(1'000'000)};
    EXPECT_TRUE(burst.take(start));
    EXPECT_TRUE(burst.take(start + milliseconds(200)));
    EXPECT_FALSE(burst.take(start + milliseconds(249)));
    EXPECT_EQ(burst.next_grant(), start + milliseconds(250));
    EXPECT_TRUE(burst.take(burst.next_grant()));
}

TEST(Burst, LeavesWhatIsReserved) {
    Burst burst(3, std::chrono::milliseconds(250));
    const Burst::Clock::time_point start{std::chrono::hours(1)};
    EXPECT_TRUE(burst.take(start, 2));
    EXPECT_FALSE(burst.take(start, 2));
    EXPECT_TRUE(burst.take(start));
    EXPECT_TRUE(burst.take(start));
    EXPECT_FALSE(burst.take(start));
}

TEST(DumpBudget, GivesAStrangerSoMuchAndMoreInTime) {
    DumpBudget budget;
    const uint64_t begin = 1;
    size_t given = 0;
    while (budget.take(1'000, 64 << 10, begin)) ++given;
    EXPECT_EQ(given, DumpBudget::most_bytes / (64 << 10));
    EXPECT_TRUE(budget.take(1'001, 64 << 10, begin)) << "another user has an allowance of its own";
    EXPECT_FALSE(budget.take(1'000, 1, begin + 10'000'000));
    given = 0;
    while (budget.take(1'000, 64 << 10, begin + std::chrono::nanoseconds(DumpBudget::refill_time).count() / 2)) ++given;
    // Half of it, but for what the attempt before took of the rest.
    EXPECT_NEAR(static_cast<double>(given), DumpBudget::most_bytes / (64 << 10) / 2.0, 1);
}

TEST(DumpBudget, BoundsAllStrangersTogether) {
    DumpBudget budget;
    const uint64_t begin = 1;
    size_t given = 0;
    for (uint32_t uid = 0; uid < 500; ++uid)
        while (budget.take(uid, 1 << 20, begin)) ++given;
    EXPECT_EQ(given, DumpBudget::all_bytes >> 20);
}

}  // namespace
}  // namespace ingero
