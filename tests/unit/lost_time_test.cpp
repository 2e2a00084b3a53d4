// What a cause cost, against the same program without it: simulated programs that feed a device, alone on their CPU and
// beside what holds them up. Simulated time is exact, so the truth is too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/explain.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "tests/support/memory_snapshot.h"

namespace ingero {
namespace {

using testing::HasSubstr;

constexpr uint64_t us = 1'000;
constexpr uint64_t ms = 1'000'000;
constexpr uint64_t second = 1'000'000'000;
constexpr OpId launch_op = op::cudaLaunchKernel;
constexpr OpId sync_op = op::cudaStreamSync;
constexpr uint32_t pid = 123;

enum class Sync { spins, yields, blocks };
enum class HogRuns { never, always, while_device_works, between_calls };

struct Program {
    Sync sync = Sync::spins;
    uint64_t launches = 20;
    uint64_t launch_ns = 5 * us;
    uint64_t kernel_ns = 420 * us;
    uint64_t own_ns = 20 * us;    ///< between two steps
    uint64_t launches_ahead = 1;  ///< steps from one synchronisation to the next
    HogRuns hog = HogRuns::never;
    uint64_t hog_every = 1;    ///< steps, in the others it sleeps
    unsigned least_turns = 1;  ///< of others, before it is its own again
    unsigned most_turns = 1;
    bool by_quota = false;     ///< there is no hog, but a quota that is used up
    uint64_t reads_every = 0;  ///< steps, the first launch of which waits for the disk
    uint64_t read_ns = 30 * ms;
    uint64_t locks_every = 0;      ///< steps, the synchronisation of which waits 20 ms for a lock of the driver's
    uint64_t waits_every = 0;      ///< steps, amid the launches of which it waits for a lock, 5 ms each time
    uint64_t idles_every = 0;      ///< steps, before which it waits to be asked
    uint64_t idle_ns = 40 * ms;    ///< each time
    uint32_t released_by_tid = 0;  ///< these locks, by a thread of its process; 0: it gives up
    bool others_wait = false;      ///< meanwhile, for the device
    uint64_t loads = 0;            ///< parts of a model, each copied and waited for before the first step
    uint64_t hands_over_ns = 0;    ///< of each step: a thread that it woke has its CPU, and has enqueued for the device
    bool knows_last_wait = true;
    uint64_t interrupted_every = 0;  ///< steps, whose synchronisation ends with an interrupt that is in no trace
    double jitter = 0.01;
};

/// A thread and its CPU, which it shares with a hog by time slices.
class Thread {
  public:
    explicit Thread(const Program& program) : program_(program), snapshot_(1'000 * second) {
        Process row;
        row.key = {pid, 5};
        row.uid = 1'000;
        row.comm = "python";
        snapshot_.add(row);
        slice_left_ = slice();
    }

    /// How long it takes.
    uint64_t run(uint64_t steps) {
        for (uint64_t load = 0; load < program_.loads; ++load) {
            launch(ms);
            synchronise(load);
        }
        for (uint64_t step = 0; step < steps; ++step) {
            hog_sleeps_ = step % program_.hog_every != 0;
            run_between_calls(program_.own_ns);
            if (program_.idles_every != 0 && step % program_.idles_every == 7) {
                idle_from_.push_back(now_);
                wait_for_lock(program_.idle_ns);
            }
            for (uint64_t i = 0; i < program_.launches; ++i) {
                if (i != 0 && program_.waits_every != 0 && step % program_.waits_every == 7) wait_for_lock(5 * ms);
                const bool reads = i == 0 && program_.reads_every != 0 && step % program_.reads_every == 7;
                launch(program_.kernel_ns, reads ? program_.read_ns : 0);
            }
            if (program_.hands_over_ns != 0) be_off(now_, now_ + jittered(program_.hands_over_ns), BlockedReason::none);
            if ((step + 1) % program_.launches_ahead == 0) synchronise(step);
        }
        return now_;
    }

    const std::map<uint64_t, OpId>& ops() const { return ops_; }
    const std::vector<uint64_t>& idle_from() const { return idle_from_; }

    /// Without a CPU, again and again, and no call between.
    void lose_cpus(unsigned times) {
        for (unsigned i = 0; i < times; ++i) {
            now_ += ms;
            lose_cpu();
        }
    }

    ExplainAnswer explain() { return explain({0, now_ + 1}); }
    /// `window`: of the monotonic clock.
    ExplainAnswer explain(const Window& window) {
        auto answer = ingero::explain(snapshot_, {{MemorySnapshot::realtime_at_zero_ns + window.from_ns,
                                                   MemorySnapshot::realtime_at_zero_ns + window.to_ns},
                                                  {},
                                                  {}});
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? *answer : ExplainAnswer{};
    }

  private:
    uint64_t jittered(uint64_t ns) {
        const double factor = std::uniform_real_distribution<>(1 - program_.jitter, 1 + program_.jitter)(own_random_);
        return static_cast<uint64_t>(static_cast<double>(ns) * factor);
    }
    uint64_t slice() { return std::uniform_int_distribution<uint64_t>(2'500 * us, 3'500 * us)(random_); }

    void launch(uint64_t kernel_ns, uint64_t read_ns = 0) {
        begin(launch_op);
        if (read_ns != 0) sleep_until(now_ + read_ns, BlockedReason::disk);
        run_for(jittered(program_.launch_ns));
        end();
        done_ns_ = std::max(done_ns_, now_) + jittered(kernel_ns);
    }
    void begin(OpId op) {
        call_ = Event{};
        call_.op = op;
        call_.tgid = call_.tid = pid;
        call_.process_start_ns = 5;
        call_.start_ns = now_;
        in_call_ = true;
    }
    void end() {
        call_.duration_ns = now_ - call_.start_ns;
        if (call_.waits != 0) call_.tail_ns = now_ - back_ns_;
        if (!program_.knows_last_wait)
            call_.last_wait_ns = call_.last_runnable_ns = call_.tail_ns = 0, call_.last_reason = BlockedReason::none;
        ops_[snapshot_.add(call_).sequence] = call_.op;
        in_call_ = false;
    }

    void wait_for_lock(uint64_t ns) {
        released_by_tid_ = program_.released_by_tid;
        const uint64_t from_ns = now_;
        be_off(now_ + ns, now_ + ns + 20 * us, BlockedReason::futex);
        if (!program_.others_wait) return;
        Event call;
        call.op = op::cudaEventSynchronize;
        call.tgid = pid;
        call.tid = pid + 1;
        call.process_start_ns = 5;
        call.start_ns = from_ns;
        call.duration_ns = ns - 20 * us;
        snapshot_.add(call);
    }
    /// Off the CPU: asleep up to `woken_ns`, and from there without a CPU up to `to_ns`.
    void be_off(uint64_t woken_ns, uint64_t to_ns, BlockedReason reason) {
        Event wait;
        wait.op = op_wait;
        wait.tgid = wait.tid = pid;
        wait.process_start_ns = 5;
        wait.start_ns = now_;
        wait.depth = in_call_ ? 1 : 0;
        for (Event* one : {&wait, &call_}) {
            one->blocked_ns += woken_ns - now_;
            one->runnable_ns += to_ns - woken_ns;
            if (woken_ns == now_) one->preempted_ns += to_ns - woken_ns;
            if (reason != BlockedReason::none) one->blocked_reason = reason;
            one->longest_sleep_ns = std::max(one->longest_sleep_ns, woken_ns - now_);
            if (to_ns > woken_ns && !program_.by_quota) {
                one->preemptor_ns += to_ns - woken_ns;
                one->preemptor_tgid = 777;
                one->preemptor_comm = to_comm("hog");
            }
            one->waits += 1;
            one->last_wait_ns = to_ns - now_;
            one->last_runnable_ns = to_ns - woken_ns;
            one->last_reason = reason;
        }
        wait.duration_ns = to_ns - now_;
        if (program_.by_quota) wait.return_code = wait_throttled;
        if (!in_call_ && reason == BlockedReason::futex) {
            wait.waker_kind = released_by_tid_ == 0 ? WakerKind::interrupt : WakerKind::task;
            wait.waker_tgid = released_by_tid_ == 0 ? 0 : pid;
            wait.waker_comm = to_comm("other");
            wait.args[0] = pack_wait_place({.waker_tid = released_by_tid_});
            wait.args[1] = 0xb49280;
            wait.return_code = INGERO_DETAIL_LOCK;
        }
        wait.last_wait_ns = wait.last_runnable_ns = 0;
        if (wait.duration_ns >= 200 * us) snapshot_.add(wait);
        now_ = back_ns_ = to_ns;
    }
    bool is_hog_there() const {
        if (hog_sleeps_) return false;
        if (program_.hog == HogRuns::while_device_works)
            return in_call_ && call_.op == sync_op && now_ + 4 * ms < done_ns_;
        return program_.hog == HogRuns::always || (program_.hog == HogRuns::between_calls && !in_call_);
    }
    void lose_cpu() {
        unsigned turns = program_.least_turns;
        if (program_.most_turns > turns) turns += static_cast<unsigned>(random_() % (program_.most_turns - turns + 1));
        uint64_t until_ns = now_;
        while (turns-- != 0) until_ns += slice();
        be_off(now_, until_ns, BlockedReason::none);
        slice_left_ = slice();
    }
    void run_until(uint64_t to_ns) {
        while (now_ < to_ns) {
            const uint64_t part_ns = std::min(to_ns - now_, slice_left_);
            now_ += part_ns;
            slice_left_ -= part_ns;
            if (slice_left_ != 0) continue;
            slice_left_ = slice();
            if (is_hog_there()) lose_cpu();
        }
    }
    void run_for(uint64_t ns) {
        while (ns != 0) {
            const uint64_t part_ns = std::min(ns, slice_left_);
            run_until(now_ + part_ns);
            ns -= part_ns;
        }
    }
    void run_between_calls(uint64_t ns) { run_for(ns); }
    void sleep_until(uint64_t to_ns, BlockedReason reason) {
        const bool is_late = is_hog_there() && random_() % 4 == 0;
        be_off(to_ns, to_ns + (is_late ? random_() % (3 * ms) : 20 * us), reason);
        slice_left_ = slice();
    }
    void synchronise(uint64_t step) {
        begin(sync_op);
        run_for(3 * us);
        if (program_.locks_every != 0 && step % program_.locks_every == 7)
            sleep_until(std::max(now_, done_ns_) + 20 * ms, BlockedReason::futex);
        if (program_.sync == Sync::spins) run_until(done_ns_);
        if (program_.sync == Sync::blocks && now_ < done_ns_) sleep_until(done_ns_, BlockedReason::ioctl);
        while (program_.sync == Sync::yields && now_ < done_ns_) {
            run_until(std::min(done_ns_, now_ + 2 * us));
            if (now_ < done_ns_ && is_hog_there()) lose_cpu();
        }
        if (program_.interrupted_every != 0 && step % program_.interrupted_every == 7) now_ += 300 * us;
        now_ += 5 * us;
        end();
    }

    Program program_;
    MemorySnapshot snapshot_;
    std::map<uint64_t, OpId> ops_;  ///< of calls, by sequence
    std::vector<uint64_t> idle_from_;
    std::mt19937_64 own_random_{1}, random_{42};
    uint32_t released_by_tid_ = 0;
    uint64_t now_ = second, back_ns_ = 0, done_ns_ = 0, slice_left_ = 0;
    Event call_;
    bool in_call_ = false;
    bool hog_sleeps_ = false;
};

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
    Thread one(disturbed), other(alone);
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
    Thread thread({});
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
    Thread thread({.idles_every = 20, .idle_ns = 5 * ms});
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
    Thread thread({.reads_every = 500, .read_ns = 400 * ms});
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
}  // namespace ingero
