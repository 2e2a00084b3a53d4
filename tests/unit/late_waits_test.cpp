// What a process waited for late ranks in all its communicators together, and how much of that it surely lost.
#include "core/diagnosis/evidence/late_waits.h"

#include <gmock/gmock.h>

#include "tests/unit/ranks_fixture.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

/// Rank 0 enters two collectives and waits for its device once; rank 1 enters both 50 ms later.
class RanksThatWaitForTwoCollectivesAtOnce : public Ranks {
  protected:
    RanksThatWaitForTwoCollectivesAtOnce() {
        make(2);
        for (uint32_t rank = 0; rank < 2; ++rank) add_process(rank);
    }
    /// `second_hash`: of the communicator of the second one, which is on another stream.
    void steps(int number, uint64_t second_hash, uint64_t device_ns = ms) {
        for (int i = 0; i < number; ++i) {
            const uint64_t last_ns = now_ + 60 * ms, done_ns = last_ns + device_ns;
            sequence_ += 2;
            for (uint32_t rank = 0; rank < 2; ++rank) {
                const uint64_t own_ns = rank == 1 ? last_ns : now_ + 10 * ms;
                collective(rank, sequence_ - 1, own_ns);
                collective(rank, sequence_, own_ns + 20 * us, 4'096, second_hash).stream = 0x88;
                call("cudaDeviceSync", rank, own_ns + 30 * us, done_ns - own_ns - 30 * us);
            }
            now_ = done_ns;
        }
    }
    /// Of ten seconds.
    Finding found_wait() {
        auto found = explain(10 * second);
        EXPECT_THAT(found["collective-wait"], SizeIs(1));
        return found["collective-wait"].empty() ? Finding() : found["collective-wait"][0];
    }
    void expect_15_waits(const Finding& finding) {
        EXPECT_EQ(finding.pid, 100u);
        EXPECT_NEAR(static_cast<double>(finding.lost_ns), 15 * 50.0 * ms, 15 * 0.1 * ms);
        EXPECT_EQ(finding.lost_low_ns, finding.lost_ns);
        EXPECT_EQ(finding.waited_ns, finding.lost_ns);
        EXPECT_EQ(finding.verdict, Verdict::proven);
        EXPECT_EQ(finding.severity, Severity::medium) << "of 7.5 %, not of 15 %";
        ASSERT_THAT(finding.culprits, SizeIs(1));
        EXPECT_EQ(finding.culprits[0].name, "rank 1 (trainer-1, pid 101)");
        EXPECT_EQ(finding.culprits[0].ns, finding.lost_ns);
        EXPECT_THAT(finding.summary, AllOf(HasSubstr(" waited 750 ms for rank 1 "), HasSubstr(", 15 times; "),
                                           HasSubstr("; that cost the program 750 ms, 7.5 % of the window")));
    }
};

TEST_F(RanksThatWaitForTwoCollectivesAtOnce, LoseThatTimeOnceWhereTheyAreOfTwoCommunicators) {
    make(2, other_world);
    steps(15, other_world);
    expect_15_waits(found_wait());
}

TEST_F(RanksThatWaitForTwoCollectivesAtOnce, LoseThatTimeOnceWhereOneCommunicatorUsesTwoStreams) {
    steps(15, world);
    expect_15_waits(found_wait());
}

// In half of the steps the devices have work for 40 ms more.
TEST_F(RanksThatWaitForTwoCollectivesAtOnce, SurelyLoseWhatTheyDidAfterTheirDevicesWereDone) {
    make(2, other_world);
    steps(8, other_world);
    steps(8, other_world, 40 * ms);
    const Finding finding = found_wait();
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 16 * 50.0 * ms, 16 * 0.1 * ms);
    EXPECT_NEAR(static_cast<double>(finding.lost_low_ns), 8 * 50.0 * ms, 8 * 0.1 * ms);
    EXPECT_EQ(finding.lost_high_ns, finding.lost_ns);
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_THAT(finding.summary, HasSubstr("; the devices may have been busy for the rest of that time, so the wait "
                                           "may have cost 400 ms only; that cost the program at most 800 ms, "));
}

TEST_F(RanksThatWaitForTwoCollectivesAtOnce, MayHaveLostNothingWhereTheirDevicesWereNeverDone) {
    make(2, other_world);
    steps(15, other_world, 40 * ms);
    const Finding finding = found_wait();
    EXPECT_EQ(finding.lost_low_ns, 0u);
    EXPECT_EQ(finding.severity, Severity::low);
    EXPECT_THAT(finding.summary,
                HasSubstr("so the wait may have cost nothing; that cost the program at most 750 ms, 7.5 % of "));
}

LateArrival arrival_of(uint32_t rank, uint64_t at_ns) {
    LateArrival arrival;
    arrival.late.process = process_of(rank);
    arrival.late.arrival_ns = at_ns;
    return arrival;
}

/// Of rank 0, in its call of that sequence.
Waited waited(uint64_t ns, uint64_t call) {
    Waited one;
    one.rank.process = process_of(0);
    one.rank.sync_call = call;
    one.ns = ns;
    return one;
}

// Two threads of a process wait for ranks of their own.
TEST(LateWaits, OneThatLiesWithinAnotherIsNoMoreTimeInEitherOrder) {
    const LateArrival of_short = arrival_of(1, 1'500 * ms), of_long = arrival_of(2, 2'000 * ms);
    for (const bool short_ends_first : {true, false}) {
        const Waited within = waited(100 * ms, short_ends_first ? 1 : 3), all = waited(1'000 * ms, 2);
        const LateWaitSums sums = sum_late_waits({{&of_long, &all}, {&of_short, &within}}, 2);
        EXPECT_EQ(sums.lost_ns, 1'000 * ms);
        EXPECT_EQ(sums.certain_ns, 1'000 * ms);
        EXPECT_EQ(sums.newly_lost_ns, short_ends_first ? 900 * ms : 1'000 * ms) << "the one before was counted then";
        EXPECT_EQ(sums.times, short_ends_first ? 2u : 1u);
        EXPECT_EQ(sums.longest, &all);
        ASSERT_EQ(sums.late.count(process_of(2)), 1u);
        const LateOne& late = sums.late.at(process_of(2));
        EXPECT_EQ(late.ns, short_ends_first ? 900 * ms : 1'000 * ms);
        EXPECT_THAT(late.parts, SizeIs(short_ends_first ? 2u : 1u));
        EXPECT_EQ(sums.late.count(process_of(1)), short_ends_first ? 1u : 0u);
    }
}

TEST(LateWaits, WhatIsNotCertainTakesNothingFromWhatIs) {
    const LateArrival at_once = arrival_of(1, 1'100 * ms);
    LateArrival later = arrival_of(1, 1'100 * ms);
    later.left_after_ns = 90 * ms;
    later.idle_ns = 30 * ms;
    const Waited one = waited(100 * ms, 1), other = waited(100 * ms, 2);
    const LateWaitSums sums = sum_late_waits({{&later, &one}, {&at_once, &other}}, 0);
    EXPECT_EQ(sums.lost_ns, 100 * ms);
    EXPECT_EQ(sums.certain_ns, 100 * ms) << "whatever of the first is certain, the second is";
    EXPECT_EQ(sum_late_waits({{&later, &one}, {&later, &other}}, 0).certain_ns, 30 * ms) << "it is one time";
    later.idle_ns = 0;
    EXPECT_EQ(sum_late_waits({{&later, &one}, {&at_once, &other}}, 0).certain_ns, 100 * ms);
}

}  // namespace
}  // namespace ingero::test
