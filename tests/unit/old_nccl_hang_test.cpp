// Ranks that have waited for one for longer than calls are shown to detectors.
#include <gmock/gmock.h>

#include "core/diagnosis/stored/past_collectives.h"
#include "tests/unit/ranks_fixture.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using NcclHang = Ranks;

/// Rank 3 of four has ended, or does something else for hours: the others have entered a collective and wait for it.
class OldNcclHang : public Ranks {
  protected:
    static constexpr uint64_t hour = 3'600 * second;

    OldNcclHang() {
        make(4);
        // Longer than is read before a window.
        for (int number = 0; number < 1'000; ++number) step(usual(4));
        for (uint32_t rank = 0; rank < 3; ++rank) collective(rank, sequence_ + 1, now_ + rank * ms);
        since_ns_ = now_;
    }
    void add_processes(uint64_t last_exited_ns, uint64_t others_exited_ns = 0) {
        for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank, others_exited_ns);
        add_process(3, last_exited_ns);
    }
    std::vector<Finding> hangs_in(uint64_t from_ns, uint64_t to_ns) { return explain(to_ns, from_ns)["nccl-hang"]; }
    /// Whether what the ranks did last is found in so many blocks.
    bool is_known(size_t max_blocks) {
        const auto processes = snapshot_.processes();
        const auto communicators = Communicators::read(snapshot_);
        if (!processes || !communicators) return false;
        const KnownProcesses known(*processes);
        const Window window{since_ns_ + 2 * hour, since_ns_ + 2 * hour + second};
        const auto past =
            read_past_collectives(snapshot_, {0, window, {}}, {window.from_ns - 600 * second, window.to_ns}, 1,
                                  *communicators, known, max_blocks);
        return past && past->has_value();
    }
    std::vector<Finding> hangs() { return hangs_in(since_ns_ + 2 * hour, since_ns_ + 2 * hour + 300 * second); }

    uint64_t since_ns_ = 0;
};

TEST_F(OldNcclHang, IsToldOfHoweverLongAgoItBegan) {
    add_processes(since_ns_ + 5 * ms);
    const auto found = hangs();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].verdict, Verdict::proven) << found[0].summary;
    EXPECT_EQ(found[0].severity, Severity::high);
    EXPECT_EQ(found[0].lost_ns, 2 * hour + 300 * second);
    EXPECT_EQ(found[0].culprits.at(0).name, "rank 3 (trainer-3, pid 103)");
    EXPECT_THAT(found[0].summary, AllOf(HasSubstr("collective 1001 (ncclAllReduce)"), HasSubstr("3 of 4 ranks"),
                                        HasSubstr("its process has ended")));
    EXPECT_THAT(found[0].evidence, SizeIs(3));
}

TEST_F(OldNcclHang, IsToldOfAtEachAge) {
    add_processes(since_ns_ + 5 * ms);
    for (uint64_t age_ns = 20 * second; age_ns < 1'500 * second; age_ns += 40 * second) {
        const auto found = hangs_in(since_ns_ + age_ns - std::min(age_ns, 300 * second), since_ns_ + age_ns);
        ASSERT_THAT(found, SizeIs(1)) << age_ns / second;
        ASSERT_EQ(found[0].verdict, Verdict::proven) << age_ns / second;
    }
    // Where some of what tells is read before the window, and some not.
    for (uint64_t from_ns = since_ns_ - 10 * ms; from_ns < since_ns_ + 5 * ms; from_ns += ms)
        ASSERT_THAT(hangs_in(from_ns + 600 * second, from_ns + 900 * second), SizeIs(1)) << from_ns;
}

TEST_F(OldNcclHang, ForARankThatLivesAndWorksIsNotProven) {
    add_processes(0);
    for (uint64_t at_ns = since_ns_; at_ns < since_ns_ + 2 * hour; at_ns += 100 * ms)
        call("cudaStreamSync", 3, at_ns, ms);
    const auto found = hangs();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].verdict, Verdict::partial);
    EXPECT_EQ(found[0].severity, Severity::medium);
    EXPECT_EQ(found[0].culprits.at(0).pid, 103u);
}

TEST_F(OldNcclHang, InTheFirstCollectiveIsToldOf) {
    make(2, other_world);
    collective(0, 1, now_, 4'096, other_world).stream = 0x78;
    collective(3, sequence_ + 1, now_);  // what the others wait for
    for (uint32_t rank = 0; rank < 4; ++rank) call("cudaStreamSync", rank, now_ + 3 * ms, ms);
    add_processes(0);
    const auto found = hangs();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_THAT(found[0].summary, AllOf(HasSubstr("collective 1 (ncclAllReduce)"), HasSubstr("1 of 2 ranks")));
    EXPECT_EQ(found[0].culprits.at(0).pid, 101u);
}

TEST_F(OldNcclHang, IsNoneWhereOneHasComeBackSince) {
    add_processes(0);
    call("cudaStreamSync", 1, since_ns_ + 10 * ms, 500 * second);
    EXPECT_THAT(hangs(), IsEmpty());
}

TEST_F(OldNcclHang, IsNoneWhereOneHasGivenUpSince) {
    add_processes(since_ns_ + 5 * ms);
    for (uint32_t rank = 0; rank < 3; ++rank)
        call("ncclCommAbort", rank, since_ns_ + 400 * second, ms).args = {1, world, 0};
    EXPECT_THAT(hangs(), IsEmpty());
}

TEST_F(OldNcclHang, IsNoneWhereItsRanksHaveEnteredAnotherCollectiveSince) {
    add_processes(since_ns_ + 5 * ms);
    make(3, other_world);
    for (uint64_t at_ns = since_ns_ + second; at_ns < since_ns_ + 3 * hour; at_ns += 10 * second)
        for (uint32_t rank = 0; rank < 3; ++rank)
            collective(rank, static_cast<uint32_t>((at_ns - since_ns_) / second), at_ns, 4'096, other_world);
    EXPECT_THAT(hangs(), IsEmpty());
}

TEST_F(OldNcclHang, IsNoneWhereItsRanksHaveEnded) {
    add_processes(since_ns_ + 5 * ms, since_ns_ + hour);
    EXPECT_THAT(hangs(), IsEmpty());
}

TEST_F(OldNcclHang, OfATimeThatWasNotRecordedNothingIsSaid) {
    add_processes(since_ns_ + 5 * ms);
    GapRow gap;
    gap.from_ns = since_ns_ + 100 * second;
    gap.to_ns = since_ns_ + 200 * second;
    gap.reason = GapReason::turned_off;
    snapshot_.add(gap);
    EXPECT_THAT(hangs(), IsEmpty());
}

TEST_F(OldNcclHang, WaitsOfThreadsThatWereNotKeptChangeNothing) {
    add_processes(since_ns_ + 5 * ms);
    GapRow gap;
    gap.from_ns = since_ns_ + 100 * second;
    gap.to_ns = since_ns_ + 101 * second;
    gap.reason = GapReason::too_many;
    gap.subject = "42 waits of threads, or events of their sockets, were not kept";
    snapshot_.add(gap);
    EXPECT_THAT(hangs(), SizeIs(1));
}

TEST_F(OldNcclHang, IsOneUntilTheMissingRankComes) {
    add_processes(0);
    collective(3, sequence_ + 1, since_ns_ + 2 * hour + 400 * second);
    for (uint32_t rank = 0; rank < 4; ++rank) call("cudaStreamSync", rank, since_ns_ + 2 * hour + 401 * second, ms);
    EXPECT_THAT(hangs(), SizeIs(1));
    EXPECT_THAT(explain(since_ns_ + 2 * hour + 500 * second, since_ns_ + 2 * hour + 402 * second)["nccl-hang"],
                IsEmpty());
}

TEST_F(OldNcclHang, BeforeTheDaemonWasStartedAnewNothingIsSaid) {
    add_processes(since_ns_ + 5 * ms);
    snapshot_.add_session(since_ns_ + 100 * second, 20'000 * second);
    EXPECT_THAT(hangs(), IsEmpty());
}

TEST_F(OldNcclHang, OfCallsThatWereLostThenNothingIsProven) {
    add_processes(since_ns_ + 5 * ms);
    LossRow lost;
    lost.from_ns = since_ns_ + ms;
    lost.to_ns = since_ns_ + second;
    lost.op = op_of_name("ncclAllReduce").value();
    lost.lost_ring = 1;
    snapshot_.add(lost);
    const auto found = hangs();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].verdict, Verdict::partial);
}

TEST_F(OldNcclHang, IsUnknownWhereTooMuchWouldHaveToBeRead) {
    add_processes(since_ns_ + 5 * ms);
    EXPECT_TRUE(is_known(100));
    EXPECT_FALSE(is_known(0));
}

TEST_F(OldNcclHang, IsKnownThoughAnotherCommunicatorIsNot) {
    now_ += 300 * second;
    collective(3, ++sequence_, now_);
    for (uint32_t rank = 0; rank < 4; ++rank) call("cudaStreamSync", rank, now_ + ms, ms);
    now_ += second;
    for (int number = 0; number < 1'000; ++number) step(usual(4));
    for (uint32_t rank = 0; rank < 3; ++rank) collective(rank, sequence_ + 1, now_);
    since_ns_ = now_;
    add_processes(since_ns_ + 5 * ms);
    make(2, other_world);
    EXPECT_TRUE(is_known(3)) << "what was never entered is looked for in all blocks";
}

// Rank 3 lives and entered its last collective long before the others entered theirs.
TEST_F(NcclHang, IsFoundAmongTheCallsOfOthersWhereverTheTimeThatIsReadBegins) {
    make(4);
    for (int number = 0; number < 10; ++number) step(usual(4));
    const uint64_t since_ns = now_ + 800 * second, end_ns = since_ns + 1'000 * second;
    for (uint32_t rank = 0; rank < 3; ++rank) collective(rank, sequence_ + 1, since_ns + rank * ms);
    for (uint64_t at_ns = now_; at_ns < end_ns; at_ns += 8 * ms) call("cudaStreamSync", 9, at_ns, us);
    for (const uint64_t age_ns : {200 * second, 400 * second, 480 * second, 700 * second, 1'000 * second}) {
        const auto found = explain(since_ns + age_ns, since_ns + age_ns - 100 * second)["nccl-hang"];
        ASSERT_THAT(found, SizeIs(1)) << age_ns / second;
        EXPECT_EQ(found[0].culprits.at(0).pid, 103u);
    }
}

// The others have left the broadcast that rank 2 has not entered.
TEST_F(NcclHang, BehindABroadcastIsFoundAmongTheCallsOfOthersToo) {
    make(3);
    for (int number = 0; number < 10; ++number) step(usual(3));
    for (uint32_t rank = 0; rank < 2; ++rank) {
        collective(rank, sequence_ + 1, now_, 4'096, world, "ncclBroadcast").args[2] |= uint64_t{1}
                                                                                        << INGERO_COLLECTIVE_PEER_SHIFT;
        call("cudaStreamSync", rank, now_ + ms, ms);
        collective(rank, sequence_ + 2, now_ + 3 * ms);
    }
    for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank, rank == 2 ? now_ + 5 * ms : 0);
    const uint64_t since_ns = now_;
    for (uint64_t at_ns = since_ns + 10 * ms; at_ns < since_ns + 1'200 * second; at_ns += 4 * ms)
        call("cudaStreamSync", 9, at_ns, us);
    const auto found = explain(since_ns + 1'200 * second, since_ns + 1'150 * second)["nccl-hang"];
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].culprits.at(0).pid, 102u);
}

TEST_F(OldNcclHang, OfGapsInOtherCallsNothingDepends) {
    add_processes(since_ns_ + 5 * ms);
    GapRow gap;
    gap.from_ns = since_ns_ + 100 * second;
    gap.reason = GapReason::turned_off;
    gap.subject = "probe set memory";
    snapshot_.add(gap);
    EXPECT_THAT(hangs(), SizeIs(1));
    gap.subject = "probe set sync";
    snapshot_.add(gap);
    EXPECT_THAT(hangs(), IsEmpty());
}

// The other is over.
TEST_F(NcclHang, IsFoundThoughAnotherCommunicatorWasLastUsedLongBefore) {
    hash_ = other_world;
    make(4, other_world);
    for (int number = 0; number < 100; ++number) step(usual(4));
    now_ += 100 * second;
    hash_ = world;
    sequence_ = 0;
    make(4);
    for (int number = 0; number < 20'000; ++number) step({us, us, us, us}, true, 10 * us);
    for (uint32_t rank = 0; rank < 3; ++rank) {
        add_process(rank);
        collective(rank, sequence_ + 1, now_);
    }
    add_process(3, now_ + 5 * ms);
    EXPECT_THAT(explain(now_ + 2'000 * second, now_ + 1'900 * second)["nccl-hang"], SizeIs(1));
}

TEST_F(OldNcclHang, OfAnotherUsersGapsNothingDepends) {
    add_processes(since_ns_ + 5 * ms);
    GapRow gap;
    gap.uid = 4'711;
    gap.from_ns = since_ns_ + 100 * second;
    gap.reason = GapReason::gave_way;
    snapshot_.add(gap);
    EXPECT_THAT(hangs(), SizeIs(1));
    gap.uid = 0;
    gap.process.start_ns = 1;
    snapshot_.add(gap);
    EXPECT_THAT(hangs(), IsEmpty()) << "the ranks' own user";
}

}  // namespace
}  // namespace ingero::test
