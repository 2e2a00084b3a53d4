// The price of probes, on scripted costs: what a call costs amid a program's work, what is told of it, and what is
// recorded for it.
#include "daemon/ingerod/ingest/overhead.h"

#include <gtest/gtest.h>

#include "bpf/call_price.h"

namespace ingero {
namespace {

constexpr uint64_t second = 1'000'000'000;

/// Calls cost 1 µs, or 0.6 without a record; amid work 2 and 1.4, where their entry takes 130 ns for 30.
CallCost scripted() {
    CallCost cost;
    cost.alone = {.unkept_ns = 600, .record_ns = 400, .entry_ns = 30};
    cost.amid_work = {.unkept_ns = 1'400, .record_ns = 600, .entry_ns = 130};
    return cost;
}

TEST(CallCost, IsBetweenThatOfALoopAndThatAmidWork) {
    const CallCost cost = scripted();
    EXPECT_DOUBLE_EQ(cost.at(30).call_ns(), 1'000);
    EXPECT_DOUBLE_EQ(cost.at(20).call_ns(), 1'000) << "never cheaper than calibrated";
    EXPECT_DOUBLE_EQ(cost.at(80).call_ns(), 1'500);
    EXPECT_DOUBLE_EQ(cost.at(80).unkept_ns, 1'000);
    EXPECT_DOUBLE_EQ(cost.at(130).unkept_ns, 1'400);
    EXPECT_DOUBLE_EQ(cost.at(180).call_ns(), 2'500);
    EXPECT_DOUBLE_EQ(cost.at(4'000).call_ns(), 2'500) << "nor dearer by more than was seen to make a difference";
}

TEST(CallCost, IsAsCalibratedWhereWorkMadeNoDifferenceThatCanBeMeasured) {
    CallCost cost = scripted();
    cost.amid_work.entry_ns = 39;
    EXPECT_DOUBLE_EQ(cost.at(4'000).call_ns(), 1'000);
    cost.amid_work.entry_ns = 10;
    EXPECT_DOUBLE_EQ(cost.at(4'000).call_ns(), 1'000);
    cost = scripted();
    cost.amid_work.unkept_ns = cost.amid_work.record_ns = 0;
    EXPECT_DOUBLE_EQ(cost.at(180).unkept_ns, 600);
    EXPECT_DOUBLE_EQ(cost.at(180).record_ns, 400);
}

/// So many calls of the first op, of which `thinned` left no record; of their entries so many were timed.
OpCounters counters_of(uint64_t calls, uint64_t thinned, uint64_t timed, uint64_t timed_ns) {
    OpCounters counters(all_ops().size());
    counters[0].entries = calls;
    counters[0].thinned = thinned;
    counters[0].timed = timed;
    counters[0].timed_ns = timed_ns;
    return counters;
}

TEST(Overhead, IsOfAllThreadsThatCalledByWhatTheirCallsCost) {
    OverheadMeter meter(counters_of(0, 0, 0, 0), second);
    meter.note_thread(7);
    meter.note_thread(7);
    meter.note_thread(8);
    EXPECT_FALSE(meter.is_due(2 * second - 1));
    ASSERT_TRUE(meter.is_due(2 * second));
    // 10,000 calls of 600 ns, 4,000 of them with records for 400 ns more and stacks for 1,000.
    const OverheadFigures figures = meter.measure(2 * second, counters_of(10'000, 6'000, 0, 0), scripted(), 1'000);
    ASSERT_TRUE(figures.permille);
    EXPECT_DOUBLE_EQ(*figures.permille, 1'000 * (6e6 + 4'000 * 1'400.0) / 2e9);
    ASSERT_EQ(figures.thinned.size(), 1U);
    EXPECT_DOUBLE_EQ(figures.thinned[0].weight, 2.5);
}

TEST(Overhead, HasThePriceThatCallsHaveInTheirProgramForAsLongAsThatIsKnown) {
    OverheadMeter meter(counters_of(0, 0, 0, 0), 0);
    const auto permille_at = [&](uint64_t seconds, uint64_t calls, uint64_t timed, uint64_t timed_ns) {
        meter.note_thread(7);
        return *meter.measure(seconds * second, counters_of(calls, 0, timed, timed_ns), scripted(), 0).permille;
    };
    EXPECT_DOUBLE_EQ(permille_at(1, 10'000, 100, 100 * 30), 10);
    // 100 entries of 130 ns since: a call costs twice as much.
    EXPECT_DOUBLE_EQ(permille_at(2, 20'000, 200, 100 * 160), 20);
    // A few say nothing new, and are not forgotten.
    EXPECT_DOUBLE_EQ(permille_at(3, 30'000, 210, 100 * 160 + 10 * 30), 20);
    EXPECT_DOUBLE_EQ(permille_at(4, 40'000, 220, 100 * 160 + 20 * 30), 10);
    EXPECT_DOUBLE_EQ(permille_at(5, 50'000, 320, 100 * 160 + 20 * 30 + 100 * 130), 20);
    // Of another program, later: the few from before say nothing of it.
    EXPECT_DOUBLE_EQ(permille_at(6, 60'000, 330, 100 * 160 + 20 * 30 + 110 * 130), 20);
    EXPECT_DOUBLE_EQ(permille_at(15, 150'000, 330, 100 * 160 + 20 * 30 + 110 * 130), 10);
    EXPECT_DOUBLE_EQ(permille_at(16, 160'000, 346, 100 * 160 + 20 * 30 + 110 * 130 + 16 * 80), 15);
}

TEST(Overhead, IsNotToldWhereNoCostIsKnown) {
    OverheadMeter meter(counters_of(0, 0, 0, 0), second);
    const OverheadFigures figures = meter.measure(2 * second, counters_of(10'000, 0, 100, 3'000), std::nullopt, 0);
    EXPECT_FALSE(figures.permille);
    EXPECT_TRUE(figures.thinned.empty());
}

// The kernel side's half: one in how many is recorded.

constexpr ingero_overhead_budget two_percent = {.permille = 20,
                                                .keep_one_in = 0,
                                                .time_all = 0,
                                                .unkept_ns = 600,
                                                .record_ns = 400,
                                                .entry_ns = 30,
                                                .unkept_more_ns = 800,
                                                .record_more_ns = 200,
                                                .entry_way_ns = 100};

ingero_entry_cost entries_of(uint32_t ns) {
    ingero_entry_cost cost{};
    for (int i = 0; i < 200; ++i) ingero_note_entry(&cost, &two_percent, ns);
    return cost;
}

uint32_t keep_one_in(uint64_t calls_a_second, const ingero_entry_cost& entry, uint32_t stack_ns = 0) {
    return ingero_choose_keep_one_in(&two_percent, &entry, calls_a_second / 10, second / 10, stack_ns);
}

TEST(KeepOneIn, IsOneWithinTheBudgetAndMoreBeyondIt) {
    const ingero_entry_cost in_loop = entries_of(30);
    // 20 ms a second pay for 20,000 records of 1 µs.
    EXPECT_EQ(keep_one_in(20'000, in_loop), 1U);
    EXPECT_EQ(keep_one_in(25'000, in_loop), 2U) << "15 ms for the probes, 5 for 12,500 of 25,000 records";
    EXPECT_EQ(keep_one_in(25'000, in_loop, 2'000), 12U) << "2,083 records of 2.4 µs";
    // The probes alone cost 120 ms: records may cost a tenth of that.
    EXPECT_EQ(keep_one_in(200'000, in_loop), 7U);
}

TEST(KeepOneIn, HasThePriceThatCallsHaveInTheirProgram) {
    EXPECT_EQ(keep_one_in(11'000, entries_of(30)), 1U);
    // 0.8 µs more each, and a record 0.2: 15.4 ms for the probes, 4.6 for 7,667 of 11,000 records.
    EXPECT_EQ(keep_one_in(11'000, entries_of(130)), 2U);
    EXPECT_EQ(keep_one_in(11'000, entries_of(20)), 1U) << "never cheaper than calibrated";
    EXPECT_EQ(keep_one_in(11'000, ingero_entry_cost{}), 1U) << "none was timed yet";
}

TEST(EntryCost, IsAMeanThatFollowsWhatItIsOfAndNoInterruptMovesFar) {
    ingero_entry_cost cost = entries_of(30);
    EXPECT_NEAR(cost.ns_16 / 16.0, 30, 1);
    ingero_note_entry(&cost, &two_percent, 50'000);
    EXPECT_LE(ingero_price_256(&two_percent, &cost), 26U) << "a tenth of the way";
    for (int i = 0; i < 64; ++i) ingero_note_entry(&cost, &two_percent, 90);
    EXPECT_NEAR(cost.ns_16 / 16.0, 90, 3);
    EXPECT_NEAR(ingero_price_256(&two_percent, &cost), 256 * 60 / 100, 8);
    EXPECT_EQ(ingero_price_256(&two_percent, &(cost = entries_of(9'000))), 384U) << "at most half as far again";
}

TEST(EntryCost, SaysNothingWhereWorkMadeNoDifference) {
    ingero_overhead_budget budget = two_percent;
    budget.entry_way_ns = 0;
    const ingero_entry_cost cost = entries_of(4'000);
    EXPECT_EQ(ingero_price_256(&budget, &cost), 0U);
}

}  // namespace
}  // namespace ingero
