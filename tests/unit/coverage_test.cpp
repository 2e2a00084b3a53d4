#include "core/query/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <tuple>

#include "tests/unit/history_fixture.h"

namespace ingero {

constexpr uint64_t epoch = 1'700'000'000 * second;  ///< wall time of the first boot's monotonic 0

/// For gtest, which looks beside Gap.
inline void PrintTo(const Gap& gap, std::ostream* out) {
    *out << (static_cast<double>(gap.from_ns) - static_cast<double>(epoch)) / second << " to "
         << (static_cast<double>(gap.to_ns) - static_cast<double>(epoch)) / second << " " << gap.reason;
}

namespace {

using testing::ElementsAre;

constexpr uint64_t second_boot = epoch + 10'000 * second;

MATCHER_P3(IsGap, from_s, to_s, reason, "") {
    return arg.from_ns == epoch + from_s * second && arg.to_ns == epoch + to_s * second && arg.reason == reason;
}

/// A store on a clock of its own; times are seconds after `epoch`.
class ACoverage : public testing::Test {
  protected:
    /// One run of the daemon. The wall clock is `boot_realtime` when the monotonic one is 0.
    void run(const std::string& boot_id, uint64_t boot_realtime, uint64_t from_s, uint64_t to_s, bool clean,
             const std::vector<LossRow>& losses = {}, const std::vector<GapRow>& gaps = {}) {
        ClockTriple now{from_s * second, from_s * second, boot_realtime + from_s * second};
        StoreOptions options;
        options.clock = [&] { return now; };
        const auto writer = open_writer(directory_.path(), options);
        Session session = make_session(boot_id);
        session.clock = now;
        ASSERT_TRUE(writer->begin_session(session));
        if (from_s != 0) writer->set_first_covered(from_s * second);
        now = {to_s * second, to_s * second, boot_realtime + to_s * second};
        Batch batch;
        batch.covered_until_ns = to_s * second;
        batch.losses = losses;
        batch.gaps = gaps;
        ASSERT_TRUE(writer->commit(batch));
        if (clean) {
            ASSERT_TRUE(writer->end_session());
        }
    }

    Coverage over(uint64_t from_s, uint64_t to_s, const GapFilter& filter = {}) {
        const auto snapshot = open_snapshot(directory_.path());
        auto result = coverage(*snapshot, {epoch + from_s * second, epoch + to_s * second}, filter);
        EXPECT_TRUE(result);
        return result.value_or(Coverage{});
    }

    TemporaryDirectory directory_;
};

TEST_F(ACoverage, IsCompleteInsideASession) {
    run("boot-a", epoch, 100, 200, true);
    const Coverage inside = over(120, 180);
    EXPECT_TRUE(inside.complete);
    EXPECT_TRUE(inside.gaps.empty());
    EXPECT_TRUE(over(100, 200).complete);
}

TEST_F(ACoverage, OfOneUserCountsTheCallsThatTheirOwnRecordsStandFor) {
    constexpr uint32_t first_user = 1'001, second_user = 1'002;
    {
        ClockTriple now{100 * second, 100 * second, epoch + 100 * second};
        const auto writer = open_writer(directory_.path(), {.clock = [&] { return now; }});
        Session session = make_session("boot-a");
        session.clock = now;
        ASSERT_TRUE(writer->begin_session(session));
        writer->set_first_covered(100 * second);
        Batch batch;
        for (const uint32_t uid : {first_user, second_user})
            batch.processes.push_back(
                {.key = {uid, 1}, .uid = uid, .comm = "", .cgroup = "", .unit = "", .first_seen_ns = 1});
        uint64_t sequence = 0;
        const std::tuple<uint32_t, uint64_t, uint32_t> calls[] = {
            {first_user, 120, 5}, {first_user, 130, 1}, {first_user, 190, 50}, {second_user, 121, 700}};
        for (const auto& [uid, start_s, weight] : calls) {
            Event event = make_event(++sequence, start_s * second, 500);
            std::tie(event.tgid, event.process_start_ns) = std::tuple(uid, 1);
            event.weight = weight;
            batch.events.push_back(event);
        }
        batch.losses = {{.from_ns = 110 * second, .to_ns = 200 * second, .op = 0x103, .thinned = 752}};
        batch.covered_until_ns = 200 * second;
        ASSERT_TRUE(writer->commit(batch));
    }
    EXPECT_EQ(over(110, 150).sampled_out, 752u);
    EXPECT_EQ(over(110, 150, {.uid = first_user, .pid = {}}).sampled_out, 4u);
    EXPECT_EQ(over(110, 200, {.uid = first_user, .pid = {}}).sampled_out, 4u + 49u);
    EXPECT_EQ(over(110, 200, {.uid = second_user, .pid = {}}).sampled_out, 699u);
    EXPECT_TRUE(over(125, 135, {.uid = first_user, .pid = {}}).complete);
    EXPECT_EQ(over(110, 200, {.uid = second_user + 1, .pid = {}}).sampled_out, 0u);

    constexpr auto passed = std::chrono::steady_clock::time_point::min();
    const auto snapshot = open_snapshot(directory_.path());
    const Window window{epoch + 110 * second, epoch + 200 * second};
    const auto late = coverage(*snapshot, window, {.uid = first_user, .pid = {}}, passed);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, ErrorCode::deadline);
    EXPECT_TRUE(coverage(*snapshot, window, {}, passed)) << "of all users no row is read";
}

TEST_F(ACoverage, NamesTheGapBetweenSessionsAndTheTimeAroundThem) {
    run("boot-a", epoch, 100, 200, true);
    run("boot-a", epoch, 300, 400, true);
    const Coverage all = over(50, 500);
    EXPECT_FALSE(all.complete);
    EXPECT_THAT(all.gaps,
                ElementsAre(IsGap(50u, 100u, "before the first record"), IsGap(200u, 300u, "ingerod was not running"),
                            IsGap(400u, 500u, "ingerod was not running")));
    EXPECT_THAT(over(150, 250).gaps, ElementsAre(IsGap(200u, 250u, "ingerod was not running")));
    EXPECT_THAT(over(210, 220).gaps, ElementsAre(IsGap(210u, 220u, "ingerod was not running")));
    EXPECT_THAT(over(10, 20).gaps, ElementsAre(IsGap(10u, 20u, "before the first record")));
}

TEST_F(ACoverage, SaysWhenASessionDidNotEndCleanly) {
    run("boot-a", epoch, 100, 200, false);
    run("boot-a", epoch, 300, 400, false);
    EXPECT_THAT(over(150, 500).gaps, ElementsAre(IsGap(200u, 300u, "ingerod ended without a clean stop"),
                                                 IsGap(400u, 500u, "ingerod ended without a clean stop")));
}

TEST_F(ACoverage, OfTheLastSecondsOfARunningSessionIsNotStoredYet) {
    run("boot-a", epoch, 100, 200, false);
    EXPECT_THAT(over(150, 203).gaps, ElementsAre(IsGap(200u, 203u, "not yet stored")));
}

TEST_F(ACoverage, OfAnEmptyStoreIsOneGap) {
    open_writer(directory_.path());
    EXPECT_THAT(over(10, 20).gaps, ElementsAre(IsGap(10u, 20u, "before the first record")));
    EXPECT_EQ(whole_trace(*open_snapshot(directory_.path())).length_ns(), 0u);
}

TEST_F(ACoverage, DoesNotCountASessionThatNeverAttached) {
    run("boot-a", epoch, 0, 200, true);
    EXPECT_THAT(over(10, 20).gaps, ElementsAre(IsGap(10u, 20u, "before the first record")));
    EXPECT_TRUE(boot_windows(*open_snapshot(directory_.path()), {epoch, epoch + 200 * second}).empty());
}

TEST_F(ACoverage, SumsTheLossesThatOverlap) {
    run("boot-a", epoch, 100, 200, true,
        {{.from_ns = 110 * second, .to_ns = 111 * second, .op = 1, .lost_ring = 5, .lost_depth = 1},
         {.from_ns = 150 * second, .to_ns = 151 * second, .op = 1, .lost_frames = 7, .uncertain = 9}});
    EXPECT_EQ(over(100, 200).lost, 13u);
    EXPECT_FALSE(over(100, 200).complete);
    EXPECT_TRUE(over(100, 200).gaps.empty());
    EXPECT_EQ(over(140, 200).lost, 7u);
    EXPECT_TRUE(over(120, 140).complete);
}

GapRow gap(uint32_t pid, uint32_t uid, uint64_t from_s, uint64_t to_s, const std::string& subject = "libcudart.so.12",
           GapReason reason = GapReason::late_attach) {
    return {.process = {pid, pid == 0 ? 0u : 7u},
            .uid = uid,
            .from_ns = from_s * second,
            .to_ns = to_s * second,
            .reason = reason,
            .subject = subject};
}

TEST_F(ACoverage, NamesTheGapsOfSingleProcesses) {
    run("boot-a", epoch, 100, 200, true, {},
        {gap(5, 1000, 110, 120), gap(6, 1001, 150, 160, "libcuda.so.1: why", GapReason::refused)});
    const Coverage all = over(100, 200);
    EXPECT_FALSE(all.complete);
    EXPECT_THAT(all.gaps, ElementsAre(IsGap(110u, 120u, "late-attach: libcudart.so.12 (pid 5)"),
                                      IsGap(150u, 160u, "refused: libcuda.so.1: why (pid 6)")));
    EXPECT_TRUE(all.gaps[0].partial);
    EXPECT_TRUE(over(121, 149).complete);
    EXPECT_THAT(over(115, 149).gaps, ElementsAre(IsGap(115u, 120u, "late-attach: libcudart.so.12 (pid 5)")));
}

TEST_F(ACoverage, TellsOthersGapsToThoseWhoMaySeeThemOnly) {
    run("boot-a", epoch, 100, 200, true, {},
        {gap(5, 1000, 110, 120), gap(6, 1001, 130, 140), gap(0, 0, 150, 160, "probe set sync", GapReason::turned_off),
         gap(0, 1001, 170, 180, "more", GapReason::too_many)});
    EXPECT_THAT(over(100, 200, {.uid = 1000, .pid = {}}).gaps,
                ElementsAre(IsGap(110u, 120u, "late-attach: libcudart.so.12 (pid 5)"),
                            IsGap(150u, 160u, "turned-off: probe set sync")));
    EXPECT_THAT(over(100, 200, {.uid = {}, .pid = 6}).gaps,
                ElementsAre(IsGap(130u, 140u, "late-attach: libcudart.so.12 (pid 6)"),
                            IsGap(150u, 160u, "turned-off: probe set sync"), IsGap(170u, 180u, "too-many: more")));
    EXPECT_TRUE(over(100, 145, {.uid = 1000, .pid = 6}).complete);
    EXPECT_EQ(over(100, 200).gaps.size(), 4u);
}

TEST_F(ACoverage, MergesGapsThatTouchAndKeepsThoseThatDoNot) {
    run("boot-a", epoch, 100, 200, true, {},
        {gap(5, 0, 110, 120), gap(5, 0, 115, 130), gap(5, 0, 130, 140), gap(5, 0, 150, 160), gap(6, 0, 112, 118)});
    EXPECT_THAT(over(100, 200).gaps, ElementsAre(IsGap(110u, 140u, "late-attach: libcudart.so.12 (pid 5)"),
                                                 IsGap(112u, 118u, "late-attach: libcudart.so.12 (pid 6)"),
                                                 IsGap(150u, 160u, "late-attach: libcudart.so.12 (pid 5)")));
}

TEST_F(ACoverage, EndsAnOpenGapWithTheSessionThatLeftItOpen) {
    run("boot-a", epoch, 100, 200, false, {}, {gap(5, 0, 150, 0)});
    run("boot-a", epoch, 300, 400, true);
    EXPECT_THAT(over(140, 200).gaps, ElementsAre(IsGap(150u, 200u, "late-attach: libcudart.so.12 (pid 5)")));
    EXPECT_TRUE(over(300, 400).complete);
}

TEST_F(ACoverage, TellsNothingOfAProcessWhereNothingWasCoveredAnyway) {
    run("boot-a", epoch, 100, 200, true, {}, {gap(5, 0, 40, 130)});
    EXPECT_THAT(over(50, 200).gaps, ElementsAre(IsGap(50u, 100u, "before the first record"),
                                                IsGap(100u, 130u, "late-attach: libcudart.so.12 (pid 5)")));
}

TEST_F(ACoverage, ListsTheLongestOfManyGapsAndSumsTheRest) {
    std::vector<GapRow> many;
    for (uint32_t pid = 1; pid <= 300; ++pid) many.push_back(gap(pid, 0, 110, pid <= 44 ? 112 : 120));
    run("boot-a", epoch, 100, 200, true, {}, many);
    const Coverage all = over(100, 200);
    ASSERT_EQ(all.gaps.size(), max_process_gaps + 1);
    EXPECT_THAT(all.gaps.back(), IsGap(110u, 112u, "44 more gaps of single processes, 1.47 min in all"));
    EXPECT_TRUE(all.gaps.back().partial);
    for (size_t i = 0; i < max_process_gaps; ++i) EXPECT_EQ(all.gaps[i].to_ns, epoch + 120 * second);
}

TEST_F(ACoverage, GoesAcrossBoots) {
    run("boot-a", epoch, 100, 200, true);
    run("boot-b", second_boot, 50, 90, true, {{.from_ns = 60 * second, .to_ns = 61 * second, .op = 1, .lost_ring = 3}});
    const Coverage all = over(100, 10'090);
    EXPECT_THAT(all.gaps, ElementsAre(IsGap(200u, 10'050u, "ingerod was not running")));
    EXPECT_EQ(all.lost, 3u);
    EXPECT_EQ(over(100, 200).lost, 0u);
    const Window whole = whole_trace(*open_snapshot(directory_.path()));
    EXPECT_EQ(whole.from_ns, epoch + 100 * second);
    EXPECT_EQ(whole.to_ns, second_boot + 90 * second);
}

TEST_F(ACoverage, LaysAWindowOntoTheClockOfEachBoot) {
    run("boot-a", epoch, 100, 200, true);
    run("boot-b", second_boot, 50, 70, true);
    run("boot-b", second_boot, 80, 90, true);
    const auto snapshot = open_snapshot(directory_.path());
    const auto both = boot_windows(*snapshot, {epoch + 150 * second, second_boot + 85 * second});
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(both[0].boot_index, 0u);
    EXPECT_EQ(both[0].monotonic.from_ns, 150 * second);
    EXPECT_EQ(both[1].boot_index, 1u);
    EXPECT_EQ(both[1].monotonic.from_ns, 0u) << "before that boot";
    EXPECT_EQ(both[1].monotonic.to_ns, 85 * second);
    EXPECT_EQ(both[1].clock.to_realtime(85 * second), second_boot + 85 * second);
    EXPECT_EQ(boot_windows(*snapshot, {epoch + 150 * second, epoch + 160 * second}).size(), 1u);
    EXPECT_TRUE(boot_windows(*snapshot, {epoch + 300 * second, epoch + 400 * second}).empty());
}

TEST_F(ACoverage, FollowsAWallClockThatWasSetAfterTheStart) {
    // Started 1,000 s before the truth; NTP then set the clock. The whole boot is told by the right one.
    ClockTriple now{100 * second, 100 * second, epoch - 900 * second};
    StoreOptions options;
    options.clock = [&] { return now; };
    const auto writer = open_writer(directory_.path(), options);
    Session session = make_session("boot-a");
    session.clock = now;
    ASSERT_TRUE(writer->begin_session(session));
    writer->set_first_covered(100 * second);
    now = {200 * second, 200 * second, epoch + 200 * second};
    Batch batch;
    batch.covered_until_ns = 200 * second;
    ASSERT_TRUE(writer->commit(batch));
    EXPECT_TRUE(over(100, 200).complete);
}

}  // namespace
}  // namespace ingero
