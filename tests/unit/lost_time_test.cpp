// What a cause cost, against the same simulated program without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/explain.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "tests/unit/simulated_program.h"

namespace ingero::test {
namespace {

using testing::HasSubstr;

struct Compared {
    double true_ns = 0;
    Finding finding;  ///< of the kind, empty where there is none
    std::vector<Finding> others;
    std::map<uint64_t, OpId> ops;  ///< by sequence
    bool works = false;            ///< between its calls, while the device has nothing to do
};

Compared compare(const Program& disturbed, std::string_view kind, uint64_t steps = 1'000) {
    Program alone = disturbed;
    alone.hog = HogRuns::never;
    alone.reads_every = alone.locks_every = alone.waits_every = alone.idles_every = alone.hands_over_ns = 0;
    SimulatedThread one(disturbed), other(alone);
    Compared result;
    result.true_ns = static_cast<double>(one.run(steps)) - static_cast<double>(other.run(steps));
    for (Finding& finding : one.explain().findings) {
        if (finding.kind == kind)
            result.finding = std::move(finding);
        else
            result.others.push_back(std::move(finding));
    }
    std::cout << kind << ": truth " << result.true_ns / 1e6 << " ms, lost "
              << static_cast<double>(result.finding.lost_ns) / 1e6 << " ("
              << static_cast<double>(result.finding.lost_low_ns) / 1e6 << " to "
              << static_cast<double>(result.finding.lost_high_ns) / 1e6 << "), waited "
              << static_cast<double>(result.finding.waited_ns) / 1e6 << "\n";
    result.ops = one.ops();
    result.works = disturbed.own_ns >= ms;
    for (const Finding& finding : other.explain().findings)
        EXPECT_TRUE(result.works && finding.kind == "data-starvation") << "alone it loses nothing: " << finding.summary;
    return result;
}

/// The truth lies within, and the point near it.
void expect_true(const Compared& compared) {
    const Finding& finding = compared.finding;
    ASSERT_FALSE(finding.kind.empty());
    EXPECT_LE(static_cast<double>(finding.lost_low_ns), compared.true_ns);
    EXPECT_GE(static_cast<double>(finding.lost_high_ns), compared.true_ns);
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), compared.true_ns, 0.2 * compared.true_ns);
    EXPECT_LE(static_cast<double>(finding.lost_high_ns - finding.lost_low_ns), 0.5 * compared.true_ns);
    EXPECT_EQ(finding.verdict, Verdict::proven);
    for (const Finding& other : compared.others)
        EXPECT_TRUE(other.severity == Severity::low || (compared.works && other.kind == "data-starvation"))
            << other.summary;
}

TEST(LostTime, OfASynchronisationThatSpinsIsWhatTheDeviceDidNotWorkMeanwhile) {
    const Compared compared = compare({.hog = HogRuns::always}, "cpu-contention");
    expect_true(compared);
    EXPECT_GE(static_cast<double>(compared.finding.waited_ns), 2.5 * compared.true_ns) << "waited is not lost";
}

// The hog's slices end when the device has been done for a while, in nearly every cycle.
TEST(LostTime, IsKnownWhereFewCyclesWereLeftAlone) {
    expect_true(compare({.kernel_ns = 500 * us, .hog = HogRuns::always}, "cpu-contention"));
}

// Every cycle is held up, and its length is what it waited, but for the one time slice that it had of its own: which is
// not what it takes, since the device worked on while others had the CPU.
TEST(LostTime, BesideManyHogsIsWithinBounds) {
    for (const unsigned most : {4u, 6u, 12u, 24u}) {
        const Compared compared =
            compare({.hog = HogRuns::always, .least_turns = 3, .most_turns = most}, "cpu-contention", 200);
        ASSERT_FALSE(compared.finding.kind.empty());
        EXPECT_LE(static_cast<double>(compared.finding.lost_low_ns), compared.true_ns) << most;
        EXPECT_GE(static_cast<double>(compared.finding.lost_high_ns), compared.true_ns) << most;
    }
}

TEST(LostTime, OfASynchronisationThatSleepsIsWhatCameAfterItsWakeUp) {
    expect_true(compare({.sync = Sync::blocks, .hog = HogRuns::always}, "cpu-contention"));
}

// Each time slice that it gives away ends after the device was done, or long before: no cycle is left alone, and the
// cycles do not differ by what they waited.
TEST(LostTime, OfASynchronisationThatYieldsHasBoundsOnly) {
    const Compared compared = compare({.sync = Sync::yields, .hog = HogRuns::always}, "cpu-contention");
    ASSERT_FALSE(compared.finding.kind.empty());
    EXPECT_LE(static_cast<double>(compared.finding.lost_low_ns), compared.true_ns);
    EXPECT_GE(static_cast<double>(compared.finding.lost_high_ns), compared.true_ns);
    EXPECT_LT(compared.finding.lost_high_ns, compared.finding.waited_ns / 2);
    EXPECT_EQ(compared.finding.verdict, Verdict::partial);
}

// It is told as its thread's own time after it was back: as if the device had not been done by then.
TEST(LostTime, IsNotTakenForNothingByWhatNobodySeesThatHadTheCpu) {
    for (const Sync sync : {Sync::yields, Sync::spins}) {
        const Compared compared =
            compare({.sync = sync, .hog = HogRuns::always, .interrupted_every = 30}, "cpu-contention");
        ASSERT_FALSE(compared.finding.kind.empty());
        EXPECT_LE(static_cast<double>(compared.finding.lost_low_ns), compared.true_ns);
        EXPECT_GE(static_cast<double>(compared.finding.lost_high_ns), compared.true_ns);
        EXPECT_GE(static_cast<double>(compared.finding.lost_ns), 0.5 * compared.true_ns);
    }
}

// Few cycles look as if they were left alone, and the others differ by just what they waited.
TEST(LostTime, IsNotTakenForNothingByWaitsThatWereNotRecorded) {
    Program program{.launch_ns = 250 * us, .kernel_ns = 2 * us, .hog = HogRuns::always};
    program.unseen_every = 40;
    expect_true(compare(program, "cpu-contention"));
}

// The same, but these few are alike: the device works on for a while in all of them.
TEST(LostTime, IsWhatItIsBesideFewCyclesThatWereLeftAlone) {
    Program program{.launches = 1, .kernel_ns = 10 * ms, .hog = HogRuns::always};
    program.alone_every = 20;
    program.after_ns = 8 * ms;
    expect_true(compare(program, "cpu-contention"));
}

constexpr Program worker{.kernel_ns = 50 * us, .own_ns = 8 * ms, .hog = HogRuns::always};

// Most of the time that its hog takes passes between its calls.
TEST(LostTime, OfAProgramThatWorksBetweenItsCallsIsAllThatItWaitedThereToo) {
    const Compared compared = compare(worker, "cpu-contention");
    expect_true(compared);
    EXPECT_NEAR(compared.true_ns, static_cast<double>(compared.finding.waited_ns), 0.1 * compared.true_ns);
    EXPECT_THAT(compared.finding.summary, HasSubstr(" of it between calls; hog had it for "));
    EXPECT_THAT(compared.finding.summary, HasSubstr("; that cost the program "));
    ASSERT_EQ(compared.finding.culprits.size(), 1u);
    EXPECT_EQ(compared.finding.culprits[0].name, "hog");
    EXPECT_EQ(compared.finding.culprits[0].pid, 777u);
    EXPECT_TRUE(is_call(compared.finding.worst.event.op));
}

// Where no call is held up, those show it at whose end the cycle was longer.
TEST(LostTime, BetweenCallsOnlyIsShownByTheCallsThatEndedTheCycles) {
    Program program = worker;
    program.hog = HogRuns::between_calls;
    const Compared compared = compare(program, "cpu-contention");
    expect_true(compared);
    const Finding& finding = compared.finding;
    EXPECT_EQ(finding.waited_ns, finding.waited_between_calls_ns);
    EXPECT_THAT(finding.summary, HasSubstr(", 100.0 % of it between calls; "));
    EXPECT_EQ(finding.worst.event.op, op_wait);
    EXPECT_THAT(finding.confirm, testing::Not(HasSubstr("should take about")));
    EXPECT_EQ(finding.evidence.size(), max_evidence);
    for (const uint64_t sequence : finding.evidence) EXPECT_EQ(compared.ops.at(sequence), sync_op);
    for (const RejectedHypothesis& one : finding.rejected) EXPECT_LT(one.ns, finding.waited_ns / 10) << one.hypothesis;
}

// Whether anything was still to be done is not known.
TEST(LostTime, AfterTheLastCallIsNotKnown) {
    SimulatedThread thread({});
    thread.run(100);
    thread.lose_cpus(100);
    const ExplainAnswer answer = thread.explain();
    ASSERT_EQ(answer.findings.size(), 1u);
    const Finding& finding = answer.findings[0];
    EXPECT_EQ(finding.kind, "cpu-contention");
    EXPECT_EQ(finding.lost_low_ns, 0u);
    EXPECT_EQ(finding.lost_ns, 0u);
    EXPECT_GE(finding.lost_high_ns, finding.waited_ns);
    EXPECT_NE(finding.verdict, Verdict::proven);
    EXPECT_EQ(finding.severity, Severity::low);
    EXPECT_THAT(finding.summary, HasSubstr("that cost the program at most "));
}

TEST(LostTime, BetweenCallsByAQuotaIsOfTheQuota) {
    Program program = worker;
    program.by_quota = true;
    const Compared compared = compare(program, "cpu-contention");
    expect_true(compared);
    EXPECT_THAT(compared.finding.summary, testing::StartsWith("the quota of its control group kept "));
    EXPECT_THAT(compared.finding.summary, HasSubstr(" between its calls; that cost the program "));
}

TEST(LostTime, OfAProgramThatLaunchesAllTheTimeIsAllThatItWaited) {
    const Compared compared =
        compare({.launch_ns = 250 * us, .kernel_ns = 2 * us, .hog = HogRuns::always}, "cpu-contention");
    expect_true(compared);
    EXPECT_NEAR(compared.true_ns, static_cast<double>(compared.finding.waited_ns), 0.1 * compared.true_ns);
}

// What holds up the thread that launches is in the cycles of the thread that waits for the device, which sleeps
// meanwhile.
TEST(LostTime, OfAThreadThatLaunchesForAnotherIsWhatThatOneWaitedLonger) {
    Program program{.launches = 10, .launch_ns = 50 * us, .kernel_ns = 5 * us, .hog = HogRuns::always};
    program.of_another = 80;
    for (const bool hog_of_another : {true, false}) {
        program.hog_of_another = hog_of_another;
        expect_true(compare(program, "cpu-contention"));
    }
}

// CPUs are read one after the other: what one did at the end of a block is in the next.
TEST(LostTime, OfAThreadThatLaunchesForAnotherIsTheSameWhereItsRowsComeLater) {
    Program program{.launches = 10, .launch_ns = 50 * us, .kernel_ns = 5 * us, .hog = HogRuns::always};
    program.of_another = 80;
    program.hog_of_another = true;
    const auto in_time = static_cast<double>(compare(program, "cpu-contention").finding.lost_ns);
    for (const uint64_t late_ns : {ms, 100 * ms, 900 * ms}) {
        program.rows_late_ns = late_ns;
        const Compared late = compare(program, "cpu-contention");
        expect_true(late);
        EXPECT_NEAR(static_cast<double>(late.finding.lost_ns), in_time, 0.01 * in_time) << late_ns;
    }
}

// Of more threads than there is room for, those of the crowd are forgotten, and the others have new numbers.
TEST(LostTime, OfAThreadThatLaunchesForAnotherIsTheSameBesideACrowd) {
    Program program{.launches = 10, .launch_ns = 50 * us, .kernel_ns = 5 * us, .hog = HogRuns::always};
    program.of_another = 80;
    program.hog_of_another = true;
    uint64_t lost_ns = 0;
    for (const uint64_t crowd : {0, 20'000}) {
        SimulatedThread thread(program);
        thread.run(1'000);
        thread.add_crowd(crowd);
        for (const Finding& finding : thread.explain().findings) {
            if (finding.kind != "cpu-contention") continue;
            if (crowd == 0) lost_ns = finding.lost_ns;
            EXPECT_EQ(finding.lost_ns, lost_ns);
        }
    }
    EXPECT_GT(lost_ns, 4 * second);
}

// Who woke the one that waits for the device launches nothing: it may have slept for anything.
TEST(LostTime, OfAThreadThatLaunchesIsNotKnownWhereTheOneThatWaitsSleptForAnother) {
    Program program{.launches = 10, .launch_ns = 50 * us, .kernel_ns = 5 * us, .hog = HogRuns::always};
    program.of_another = 80;
    program.hog_of_another = true;
    program.released_by_tid = 777;
    const Compared compared = compare(program, "cpu-contention");
    ASSERT_FALSE(compared.finding.kind.empty());
    EXPECT_LE(static_cast<double>(compared.finding.lost_low_ns), 0.01 * compared.true_ns) << "but for its own wake-ups";
    EXPECT_GE(static_cast<double>(compared.finding.lost_high_ns), compared.true_ns);
    EXPECT_EQ(compared.finding.severity, Severity::low);
    EXPECT_NE(compared.finding.verdict, Verdict::proven);
}

TEST(LostTime, OfAThreadThatLaunchesForAnotherIsNotWhatTheDeviceWorkedThrough) {
    Program program{.launches = 10, .kernel_ns = 210 * us, .hog = HogRuns::always};
    program.of_another = 30;
    program.hog_of_another = true;
    const Compared compared = compare(program, "cpu-contention");
    ASSERT_FALSE(compared.finding.kind.empty());
    EXPECT_LE(static_cast<double>(compared.finding.lost_low_ns), compared.true_ns);
    EXPECT_GE(static_cast<double>(compared.finding.lost_high_ns), compared.true_ns);
    EXPECT_LE(compared.finding.lost_high_ns, compared.finding.waited_ns / 2);
}

TEST(LostTime, OfAThreadThatLaunchesForAnotherAndWaitsItselfIsOfItsOwnCycles) {
    Program program{.launches = 10, .launch_ns = 50 * us, .kernel_ns = 5 * us, .hog = HogRuns::always};
    program.of_another = 80;
    program.hog_of_another = program.another_synchronises = true;
    expect_true(compare(program, "cpu-contention"));
}

TEST(LostTime, IsNothingWhereTheHogRanOnlyWhileTheDeviceWorked) {
    const Compared compared = compare({.hog = HogRuns::while_device_works}, "cpu-contention");
    EXPECT_LT(std::abs(compared.true_ns), 0.001 * second);
    ASSERT_FALSE(compared.finding.kind.empty()) << "it waited, which is said";
    EXPECT_GT(compared.finding.waited_ns, second);
    EXPECT_EQ(compared.finding.severity, Severity::low);
    EXPECT_LT(compared.finding.lost_high_ns, 0.01 * second);
}

// Where most waits are left alone, those beside the hog take no longer than is usual.
TEST(LostTime, IsNothingWhereWaitsTookNoLonger) {
    const Compared compared = compare({.hog = HogRuns::while_device_works, .hog_every = 3}, "cpu-contention");
    EXPECT_LT(std::abs(compared.true_ns), 0.001 * second);
    const Finding& finding = compared.finding;
    ASSERT_FALSE(finding.kind.empty()) << "it waited, which is said";
    EXPECT_GT(finding.waited_ns, 0.3 * second);
    EXPECT_EQ(finding.severity, Severity::low);
    EXPECT_LT(finding.lost_high_ns, 0.01 * second);
    ASSERT_FALSE(finding.culprits.empty());
    EXPECT_EQ(finding.culprits[0].name, "hog");
    EXPECT_FALSE(finding.evidence.empty());
    EXPECT_THAT(finding.summary, HasSubstr("; no time lost: these calls took their usual time"));
}

// What it waits for in the same way while it starts takes less, and says nothing of how long a step takes.
TEST(LostTime, IsNotKnownByCyclesOfOtherWork) {
    for (const uint64_t loads : {12u, 700u}) {
        const Compared idle = compare({.loads = loads, .hands_over_ns = ms}, "cpu-contention");
        EXPECT_LT(std::abs(idle.true_ns), 0.01 * second);
        ASSERT_FALSE(idle.finding.kind.empty()) << "it waited, which is said";
        EXPECT_LT(idle.finding.lost_low_ns, 0.02 * second) << loads;
        EXPECT_NE(idle.finding.verdict, Verdict::proven);
        EXPECT_EQ(idle.finding.severity, Severity::low);

        const Compared busy = compare({.hog = HogRuns::always, .loads = loads, .hands_over_ns = ms}, "cpu-contention");
        ASSERT_FALSE(busy.finding.kind.empty());
        EXPECT_LE(static_cast<double>(busy.finding.lost_low_ns), busy.true_ns) << loads;
        EXPECT_GE(static_cast<double>(busy.finding.lost_high_ns), busy.true_ns) << loads;
        EXPECT_GE(static_cast<double>(busy.finding.lost_low_ns), busy.true_ns / 3) << loads;
    }
}

TEST(LostTime, OfAReadBeforeALaunchIsWhatTheDeviceStoodStillFor) {
    expect_true(compare({.reads_every = 20}, "own-io-wait"));
    expect_true(compare({.launch_ns = 250 * us, .kernel_ns = 2 * us, .reads_every = 20}, "own-io-wait"));
}

// The device is done long before: that the call is one that waits for it makes its lock no less of one.
TEST(LostTime, OfALockInsideASynchronisationIsWhatCameAfterTheDeviceWasDone) {
    const Compared compared = compare({.locks_every = 20}, "lock-wait");
    ASSERT_FALSE(compared.finding.kind.empty());
    EXPECT_NEAR(compared.true_ns, 1.0 * second, 0.01 * second);
    // When in its sleep the device was done is not seen but in the cycle.
    EXPECT_NEAR(static_cast<double>(compared.finding.lost_ns), compared.true_ns, 0.2 * compared.true_ns);
    EXPECT_LE(static_cast<double>(compared.finding.lost_low_ns), compared.true_ns);
    EXPECT_GE(static_cast<double>(compared.finding.lost_high_ns), compared.true_ns);
}

// Python's threads wait 5 ms for their interpreter before they ask whoever has it.
TEST(LostTime, OfTheInterpretersLockIsToldWhereItHeldUpWorkForTheDevice) {
    const Compared compared = compare({.waits_every = 20}, "lock-wait");
    const Finding& finding = compared.finding;
    EXPECT_GT(compared.true_ns, 4.0 * second);
    EXPECT_LE(static_cast<double>(finding.lost_low_ns), compared.true_ns);
    EXPECT_GE(static_cast<double>(finding.lost_high_ns), compared.true_ns);
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), compared.true_ns, 0.05 * compared.true_ns);
    EXPECT_EQ(finding.waited_ns, finding.waited_between_calls_ns);
    EXPECT_EQ(finding.verdict, Verdict::partial) << "who had it is not known";
    EXPECT_THAT(finding.summary, HasSubstr("between its calls while its GPU still had work, for a lock that it "));
    ASSERT_EQ(finding.culprits.size(), 1u);
    EXPECT_EQ(finding.culprits[0].name, interpreter_name);
}

// It may be a queue, or how another thread says that its part is done.
TEST(LostTime, OfALockBetweenCallsIsNotToldWhereAnotherThreadReleasedIt) {
    EXPECT_EQ(compare({.waits_every = 20, .released_by_tid = 777}, "lock-wait").finding.kind, "");
    EXPECT_EQ(compare({.waits_every = 20, .released_by_tid = pid}, "lock-wait").finding.kind, "");
}

TEST(LostTime, OfALockBetweenCallsIsNotToldOfAThreadThatWaitsForMoreWork) {
    for (const uint64_t idle_ns : {5 * ms, 40 * ms}) {
        EXPECT_EQ(compare({.idles_every = 20, .idle_ns = idle_ns}, "lock-wait").finding.kind, "");
        EXPECT_EQ(compare({.idles_every = 20, .idle_ns = idle_ns, .released_by_tid = 777}, "lock-wait").finding.kind,
                  "");
    }
}

// When it last waited for its device is not in the window.
TEST(LostTime, OfALockBetweenCallsIsNotToldOfAWindowThatBeginsWhileAThreadWaitsForMoreWork) {
    SimulatedThread thread({.idles_every = 20, .idle_ns = 5 * ms});
    thread.run(1'000);
    ASSERT_FALSE(thread.idle_from().empty());
    for (const uint64_t idle_ns : thread.idle_from())
        for (const Window& window : {Window{idle_ns + ms, idle_ns + 300 * ms}, Window{idle_ns - ms, idle_ns + 60 * ms}})
            for (const Finding& finding : thread.explain(window).findings) EXPECT_NE(finding.kind, "lock-wait");
}

// Which waits for the device: what it is late with is the device's work.
TEST(LostTime, OfALockBetweenCallsIsNotToldWhereAnotherThreadWaitsForTheDevice) {
    EXPECT_EQ(compare({.waits_every = 20, .others_wait = true}, "lock-wait").finding.kind, "");
}

// It works for the device itself, and says so when its part is done.
TEST(LostTime, OfALockBetweenCallsIsNotToldOfAThreadThatWaitsForAnotherThatCalls) {
    EXPECT_EQ(compare({.waits_every = 20, .released_by_tid = pid}, "lock-wait").finding.kind, "");
}

TEST(LostTime, IsKnownOfRowsWithoutTheLastWaitWhereSomeCyclesWereLeftAlone) {
    Program program{.reads_every = 20};
    program.knows_last_wait = false;
    expect_true(compare(program, "own-io-wait"));
}

TEST(LostTime, OfWorkThatRunsAheadOverManyStepsIsSeenInWholeCycles) {
    expect_true(compare({.launches_ahead = 10, .reads_every = 40, .read_ns = 200 * ms}, "own-io-wait"));
}

// Too few cycles say nothing of how long one takes.
TEST(LostTime, IsNotKnownOfAThreadThatHardlyEverWaitsForItsDevice) {
    const Compared compared = compare({.launches_ahead = 200, .hog = HogRuns::always}, "cpu-contention");
    ASSERT_FALSE(compared.finding.kind.empty());
    EXPECT_EQ(compared.finding.lost_low_ns, 0u);
    EXPECT_EQ(compared.finding.severity, Severity::low);
    EXPECT_NE(compared.finding.verdict, Verdict::proven);
}

TEST(LostTime, OfOneIncidentIsTheSameInEachWindowThatHoldsIt) {
    SimulatedThread thread({.reads_every = 500, .read_ns = 400 * ms});
    thread.run(900);  // it reads in steps 7 and 507
    const Event* read = nullptr;
    const auto whole = thread.explain();
    ASSERT_EQ(whole.findings.size(), 1u);
    read = &whole.findings[0].worst.event;
    const uint64_t at_ns = read->start_ns;
    std::vector<uint64_t> lost_ns;
    for (const Window& window :
         {Window{at_ns - 200 * ms, at_ns + 800 * ms}, Window{at_ns - 1'500 * ms, at_ns + 500 * ms},
          Window{at_ns - 100 * ms, at_ns + 3 * second}}) {
        const auto answer = thread.explain(window);
        ASSERT_EQ(answer.findings.size(), 1u);
        lost_ns.push_back(answer.findings[0].lost_ns);
        EXPECT_LE(answer.findings[0].lost_low_ns, lost_ns[0]);
        EXPECT_GE(answer.findings[0].lost_high_ns, lost_ns[0]);
    }
    EXPECT_NEAR(static_cast<double>(lost_ns[1]), static_cast<double>(lost_ns[0]), 2.0 * ms);
    EXPECT_NEAR(static_cast<double>(lost_ns[2]), static_cast<double>(lost_ns[0]), 2.0 * ms);
    EXPECT_NEAR(static_cast<double>(lost_ns[0]), 400.0 * ms, 10.0 * ms);
}

}  // namespace
}  // namespace ingero::test
