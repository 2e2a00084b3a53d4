// What is found of calls together with what was told besides: measurements of GPUs, and spans of requests.
#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "core/diagnosis/incidents/incident_history.h"
#include "core/diagnosis/live/live_window.h"
#include "core/model/host_event.h"
#include "tests/unit/detectors_fixture.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr double idle = 0x1, power_cap = 0x4, hw_thermal = 0x40;

class GpuMeasurements : public Detectors {
  protected:
    /// Steps of so long, and a measurement each second.
    void run(int seconds, uint64_t step_ns, double reasons, double clock_mhz) {
        for (int i = 0; i < seconds; ++i) {
            const uint64_t until_ns = now_ + second;
            while (now_ < until_ns) {
                launch(0x1000);
                call("cudaStreamSync", step_ns);
            }
            StateRow row;
            row.time_ns = now_;
            row.source = "gpu:GPU-1";
            row.values = {{"gpu_index", 0}, {"throttle_reasons", reasons}, {"sm_clock_mhz", clock_mhz}};
            if (!pids_.empty()) row.texts = {{"processes", pids_}};
            snapshot_.add(row);
            states_.push_back(row);
        }
    }

    std::string pids_;
    std::vector<StateRow> states_;
};

TEST_F(GpuMeasurements, StepsThatAreSlowWhileTheGpuThrottlesAreItsDoing) {
    pids_ = "[[" + std::to_string(python.pid) + ",1024]]";
    run(10, 2 * ms, 0, 1'980);
    run(10, 4 * ms, hw_thermal, 990);
    const Finding finding = found("throttling");
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_EQ(finding.severity, Severity::high);
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 5e9, 0.2e9);
    EXPECT_GE(finding.explained_fraction, 0.95);
    EXPECT_EQ(finding.culprits.at(0).name, "GPU 0: hw_thermal_slowdown");
    EXPECT_THAT(finding.summary, AllOf(HasSubstr("990 instead of 1980 MHz"), HasSubstr("instead of 2.0")));
    EXPECT_THAT(finding.fix, HasSubstr("hot"));
    for (const RejectedHypothesis& other : finding.rejected)
        EXPECT_NE(other.hypothesis, "device wait") << "that is what the lower clock costs";
}

// However long the window is of which that is a part.
TEST_F(GpuMeasurements, ThrottlingIsTheSameInALongWindow) {
    run(10, 2 * ms, 0, 1'980);
    run(10, 4 * ms, hw_thermal, 990);
    const uint64_t lost_ns = found("throttling").lost_ns;
    now_ += 800 * second;
    EXPECT_EQ(found("throttling").lost_ns, lost_ns);
}

TEST_F(GpuMeasurements, ThrottlingThatSlowsNothingDownIsNone) {
    run(10, 2 * ms, 0, 1'980);
    run(10, 2 * ms, power_cap, 1'900);
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(GpuMeasurements, StepsThatAreRecordedInSlicesAreNotCompared) {
    run(10, 2 * ms, 0, 1'980);
    run(10, 4 * ms, hw_thermal, 990);
    for (Event& event : snapshot_.events()) {
        if (event.op != op::cudaLaunchKernel) continue;
        event.weight = 100;
        event.time_weight = 50;
    }
    EXPECT_THAT(explain(), IsEmpty()) << "where a step begins is not known";
}

TEST_F(GpuMeasurements, SlowStepsOfAGpuThatKeepsItsClocksHaveAnotherReason) {
    run(10, 2 * ms, idle, 1'980);
    run(10, 4 * ms, idle, 1'980);
    EXPECT_THAT(explain(), IsEmpty());
    run(10, 4 * ms, power_cap, 1'975);
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(GpuMeasurements, WhatIsSlowerThanItsClockIsExplainedInPart) {
    run(10, 2 * ms, 0, 1'980);
    run(10, 8 * ms, hw_thermal, 1'485);
    const Finding finding = found("throttling");
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_NEAR(finding.explained_fraction, 0.25 / 0.75, 0.03);
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 2.5e9, 0.2e9) << "as far as its clock was lower";
}

TEST_F(GpuMeasurements, WhatThrottlingCostsIsNotProvenWithoutClocks) {
    run(10, 2 * ms, 0, 0);
    run(10, 4 * ms, hw_thermal, 0);
    const Finding finding = found("throttling");
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_EQ(finding.severity, Severity::low);
}

TEST_F(GpuMeasurements, AGpuOfOthersIsNone) {
    pids_ = "[[999,1024]]";
    run(10, 2 * ms, 0, 1'980);
    run(10, 4 * ms, hw_thermal, 990);
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(GpuMeasurements, AreHeldAgainstStepsInTheLiveWindowToo) {
    run(5, 2 * ms, 0, 1'980);
    run(5, 4 * ms, hw_thermal, 990);
    const Finding stored = found("throttling");
    LiveWindow window("boot-0", {.since_ns = 1});
    window.add(snapshot_.events());
    for (const StateRow& state : states_) window.add_state(state);
    const auto processes = snapshot_.processes();
    const auto live = window.pass({now_ + 1, now_ + 1, MemorySnapshot::realtime_at_zero_ns + now_ + 1}, *processes);
    ASSERT_THAT(live, SizeIs(1));
    EXPECT_EQ(live[0].id, stored.id);
    EXPECT_EQ(live[0].kind, "throttling");
    EXPECT_EQ(live[0].newly_lost_ns, live[0].lost_ns);
    EXPECT_THAT(live[0].culprits.at(0).name, HasSubstr("hw_thermal"));
}

class SlowRequests : public Detectors {
  protected:
    void add_request(const std::string& id, uint64_t start_ns, uint64_t ns) {
        SpanRow span;
        span.kind = SpanKind::request;
        span.id = id;
        span.process = python;
        span.start_ns = start_ns;
        span.end_ns = start_ns + ns;
        snapshot_.add(span);
        spans_.push_back(span);
    }
    /// One each 10 ms, of 100 ms, and some longer. The engine goes on all the time; during slow ones so many threads
    /// have a stall, all at once.
    void serve(int requests, const std::vector<int>& slow, bool stalls, ProcessKey engine = python,
               uint64_t stall_ns = 300 * ms, uint32_t threads = 1) {
        const uint64_t begin_ns = now_;
        for (int i = 0; i < requests; ++i) {
            const bool is_slow = std::find(slow.begin(), slow.end(), i) != slow.end();
            const uint64_t start_ns = begin_ns + static_cast<uint64_t>(i) * 10 * ms;
            add_request("r" + std::to_string(i), start_ns, is_slow ? 400 * ms : 100 * ms);
            while (now_ < start_ns + 10 * ms) {
                launch(0x1000).process_start_ns = engine.start_ns;
                snapshot_.events().back().tgid = snapshot_.events().back().tid = engine.pid;
                call("cudaStreamSync", ms, engine);
            }
            // On other threads: the engine's loop goes on.
            for (uint32_t thread = 0; is_slow && stalls && thread < threads; ++thread) {
                const uint64_t now = now_;
                Event& event = call("cudaLaunchKernel", stall_ns, engine);
                event.args[0] = 0x1000;
                event.tid = 777 + thread;
                event.blocked_ns = event.longest_sleep_ns = stall_ns - ms;
                event.blocked_reason = BlockedReason::futex;
                event.waker_kind = WakerKind::task;
                event.waker_tgid = engine.pid;
                event.waker_comm = to_comm("loader");
                event.waits = 1;
                now_ = now;
            }
        }
    }
    /// The engine's device has nothing to do while its thread waits for a disk, and then for a child, so long each.
    void wait_twice(uint64_t ns) {
        for (const BlockedReason reason : {BlockedReason::disk, BlockedReason::child}) {
            Event wait;
            wait.op = op_wait;
            wait.tgid = wait.tid = python.pid;
            wait.process_start_ns = python.start_ns;
            wait.start_ns = std::exchange(now_, now_ + ns);
            wait.duration_ns = wait.blocked_ns = wait.longest_sleep_ns = ns;
            wait.blocked_reason = reason;
            wait.waits = 1;
            snapshot_.add(wait);
        }
    }
    std::vector<Finding> of_kind(const std::string& kind) {
        std::vector<Finding> findings = explain();
        std::erase_if(findings, [&](const Finding& finding) { return finding.kind != kind; });
        return findings;
    }

    /// Slow requests alone.
    std::vector<Finding> pass_over(LiveWindow& window) {
        const uint64_t now = now_ + 1;
        auto live = window.pass({now, now, MemorySnapshot::realtime_at_zero_ns + now}, *snapshot_.processes());
        std::erase_if(live, [](const Finding& finding) { return finding.kind != "slow-request"; });
        return live;
    }

    std::vector<SpanRow> spans_;
};

TEST_F(SlowRequests, ThreeOfTwoHundredThatOverlapAreNamedWithWhatStalledThem) {
    serve(200, {50, 100, 150}, true);
    const auto findings = of_kind("slow-request");
    ASSERT_THAT(findings, SizeIs(1));
    const Finding& finding = findings[0];
    EXPECT_EQ(finding.verdict, Verdict::proven);
    ASSERT_THAT(finding.culprits, SizeIs(3));
    for (const std::string id : {"r50", "r100", "r150"}) {
        const auto named = std::find_if(finding.culprits.begin(), finding.culprits.end(), [&](const Culprit& culprit) {
            return culprit.request == id && culprit.name == "lock-wait (loader) in cudaLaunchKernel";
        });
        EXPECT_NE(named, finding.culprits.end()) << id << ": " << finding.culprits[0].name;
    }
    EXPECT_THAT(finding.summary, HasSubstr("3 of 200 requests"));
    // Everybody is sent the summary and the culprits' names of an incident.
    for (const Culprit& culprit : finding.culprits) {
        EXPECT_THAT(finding.summary, Not(HasSubstr(culprit.request)));
        EXPECT_THAT(culprit.name, Not(HasSubstr(culprit.request)));
    }
}

TEST_F(SlowRequests, ThatComeBackAreNotFixedInALongWindow) {
    serve(200, {20, 50, 80, 110, 140, 170}, true);
    IncidentHistory incident;
    incident.latest.kind = "slow-request";
    incident.latest.process = python;
    incident.boot = boot_windows(snapshot_, {0, INT64_MAX}).at(0);
    incident.opened_ns = incident.updated_ns = MemorySnapshot::realtime_at_zero_ns + second / 2;
    incident.closed_ns = incident.updated_ns;
    incident.finding = {{"window_share", 0.03}};
    const auto answer = verify_incident(snapshot_, {.window = {}, .uid = {}, .pid = {}}, incident, {});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->fixed, Fixed::no) << answer->why;
    EXPECT_LT(answer->share, 0.001);
}

TEST_F(SlowRequests, ThatAreLongWithoutAStallAreNone) {
    serve(200, {50, 100, 150}, false);
    EXPECT_THAT(of_kind("slow-request"), IsEmpty());
}

TEST_F(SlowRequests, ThatAreLongForMoreThanAShortStallAreNone) {
    serve(200, {50, 100, 150}, true, python, 30 * ms);
    EXPECT_THAT(of_kind("slow-request"), IsEmpty());
}

TEST_F(SlowRequests, DoNotLoseTheSameTimeWithEachThreadThatWaits) {
    serve(200, {50, 100, 150}, true, python, 30 * ms, 10);
    EXPECT_THAT(of_kind("slow-request"), IsEmpty());
}

TEST_F(SlowRequests, LoseWhatOneThreadWaitedWhereManyWaitAtOnce) {
    serve(200, {50, 100, 150}, true, python, 300 * ms, 10);
    const auto findings = of_kind("slow-request");
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_EQ(findings[0].verdict, Verdict::proven);
    EXPECT_NEAR(static_cast<double>(findings[0].lost_ns), 3 * 299e6, 1e6);
    ASSERT_THAT(findings[0].culprits, SizeIs(3));
    for (const Culprit& culprit : findings[0].culprits)
        EXPECT_EQ(culprit.name, "lock-wait (loader) in cudaLaunchKernel");
    EXPECT_THAT(findings[0].summary, HasSubstr("299 ms of it lock-wait (loader) in cudaLaunchKernel"));
}

// It began in the last third of a gap in which the thread waited for two things: a third of what it takes longer.
TEST_F(SlowRequests, LoseOfAGapNoMoreThanWhatOfItIsInside) {
    serve(100, {}, false);
    add_request("late", now_ + 200 * ms, 400 * ms);
    wait_twice(150 * ms);
    serve(100, {}, false);
    EXPECT_THAT(of_kind("slow-request"), IsEmpty());
}

TEST_F(SlowRequests, LoseAllThatTheThreadWaitedForInAGap) {
    serve(100, {}, false);
    add_request("held up", now_ - 50 * ms, 400 * ms);
    wait_twice(150 * ms);
    serve(100, {}, false);
    const auto findings = of_kind("slow-request");
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_NEAR(static_cast<double>(findings[0].lost_ns), 300e6, 1e6);
    EXPECT_THAT(findings[0].summary, HasSubstr("300 ms of it in stalls of one thread, the longest 150 ms"));
}

TEST_F(SlowRequests, OfAProcessThatIsNotTheirsStallNothing) {
    add_process({300, 7}, "other");
    serve(200, {50, 100, 150}, true, {300, 7});
    EXPECT_THAT(of_kind("slow-request"), IsEmpty());
}

TEST_F(SlowRequests, AreServedByWhoDescendsFromWhoTells) {
    Process engine;
    engine.key = {300, 7};
    engine.comm = "engine";
    engine.parent_pid = python.pid;
    snapshot_.add(engine);
    serve(200, {50}, true, engine.key);
    EXPECT_THAT(of_kind("slow-request"), SizeIs(1));
}

TEST_F(SlowRequests, AreServedByADescendantThoughWhoStartedItHasEndedSince) {
    Process core, engine;
    core.key = {250, 6};
    core.parent_pid = python.pid;
    engine.key = {300, 7};
    engine.parent_pid = core.key.pid;
    snapshot_.add(engine);
    serve(200, {50}, true, engine.key);
    core.exited_ns = now_;
    snapshot_.add(core);
    now_ += second;
    EXPECT_THAT(of_kind("slow-request"), SizeIs(1));
}

TEST_F(SlowRequests, HaveTheEndOfTheirLastCompletion) {
    serve(200, {50}, true);
    for (const SpanRow& span : spans_) {
        if (span.id != "r60") continue;
        SpanRow other = span;
        other.end_ns += 5 * ms;
        snapshot_.add(other);
    }
    const auto findings = of_kind("slow-request");
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_THAT(findings[0].summary, HasSubstr("1 of 200 requests"));
    EXPECT_EQ(findings[0].owning_process(), python);
}

TEST_F(SlowRequests, TooFewToKnowWhatIsUsualAreNone) {
    serve(15, {5}, true);
    EXPECT_THAT(of_kind("slow-request"), IsEmpty());
}

TEST_F(SlowRequests, AreNamedInTheLiveWindowToo) {
    serve(200, {50, 100, 150}, true);
    LiveWindow window("boot-0", {.since_ns = 1});
    window.add(snapshot_.events());
    window.add_spans(spans_);
    const auto live = pass_over(window);
    ASSERT_THAT(live, SizeIs(1));
    const auto stored = of_kind("slow-request");
    ASSERT_THAT(stored, SizeIs(1));
    EXPECT_EQ(live[0].id, stored[0].id);
    EXPECT_EQ(live[0].lost_ns, stored[0].lost_ns);
    EXPECT_EQ(live[0].culprits.at(0).name, stored[0].culprits.at(0).name);
}

// They are told of when they have ended, and the calls that held them up are known long before.
TEST_F(SlowRequests, AreNewInTheLiveWindowWhenTheyAreToldOf) {
    serve(200, {50, 100, 150}, true);
    LiveWindow window("boot-0", {.since_ns = 1});
    window.add(snapshot_.events());
    window.add_spans({spans_.begin(), spans_.begin() + 120});
    const auto pass = [&] { return pass_over(window); };
    EXPECT_TRUE(window.has_new());
    const auto first = pass();
    ASSERT_THAT(first, SizeIs(1));
    EXPECT_EQ(first[0].newly_lost_ns, first[0].lost_ns);
    EXPECT_FALSE(window.has_new());
    EXPECT_EQ(pass().at(0).newly_lost_ns, 0u);
    window.add_spans({spans_.begin() + 120, spans_.end()});
    EXPECT_TRUE(window.has_new());
    const auto last = pass();
    ASSERT_THAT(last, SizeIs(1));
    EXPECT_GT(last[0].lost_ns, first[0].lost_ns);
    EXPECT_EQ(last[0].newly_lost_ns, last[0].lost_ns - first[0].lost_ns);
}

// A batch of calls may come after the request that they were of.
TEST_F(SlowRequests, AreNewInTheLiveWindowOnceWhatHeldThemUpIsKnown) {
    serve(200, {50, 100, 150}, true);
    LiveWindow window("boot-0", {.since_ns = 1});
    window.add_spans(spans_);
    const auto pass = [&] { return pass_over(window); };
    EXPECT_THAT(pass(), IsEmpty());
    window.add(snapshot_.events());
    const auto found = pass();
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].newly_lost_ns, found[0].lost_ns);
    EXPECT_EQ(pass().at(0).newly_lost_ns, 0u);
}

}  // namespace
}  // namespace ingero::test
