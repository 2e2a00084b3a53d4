// Ranks that keep coming last, judged as their calls come and later from the store: the episodes are the same.
#include <gmock/gmock.h>

#include "tests/unit/stragglers_fixture.h"

namespace ingero::test {
namespace {

using testing::SizeIs;
using testing::UnorderedElementsAreArray;

class StragglersLive : public Stragglers {
  protected:
    /// So many steps, in each of which rank 2 of four comes later by `late_ns`.
    void run(int number, uint64_t compute_ns, uint64_t late_ns) {
        for (int i = 0; i < number; ++i) {
            step({compute_ns, compute_ns, compute_ns + late_ns, compute_ns});
            const std::vector<Event> rows(snapshot_.events().begin() + static_cast<std::ptrdiff_t>(taken_),
                                          snapshot_.events().end());
            taken_ = snapshot_.events().size();
            watch().take(rows);
            keep(watch().settle(now_ + 1));
            keep(watch().quiet(now_ + idle_ns_));
        }
    }
    /// Nothing comes meanwhile.
    void pause(uint64_t ns) {
        for (uint64_t at_ns = 0; at_ns <= ns; at_ns += second) keep(watch().quiet(now_ + at_ns));
        now_ += ns;
    }
    StragglerWatch& watch() {
        if (!watch_) {
            communicators_ = Communicators::read(snapshot_).value();
            watch_.emplace(communicators_, options_, snapshot_.sessions()[0].boot_id);
        }
        return *watch_;
    }
    void keep(std::vector<StragglerChange> changes) {
        std::move(changes.begin(), changes.end(), std::back_inserter(changes_));
    }
    static std::string text(const StragglerEpisode& one) {
        std::string text = one.id;
        for (const uint64_t ns : {one.since_ns, one.detected_ns, one.latest_ns, one.resolved_ns, one.lost_ns})
            text += " " + std::to_string(ns);
        return text + " " + std::to_string(one.late_ranges);
    }
    void expect_the_same_of_the_store() {
        std::vector<std::string> live, stored;
        for (const StragglerEpisode& one : watch().open()) live.push_back(text(one));
        for (const StragglerChange& one : changes_)
            if (one.resolved) live.push_back(text(one.episode));
        for (const StragglerEpisode& one : episodes(options_)) stored.push_back(text(one));
        EXPECT_THAT(live, UnorderedElementsAreArray(stored));
    }

    StragglerOptions options_;
    Communicators communicators_;
    std::optional<StragglerWatch> watch_;
    std::vector<StragglerChange> changes_;
    size_t taken_ = 0;
    uint64_t idle_ns_ = 0;  ///< so long after each step nothing more has come
};

TEST_F(StragglersLive, AreOneEpisodeInALoopOfLongSteps) {
    idle_ns_ = 11 * second;
    run(60, 10 * second, 2 * second);
    ASSERT_THAT(changes_, SizeIs(1));
    EXPECT_FALSE(changes_[0].resolved);
    ASSERT_THAT(watch().open(), SizeIs(1));
    const StragglerEpisode one = watch().open()[0];
    EXPECT_EQ(one.rank, 2u);
    EXPECT_EQ(one.detected_ns, second + 50 * (12 * second + ms));
    EXPECT_EQ(one.late_ranges, 60u);
    EXPECT_EQ(one.lost_ns, 60 * (2 * second - 10 * us));
    expect_the_same_of_the_store();
}

TEST_F(StragglersLive, AreFoundInALoopOfStepsOfMoreThanHalfAMinute) {
    options_.ranges = 8;
    idle_ns_ = 35 * second;
    run(12, 36 * second, 4 * second);
    ASSERT_THAT(changes_, SizeIs(1));
    EXPECT_FALSE(changes_[0].resolved);
    expect_the_same_of_the_store();
}

TEST_F(StragglersLive, EndThreeLongStepsAfterTheLastOne) {
    options_.ranges = 8;
    run(12, 10 * second, 2 * second);
    const uint64_t ended_ns = now_;
    EXPECT_THAT(watch().quiet(ended_ns + 36 * second), SizeIs(0));
    const auto over = watch().quiet(ended_ns + 37 * second);
    ASSERT_THAT(over, SizeIs(1));
    EXPECT_TRUE(over[0].resolved);
    EXPECT_EQ(over[0].episode.resolved_ns, ended_ns);
}

TEST_F(StragglersLive, AreOthersAfterAPauseOfAFastLoop) {
    run(100, 20 * ms, 15 * ms);
    const uint64_t ended_ns = now_;
    pause(12 * second);
    run(100, 20 * ms, 15 * ms);
    ASSERT_THAT(changes_, SizeIs(3));
    EXPECT_EQ(changes_[1].episode.id, changes_[0].episode.id);
    EXPECT_EQ(changes_[1].episode.resolved_ns, ended_ns);
    EXPECT_NE(changes_[2].episode.id, changes_[0].episode.id);
    EXPECT_GE(changes_[2].episode.since_ns, ended_ns + 12 * second);
    expect_the_same_of_the_store();
}

// Nobody asks meanwhile whether the communicator is quiet.
TEST_F(StragglersLive, EndWithAPauseThatALaterRangeShows) {
    run(100, 20 * ms, 15 * ms);
    now_ += 12 * second;
    run(1, 20 * ms, 15 * ms);
    ASSERT_THAT(changes_, SizeIs(2));
    EXPECT_TRUE(changes_[1].resolved);
    expect_the_same_of_the_store();
}

TEST_F(StragglersLive, AreTheSameAfterAShortPause) {
    run(100, 20 * ms, 15 * ms);
    pause(9 * second);
    run(100, 20 * ms, 15 * ms);
    ASSERT_THAT(changes_, SizeIs(1));
    EXPECT_EQ(watch().open().at(0).late_ranges, 200u);
    expect_the_same_of_the_store();
}

// The others synchronise no more, or nothing of them is seen any more: one rank alone shows nobody late.
TEST_F(StragglersLive, EndThoughOneRankGoesOn) {
    run(100, 20 * ms, 15 * ms);
    for (int i = 0; i < 40 && changes_.size() < 2; ++i) {
        step({400 * ms});
        watch().take(std::vector<Event>(snapshot_.events().end() - 2, snapshot_.events().end()));
        keep(watch().settle(now_ - 500 * ms));
        keep(watch().quiet(now_));
    }
    ASSERT_THAT(changes_, SizeIs(2));
    EXPECT_TRUE(changes_[1].resolved);
    EXPECT_THAT(watch().open(), SizeIs(0));
}

// It ended before the communicator was quiet, and is judged after that.
TEST_F(StragglersLive, DoNotEndBeforeARangeThatIsNotYetJudged) {
    run(100, 20 * ms, 15 * ms);
    now_ += 9'900 * ms;
    const uint64_t begun_ns = now_;
    step({20 * ms, 20 * ms, 35 * ms, 20 * ms});
    watch().take(std::vector<Event>(snapshot_.events().end() - 8, snapshot_.events().end()));
    taken_ = snapshot_.events().size();
    keep(watch().settle(now_ - 500 * ms));
    keep(watch().quiet(begun_ns + 700 * ms));
    EXPECT_THAT(changes_, SizeIs(1));
    run(10, 20 * ms, 15 * ms);
    EXPECT_THAT(changes_, SizeIs(1));
    expect_the_same_of_the_store();
}

}  // namespace
}  // namespace ingero::test
