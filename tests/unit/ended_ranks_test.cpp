// Ranks that wait for one that ended as it waited with them, where it is not known how that ended.
#include <gmock/gmock.h>

#include "tests/unit/ranks_fixture.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

/// Four ranks have entered a collective, and nobody has come out of waiting for it.
class EndedRanks : public Ranks {
  protected:
    EndedRanks() {
        make(4);
        for (int number = 0; number < 50; ++number) step(usual(4));
        step(usual(4), false);
    }
    std::vector<Finding> hangs_until(uint64_t until_ns) { return explain(until_ns)["nccl-hang"]; }
};

TEST_F(EndedRanks, OfWhichItIsNotKnownHowAreToldOfAtLowSeverityAtFirst) {
    for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank);
    add_process(3, now_ + 5 * ms, exit_status_unknown);
    EXPECT_THAT(hangs_until(now_ + 9 * second), SizeIs(0));
    auto found = hangs_until(now_ + 20 * second);
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].verdict, Verdict::partial) << found[0].summary;
    EXPECT_EQ(found[0].severity, Severity::low);
    ASSERT_THAT(found[0].culprits, SizeIs(1));
    EXPECT_EQ(found[0].culprits[0].pid, 103u);
    EXPECT_THAT(found[0].summary,
                AllOf(HasSubstr("3 of 4 ranks"), HasSubstr("pid 103) has not been recorded leaving it"),
                      HasSubstr("its process has ended, and it is not known how")));
    found = hangs_until(now_ + 150 * second);
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].severity, Severity::medium);
    EXPECT_EQ(found[0].verdict, Verdict::partial);
}

TEST_F(EndedRanks, AreToldOfAsKilledWhereOneIsKnownToBe) {
    for (uint32_t rank = 0; rank < 2; ++rank) add_process(rank);
    add_process(2, now_ + 5 * ms, 9);
    add_process(3, now_ + 5 * ms, exit_status_unknown);
    const auto found = hangs_until(now_ + 20 * second);
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].severity, Severity::medium);
    EXPECT_THAT(found[0].culprits, SizeIs(2));
    EXPECT_THAT(found[0].summary, Not(HasSubstr("not known how")));
}

TEST_F(EndedRanks, ThatEndOneAfterTheOtherAreNone) {
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank, now_ + rank * second, exit_status_unknown);
    expect_nothing(now_ + 60 * second);
}

// As a watchdog ends them.
TEST_F(EndedRanks, AreToldOfOnceThoseThatWaitedHaveEndedInAnUnknownWayToo) {
    for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank, now_ + 60 * second, exit_status_unknown);
    add_process(3, now_ + 5 * ms, exit_status_unknown);
    const auto found = hangs_until(now_ + 100 * second);
    ASSERT_THAT(found, SizeIs(1));
    ASSERT_THAT(found[0].culprits, SizeIs(1));
    EXPECT_EQ(found[0].culprits[0].pid, 103u);
    EXPECT_EQ(found[0].newly_lost_ns, 0u) << "nobody waits any more";
}

}  // namespace
}  // namespace ingero::test
