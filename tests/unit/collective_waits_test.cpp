// Communicators with the ranks that follow from splits, and waits derived from calls that were stored.
#include "core/diagnosis/evidence/collective_waits.h"

#include <gtest/gtest.h>

#include "core/model/collective.h"
#include "core/model/op.h"

namespace ingero {
namespace {

constexpr uint64_t ms = 1'000'000;
constexpr uint64_t world = 0xabc;
constexpr uint64_t stream = 0x77;
constexpr OpId all_reduce = op::ncclAllReduce;
constexpr OpId send = op::ncclSend;
constexpr OpId stream_sync = op::cudaStreamSync;
constexpr OpId device_sync = op::cudaDeviceSync;
constexpr OpId event_sync = op::cudaEventSynchronize;
constexpr OpId driver_stream_sync = op::cuStreamSynchronize;

ProcessKey process_of(uint32_t rank) {
    return {100 + rank, 1};
}

CommunicatorRow row_of(uint32_t rank, uint32_t ranks, uint64_t hash = world) {
    CommunicatorRow row;
    row.process = process_of(rank);
    row.id = 10 + rank;
    row.handle = 0x1000;
    row.hash = hash;
    row.rank = static_cast<int32_t>(rank);
    row.ranks = ranks;
    row.origin = CommunicatorOrigin::init_rank;
    return row;
}

CommunicatorRow split_of(const CommunicatorRow& parent, int32_t color, int32_t key, uint32_t split = 1) {
    CommunicatorRow row;
    row.process = parent.process;
    row.id = parent.id * 100 + split;
    row.handle = color < 0 ? 0 : 0x2000;
    row.parent = parent.id;
    row.parent_hash = parent.hash;
    row.hash = color < 0 ? 0 : parent.hash * 1000 + split * 10 + static_cast<uint64_t>(color);
    row.seen_ns = split;
    row.color = color;
    row.key = key;
    row.split = split;
    row.origin = CommunicatorOrigin::split;
    return row;
}

Event call(OpId op, uint32_t rank, uint64_t start_ns, uint64_t duration_ns) {
    Event event;
    event.op = op;
    event.start_ns = start_ns;
    event.duration_ns = duration_ns;
    event.tgid = event.tid = process_of(rank).pid;
    event.process_start_ns = process_of(rank).start_ns;
    event.stream = stream;
    event.device = 0;
    return event;
}

Event collective(uint32_t rank, uint32_t sequence, uint64_t start_ns, OpId op = all_reduce) {
    Event event = call(op, rank, start_ns, 1000);
    event.args = {4096, 10 + rank, uint64_t{sequence} << INGERO_COLLECTIVE_SEQUENCE_SHIFT | 7};
    return event;
}

Communicators two_ranks() {
    return Communicators({row_of(0, 2), row_of(1, 2)});
}

/// Two collectives a rank and a synchronisation; rank 1 comes 30 ms later, and both leave at 100 ms.
std::vector<Event> one_range() {
    return {collective(0, 1, 10 * ms), collective(0, 2, 20 * ms), call(stream_sync, 0, 30 * ms, 70 * ms),
            collective(1, 1, 15 * ms), collective(1, 2, 55 * ms), call(stream_sync, 1, 60 * ms, 40 * ms)};
}

TEST(Collective, IsReadAsItIsPacked) {
    Event event = call(op::ncclReduce, 0, 1, 1);
    event.args = {4000, 12, uint64_t{77} << 32 | (5 + 1) << 11 | 3 << 7 | 2 << 4 | 7};
    const auto reduce = collective_of(event);
    ASSERT_TRUE(reduce);
    EXPECT_EQ(reduce->communicator, 12u);
    EXPECT_EQ(reduce->sequence, 77u);
    EXPECT_EQ(reduce->count, 1000u);
    EXPECT_EQ(datatype_name(reduce->datatype), "float32");
    EXPECT_EQ(reduction_name(reduce->reduction), "max");
    EXPECT_EQ(reduce->group_depth, 3);
    EXPECT_FALSE(reduce->nested);
    EXPECT_EQ(reduce->root, 5u);
    EXPECT_FALSE(reduce->peer);
    event.op = send;
    event.args[2] = 1 << 10 | 1 << 11 | 7 << 4 | 15;
    const auto message = collective_of(event);
    ASSERT_TRUE(message);
    EXPECT_TRUE(message->nested);
    EXPECT_EQ(message->peer, 0u);
    EXPECT_FALSE(message->root);
    EXPECT_FALSE(message->count);
    EXPECT_EQ(datatype_name(message->datatype), "");
    EXPECT_EQ(reduction_name(message->reduction), "");
    EXPECT_FALSE(collective_of(call(op::ncclCommInitRank, 0, 1, 1)));
    EXPECT_FALSE(collective_of(call(stream_sync, 0, 1, 1)));
}

TEST(Communicators, OfASplitAreRankedByKeyAndThenByTheRankInTheParent) {
    std::vector<CommunicatorRow> rows;
    for (uint32_t rank = 0; rank < 4; ++rank) {
        rows.push_back(row_of(rank, 4));
        // 0 and 2 have one key, so their rank in the parent decides; 3 is in no part.
        rows.push_back(split_of(rows.back(), rank == 3 ? -1 : 5, rank == 1 ? -1 : 0));
    }
    const Communicators communicators(rows);
    const auto rank_of = [&](uint32_t rank) { return communicators.find(process_of(rank), (10 + rank) * 100 + 1); };
    EXPECT_EQ(rank_of(1)->rank, 0u);
    EXPECT_EQ(rank_of(0)->rank, 1u);
    EXPECT_EQ(rank_of(2)->rank, 2u);
    EXPECT_EQ(rank_of(0)->ranks, 3u);
    EXPECT_EQ(rank_of(3), nullptr);
    EXPECT_EQ(communicators.all().size(), 7u);
}

// Its splits have other numbers than the other ranks' then, and so another's hash.
TEST(Communicators, OfASplitOfOneThatWasInterruptedAreComparedWithNone) {
    for (const bool is_before : {true, false}) {
        std::vector<CommunicatorRow> rows;
        for (uint32_t rank = 0; rank < 2; ++rank) {
            CommunicatorRow parent = row_of(rank, 2);
            CommunicatorRow part = split_of(parent, 0, 0);
            part.seen_ns = 50;
            CommunicatorRow again = split_of(part, 0, 0);
            again.id = 7;
            again.seen_ns = 60;
            if (rank == 1) parent.interrupted_ns = is_before ? 40 : 70;
            rows.insert(rows.end(), {parent, part, again});
        }
        const Communicators communicators(rows);
        for (const uint64_t id : {uint64_t{1'101}, uint64_t{7}}) {
            const Communicator* part = communicators.find(process_of(1), id);
            ASSERT_TRUE(part);
            EXPECT_EQ(part->hash_at(80) == 0, is_before) << id;
            EXPECT_EQ(part->rank.has_value(), !is_before) << id;
        }
        const Communicator* parent = communicators.find(process_of(1), 11);
        ASSERT_TRUE(parent);
        EXPECT_NE(parent->hash_at(39), 0u);
        EXPECT_EQ(parent->hash_at(75), 0u);
        EXPECT_NE(communicators.find(process_of(0), 10)->hash_at(80), 0u);
        EXPECT_NE(communicators.find(process_of(0), 1'001)->hash_at(80), 0u);
        EXPECT_EQ(communicators.find(process_of(0), 1'001)->rank.has_value(), !is_before);
    }
}

TEST(Communicators, OfAPartThatWasSplitAgainAreRankedToo) {
    std::vector<CommunicatorRow> rows;
    for (uint32_t rank = 0; rank < 4; ++rank) {
        rows.push_back(row_of(rank, 4));
        CommunicatorRow part = split_of(rows.back(), rank % 2, 0);
        CommunicatorRow again = split_of(part, 0, -static_cast<int32_t>(rank));
        again.id = 7;
        again.seen_ns = 50;
        rows.insert(rows.begin(), again);
        rows.push_back(part);
    }
    const Communicators communicators(rows);
    EXPECT_EQ(communicators.find(process_of(0), 7)->rank, 1u);
    EXPECT_EQ(communicators.find(process_of(2), 7)->rank, 0u);
    EXPECT_EQ(communicators.find(process_of(3), 7)->rank, 0u);
    EXPECT_EQ(communicators.find(process_of(3), 7)->ranks, 2u);
}

TEST(Communicators, OfAPartThatWasSplitAgainBeforeItsSiblingsWereSeenAreRankedToo) {
    std::vector<CommunicatorRow> rows;
    for (uint32_t rank = 0; rank < 4; ++rank) {
        rows.push_back(row_of(rank, 4));
        // Ranks 1 and 3 tell of the first split only when 0 and 2 have made two more.
        CommunicatorRow part = split_of(rows.back(), rank % 2, 0);
        part.seen_ns = rank % 2 ? 90 : 1;
        rows.push_back(part);
        if (rank % 2) continue;
        CommunicatorRow again = split_of(part, 0, 0);
        again.id = 7;
        again.seen_ns = 50;
        rows.push_back(again);
        CommunicatorRow third = split_of(again, 0, -static_cast<int32_t>(rank));
        third.id = 8;
        third.seen_ns = 60;
        rows.push_back(third);
    }
    const Communicators communicators(rows);
    EXPECT_EQ(communicators.find(process_of(0), 7)->rank, 0u);
    EXPECT_EQ(communicators.find(process_of(2), 7)->rank, 1u);
    EXPECT_EQ(communicators.find(process_of(0), 8)->rank, 1u);
    EXPECT_EQ(communicators.find(process_of(2), 8)->ranks, 2u);
}

TEST(Communicators, TheLargestOfAProcessSaysItsRankWhereNoVariableDoes) {
    const auto made = [](int32_t rank, uint32_t ranks) {
        CommunicatorRow row;
        row.rank = rank;
        row.ranks = ranks;
        return row;
    };
    using Rows = std::vector<CommunicatorRow>;
    EXPECT_EQ(rank_in_largest(Rows{}), std::nullopt);
    EXPECT_EQ(rank_in_largest(Rows{made(-1, 0), made(4, 4)}), std::nullopt);  // of a split; of no communicator
    const JobRank fifth{.rank = 5, .ranks = 8};
    EXPECT_EQ(rank_in_largest(Rows{made(1, 2), made(5, 8), made(0, 4), made(5, 8)}), fifth);
    EXPECT_EQ(rank_in_largest(Rows{made(0, 8), made(1, 8)}), std::nullopt);  // two devices
    EXPECT_EQ(rank_in_largest(Rows{made(0, 8), made(1, 8), made(0, 8)}), std::nullopt);
    EXPECT_EQ(rank_in_largest(Rows{made(0, 2), made(1, 2), made(5, 8)}), fifth);

    ProcessFacts facts;
    EXPECT_FALSE(set_rank(facts, std::nullopt));
    EXPECT_TRUE(set_rank(facts, JobRank{.rank = 1, .ranks = 2}));
    EXPECT_EQ(facts.rank_source, "nccl");
    EXPECT_TRUE(set_rank(facts, fifth));
    EXPECT_FALSE(set_rank(facts, fifth));
    EXPECT_EQ(facts.rank, 5u);
    EXPECT_EQ(facts.world_size, 8u);
    EXPECT_TRUE(set_rank(facts, std::nullopt));
    EXPECT_EQ(facts, ProcessFacts());
    facts.rank = 3;
    facts.rank_source = "torchrun";
    EXPECT_FALSE(set_rank(facts, fifth));
    EXPECT_EQ(facts.rank, 3u);
}

TEST(Communicators, OfASplitThatWasNotSeenWholeHaveNoRank) {
    std::vector<CommunicatorRow> rows;
    for (uint32_t rank = 0; rank < 3; ++rank) {  // of four
        rows.push_back(row_of(rank, 4));
        rows.push_back(split_of(rows.back(), 0, 0));
    }
    const Communicators communicators(rows);
    const Communicator* part = communicators.find(process_of(1), 1101);
    ASSERT_TRUE(part);
    EXPECT_FALSE(part->rank);
    EXPECT_FALSE(part->ranks);
    EXPECT_NE(part->row.hash, 0u);
}

TEST(CollectiveWaits, SayThatWhoWaitedLeastCameLast) {
    const CollectiveWaits waits = collective_waits(one_range(), two_ranks());
    ASSERT_EQ(waits.ranges.size(), 1u);
    const CollectiveRange& range = waits.ranges[0];
    EXPECT_EQ(range.hash, world);
    EXPECT_EQ(range.first_sequence, 1u);
    EXPECT_EQ(range.last_sequence, 2u);
    EXPECT_EQ(range.ranks, 2u);
    ASSERT_EQ(range.waits.size(), 2u);
    EXPECT_EQ(range.waits[0].rank, 0u);
    EXPECT_EQ(range.waits[0].wait_ns, 70 * ms);
    EXPECT_EQ(range.waits[0].lateness_ns, 0u);
    EXPECT_EQ(range.waits[0].enqueue_start_ns, 10 * ms);
    EXPECT_EQ(range.waits[1].rank, 1u);
    EXPECT_EQ(range.waits[1].lateness_ns, 30 * ms);
    EXPECT_EQ(range.waits[1].sync_end_ns, 100 * ms);
    ASSERT_EQ(waits.skews.size(), 2u);
    EXPECT_EQ(waits.skews[0].skew_ns(), 5 * ms);
    EXPECT_EQ(waits.skews[1].skew_ns(), 35 * ms);
    EXPECT_EQ(waits.skews[1].ranks.back().rank, 1u);
}

TEST(CollectiveWaits, DoNotCountTimeInWhichTheThreadHadNoCpu) {
    std::vector<Event> events = one_range();
    events[2].runnable_ns = 15 * ms;
    const CollectiveWaits waits = collective_waits(events, two_ranks());
    EXPECT_EQ(waits.ranges.at(0).waits.at(0).wait_ns, 55 * ms);
    EXPECT_EQ(waits.ranges.at(0).waits.at(1).lateness_ns, 15 * ms);
}

TEST(CollectiveWaits, TakeADriversCallInsideTheRuntimesForNoSynchronisationOfItsOwn) {
    std::vector<Event> events = one_range();
    events.push_back(call(driver_stream_sync, 0, 31 * ms, 60 * ms));
    events.back().depth = 1;
    // A collective right after: of the next range.
    events.push_back(collective(0, 3, 101 * ms));
    const CollectiveWaits waits = collective_waits(events, two_ranks());
    ASSERT_EQ(waits.ranges.size(), 1u);
    EXPECT_EQ(waits.ranges[0].waits.size(), 2u);
}

TEST(CollectiveWaits, EndWithTheStreamsOwnSynchronisationTheDevicesOrAnEventOfTheThread) {
    struct Case {
        OpId op;
        uint64_t stream;
        uint16_t device;
        uint32_t tid;
        bool ends;
    };
    for (const Case& one :
         {Case{stream_sync, stream, 0, 100, true}, Case{stream_sync, 0x99, 0, 100, false},
          Case{stream_sync, stream, 0, 555, true}, Case{device_sync, 0, 0, 100, true},
          Case{device_sync, 0, 1, 100, false}, Case{event_sync, 0, 0, 100, true}, Case{event_sync, 0, 0, 555, false}}) {
        std::vector<Event> events = {collective(0, 1, 10 * ms), call(one.op, 0, 30 * ms, 5 * ms)};
        events[1].stream = one.stream;
        events[1].device = one.device;
        events[1].tid = one.tid;
        EXPECT_EQ(collective_waits(events, two_ranks()).ranges.size(), one.ends ? 1u : 0u)
            << one.op << " stream " << one.stream << " device " << one.device << " thread " << one.tid;
    }
}

TEST(CollectiveWaits, EndWithTheSynchronisationOfAStreamThatWaitsForAnEventBehindThem) {
    constexpr uint64_t compute = 0x55;
    constexpr OpId stream_wait = op::cudaStreamWaitEvent;
    const auto on = [](uint64_t which, Event event) {
        event.stream = which;
        return event;
    };
    std::vector<Event> events = {on(compute, call(stream_wait, 0, 5 * ms, 1000)), collective(0, 1, 10 * ms),
                                 on(compute, call(stream_sync, 0, 20 * ms, 5 * ms))};
    EXPECT_TRUE(collective_waits(events, two_ranks()).ranges.empty()) << "it waited before there was a collective";
    events.push_back(on(compute, call(stream_wait, 0, 30 * ms, 1000)));
    events.push_back(on(compute, call(stream_sync, 0, 40 * ms, 7 * ms)));
    // The record of the next wait was thinned.
    events.push_back(collective(0, 2, 50 * ms));
    events.push_back(on(0x66, call(stream_sync, 0, 55 * ms, 1 * ms)));
    events.push_back(on(compute, call(stream_sync, 0, 60 * ms, 8 * ms)));
    const CollectiveWaits waits = collective_waits(events, two_ranks());
    ASSERT_EQ(waits.ranges.size(), 2u);
    EXPECT_EQ(waits.ranges[0].waits.at(0).wait_ns, 7 * ms);
    EXPECT_EQ(waits.ranges[1].waits.at(0).wait_ns, 8 * ms);
}

TEST(CollectiveWaits, LeaveOutMessagesFailuresNestedCallsAndCommunicatorsWithoutAHash) {
    std::vector<Event> events = {collective(0, 1, 10 * ms, send), collective(0, 0, 12 * ms), collective(0, 5, 14 * ms),
                                 call(stream_sync, 0, 30 * ms, 5 * ms)};
    events[2].return_code = 4;
    EXPECT_TRUE(collective_waits(events, two_ranks()).ranges.empty());
    EXPECT_TRUE(collective_waits(events, two_ranks()).skews.empty());
    CommunicatorRow unknown = row_of(0, 2, 0);
    EXPECT_TRUE(collective_waits(one_range(), Communicators({unknown})).ranges.empty());
    EXPECT_TRUE(collective_waits(one_range(), Communicators()).ranges.empty());
}

TEST(CollectiveWaits, OfACommunicatorThatIsKnownNoMoreAreNone) {
    Communicators known = two_ranks();
    CollectiveWaitsDeriver deriver(known);
    deriver.take(collective(0, 1, 10 * ms));
    known = Communicators();
    deriver.take(call(stream_sync, 0, 20 * ms, 5 * ms));
    EXPECT_TRUE(deriver.finish().ranges.empty());
}

TEST(CollectiveWaits, KeepRangesOfSeveralSynchronisationsApart) {
    std::vector<Event> events = one_range();
    for (const Event& event : one_range()) {
        events.push_back(event);
        events.back().start_ns += 200 * ms;
        if (const auto one = collective_of(event))
            events.back().args[2] += uint64_t{2} << INGERO_COLLECTIVE_SEQUENCE_SHIFT;
    }
    const CollectiveWaits waits = collective_waits(events, two_ranks());
    ASSERT_EQ(waits.ranges.size(), 2u);
    EXPECT_EQ(waits.ranges[1].first_sequence, 3u);
    EXPECT_EQ(waits.ranges[1].last_sequence, 4u);
    EXPECT_EQ(waits.ranges[1].waits[1].lateness_ns, 30 * ms);
    EXPECT_EQ(waits.skews.size(), 4u);
}

TEST(CollectiveWaits, KeepTheLatestOfStreamsThatNobodySynchronisesWith) {
    constexpr uint32_t streams = 200'000;
    std::vector<Event> events;
    for (uint32_t number = 1; number <= streams; ++number) {
        events.push_back(collective(0, number, number * 1'000));
        events.back().stream = 0x1'0000 + number;
    }
    for (uint32_t number = 1; number <= streams; ++number) {
        events.push_back(call(stream_sync, 0, (streams + number) * uint64_t{1'000}, 100));
        events.back().stream = 0x1'0000 + number;
    }
    const CollectiveWaits waits = collective_waits(events, two_ranks());
    ASSERT_EQ(waits.ranges.size(), 256u);
    EXPECT_EQ(waits.ranges.back().last_sequence, streams);
}

TEST(CollectiveWaits, EndWithACopyToTheHostThatWaitsForItsStream) {
    struct Case {
        OpId op;
        uint64_t direction;
        bool ends;
    };
    for (const Case& one : {Case{op::cudaMemcpy, 2, true}, Case{op::cudaMemcpy, 1, false},
                            Case{op::cudaMemcpy, 3, false}, Case{op::cudaMemcpyAsync, 2, false}}) {
        std::vector<Event> events = {collective(0, 1, 10 * ms), call(one.op, 0, 20 * ms, 5 * ms)};
        events.back().args[1] = one.direction;
        EXPECT_EQ(collective_waits(events, two_ranks()).ranges.size(), one.ends ? 1u : 0u)
            << op_name(one.op) << " " << one.direction;
    }
}

// Rank 1 enters last and synchronises later on.
TEST(CollectiveWaits, KnowWhoEnteredLastWhereverItSynchronises) {
    const std::vector<Event> events = {collective(0, 1, 10 * ms),    call(stream_sync, 0, 3'000 * ms, 900 * ms),
                                       collective(1, 1, 3'800 * ms), collective(1, 2, 3'900 * ms),
                                       collective(0, 2, 4'000 * ms), call(stream_sync, 1, 4'100 * ms, 10 * ms)};
    const auto expect_late = [](const std::vector<CollectiveRange>& ranges) {
        ASSERT_EQ(ranges.size(), 2u);
        ASSERT_TRUE(ranges[0].last_to_enter);
        EXPECT_EQ(ranges[0].last_sequence, 1u);
        EXPECT_EQ(ranges[0].last_to_enter->process, process_of(1));
        EXPECT_EQ(ranges[0].last_to_enter->communicator, 11u);
        EXPECT_EQ(ranges[0].last_to_enter->start_ns, 3'800 * ms);
        EXPECT_EQ(ranges[0].local_ranks(), 2u);
        ASSERT_TRUE(ranges[1].last_to_enter);
        EXPECT_EQ(ranges[1].last_to_enter->process, process_of(0));
    };
    const Communicators communicators = two_ranks();
    expect_late(collective_waits(events, communicators).ranges);
    // Live, while the collective is older than what is judged and nobody has yet waited for it.
    CollectiveWaitsDeriver deriver(communicators);
    std::vector<CollectiveRange> ranges;
    for (const Event& event : events) {
        for (CollectiveRange& range : deriver.take_ranges(event.start_ns)) ranges.push_back(std::move(range));
        deriver.take(event);
    }
    for (CollectiveRange& range : deriver.take_ranges(UINT64_MAX)) ranges.push_back(std::move(range));
    expect_late(ranges);
    EXPECT_EQ(deriver.finish().skews.size(), 1u) << "rank 0 may yet wait for it";
}

// Jobs with hundreds of collectives a step.
TEST(CollectiveWaits, KnowWhoEnteredLastOnceThatIsLongAgo) {
    std::vector<Event> events = {collective(0, 1, 10 * ms), call(stream_sync, 0, 11 * ms, 30 * ms),
                                 collective(1, 1, 40 * ms)};
    for (uint32_t sequence = 2; sequence <= 5'000; ++sequence)
        events.push_back(collective(0, sequence, 50 * ms + sequence * uint64_t{1'000}));
    const CollectiveWaits waits = collective_waits(events, two_ranks());
    ASSERT_EQ(waits.ranges.size(), 1u);
    ASSERT_TRUE(waits.ranges[0].last_to_enter);
    EXPECT_EQ(waits.ranges[0].last_to_enter->process, process_of(1));
    EXPECT_EQ(waits.ranges[0].local_ranks(), 2u);
}

TEST(CollectiveWaits, KnowWhatElseASynchronisationWaitedFor) {
    const auto others = [](OpId op, uint64_t communicator, uint64_t on_stream, uint64_t duration_ns) {
        Event event = collective(0, 1, 10 * ms, op);
        event.args[1] = communicator;
        event.stream = on_stream;
        CommunicatorRow other = row_of(0, 2, world + 1);
        other.id = 77;
        const Communicators all({row_of(0, 2), row_of(1, 2), other});
        CollectiveWaitsDeriver deriver(all);
        deriver.take(collective(0, 1, 5 * ms));
        deriver.take(call(stream_sync, 0, 6 * ms, ms));
        deriver.take(event);
        deriver.take(call(stream_sync, 0, 20 * ms, duration_ns));
        const uint32_t tid = process_of(0).pid;
        EXPECT_NE(true, deriver.waits_for_others(process_of(0), tid + 1, 20 * ms, world));
        EXPECT_NE(true, deriver.waits_for_others(process_of(1), tid, 20 * ms, world));
        EXPECT_NE(true, deriver.waits_for_others(process_of(0), tid, 21 * ms, world));
        return deriver.waits_for_others(process_of(0), tid, 20 * ms, world).value();
    };
    EXPECT_TRUE(others(all_reduce, 77, stream, 5 * ms));
    EXPECT_TRUE(others(op::ncclRecv, 77, stream, 5 * ms));
    EXPECT_TRUE(others(send, 10, stream, 5 * ms)) << "a message is between two ranks";
    EXPECT_FALSE(others(all_reduce, 10, stream, 5 * ms));
    EXPECT_FALSE(others(all_reduce, 77, 0x99, 5 * ms)) << "it synchronised with another stream";
    EXPECT_FALSE(others(all_reduce, 77, stream, 10'000));
}

// What an event is behind is not known: the first wait for one may be for them, and later ones are not.
TEST(CollectiveWaits, AMessageIsWaitedForByOneEventAndByItsStream) {
    const Communicators communicators = two_ranks();
    CollectiveWaitsDeriver deriver(communicators);
    const uint32_t tid = process_of(0).pid;
    deriver.take(collective(0, 1, 10 * ms));
    deriver.take(collective(0, 1, 11 * ms, send));
    for (const auto& [op, at_ms, for_others] : {std::tuple(event_sync, 20u, true),
                                                {event_sync, 30u, false},
                                                {stream_sync, 40u, true},
                                                {stream_sync, 50u, false}}) {
        deriver.take(call(op, 0, at_ms * ms, 5 * ms));
        EXPECT_EQ(deriver.waits_for_others(process_of(0), tid, at_ms * ms, world), for_others) << at_ms;
    }
}

// Of one that waits all the time the older half is forgotten, and of no other.
TEST(CollectiveWaits, AreKnownThoughAnotherProcessWaitsAllTheTime) {
    const Communicators communicators = two_ranks();
    CollectiveWaitsDeriver deriver(communicators);
    constexpr uint64_t many = 270'000;
    for (uint64_t number = 0; number < many; ++number) {
        const uint64_t at_ns = (number + 1) * ms;
        deriver.take(collective(0, 1, at_ns, send));
        deriver.take(call(stream_sync, 0, at_ns + 1'000, 900'000));
        if (number != 0) continue;
        deriver.take(collective(1, 1, at_ns, send));
        deriver.take(call(stream_sync, 1, at_ns + 1'000, 900'000));
    }
    const auto waits = [&](uint32_t rank, uint64_t number) {
        return deriver.waits_for_others(process_of(rank), process_of(rank).pid, number * ms + 1'000, world);
    };
    EXPECT_EQ(waits(0, 1), std::nullopt);
    EXPECT_EQ(waits(0, many), true);
    EXPECT_EQ(waits(1, 1), true);
}

TEST(CollectiveWaits, OfACallThatNeverEndsAreNotBeforeItsStart) {
    std::vector<Event> events = {collective(0, 1, 10 * ms), call(stream_sync, 0, 20 * ms, UINT64_MAX),
                                 collective(0, 2, 30 * ms), call(stream_sync, 0, 40 * ms, 5 * ms)};
    const CollectiveWaits waits = collective_waits(events, two_ranks());
    ASSERT_EQ(waits.ranges.size(), 1u) << "its thread does nothing else";
    EXPECT_EQ(waits.ranges[0].waits.at(0).sync_end_ns, UINT64_MAX);
}

}  // namespace
}  // namespace ingero
