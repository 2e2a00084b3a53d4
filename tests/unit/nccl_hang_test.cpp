// Ranks that wait for one that does not come: when that is told, of whom, and when nobody is accused.
#include <gmock/gmock.h>

#include "tests/unit/ranks_fixture.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using NcclHang = Ranks;

TEST_F(NcclHang, OfARankThatHasEndedIsProvenAndNamesIt) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    last_rank_ends(4);
    auto found = explain(now_ + 20 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    const Finding& hang = found["nccl-hang"][0];
    EXPECT_EQ(hang.verdict, Verdict::proven) << hang.summary;
    EXPECT_EQ(hang.severity, Severity::high);
    EXPECT_EQ(hang.pid, 100u);
    ASSERT_THAT(hang.culprits, SizeIs(1));
    EXPECT_EQ(hang.culprits[0].name, "rank 3 (trainer-3, pid 103)");
    EXPECT_NEAR(static_cast<double>(hang.lost_ns), 20.0 * second, 1.0 * ms);
    EXPECT_THAT(hang.summary, AllOf(HasSubstr("collective 51 (ncclAllReduce)"), HasSubstr("3 of 4 ranks"),
                                    HasSubstr("its process has ended")));
    EXPECT_THAT(hang.evidence, SizeIs(3));
}

// One rank alone says nothing of the others: with whom it is compared says it.
class OneRank : public Ranks {
  protected:
    Result<ExplainAnswer> asked(uint32_t pid, std::optional<uint32_t> uid = {}, uint64_t until_ns = 0) {
        const Window all{MemorySnapshot::realtime_at_zero_ns,
                         MemorySnapshot::realtime_at_zero_ns + (until_ns != 0 ? until_ns : end_ns_ + 1)};
        return ingero::explain(snapshot_, {.window = all, .uid = uid, .pid = pid});
    }
};

TEST_F(OneRank, ThatIsAskedAboutIsComparedWithTheOthers) {
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank);
    late_by([](uint64_t) {});
    const auto all = explain();
    for (uint32_t pid = 100; pid < 104; ++pid) {
        const auto answer = asked(pid);
        ASSERT_TRUE(answer) << answer.error().message;
        // Of the late one also what others waited for it.
        ASSERT_THAT(answer->findings, SizeIs(pid == 102 ? 4 : 1)) << pid;
        for (const Finding& one : answer->findings) {
            EXPECT_EQ(one.kind, one.pid == 102 ? "straggler" : "collective-wait");
            EXPECT_THAT(all.at(one.kind),
                        testing::Contains(AllOf(Field(&Finding::id, one.id), Field(&Finding::lost_ns, one.lost_ns),
                                                Field(&Finding::summary, one.summary))));
        }
        EXPECT_FALSE(answer->healthy);
    }
    const auto hidden = asked(103, 4'711);
    ASSERT_TRUE(hidden);
    EXPECT_THAT(hidden->findings, IsEmpty()) << "of another user's ranks nothing is said";
}

TEST_F(OneRank, OfACollectiveThatCannotEndIsToldSoWhetherItWaitsOrIsMissing) {
    make(5);
    for (int number = 0; number < 50; ++number) step(usual(5));
    last_rank_ends(5);
    for (uint32_t pid = 100; pid < 105; ++pid) {
        const auto answer = asked(pid, {}, now_ + 20 * second);
        ASSERT_TRUE(answer);
        EXPECT_THAT(answer->findings, testing::Contains(Field(&Finding::kind, "nccl-hang"))) << pid;
        EXPECT_FALSE(answer->healthy);
    }
}

// Of one rank collectives may not have been seen: its numbers are not those of the others any more.
TEST_F(NcclHang, IsNotTakenFromNumbersThatWereInterrupted) {
    constexpr uint64_t interrupted_ns = 1'000 * second;
    make(4, world, 0, interrupted_ns);
    now_ = interrupted_ns - 600 * ms;
    for (int number = 0; number < 20; ++number) step(usual(4));
    ASSERT_LT(now_, interrupted_ns);
    now_ = interrupted_ns + ms;
    for (uint32_t rank = 0; rank < 3; ++rank) {
        add_process(rank);
        collective(rank, sequence_ + 1, now_ + rank * ms);
    }
    add_process(3, now_ + 5 * ms);
    expect_nothing(now_ + 20 * second);
}

// The one that is missing may have come since, unseen.
TEST_F(NcclHang, IsNotSaidOnceNumbersWereInterruptedSince) {
    constexpr uint64_t interrupted_ns = 1'000 * second;
    make(4, world, 0, interrupted_ns);
    now_ = interrupted_ns - second;
    for (int number = 0; number < 20; ++number) step(usual(4));
    for (uint32_t rank = 0; rank < 3; ++rank) collective(rank, sequence_ + 1, now_ + rank * ms);
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank);
    ASSERT_LT(end_ns_, interrupted_ns);
    expect_nothing(now_ + 150 * second);
}

TEST_F(NcclHang, IsFoundInAWindowBeforeNumbersWereInterrupted) {
    make(4, world, 0, now_ + 1'000 * second);
    for (int number = 0; number < 50; ++number) step(usual(4));
    for (uint32_t rank = 0; rank < 3; ++rank) {
        add_process(rank);
        collective(rank, sequence_ + 1, now_ + rank * ms);
    }
    add_process(3, now_ + 5 * ms);
    EXPECT_THAT(explain(now_ + 20 * second)["nccl-hang"], SizeIs(1));
}

TEST_F(NcclHang, OfARankThatWasKilledInsideIsToldAndNotProven) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    step(usual(4), false);  // nobody comes out of waiting for the last one
    for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank);
    add_process(3, now_ + 5 * ms, 9);
    auto found = explain(now_ + 20 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    const Finding& hang = found["nccl-hang"][0];
    EXPECT_EQ(hang.verdict, Verdict::partial) << hang.summary;
    EXPECT_EQ(hang.severity, Severity::medium);
    EXPECT_THAT(hang.summary, AllOf(HasSubstr("3 of 4 ranks"), HasSubstr("pid 103) has not been recorded leaving it"),
                                    HasSubstr("its process has ended")));
}

TEST_F(NcclHang, OfARankThatEndedAsItShouldInTheLastCollectiveIsNone) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    step(usual(4), false);
    for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank);  // busy with something else
    add_process(3, now_ + 5 * ms);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, ALongCheckpointOfOneRankIsNoneAtFirstAndNeverProven) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    for (uint32_t rank = 1; rank < 4; ++rank) collective(rank, sequence_ + 1, now_);
    expect_nothing(now_ + 20 * second);
    const auto found = explain(now_ + 40 * second);
    ASSERT_EQ(found.count("nccl-hang"), 1u);
    EXPECT_EQ(found.at("nccl-hang").at(0).verdict, Verdict::partial);
    EXPECT_EQ(found.at("nccl-hang").at(0).severity, Severity::low);
    EXPECT_EQ(found.at("nccl-hang").at(0).culprits.at(0).pid, 100u);
}

// Rank 0 evaluates alone, or saves what it has.
class NcclHangOfOneThatWorks : public NcclHang {
  protected:
    NcclHangOfOneThatWorks() {
        make(4);
        for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank);
        for (int number = 0; number < 50; ++number) step(usual(4));
        from_ns_ = now_;
        for (uint32_t rank = 1; rank < 4; ++rank) collective(rank, sequence_ + 1, from_ns_);
    }
    /// Its severity, and whether the summary says that the missing rank works.
    std::pair<std::optional<Severity>, bool> found_at(uint64_t at_ns) {
        const auto found = explain(from_ns_ + at_ns, from_ns_ + at_ns - std::min(at_ns, 200 * second));
        const auto hangs = found.find("nccl-hang");
        if (hangs == found.end() || hangs->second.size() != 1) return {std::nullopt, false};
        const Finding& hang = hangs->second[0];
        return {hang.severity, hang.summary.find("but its process goes on with other work") != std::string::npos};
    }

    uint64_t from_ns_ = 0;
};

using SaidToWork = std::pair<std::optional<Severity>, bool>;

TEST_F(NcclHangOfOneThatWorks, IsOfMediumSeverityAfterTwoMinutesWhereItDoesNothing) {
    EXPECT_EQ(found_at(100 * second), SaidToWork(Severity::low, false));
    EXPECT_EQ(found_at(200 * second), SaidToWork(Severity::medium, false));
}

TEST_F(NcclHangOfOneThatWorks, IsOfLowSeverityForFiveMinutesWhereItSynchronises) {
    for (uint64_t at_ns = 10 * second; at_ns < 350 * second; at_ns += 10 * second)
        call("cudaStreamSync", 0, from_ns_ + at_ns, ms).stream = 0x99;
    EXPECT_EQ(found_at(200 * second), SaidToWork(Severity::low, true));
    EXPECT_EQ(found_at(290 * second), SaidToWork(Severity::low, true));
    EXPECT_EQ(found_at(310 * second), SaidToWork(Severity::medium, true));
    EXPECT_EQ(found_at(400 * second), SaidToWork(Severity::medium, false)) << "it has done nothing for a while";
}

TEST_F(NcclHangOfOneThatWorks, IsOfLowSeverityForFiveMinutesWhereItUsesADisk) {
    for (uint64_t at_ns = 10 * second; at_ns < 350 * second; at_ns += 10 * second)
        slept(0, from_ns_ + at_ns, 100 * ms, 300).blocked_reason = BlockedReason::disk;
    EXPECT_EQ(found_at(200 * second), SaidToWork(Severity::low, true));
    EXPECT_EQ(found_at(310 * second), SaidToWork(Severity::medium, true));
}

TEST_F(NcclHangOfOneThatWorks, IsOfMediumSeverityWhereItWaitsForALock) {
    for (uint64_t at_ns = 10 * second; at_ns < 350 * second; at_ns += 10 * second)
        slept(0, from_ns_ + at_ns, 100 * ms, 300);
    EXPECT_EQ(found_at(200 * second), SaidToWork(Severity::medium, false));
}

// Two processes, each for two GPUs.
class NcclHangOfTwoRanksAProcess : public NcclHang {
  protected:
    void make_world(uint64_t hash) {
        for (uint32_t rank = 0; rank < 4; ++rank) {
            CommunicatorRow row;
            row.process = process_of(rank / 2);
            row.id = id_of(hash, rank);
            row.hash = hash;
            row.seen_ns = now_ - ms;
            row.rank = static_cast<int32_t>(rank);
            row.ranks = 4;
            row.origin = CommunicatorOrigin::init_rank;
            snapshot_.add(row);
        }
        for (uint32_t process = 0; process < 2; ++process) add_process(process);
    }
    static uint64_t id_of(uint64_t hash, uint32_t rank) { return hash * 10 + rank; }
    static uint64_t stream_of(uint64_t hash, uint32_t rank) { return hash * 100 + rank; }
    void enter(uint64_t hash, uint32_t rank, uint32_t sequence) {
        Event& event = collective(rank / 2, sequence, now_ + rank * 20 * us, 4'096, id_of(hash, rank));
        event.stream = stream_of(hash, rank);
        event.device = static_cast<uint16_t>(rank);
    }
    void steps(uint64_t hash, uint32_t from, uint32_t to) {
        for (uint32_t sequence = from; sequence <= to; ++sequence) {
            for (uint32_t rank = 0; rank < 4; ++rank) enter(hash, rank, sequence);
            for (uint32_t rank = 0; rank < 4; ++rank) {
                Event& sync = call("cudaStreamSync", rank / 2, now_ + 100 * us + rank * 100 * us, 50 * us);
                sync.stream = stream_of(hash, rank);
                sync.device = static_cast<uint16_t>(rank);
            }
            now_ += ms;
        }
    }
};

TEST_F(NcclHangOfTwoRanksAProcess, NamesTheRank) {
    make_world(world);
    steps(world, 1, 20);
    for (const uint32_t rank : {0u, 2u, 3u}) enter(world, rank, 21);
    for (const uint64_t age_ns : {150 * second, 1'500 * second}) {
        auto found = explain(now_ + age_ns, now_ + age_ns - 100 * second);
        ASSERT_THAT(found["nccl-hang"], SizeIs(1)) << age_ns;
        ASSERT_THAT(found["nccl-hang"][0].culprits, SizeIs(1));
        EXPECT_EQ(found["nccl-hang"][0].culprits[0].name, "rank 1 (trainer-0, pid 100)");
        EXPECT_THAT(found["nccl-hang"][0].summary, HasSubstr("3 of 4 ranks"));
    }
}

TEST_F(NcclHangOfTwoRanksAProcess, IsNotPutOffByWhatTheOtherRankOfTheProcessDoes) {
    make_world(world);
    steps(world, 1, 20);
    for (const uint32_t rank : {0u, 2u, 3u}) enter(world, rank, 21);
    for (uint64_t at_ns = 10 * second; at_ns < 150 * second; at_ns += 10 * second)
        call("cudaStreamSync", 0, now_ + at_ns, ms).stream = 0x99;
    auto found = explain(now_ + 150 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].severity, Severity::medium);
}

// One of the two waits in another communicator, and the other is late for both.
TEST_F(NcclHangOfTwoRanksAProcess, IsNotProvenByWhatTheOtherRankOfTheProcessWaitsFor) {
    for (const uint64_t hash : {world, other_world}) {
        make_world(hash);
        steps(hash, 1, 20);
    }
    for (const uint64_t hash : {world, other_world})
        for (const uint32_t rank : {0u, 2u, 3u}) enter(hash, rank, 21);
    expect_nothing(now_ + 20 * second);
    auto found = explain(now_ + 150 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(2));
    for (const Finding& hang : found["nccl-hang"]) {
        EXPECT_EQ(hang.verdict, Verdict::partial);
        EXPECT_EQ(hang.severity, Severity::medium);
    }
}

TEST_F(NcclHang, RanksThatHaveBeenFarApartBeforeMayBeSoAgain) {
    make(2);
    step({5 * second, 10 * ms});
    collective(1, sequence_ + 1, now_);
    expect_nothing(now_ + 60 * second);
}

// FSDP waits for an event of some layers before, to bound what is gathered ahead.
TEST_F(NcclHang, WhoWaitedForAnEventMayStillWaitForAllThatItEnqueued) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2));
    for (uint32_t rank = 0; rank < 2; ++rank) add_process(rank);
    collective(0, sequence_ + 1, now_);
    call("cudaEventSynchronize", 0, now_ + ms, ms);
    collective(0, sequence_ + 2, now_ + 3 * ms);
    auto found = explain(now_ + 150 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].culprits.at(0).pid, 101u);
    EXPECT_THAT(found["nccl-hang"][0].summary, HasSubstr("in collective 51 "));
    // Once it has waited for the stream that is over, whoever was not seen to come.
    call("cudaStreamSync", 0, now_ + 5 * ms, ms);
    expect_nothing(now_ + 150 * second);
}

TEST_F(NcclHang, WhoWaitedForAnEventAndIsKilledIsNotSaidToHaveDiedInside) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2));
    step(usual(2), false);
    for (uint32_t rank = 0; rank < 2; ++rank) call("cudaEventSynchronize", rank, now_ + ms, ms);
    add_process(0);
    add_process(1, now_ + 5 * ms, 9);
    expect_nothing(now_ + 60 * second);
}

// Data is indexed before the first step, and torch gives up after ten minutes.
TEST_F(NcclHang, RanksThatHaveOnceBeenFarApartAreToldOfAfterTwoMinutesAtLowSeverity) {
    make(2);
    step({60 * second, 10 * ms});
    collective(1, sequence_ + 1, now_);
    expect_nothing(now_ + 100 * second);
    auto found = explain(now_ + 130 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].severity, Severity::low);
}

// Rank 2 has not come to the second one: rank 1 waits for it there, and rank 0 for rank 1.
TEST_F(NcclHang, OneThatWaitsItselfForAnotherIsNotTheOneToBlame) {
    for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank);
    const auto make_of = [&](uint32_t first, uint64_t hash) {
        for (uint32_t rank = first; rank < first + 2; ++rank) {
            CommunicatorRow row;
            row.process = process_of(rank);
            row.id = row.hash = hash;
            row.seen_ns = now_ - ms;
            row.rank = static_cast<int32_t>(rank - first);
            row.ranks = 2;
            row.origin = CommunicatorOrigin::init_rank;
            snapshot_.add(row);
        }
    };
    make_of(0, world);
    make_of(1, other_world);
    collective(0, 1, now_);
    collective(1, 1, now_, 4'096, other_world);
    auto found = explain(now_ + 150 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(2));
    for (const Finding& hang : found["nccl-hang"]) {
        const bool is_first = hang.pid == 100;
        EXPECT_EQ(hang.severity, is_first ? Severity::low : Severity::medium) << hang.summary;
        EXPECT_EQ(hang.summary.find("waits itself in collective 1 of another communicator") != std::string::npos,
                  is_first)
            << hang.summary;
    }
}

TEST_F(NcclHang, OfARankThatHasEndedIsToldSoonHoweverFarApartTheyHaveBeen) {
    make(2);
    step({5 * second, 10 * ms});
    collective(1, sequence_ + 1, now_);
    add_process(0, now_ + 5 * ms);
    add_process(1);
    auto found = explain(now_ + 20 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].verdict, Verdict::proven) << found["nccl-hang"][0].summary;
}

TEST_F(NcclHang, AJobThatIsEndedDuringALongCheckpointHasNone) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2));
    collective(1, sequence_ + 1, now_);
    add_process(0, now_ + 15 * second);
    add_process(1, now_ + 15 * second + ms);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, OfRanksThatEnterDifferentCollectivesSaysHowTheyDiffer) {
    make(2);
    for (int number = 0; number < 10; ++number) step(usual(2));
    collective(0, sequence_ + 1, now_, 4'096);
    collective(1, sequence_ + 1, now_ + ms, 8'192);
    auto found = explain(now_ + 15 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].verdict, Verdict::proven);
    EXPECT_THAT(found["nccl-hang"][0].summary, AllOf(HasSubstr("ncclAllReduce of 4096 bytes in pid 100"),
                                                     HasSubstr("ncclAllReduce of 8192 bytes in pid 101")));
}

TEST_F(NcclHang, OfRanksThatWaitForEachOtherInTwoCommunicatorsIsProven) {
    make(2);
    make(2, other_world);
    collective(0, 1, now_);
    collective(1, 1, now_ + ms, 4'096, other_world);
    auto found = explain(now_ + 15 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(2));
    EXPECT_THAT(found["nccl-hang"], Each(Field(&Finding::verdict, Verdict::proven)));
    EXPECT_THAT(found["nccl-hang"], Each(Field(&Finding::summary, HasSubstr("waits in another communicator"))));
}

TEST_F(NcclHang, RanksThatHaveAllEnteredAndEndHaveNone) {
    make(4);
    for (int number = 0; number < 50; ++number) step(usual(4));
    step(usual(4), false);  // nobody waits for the last one
    for (uint32_t rank = 0; rank < 4; ++rank) add_process(rank, now_ + rank * ms);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, WhoWaitsNoMoreSinceItEndedOrGaveUpItsCommunicatorHasNone) {
    make(3);
    for (int number = 0; number < 50; ++number) step(usual(3));
    collective(0, sequence_ + 1, now_);
    collective(1, sequence_ + 1, now_);
    add_process(0, now_ + 5 * ms);
    add_process(2, now_ + 5 * ms);
    call("ncclCommAbort", 1, now_ + 10 * ms, ms).args = {1, world, 0};
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, ACollectiveThatWasWaitedForHasEndedWhoeverWasNotSeenToEnterIt) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2));
    collective(0, sequence_ + 1, now_);
    call("cudaStreamSync", 0, now_ + ms, ms);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, OfARankWhoseBeginningWasNotSeenNothingIsSaid) {
    make(2);
    // The other one may have entered before the session.
    snapshot_.add_session(100 * second, 20'000 * second);
    now_ = 800 * second;
    collective(0, 1, now_);
    end_ns_ = now_;
    const Filter filter{.window = {MemorySnapshot::realtime_at_zero_ns + 790 * second,
                                   MemorySnapshot::realtime_at_zero_ns + 860 * second},
                        .uid = {},
                        .pid = {}};
    const auto answer = ingero::explain(snapshot_, filter);
    ASSERT_TRUE(answer);
    EXPECT_THAT(answer->findings, IsEmpty());
}

TEST_F(NcclHang, RanksThatAreLeftOutAreNotMissing) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2), false);
    const Filter filter{
        .window = {MemorySnapshot::realtime_at_zero_ns, MemorySnapshot::realtime_at_zero_ns + now_ + 60 * second},
        .uid = {},
        .pid = process_of(0).pid};
    const auto answer = ingero::explain(snapshot_, filter);
    ASSERT_TRUE(answer);
    EXPECT_THAT(answer->findings, IsEmpty());
}

TEST_F(NcclHang, RanksOfOtherHostsAreNotMissing) {
    make(1, world, 8);
    collective(0, 1, now_);
    expect_nothing(now_ + 60 * second);
}

TEST_F(NcclHang, OfCallsThatWereLostNothingIsProven) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2));
    collective(0, sequence_ + 1, now_);
    add_process(1, now_ + ms);
    LossRow lost;
    lost.from_ns = now_;
    lost.to_ns = now_ + second;
    lost.op = op_of_name("ncclAllReduce").value();
    lost.lost_ring = 1;
    snapshot_.add(lost);
    auto found = explain(now_ + 20 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].verdict, Verdict::partial);
}

TEST_F(NcclHang, OfARankThatLivesIsUncertainWhereItsCallMayBeLost) {
    make(2);
    for (int number = 0; number < 50; ++number) step(usual(2));
    collective(0, sequence_ + 1, now_ + 20 * ms);
    LossRow lost;
    lost.from_ns = now_;
    lost.to_ns = now_ + ms;
    lost.op = op_of_name("ncclAllReduce").value();
    lost.lost_ring = 1;
    snapshot_.add(lost);
    LossRow of_waits = lost;  // as when ranks are killed that hang
    of_waits.op = op::cudaStreamSync;
    snapshot_.add(of_waits);
    auto found = explain(now_ + 200 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].verdict, Verdict::insufficient_evidence);
    EXPECT_EQ(found["nccl-hang"][0].severity, Severity::low);
    EXPECT_THAT(found["nccl-hang"][0].summary,
                HasSubstr("; insufficient evidence: 1 call that could show it was lost"));
}

TEST_F(NcclHang, WorkersThatWaitForTheRootOfABroadcastMayBeIdle) {
    make(3);
    for (int number = 0; number < 50; ++number) step(usual(3));
    for (uint32_t rank = 1; rank < 3; ++rank)
        collective(rank, sequence_ + 1, now_, 4'096, world, "ncclBroadcast").args[2] |= uint64_t{1}
                                                                                        << INGERO_COLLECTIVE_PEER_SHIFT;
    auto found = explain(now_ + 500 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].severity, Severity::low) << "no incident";
    EXPECT_THAT(found["nccl-hang"][0].summary, HasSubstr("rank 0 (pid 100) has not, the root of this broadcast"));
    // Another rank that has not come is no root.
    collective(0, sequence_ + 1, now_, 4'096, world, "ncclBroadcast").args[2] |= uint64_t{1}
                                                                                 << INGERO_COLLECTIVE_PEER_SHIFT;
    for (uint32_t rank = 0; rank < 3; ++rank) call("cudaStreamSync", rank, now_ + ms, ms);
    now_ += second;
    for (const uint32_t rank : {0U, 2U})
        collective(rank, sequence_ + 2, now_, 4'096, world, "ncclBroadcast").args[2] |= uint64_t{1}
                                                                                        << INGERO_COLLECTIVE_PEER_SHIFT;
    found = explain(now_ + 500 * second);
    ASSERT_THAT(found["nccl-hang"], SizeIs(1));
    EXPECT_EQ(found["nccl-hang"][0].severity, Severity::medium);
}

// Rank 0 is the root of all broadcasts and reductions.
class NcclHangWithARoot : public NcclHang {
  protected:
    NcclHangWithARoot() {
        make(3);
        for (int number = 0; number < 50; ++number) step(usual(3));
    }
    /// The collective after so many others since the steps.
    void enter(const std::string& name, std::vector<uint32_t> ranks, uint32_t number, bool leave = false) {
        for (const uint32_t rank : ranks) {
            Event& call = collective(rank, sequence_ + number, now_, 4'096, world, name);
            if (name != "ncclAllReduce") call.args[2] |= uint64_t{1} << INGERO_COLLECTIVE_PEER_SHIFT;
            if (leave) this->call("cudaStreamSync", rank, now_ + ms, ms);
        }
        now_ += 3 * ms;
    }
    std::vector<Finding> hangs_after(uint64_t ns) { return explain(now_ + ns)["nccl-hang"]; }
};

TEST_F(NcclHangWithARoot, BehindABroadcastThatTheOthersHaveLeftNamesTheOneThatIsMissing) {
    enter("ncclBroadcast", {0, 1}, 1, true);
    enter("ncclAllReduce", {0, 1}, 2);
    for (uint32_t rank = 0; rank < 3; ++rank) add_process(rank, rank == 2 ? now_ : 0);
    const auto found = hangs_after(20 * second);
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].verdict, Verdict::proven);
    ASSERT_THAT(found[0].culprits, SizeIs(1));
    EXPECT_EQ(found[0].culprits[0].pid, 102u);
    EXPECT_THAT(found[0].summary, AllOf(HasSubstr("collective 52 (ncclAllReduce)"), HasSubstr("2 of 3 ranks")));
}

TEST_F(NcclHangWithARoot, TheRootOfABroadcastWaitsThereForNobody) {
    enter("ncclBroadcast", {0}, 1);
    EXPECT_THAT(hangs_after(500 * second), IsEmpty());
    enter("ncclAllReduce", {0}, 2);
    const auto found = hangs_after(500 * second);
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].severity, Severity::medium);
    EXPECT_THAT(found[0].culprits, SizeIs(2));
    EXPECT_THAT(found[0].summary, AllOf(HasSubstr("collective 52 (ncclAllReduce)"), HasSubstr("1 of 3 ranks")));
}

TEST_F(NcclHangWithARoot, OfAReductionTheRootWaitsForWhoIsMissingAndTheOthersForTheRoot) {
    enter("ncclReduce", {1}, 1);
    auto found = hangs_after(150 * second);
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].pid, 101u);
    now_ += 100 * second;
    enter("ncclReduce", {0}, 1);
    found = hangs_after(200 * second);
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].pid, 100u);
    EXPECT_EQ(found[0].culprits.at(0).pid, 102u);
    EXPECT_EQ(found[0].lost_ns, 200 * second + 3 * ms);
    EXPECT_THAT(found[0].summary, HasSubstr("2 of 3 ranks"));
}

}  // namespace
}  // namespace ingero::test
