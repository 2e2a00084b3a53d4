// The stage of slices, on scripted costs: who is in it, and for how many calls one stands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "bpf/call_price.h"
#include "bpf/slice_worth.h"
#include "daemon/ingerod/slices/stage_control.h"

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr uint64_t second = 1'000'000'000, window = 100'000'000;
/// No process has such a pid.
constexpr ProcessKey storm{5'000'001, 10}, calm{5'000'002, 20};

/// `calls` of each op, told for each window in [from_ns, to_ns).
void tell(StageControl& control, const ProcessKey& process, uint64_t from_ns, uint64_t to_ns,
          std::vector<std::pair<OpId, uint64_t>> calls, uint64_t other_calls = 0) {
    for (uint64_t time = from_ns + window; time <= to_ns; time += window) {
        control.add(
            {.process = process, .time_ns = time, .elapsed_ns = window, .calls = calls, .other_calls = other_calls});
        control.tick(time);
    }
}

TEST(StageControl, AProcessIsInSlicesOnceItsStormHasLastedForASecond) {
    StageControl control;
    tell(control, storm, 10 * second, 10 * second + 9 * window, {{op::cudaLaunchKernel, 1'000}});
    EXPECT_THAT(control.sliced(), IsEmpty());
    tell(control, storm, 10 * second + 9 * window, 11 * second, {{op::cudaLaunchKernel, 1'000}});
    EXPECT_THAT(control.sliced(), ElementsAre(Pair(storm, std::set<OpId>{op::cudaLaunchKernel})));
}

TEST(StageControl, AStormThatPausesBeginsAnew) {
    StageControl control;
    tell(control, storm, 10 * second, 10 * second + 9 * window, {{op::cudaLaunchKernel, 1'000}});
    control.tick(11 * second + 9 * window);
    EXPECT_TRUE(control.is_calm());
    tell(control, storm, 12 * second, 12 * second + 9 * window, {{op::cudaLaunchKernel, 1'000}});
    EXPECT_THAT(control.sliced(), IsEmpty());
}

TEST(StageControl, OnlyWhatIsOftenCalledIsInSlicesAndMoreOfItAsItComes) {
    StageControl control;
    tell(control, storm, 0, 2 * second, {{op::cudaLaunchKernel, 1'000}, {op::cudaMemsetAsync, 40}}, 10);
    EXPECT_THAT(control.sliced(), ElementsAre(Pair(storm, std::set<OpId>{op::cudaLaunchKernel})));
    tell(control, storm, 2 * second, 4 * second, {{op::cudaLaunchKernel, 100}, {op::cudaMemsetAsync, 900}});
    EXPECT_THAT(control.sliced(), ElementsAre(Pair(storm, std::set<OpId>{op::cudaLaunchKernel, op::cudaMemsetAsync})));
}

TEST(StageControl, AStormOfCallsThatAreAlwaysAttachedToHasNothingInSlices) {
    StageControl control;
    tell(control, storm, 0, 3 * second, {{op::cudaLaunchKernel, 400}}, 1'000);
    EXPECT_THAT(control.sliced(), IsEmpty());
}

TEST(StageControl, AProcessLeavesOnlyAfterItWasQuietForALongTime) {
    StageControl control;
    tell(control, storm, 0, 2 * second, {{op::cudaLaunchKernel, 1'000}});
    control.tick(2 * second + StageControl::leave_after_ns);
    EXPECT_THAT(control.sliced(), testing::SizeIs(1));
    tell(control, storm, 6 * second, 6 * second + window, {{op::cudaLaunchKernel, 10}});
    control.tick(6 * second + window + StageControl::leave_after_ns);
    EXPECT_THAT(control.sliced(), testing::SizeIs(1)) << "what was told meanwhile counts";
    control.tick(6 * second + window + StageControl::leave_after_ns + 1);
    EXPECT_THAT(control.sliced(), IsEmpty());
    EXPECT_TRUE(control.is_calm());
}

TEST(StageControl, ProcessesAreKeptApartAndOneThatIsGoneIsForgotten) {
    StageControl control;
    tell(control, storm, 0, 2 * second, {{op::cudaLaunchKernel, 1'000}});
    tell(control, calm, 2 * second, 2 * second + 2 * window, {{op::cuLaunchKernel, 1'000}});
    EXPECT_THAT(control.sliced(), ElementsAre(Pair(storm, testing::_)));
    control.forget(storm);
    control.tick(2 * second + 2 * window);
    EXPECT_THAT(control.sliced(), IsEmpty());
}

TEST(SliceWorth, IsForItselfAndForThoseOfTheTimeOutsideOnAverage) {
    uint64_t sum = 0;
    for (uint32_t random = 0; random < 2'000; ++random) sum += ingero_slice_worth(2'000, 2'000, 101'000, random);
    EXPECT_EQ(sum, 101'000u) << "50.5 each";
    EXPECT_EQ(ingero_slice_worth(2'000, 1'000, 102'000, 0), 101u) << "half of it was the program's own";
    EXPECT_EQ(ingero_slice_worth(1'600, 0, 101'600, 0), 1'001u) << "a sixteenth is taken for its own at least";
    EXPECT_EQ(ingero_slice_worth(0, 0, 100'000, 7), 1u);
    EXPECT_EQ(ingero_slice_worth(2'000, 1'000, 1'000, 7), 1u) << "no longer than itself";
}

/// The times of a slice of 10 ms in each second, and what a thread did in them.
constexpr uint64_t length = 10'000'000;

ingero_in_slice in_slice(uint32_t calls, uint32_t others, uint32_t calls_a_cycle) {
    const uint32_t first = others == 0 ? 0 : (calls - (others - 1) * calls_a_cycle) / 2;
    return {calls, others, first, others == 0 ? 0 : first + (others - 1) * calls_a_cycle};
}

void add(ingero_pace& pace, const ingero_in_slice& slice) {
    ingero_add_slice(&pace, &slice, 1, length / 1000);
}

TEST(Pace, CountsOthersInPartsAsLongAsTheirCyclesAreAlike) {
    ingero_pace pace{};
    for (const uint32_t seen : {5, 5, 5, 6, 5}) add(pace, in_slice(520, seen, 100));
    EXPECT_TRUE(ingero_are_cycles_alike(&pace));
    EXPECT_NEAR(static_cast<double>(pace.others), 5.2 * pace.slices, 0.04 * pace.others);
    EXPECT_NEAR(static_cast<double>(ingero_others_by_cycles(&pace)), 5.2 * pace.slices, 0.01 * pace.others);
    ingero_pace differ{};
    for (int slice = 0; slice < 5; ++slice) add(differ, in_slice(520, 5, 50));  // long ones are whole in none
    EXPECT_FALSE(ingero_are_cycles_alike(&differ)) << "by these there were 10 in each";
}

TEST(Pace, IsOfTheLatestSlices) {
    ingero_pace pace{};
    for (int slice = 0; slice < 20; ++slice) add(pace, in_slice(1'900, 5, 380));
    for (int slice = 0; slice < 80; ++slice) add(pace, in_slice(500, 5, 100));
    EXPECT_NEAR(static_cast<double>(pace.calls) / pace.others, 100, 3);
    EXPECT_NEAR(static_cast<double>(pace.slices) / 16, 16, 1);
}

TEST(Pace, IsAnotherWhereASliceHasAQuarterOfTheUsualCallsOrFourTimesAsMany) {
    for (const auto& [calls, is_another] :
         std::map<uint32_t, bool>{{120, true}, {130, false}, {1'900, false}, {2'100, true}}) {
        ingero_pace pace{};
        for (int slice = 0; slice < 3; ++slice) add(pace, in_slice(500, 5, 100));
        add(pace, in_slice(calls, 1, 100));
        EXPECT_EQ(pace.slices == 16, is_another) << calls;
    }
    ingero_pace idle{};  // seen in others' slices, and now in its own
    for (int slice = 0; slice < 3; ++slice) add(idle, in_slice(0, 5, 0));
    add(idle, in_slice(500, 5, 100));
    EXPECT_EQ(idle.slices, 16u);
}

TEST(OwnTime, FollowsFromHowManyOtherCallsTheThreadMadeSinceTheSliceBefore) {
    ingero_pace pace{};
    EXPECT_EQ(ingero_own_ps(&pace, second, 3'000), 0u) << "nothing is known of others";
    add(pace, in_slice(300, 3, 100));
    EXPECT_EQ(ingero_own_ps(&pace, second, 3'000), 0u) << "too few";
    for (int slice = 0; slice < 4; ++slice) add(pace, in_slice(500, 5, 100));
    EXPECT_EQ(ingero_own_ps(&pace, second, 0), 0u) << "none that tells of that time";
    const uint64_t own_ps = ingero_own_ps(&pace, second, 3'000);
    EXPECT_NEAR(static_cast<double>(own_ps), 3'333'333, 30'000) << "100 calls to each of 3,000 in a second";

    const auto own = [&](uint64_t elapsed, uint64_t calls) {
        return static_cast<double>(ingero_own_time(&pace, own_ps, length, elapsed, calls, 1'500));
    };
    EXPECT_NEAR(own(length, 460), 460 * 3'333, 50'000) << "a slice that is nearly like the others";
    EXPECT_NEAR(own(1'000, 1), 460 * 3'333, 100'000) << "at its begin it is taken to be like them";
    EXPECT_GT(own(length / 2, 500), 1.6 * 460 * 3'333) << "more calls come in this one";
    EXPECT_EQ(own(length, 100'000), length) << "never more than all of it";
}

TEST(OwnTime, IsByThePriceOfACallWhereNothingElseIsKnown) {
    const ingero_pace none{};
    EXPECT_NEAR(static_cast<double>(ingero_own_time(&none, 0, length, length / 4, 1'000, 1'500)), 4e6, 1e4);
    EXPECT_EQ(ingero_own_time(&none, 0, length, length / 4, 2'000, 1'500), 0u);
}

// A loop of 1.6 us a call and 2.5 of the probes in slices, which calls another function after each 100: in slices of
// different luck, and seen from any place of its cycle.
TEST(Pace, GivesTheCountOfARegularLoopWithinOnePercentFromTheThirdSliceOn) {
    std::mt19937 random(5);
    ingero_pace pace{};
    double counted = 0;
    constexpr int slices = 30;
    constexpr double own_ns = 1'600, calls_a_second = 1e9 / own_ns;
    for (int slice = 0; slice < slices; ++slice) {
        const double probes_ns = 2'500 * std::uniform_real_distribution<>(0.8, 1.2)(random);
        const auto calls = static_cast<uint32_t>(length / (own_ns + probes_ns));
        const uint32_t place = random() % 100;
        const uint64_t own_ps =
            ingero_own_ps(&pace, second - length, static_cast<uint64_t>(0.99 * calls_a_second / 100));
        if (slice >= 2) {
            for (uint32_t call = 1; call <= calls; ++call) {
                const uint64_t elapsed = length * call / calls;
                const uint64_t own = ingero_own_time(&pace, own_ps, length, elapsed, call, 2'500);
                counted += ingero_slice_worth(length, own, second, static_cast<uint32_t>(random()));
            }
        }
        const uint32_t others = (place + calls) / 100;
        add(pace, {calls, others, 100 - place, 100 - place + (others - 1) * 100});
    }
    // The slices themselves are slowed down.
    const double made = (slices - 2) * (0.99 * calls_a_second + length / (own_ns + 2'500));
    EXPECT_NEAR(counted / made, 1, 0.01);
}

TEST(CountError, IsThatOfWhatWasCountedOrOfWhatTheirCyclesAgreeWith) {
    ingero_pace pace{};
    add(pace, in_slice(300, 3, 100));
    EXPECT_EQ(count_error(pace), std::nullopt) << "too few to tell";
    for (const uint32_t seen : {5, 5, 6, 5}) add(pace, in_slice(520, seen, 100));
    EXPECT_NEAR(count_error(pace).value_or(0), 0.1, 0.02) << "5 slices, 24 others";
    ingero_pace bursts{};
    for (int slice = 0; slice < 16; ++slice) add(bursts, in_slice(500, slice % 2 ? 40 : 0, 1));
    EXPECT_EQ(count_error(bursts), std::nullopt) << "in half of the slices none";
    ingero_pace random{};
    for (int slice = 0; slice < 32; ++slice) add(random, in_slice(500, slice % 2 ? 8 : 12, 10));
    EXPECT_NEAR(count_error(random).value_or(0), 0.11, 0.02) << "12 slices of 10 +- 2";
}

TEST(StageControl, TellsTheErrorOfTheThreadThatCallsMost) {
    StageControl control;
    const auto report = [&](uint64_t calls, const ingero_pace& pace) {
        control.add({.process = storm,
                     .time_ns = second,
                     .elapsed_ns = window,
                     .calls = {{op::cudaLaunchKernel, calls}},
                     .pace = pace});
    };
    ingero_pace pace{};
    for (int slice = 0; slice < 32; ++slice) add(pace, in_slice(500, slice % 2 ? 8 : 12, 10));
    report(1'000, {});
    EXPECT_EQ(control.error_of(storm), std::nullopt) << "it is in no slice yet";
    report(1'000, pace);
    const auto error = control.error_of(storm);
    EXPECT_EQ(error, count_error(pace));
    ASSERT_TRUE(error);
    report(2'000, {});
    report(10, {.squares = 16, .slices = 16, .calls = 16, .others = 16, .cycles = 0, .in_cycles = 0, .us = 10});
    EXPECT_EQ(control.error_of(storm), error) << "of those that others call little follows nothing";
    EXPECT_EQ(control.error_of(calm), std::nullopt);
}

TEST(Storm, IsOverOnceItCostsLessThanHalfOfTheBudgetOverTheTimeThatSlicesStandFor) {
    // 600 ns a call, 2 % of 0.1 s is 2 ms: 3,333 calls.
    ingero_overhead_budget costs{};
    costs.permille = 20;
    costs.unkept_ns = 600;
    const ingero_entry_cost entry{};
    EXPECT_FALSE(ingero_is_storm(&costs, &entry, 3'300, window, 0));
    EXPECT_TRUE(ingero_is_storm(&costs, &entry, 3'400, window, 0));
    EXPECT_TRUE(ingero_is_storm(&costs, &entry, 17'000, window, second)) << "of a second, seen in one window";
    EXPECT_FALSE(ingero_is_storm(&costs, &entry, 16'000, window, second));
    EXPECT_FALSE(ingero_is_storm(&costs, &entry, 16'000, second, second));
    costs.permille = 0;
    EXPECT_FALSE(ingero_is_storm(&costs, &entry, 1'000'000, window, 0));
}

}  // namespace
}  // namespace ingero
