// Copies of one session, made at different times: the later ones lack what was deleted before they were made, the
// earlier ones what came after. Merged, nothing that one has is lost, and nothing counts twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "core/import/merge.h"
#include "core/import/session_copies.h"
#include "core/model/op.h"
#include "core/query/answers/stats.h"
#include "core/query/coverage.h"
#include "core/store/verify.h"
#include "tests/unit/history_fixture.h"

namespace ingero {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

/// When rows began, and how many calls rollups count.
struct Stored {
    std::multiset<uint64_t> calls, spans, states, incidents, losses, gaps;
    uint64_t rolled_up = 0;
};

template <class T>
T all(Result<T> result) {
    EXPECT_TRUE(result);
    return result ? std::move(*result) : T();
}

Stored stored_in(const TemporaryDirectory& directory) {
    const auto snapshot = open_snapshot(directory.path());
    Stored stored;
    for (const Event& row : all(scan_all(*snapshot))) stored.calls.insert(row.start_ns);
    for (const SpanRow& row : all(snapshot->spans(0, everything))) stored.spans.insert(row.start_ns);
    for (const StateRow& row : all(snapshot->states(0, everything))) stored.states.insert(row.time_ns);
    for (const IncidentRow& row : all(snapshot->incidents(0, everything))) stored.incidents.insert(row.at_ns);
    for (const LossRow& row : all(snapshot->losses(0, everything))) stored.losses.insert(row.from_ns);
    for (const GapRow& row : all(snapshot->gaps(0, everything))) stored.gaps.insert(row.from_ns);
    for (const RollupRow& row : all(snapshot->rollups(0, everything))) stored.rolled_up += row.calls;
    const auto verified = verify_store(directory.path());
    EXPECT_TRUE(verified && verified->is_clean());
    return stored;
}

/// What either has, once.
std::multiset<uint64_t> united(const std::multiset<uint64_t>& a, const std::multiset<uint64_t>& b) {
    std::multiset<uint64_t> both;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
    return both;
}

void expect_all_of(const Stored& merged, const Stored& a, const Stored& b) {
    EXPECT_EQ(merged.calls, united(a.calls, b.calls));
    EXPECT_EQ(merged.spans, united(a.spans, b.spans));
    EXPECT_EQ(merged.states, united(a.states, b.states));
    EXPECT_EQ(merged.incidents, united(a.incidents, b.incidents));
    EXPECT_EQ(merged.losses, united(a.losses, b.losses));
}

/// Of a store that keeps calls for ten minutes, in which a process calls once a second.
class CopiesOfAStore : public AHistory {
  protected:
    CopiesOfAStore() {
        options_.max_age_ns = 10 * minute;
        pass(7 * second);  // so that no minute begins with a batch
        writer_ = start();
    }

    void run(uint64_t for_ns) {
        for (const uint64_t end_ns = now_.monotonic_ns + for_ns; now_.monotonic_ns < end_ns;) {
            const uint64_t from_ns = now_.monotonic_ns, to_ns = from_ns + 30 * second;
            Batch batch;
            for (; now_.monotonic_ns < to_ns; pass(second)) add_call(batch, now_.monotonic_ns, second / 2);
            Process process;
            process.key = {10, 20};
            batch.processes = {process};
            batch.spans = {make_span("request " + std::to_string(from_ns), from_ns, to_ns)};
            batch.spans.back().received_ns = to_ns;
            batch.states.push_back({to_ns, "host", {{"load", 1.5}}});
            IncidentRow incident;
            incident.id = "incident";
            incident.at_ns = to_ns;
            batch.incidents = {incident};
            LossRow loss;
            loss.from_ns = from_ns;
            loss.to_ns = to_ns;
            loss.op = op::cudaLaunchKernel;
            loss.lost_ring = 1;
            batch.losses = {loss};
            store(batch);
        }
    }

    void add_call(Batch& batch, uint64_t start_ns, uint64_t duration_ns) {
        Event event;
        event.sequence = next_++;
        event.start_ns = start_ns;
        event.duration_ns = duration_ns;
        event.op = op::cudaLaunchKernel;
        event.tgid = event.tid = 10;
        event.process_start_ns = 20;
        batch.events.push_back(event);
        made_.insert(start_ns);
    }

    void store(Batch& batch) {
        batch.covered_until_ns = now_.monotonic_ns;
        commit(*writer_, batch);
    }

    /// As `ingeroctl db snapshot` makes it.
    void copy_to(const TemporaryDirectory& to) const {
        ASSERT_TRUE(std::filesystem::copy_file(directory_.data_file(), to.data_file()));
    }

    static MergeSummary merge(const std::vector<const TemporaryDirectory*>& from, const TemporaryDirectory& to) {
        std::vector<MergeSource> sources;
        for (const auto* one : from) sources.push_back({one->path(), "", one->path()});
        auto merged = merge_stores(sources, to.path());
        EXPECT_TRUE(merged) << merged.error().message;
        return merged ? std::move(*merged) : MergeSummary();
    }

    static Session session_in(const TemporaryDirectory& directory) {
        const auto sessions = open_snapshot(directory.path())->sessions();
        EXPECT_THAT(sessions, SizeIs(1));
        return sessions.at(0);
    }

    static bool adds(const TemporaryDirectory& source, const TemporaryDirectory& stored) {
        const auto from = all(stored_sessions(source.path())), to = all(stored_sessions(stored.path()));
        return adds_to(from.begin()->second, to.begin()->second);
    }

    /// Those made in [from_ns, to_ns).
    uint64_t made_in(uint64_t from_ns, uint64_t to_ns) const {
        return static_cast<uint64_t>(std::distance(made_.lower_bound(from_ns), made_.lower_bound(to_ns)));
    }

    Window wall(uint64_t from_ns, uint64_t to_ns) const { return {now_.to_realtime(from_ns), now_.to_realtime(to_ns)}; }

    uint64_t counted_in(const TemporaryDirectory& directory, uint64_t from_ns, uint64_t to_ns) const {
        const auto snapshot = open_snapshot(directory.path());
        const auto stats = compute_stats(*snapshot, {.window = wall(from_ns, to_ns), .uid = {}, .pid = {}});
        EXPECT_TRUE(stats);
        uint64_t calls = 0;
        for (const OpStats& op : stats->ops) calls += op.count;
        return calls;
    }

    std::vector<Gap> gaps_in(const TemporaryDirectory& directory, uint64_t from_ns, uint64_t to_ns) const {
        const auto covered = coverage(*open_snapshot(directory.path()), wall(from_ns, to_ns));
        EXPECT_TRUE(covered);
        return covered ? covered->gaps : std::vector<Gap>();
    }

    std::unique_ptr<StoreWriter> writer_;
    uint64_t next_ = 1;
    std::multiset<uint64_t> made_;
};

/// Two that overlap, from which the calls before the sixth and the eleventh minute are gone.
class OverlappingCopies : public CopiesOfAStore {
  protected:
    OverlappingCopies() {
        run(14 * minute);
        Batch batch;
        add_call(batch, 11 * minute + 1, 200 * second);  // over the border, and in both
        store(batch);
        run(minute);
        copy_to(earlier_);
        run(2 * minute);
        batch = {};
        add_call(batch, 8 * minute + 1, 10 * minute);  // it lasted when the earlier one was made
        batch.spans = {make_span("long", 8 * minute + 1, 18 * minute)};
        batch.spans.back().received_ns = 18 * minute + second;
        store(batch);
        run(3 * minute + 30 * second);
        copy_to(later_);
    }

    const TemporaryDirectory earlier_, later_;
};

TEST_F(OverlappingCopies, HaveEachCallOnceInEitherOrder) {
    const Session first = session_in(earlier_), last = session_in(later_);
    ASSERT_LT(first.first_covered_ns, last.first_covered_ns);
    ASSERT_LT(last.first_covered_ns, first.last_covered_ns);
    for (const auto& order : {std::vector<const TemporaryDirectory*>{&earlier_, &later_}, {&later_, &earlier_}}) {
        const TemporaryDirectory out;
        const MergeSummary summary = merge(order, out);
        const Stored merged = stored_in(out);
        expect_all_of(merged, stored_in(earlier_), stored_in(later_));
        EXPECT_EQ(merged.calls.size() + merged.rolled_up, made_.size());
        EXPECT_THAT(merged.gaps, IsEmpty());
        EXPECT_EQ(summary.events, merged.calls.size());
        EXPECT_EQ(summary.spans, merged.spans.size());
        EXPECT_EQ(summary.sessions, 1u);
        EXPECT_EQ(summary.repeated_sessions, 1u);
        EXPECT_EQ(summary.processes, 1u);
        const Session session = session_in(out);
        EXPECT_EQ(session.first_covered_ns, first.first_covered_ns);
        EXPECT_EQ(session.rolled_up_from_ns, first.rolled_up_from_ns);
        EXPECT_EQ(session.last_covered_ns, last.last_covered_ns);
    }
}

TEST_F(OverlappingCopies, CountEachCallOfAWindowOverTheirBorderOnce) {
    const TemporaryDirectory out;
    merge({&later_, &earlier_}, out);
    const uint64_t border_ns = session_in(later_).first_covered_ns;
    // The call that lasted when the earlier one was made is in the later one alone.
    for (const uint64_t around_ns : {30 * second, 2 * minute}) {
        const uint64_t from_ns = border_ns - around_ns, to_ns = border_ns + around_ns;
        EXPECT_EQ(counted_in(out, from_ns, to_ns), counted_in(earlier_, from_ns, to_ns) + 1);
        EXPECT_THAT(gaps_in(out, from_ns, to_ns), IsEmpty());
    }
    const uint64_t from_ns = 2 * minute, to_ns = 4 * minute;  // when rollups alone count
    EXPECT_EQ(counted_in(out, from_ns, to_ns), made_in(from_ns, to_ns));
}

TEST_F(OverlappingCopies, TakeNothingFromWhatIsStored) {
    const auto with_both = [&](const TemporaryDirectory& stored, const TemporaryDirectory& more) {
        const TemporaryDirectory archive, out, again;
        merge({&stored}, archive);
        EXPECT_TRUE(adds(more, archive));
        EXPECT_FALSE(adds(stored, archive));
        merge({&more, &archive}, out);
        const Stored merged = stored_in(out);
        expect_all_of(merged, stored_in(archive), stored_in(more));
        EXPECT_EQ(merged.calls.size() + merged.rolled_up, made_.size());
        for (const TemporaryDirectory* one : {&stored, &more, &archive}) EXPECT_FALSE(adds(*one, out));
        // What has it all already.
        merge({&stored, &out, &more}, again);
        expect_all_of(stored_in(again), merged, merged);
        EXPECT_EQ(stored_in(again).rolled_up, merged.rolled_up);
    };
    with_both(earlier_, later_);
    with_both(later_, earlier_);
}

TEST_F(OverlappingCopies, AreMergedHoweverManyThereAre) {
    const TemporaryDirectory latest, out;
    run(8 * minute);
    copy_to(latest);
    ASSERT_GT(session_in(latest).first_covered_ns, session_in(earlier_).last_covered_ns);
    merge({&latest, &earlier_, &later_}, out);
    const Stored merged = stored_in(out);
    EXPECT_EQ(merged.calls.size() + merged.rolled_up, made_.size());
    const std::multiset<uint64_t> of_two = united(stored_in(earlier_).calls, stored_in(later_).calls);
    EXPECT_EQ(merged.calls, united(of_two, stored_in(latest).calls));
    EXPECT_THAT(merged.gaps, IsEmpty());
}

TEST_F(CopiesOfAStore, LeaveAGapWhereNoneHasTheCalls) {
    const TemporaryDirectory earlier, between, later, out, filled;
    run(15 * minute);
    copy_to(earlier);
    run(10 * minute);
    copy_to(between);
    run(20 * minute);
    copy_to(later);
    const uint64_t from_ns = session_in(earlier).last_covered_ns, to_ns = session_in(later).first_covered_ns;
    ASSERT_LT(from_ns, to_ns);
    ASSERT_NE(from_ns % minute, 0u);
    const uint64_t minute_end_ns = (from_ns / minute + 1) * minute;

    merge({&later, &earlier}, out);
    const Stored merged = stored_in(out);
    expect_all_of(merged, stored_in(earlier), stored_in(later));
    EXPECT_THAT(merged.gaps, testing::ElementsAre(from_ns));
    // The later one's sums of the minute in which the earlier one ends have calls that are stored.
    EXPECT_EQ(merged.calls.size() + merged.rolled_up, made_.size() - made_in(from_ns, minute_end_ns));
    const auto gaps = gaps_in(out, from_ns - minute, to_ns + minute);
    ASSERT_THAT(gaps, SizeIs(1));
    EXPECT_THAT(gaps[0].reason, testing::StartsWith("gave-way: no copy that was merged"));
    EXPECT_EQ(gaps[0].from_ns, now_.to_realtime(from_ns));
    EXPECT_EQ(gaps[0].to_ns, now_.to_realtime(to_ns));
    EXPECT_EQ(counted_in(out, minute_end_ns, minute_end_ns + 2 * minute), 120u) << "rollups do";
    EXPECT_FALSE(adds(earlier, out));
    EXPECT_FALSE(adds(later, out));

    // One that has some of these calls is taken up.
    EXPECT_TRUE(adds(between, out));
    merge({&between, &out}, filled);
    expect_all_of(stored_in(filled), merged, stored_in(between));
    EXPECT_THAT(stored_in(filled).gaps, testing::ElementsAre(session_in(between).last_covered_ns));
    EXPECT_FALSE(adds(between, filled));
}

SessionCopy a_copy(uint64_t first_covered_ns, uint64_t last_covered_ns, std::vector<Window> gave_way = {},
                   uint64_t rolled_up_from_ns = 0) {
    SessionCopy copy;
    copy.session = make_session("boot-a");
    copy.session.first_covered_ns = first_covered_ns;
    copy.session.last_covered_ns = last_covered_ns;
    copy.session.rolled_up_from_ns = rolled_up_from_ns;
    copy.gave_way = std::move(gave_way);
    return copy;
}

MATCHER_P3(IsSlice, copy, from_ns, to_ns, "") {
    return arg.copy == static_cast<size_t>(copy) && arg.starts.from_ns == from_ns && arg.starts.to_ns == to_ns;
}

TEST(SessionCopies, OfWhichOneHasAllAreTakenFromThatOne) {
    const SessionCopy longest = a_copy(minute + 1, 90 * minute), other = a_copy(20 * minute, 80 * minute);
    EXPECT_TRUE(goes_further(longest.session, other.session));
    const SessionUnion all = unite({longest, other});
    EXPECT_THAT(all.slices, testing::ElementsAre(IsSlice(0, uint64_t{0}, UINT64_MAX)));
    EXPECT_EQ(all.session.first_covered_ns, minute + 1);
    EXPECT_THAT(all.holes, IsEmpty());
    EXPECT_FALSE(adds_to(other, longest));
    EXPECT_TRUE(adds_to(longest, other));
}

TEST(SessionCopies, HaveTheirBorderWhereAMinuteBegins) {
    const SessionCopy later = a_copy(10 * minute + 1, 90 * minute, {}, 2 * minute),
                      earlier = a_copy(minute + 1, 30 * minute, {}, minute);
    const SessionUnion all = unite({later, earlier});
    EXPECT_THAT(all.slices,
                testing::ElementsAre(IsSlice(1, uint64_t{0}, 11 * minute), IsSlice(0, 11 * minute, UINT64_MAX)));
    EXPECT_EQ(all.session.first_covered_ns, minute + 1);
    EXPECT_EQ(all.session.rolled_up_from_ns, minute);
    EXPECT_EQ(all.session.last_covered_ns, 90 * minute);
    // Where they overlap by less, where the calls of the later one begin.
    const SessionUnion narrow = unite({later, a_copy(minute + 1, 10 * minute + 30)});
    EXPECT_THAT(narrow.slices, testing::ElementsAre(IsSlice(1, uint64_t{0}, 10 * minute + 1),
                                                    IsSlice(0, 10 * minute + 1, UINT64_MAX)));
    EXPECT_THAT(narrow.holes, IsEmpty());
}

TEST(SessionCopies, GiveEachTimeFromTheOneInWhichTheLeastGaveWay) {
    const SessionCopy later = a_copy(minute, 90 * minute, {{10 * minute + 5, 40 * minute + 5}}),
                      earlier = a_copy(minute, 30 * minute, {{5 * minute, 12 * minute}});
    const SessionUnion all = unite({later, earlier});
    // Of the time in which in both some did, less is gone from the earlier one.
    EXPECT_THAT(all.slices,
                testing::ElementsAre(IsSlice(0, uint64_t{0}, 10 * minute + 5), IsSlice(1, 10 * minute + 5, 30 * minute),
                                     IsSlice(0, 30 * minute, UINT64_MAX)));
    EXPECT_THAT(all.holes, IsEmpty());
    EXPECT_TRUE(adds_to(earlier, later));
    const SessionCopy merged =
        a_copy(minute, 90 * minute, {{10 * minute + 5, 12 * minute}, {30 * minute, 40 * minute + 5}});
    EXPECT_FALSE(adds_to(earlier, merged));
    EXPECT_FALSE(adds_to(later, merged));
}

TEST(SessionCopies, KeepTheSumsOfTheOneThatHasMore) {
    const SessionCopy later = a_copy(20 * minute, 90 * minute, {}, 9 * minute),
                      earlier = a_copy(20 * minute, 80 * minute, {}, 2 * minute);
    const SessionUnion all = unite({later, earlier});
    EXPECT_THAT(all.slices,
                testing::ElementsAre(IsSlice(1, uint64_t{0}, 9 * minute), IsSlice(0, 9 * minute, UINT64_MAX)));
    EXPECT_EQ(all.session.rolled_up_from_ns, 2 * minute);
    EXPECT_EQ(all.session.first_covered_ns, 20 * minute);
    EXPECT_TRUE(adds_to(earlier, later));
    const SessionCopy merged = a_copy(20 * minute, 90 * minute, {}, 2 * minute);
    EXPECT_FALSE(adds_to(earlier, merged));
    EXPECT_FALSE(adds_to(later, merged));
}

TEST(SessionCopies, WithoutAnyCallAreOneSession) {
    const SessionUnion none = unite({a_copy(0, 5), a_copy(0, 3)});
    EXPECT_THAT(none.slices, testing::ElementsAre(IsSlice(0, uint64_t{0}, UINT64_MAX)));
    EXPECT_EQ(none.session.first_covered_ns, 0u);
    // All of it rolled up.
    const SessionUnion sums = unite({a_copy(90 * minute, 90 * minute, {}, 9 * minute), a_copy(5, 5, {}, 2)});
    EXPECT_EQ(sums.session.first_covered_ns, 90 * minute);
    EXPECT_EQ(sums.session.rolled_up_from_ns, 9 * minute);
}

}  // namespace
}  // namespace ingero
