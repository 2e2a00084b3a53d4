// Ranks that come late to broadcasts and reductions to one rank: what is theirs of a wait, and what the root's.
#include <gmock/gmock.h>

#include "core/diagnosis/stragglers.h"
#include "tests/unit/ranks_fixture.h"

namespace ingero::test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class RanksWithARoot : public Ranks {
  protected:
    RanksWithARoot() { make(4); }

    /// Rank 0, the root, enters after `root_ns`, rank 3 after `last_ns`, the others at once. They leave together a
    /// millisecond after the last; ranks 1 and 2 after `early_ns`, where that is not 0.
    void round(const std::string& name, uint64_t root_ns, uint64_t last_ns, bool root_waits = true,
               uint64_t early_ns = 0) {
        ++sequence_;
        const uint64_t done_ns = now_ + std::max(root_ns, last_ns) + ms;
        for (uint32_t rank = 0; rank < 4; ++rank) {
            const uint64_t own_ns = now_ + (rank == 0 ? root_ns : rank == 3 ? last_ns : rank * us);
            collective(rank, sequence_, own_ns, 4'096, world, name).args[2] |= uint64_t{1}
                                                                               << INGERO_COLLECTIVE_PEER_SHIFT;
            const uint64_t from_ns = own_ns + 10 * us;
            const bool leaves_early = early_ns != 0 && (rank == 1 || rank == 2);
            if (rank != 0 || root_waits)
                call("cudaStreamSync", rank, from_ns, leaves_early ? early_ns : done_ns - from_ns);
        }
        now_ = done_ns + ms;
    }
    std::vector<StragglerEpisode> episodes() {
        const Window all{MemorySnapshot::realtime_at_zero_ns, MemorySnapshot::realtime_at_zero_ns + end_ns_ + 1};
        auto answer = compute_stragglers(snapshot_, {.window = all, .uid = {}, .pid = {}});
        EXPECT_TRUE(answer);
        return answer && answer->boots.size() == 1 ? answer->boots[0].episodes : std::vector<StragglerEpisode>();
    }
    void expect_nobody_is_late() {
        auto found = explain();
        EXPECT_THAT(found["straggler"], IsEmpty());
        EXPECT_THAT(found["collective-wait"], IsEmpty());
        EXPECT_THAT(episodes(), IsEmpty());
    }
};

TEST_F(RanksWithARoot, OneThatComesJustAfterALateRootIsNotLateByWhatTheRootWas) {
    for (int i = 0; i < 100; ++i) round("ncclBroadcast", 30 * ms, 30 * ms + 200 * us);
    expect_nobody_is_late();
}

TEST_F(RanksWithARoot, NorIsItWhereTheRootDoesNotSynchronise) {
    for (int i = 0; i < 100; ++i) round("ncclBcast", 30 * ms, 30 * ms + 200 * us, false);
    expect_nobody_is_late();
}

TEST_F(RanksWithARoot, OneThatComesLongAfterTheRootIsLateSinceTheRootCame) {
    for (int i = 0; i < 100; ++i) round("ncclBroadcast", 30 * ms, 50 * ms);
    auto found = explain();
    EXPECT_THAT(found["collective-wait"], SizeIs(3));
    ASSERT_THAT(found["straggler"], SizeIs(1));
    EXPECT_EQ(found["straggler"][0].pid, 103u);
    EXPECT_EQ(found["straggler"][0].lost_ns, 100 * 20 * ms);
    const auto late = episodes();
    ASSERT_THAT(late, SizeIs(1));
    EXPECT_EQ(late[0].rank, 3u);
    EXPECT_EQ(late[0].lost_ns, 100 * 20 * ms);
    EXPECT_EQ(late[0].late_ranges, 100u);
}

TEST_F(RanksWithARoot, RoundsToWhichTheRootComesLastCountForTheOthers) {
    for (int i = 0; i < 100; ++i) round("ncclBroadcast", 30 * ms, i % 5 < 2 ? 50 * ms : us);
    expect_nobody_is_late();
}

// In between they reduce among all, to which the root comes late indeed.
TEST_F(RanksWithARoot, RoundsToWhichTheRootComesLastDoNotCountForTheRoot) {
    for (int i = 0; i < 100; ++i) round(i % 2 == 0 ? "ncclBroadcast" : "ncclAllReduce", 30 * ms, us);
    auto found = explain();
    ASSERT_THAT(found["straggler"], SizeIs(1));
    EXPECT_EQ(found["straggler"][0].pid, 100u);
    ASSERT_THAT(episodes(), SizeIs(1));
    EXPECT_EQ(episodes()[0].late_ranges, 50u);
}

TEST_F(RanksWithARoot, OneThatLeavesAReductionEarlyDoesNotHideHowLongTheRootWaits) {
    for (int i = 0; i < 100; ++i) round("ncclReduce", 0, 50 * ms, true, ms);
    auto found = explain();
    ASSERT_THAT(found["straggler"], SizeIs(1));
    EXPECT_EQ(found["straggler"][0].pid, 103u);
    EXPECT_EQ(found["straggler"][0].lost_ns, 100 * (50 * ms - 10 * us));
    ASSERT_THAT(found["collective-wait"], SizeIs(1));
    EXPECT_EQ(found["collective-wait"][0].pid, 100u);
}

}  // namespace
}  // namespace ingero::test
