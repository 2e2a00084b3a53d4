#include "tests/unit/explain_fixture.h"

namespace ingero {
namespace {

TEST(Explain, AHealthyJitteryWorkloadHasNoFinding) {
    Workload work;
    for (int step = 0; step < 3'000; ++step) healthy_step(work);
    const ExplainAnswer answer = work.explain();
    EXPECT_TRUE(answer.healthy) << answer.summary;
    EXPECT_TRUE(answer.findings.empty());
    EXPECT_EQ(answer.calls, 36'000u);
    EXPECT_GT(answer.excess_ns, answer.explained_ns);
    EXPECT_THAT(answer.summary, HasSubstr("nothing slow found: 36,000 calls together took "));
    EXPECT_EQ(answer.slow_calls.size(), 10u);
}

TEST(Explain, AnEmptyWindowSaysThatNothingWasRecorded) {
    Workload work;
    work.now = second;
    const ExplainAnswer answer = work.explain();
    EXPECT_EQ(answer.calls, 0u);
    EXPECT_THAT(answer.summary, HasSubstr("no CUDA call was recorded"));
}

TEST(Explain, CallsThatFailOrTakeMuchLongerAreNotSaidToBeHealthy) {
    Workload failing;
    for (int step = 0; step < 300; ++step) healthy_step(failing);
    const size_t good = failing.snapshot.events().size();
    for (size_t i = 0; i < good / 4; ++i) failing.call(op::cudaMalloc, 10'000).return_code = 1;
    const ExplainAnswer failed = failing.explain();
    EXPECT_FALSE(failed.healthy);
    EXPECT_THAT(failed.summary, testing::StartsWith("calls failed: "));
    EXPECT_THAT(failed.summary, HasSubstr(" failed: 'ingeroctl stats' counts the errors"));

    Workload polling;
    for (int step = 0; step < 300; ++step) healthy_step(polling);
    for (size_t i = 0; i < good / 4; ++i) polling.call(op::cudaMalloc, 1'000).return_code = 600;
    EXPECT_TRUE(polling.explain().healthy) << "what is not ready yet has not failed";
}

/// Of a thousand calls of 1 ms in 10 s. Every tenth stays on the CPU for `longer_ns` more, and the last ones fail.
ExplainAnswer explained_calls(uint64_t longer_ns, int failing = 0) {
    Workload work;
    for (int step = 0; step < 1'000; ++step) {
        Event& event = work.call(device_malloc, step % 10 == 9 ? ms + longer_ns : ms);
        event.args[0] = 1 << 16;
        if (step >= 1'000 - failing) event.return_code = 1;
    }
    work.now = 10 * second;
    return work.explain();
}

TEST(Explain, CallsThatTookAFifthOfTheTimeLongerAndNothingSaysWhyHaveNoCauseFound) {
    const ExplainAnswer answer = explained_calls(20 * ms);
    EXPECT_TRUE(answer.findings.empty());
    EXPECT_EQ(answer.calls, 1'000u);
    EXPECT_EQ(answer.excess_ns, 2 * second);
    EXPECT_EQ(answer.explained_ns, 0u);
    EXPECT_EQ(answer.summary,
              "no cause found: 1,000 calls together took 2 s longer than usual, mostly unexplained (2 s)");
    EXPECT_FALSE(answer.healthy);
}

TEST(Explain, AFindingOfLowSeverityDoesNotHideThatMostOfTheTimeHasNoCause) {
    Workload work;
    for (int step = 0; step < 1'000; ++step) {
        Event& event = work.call(device_malloc, step % 10 == 9 ? 21 * ms : ms);
        event.args[0] = 1 << 16;
        if (step == 999) work.block(event, 15 * ms, BlockedReason::futex);
    }
    work.now = 10 * second;
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u);
    ASSERT_EQ(answer.findings[0].severity, Severity::low);
    EXPECT_THAT(answer.summary, testing::StartsWith(answer.findings[0].summary));
    EXPECT_THAT(answer.summary, HasSubstr("; no cause found for most of the 2.02 s that calls took longer than usual, "
                                          "mostly unexplained (2 s)"));
    EXPECT_FALSE(answer.healthy);
}

TEST(Explain, WhatTookMuchLongerForAReasonThatIsNobodysFaultIsSlowAndSaysWhich) {
    Workload work;
    for (int step = 0; step < 1'000; ++step) {
        Event& event = work.call(device_malloc, step % 10 == 9 ? 21 * ms : ms);
        event.args[0] = 1 << 16;
        if (step % 10 != 9) continue;
        event.runnable_ns = event.preempted_ns = event.preemptor_ns = 20 * ms;
        event.preemptor_tgid = 2;
        event.preemptor_comm = to_comm("migration/0");
    }
    work.now = 10 * second;
    const ExplainAnswer answer = work.explain();
    EXPECT_TRUE(answer.findings.empty());
    EXPECT_THAT(answer.summary, testing::StartsWith("slow: 1,000 calls together took 2 s longer than usual, mostly "));
    EXPECT_THAT(answer.summary, HasSubstr(", mostly kernel or ingerod work (2 s)"));
    EXPECT_FALSE(answer.healthy);
}

TEST(Explain, WhyAProcessWasSlowIsNotWhatAnotherOneWaitedFor) {
    Workload work;
    for (int step = 0; step < 1'000; ++step) {
        Event& sleeping = work.call(async_copy, ms);
        if (step % 10 == 9) work.block(sleeping, 50 * ms, BlockedReason::timer);
        work.now += 30 * ms;
    }
    for (int step = 0; step < 1'000; ++step) {
        Event& event = work.call(device_malloc, step % 10 == 9 ? 31 * ms : ms);
        event.args[0] = 1 << 16;
        event.tgid = event.tid = python + 1;
    }
    Process late;
    late.key = {python + 1, work.snapshot.events().back().process_start_ns};
    late.first_seen_ns = work.now - 10 * second;
    work.snapshot.add(late);
    const ExplainAnswer answer = work.explain();
    EXPECT_THAT(answer.summary,
                testing::StartsWith("no cause found: 2,000 calls together took 8 s longer than usual, of it "
                                    "unexplained (3 s)"))
        << "the sleeps of 5 s are less than a fifth of their program's time";
}

TEST(Explain, CallsThatTookLessThanAFifthOfTheTimeLongerAreNotSlow) {
    const ExplainAnswer answer = explained_calls(19'999 * us);
    EXPECT_TRUE(answer.findings.empty());
    EXPECT_EQ(answer.excess_ns, 2 * second - 100 * us);
    EXPECT_EQ(answer.summary,
              "nothing slow found: 1,000 calls together took 2 s longer than usual, mostly unexplained (2 s)");
    EXPECT_TRUE(answer.healthy);
}

TEST(Explain, AFifthOfTheTimeIsThatOfOneProcessAndNotOfAllTogether) {
    const auto explained = [](uint64_t first_longer_ns, uint64_t second_longer_ns) {
        Workload work;
        for (int step = 0; step < 2'000; ++step) {
            const bool is_first = step % 2 == 0;
            const uint64_t longer_ns = step % 20 < 18 ? 0 : is_first ? first_longer_ns : second_longer_ns;
            Event& event = work.call(device_malloc, ms + longer_ns);
            event.args[0] = 1 << 16;
            if (!is_first) event.tgid = event.tid = python + 1;
        }
        work.now = 10 * second;
        return work.explain();
    };
    const ExplainAnswer two = explained(15 * ms, 15 * ms);
    EXPECT_EQ(two.excess_ns, 3 * second);
    EXPECT_THAT(two.summary, testing::StartsWith("nothing slow found: 2,000 calls together took 3 s longer than "));
    const ExplainAnswer one = explained(10 * ms, 20 * ms);
    EXPECT_EQ(one.excess_ns, 3 * second);
    EXPECT_THAT(one.summary, testing::StartsWith("no cause found: 2,000 calls together took 3 s longer than usual"));
}

TEST(Explain, RequestsThatAreTooManyToCompareAreCounted) {
    Workload work;
    healthy_step(work);
    SpanRow span;
    span.id = "r";
    span.process = {python, 5};
    for (uint64_t i = 0; i < 262'144 + 2; ++i) {
        span.start_ns = 1 + i * us;
        span.end_ns = span.start_ns + us;
        work.snapshot.add(span);
    }
    work.now = second;
    EXPECT_THAT(work.explain().summary, HasSubstr("; the first 2 requests and steps of the window were not compared"));
}

TEST(Explain, WhereATenthOfTheCallsFailThatIsSaid) {
    const std::string failed = "; 100 of the 1,000 calls failed: 'ingeroctl stats' counts the errors";
    const ExplainAnswer failing = explained_calls(0, 100);
    EXPECT_EQ(failing.summary, "calls failed: 1,000 calls together took 0 ns longer than usual" + failed);
    EXPECT_FALSE(failing.healthy);
    const ExplainAnswer fewer = explained_calls(0, 99);
    EXPECT_EQ(fewer.summary, "nothing slow found: 1,000 calls together took 0 ns longer than usual");
    EXPECT_TRUE(fewer.healthy);
    const ExplainAnswer slow = explained_calls(20 * ms, 100);
    EXPECT_EQ(slow.summary,
              "no cause found: 1,000 calls together took 2 s longer than usual, mostly unexplained (2 s)" + failed);
    EXPECT_FALSE(slow.healthy);
}

TEST(Explain, AProcessWithoutCallsIsDistinguishedFromOneThatWasNeverTraced) {
    Workload work;
    for (int step = 0; step < 100; ++step) healthy_step(work);
    const auto summary_of = [&](uint32_t pid, std::optional<uint32_t> uid = {}) {
        return work.explain({.window = {}, .uid = uid, .pid = pid}).summary;
    };
    EXPECT_THAT(summary_of(hog),
                HasSubstr("nothing to explain: no traced process " + std::to_string(hog) + " that you may see"));
    Process idle;
    idle.key = {4'000, 7};
    idle.uid = 1'000;
    work.snapshot.add(idle);
    EXPECT_EQ(summary_of(4'000), "nothing to explain: no CUDA call of process 4000 was recorded in the window");
    EXPECT_THAT(summary_of(4'000, 1'001), HasSubstr("no traced process 4000")) << "of others nothing is said";
}

TEST(Explain, AHogThatPreemptsAllTheTimeIsNamed) {
    Workload work;
    contended_syncs(work);
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u) << answer.summary;
    const Finding& finding = answer.findings[0];
    EXPECT_EQ(finding.kind, "cpu-contention");
    EXPECT_EQ(finding.verdict, Verdict::partial) << "who ran is known, and not what it cost";
    EXPECT_GE(finding.explained_fraction, 0.8);
    EXPECT_LE(finding.explained_fraction, 1.0);
    ASSERT_FALSE(finding.culprits.empty());
    EXPECT_EQ(finding.culprits[0].name, "stress-hog");
    EXPECT_EQ(finding.culprits[0].pid, hog);
    EXPECT_NEAR(static_cast<double>(finding.waited_ns), 4.0 * second, 0.3 * second);
    // How long a cycle would have taken is not known: from what is left of most to what the shortest took.
    EXPECT_LT(finding.lost_low_ns, 1 * second);
    EXPECT_GT(finding.lost_low_ns, 0.2 * second);
    EXPECT_GT(finding.lost_high_ns, 4 * second);
    EXPECT_LE(finding.lost_high_ns, 5 * second);
    EXPECT_EQ(finding.severity, Severity::medium) << "by the least that was lost";
    EXPECT_EQ(finding.pid, python);
    EXPECT_EQ(finding.comm, "python");
    EXPECT_EQ(finding.evidence.size(), 20u);
    EXPECT_EQ(finding.evidence[0], finding.worst.event.sequence);
    EXPECT_THAT(finding.summary, HasSubstr("stress-hog had the CPU"));
    EXPECT_THAT(finding.summary, HasSubstr("cudaStreamSync in python (pid 123)"));
    EXPECT_THAT(finding.fix, HasSubstr("CPU 3"));
    EXPECT_FALSE(finding.confirm.empty());
    EXPECT_FALSE(answer.healthy);
    EXPECT_THAT(answer.summary, HasSubstr("stress-hog"));
}

TEST(Explain, AHogOnHalfTheCallsIsChargedNoMoreThanTheyAreLongerThanTheOthers) {
    Workload work;
    uint64_t lost = 0;
    for (int step = 0; step < 1'000; ++step) {
        // The device takes 8 ms. A preempted call spins less and is only 2 ms longer than it had to be.
        if (step % 2) {
            work.call(stream_sync, 8 * ms);
        } else {
            work.preempt(work.call(stream_sync, 5 * ms), 5 * ms);
            lost += 2 * ms;
        }
    }
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u) << answer.summary;
    const Finding& finding = answer.findings[0];
    EXPECT_EQ(finding.kind, "cpu-contention");
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), static_cast<double>(lost), 0.01 * static_cast<double>(lost));
    EXPECT_EQ(finding.culprits[0].name, "stress-hog");
    EXPECT_EQ(finding.worst.expected_ns, 8 * ms);
}

TEST(Explain, PreemptionHiddenByTheDeviceCostsNothingWhichIsSaid) {
    Workload work;
    for (int step = 0; step < 1'000; ++step) {
        Event& sync = work.call(stream_sync, step % 2 ? 8 * ms : 4 * ms);
        if (step % 2 == 0) work.preempt(sync, 4 * ms);
    }
    const ExplainAnswer answer = work.explain();
    EXPECT_EQ(answer.excess_ns, 0u);
    ASSERT_EQ(answer.findings.size(), 1u) << answer.summary;
    const Finding& finding = answer.findings[0];
    EXPECT_EQ(finding.waited_ns, 2'000 * ms);
    EXPECT_EQ(finding.lost_ns, 0u);
    EXPECT_EQ(finding.lost_high_ns, 2'000 * ms) << "where in the calls it waited is not recorded";
    EXPECT_EQ(finding.severity, Severity::low);
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_EQ(finding.worst.excess_ns, 0u);
    EXPECT_EQ(finding.worst.expected_ns, 8 * ms);
    EXPECT_NE(finding.summary.find("; that cost the program at most 2 s"), std::string::npos) << finding.summary;
}

TEST(Explain, ShortLaunchesHitByTimeSlicesAreFound) {
    Workload work;
    for (int step = 0; step < 2'000; ++step) {
        Event& event = work.call(launch, work.jitter(6 * us));
        event.args[0] = 0x1000 + step % 5;
        if (step % 20 == 7) work.preempt(event, 4 * ms);
        work.now += 1 * ms;
    }
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u) << answer.summary;
    EXPECT_EQ(answer.findings[0].kind, "cpu-contention");
    EXPECT_EQ(answer.findings[0].culprits[0].name, "stress-hog");
    EXPECT_GE(answer.findings[0].explained_fraction, 0.95);
    EXPECT_NEAR(static_cast<double>(answer.findings[0].lost_ns), 400.0 * ms, 4.0 * ms);
}

TEST(Explain, ASlowerDeviceIsNeverAFinding) {
    Workload work;
    for (int step = 0; step < 1'000; ++step) {
        Event& spinning = work.call(stream_sync, work.jitter(step < 600 ? 2 * ms : 20 * ms));
        // Enough to be a finding by itself, were these calls slow for it.
        if (step >= 600) work.preempt(spinning, work.jitter(300 * us));
        if (step % 10 == 0) work.preempt(spinning, work.jitter(100 * us));
        // A blocking copy on another stream sleeps in the driver while the device works.
        Event& blocking = work.call(copy, 10 * us);
        blocking.args[0] = 4'096;
        work.block(blocking, step < 600 ? 1 * ms : 15 * ms, step % 2 ? BlockedReason::ioctl : BlockedReason::poll);
    }
    const ExplainAnswer answer = work.explain();
    EXPECT_TRUE(answer.healthy) << answer.summary;
    EXPECT_THAT(answer.summary, testing::StartsWith("nothing slow on the host: "));
    EXPECT_GE(rejected_ns(answer.rejected, "device wait"), 400 * 17 * ms);
    EXPECT_GE(rejected_ns(answer.rejected, "waiting in the driver"), 200 * 13 * ms);
    EXPECT_EQ(answer.slow_calls[0].cause, "device wait");
    EXPECT_EQ(answer.slow_calls[0].split.on_cpu_ns, 0u);
}

TEST(Explain, ABlockingSynchronisationThatSleepsOnAFutexLongerIsNoLockWait) {
    Workload work;
    for (int step = 0; step < 500; ++step) {
        Event& sync = work.call(stream_sync, 20 * us);
        work.block(sync, work.jitter(step < 300 ? 2 * ms : 12 * ms), BlockedReason::futex);
        sync.waker_kind = WakerKind::task;
        sync.waker_tgid = python;
        sync.waker_comm = to_comm("cuda-EvtHandlr");
    }
    EXPECT_TRUE(work.explain().healthy);
}

TEST(Explain, AFullLaunchQueueIsDeviceWaitAndNoWork) {
    Workload work;
    for (int step = 0; step < 2'000; ++step) work.call(launch, step < 1'200 ? 5 * us : 2 * ms).args[0] = 0x1000;
    ExplainAnswer answer = work.explain();
    EXPECT_TRUE(answer.healthy) << answer.summary;
    EXPECT_GT(rejected_ns(answer.rejected, "device wait"), 799 * ms);
    EXPECT_EQ(rejected_ns(answer.rejected, "unexplained"), 0u);
    ASSERT_FALSE(answer.slow_calls.empty());
    EXPECT_GT(answer.slow_calls[0].split.device_wait_ns, 1 * ms);

    Workload synchronised;
    for (int step = 0; step < 2'000; ++step) {
        synchronised.call(launch, step < 1'200 ? 5 * us : 2 * ms).args[0] = 0x1000;
        if (step % 100 == 0) synchronised.call(stream_sync, 10 * us);
    }
    answer = synchronised.explain();
    EXPECT_EQ(rejected_ns(answer.rejected, "device wait"), 0u);
    EXPECT_GT(rejected_ns(answer.rejected, "unexplained"), 799 * ms);
}

TEST(Explain, WaitingForTheDiskIsItsOwnIo) {
    for (const uint64_t every : {1, 10}) {
        Workload work;
        for (uint64_t step = 0; step < 500; ++step) {
            Event& event = work.call(copy, work.jitter(200 * us));
            event.args[0] = 1 << 20;
            if (step % every == 0) work.block(event, work.jitter(8 * ms), BlockedReason::disk);
            work.now += ms;
        }
        const ExplainAnswer answer = work.explain();
        ASSERT_EQ(answer.findings.size(), 1u) << answer.summary << " every " << every;
        EXPECT_EQ(answer.findings[0].kind, "own-io-wait");
        EXPECT_EQ(answer.findings[0].verdict, Verdict::proven);
        EXPECT_EQ(answer.findings[0].culprits[0].name, "disk");
        EXPECT_EQ(answer.findings[0].culprits[0].pid, 0u);
        EXPECT_NEAR(static_cast<double>(answer.findings[0].lost_ns), 4.0 * second / static_cast<double>(every),
                    0.4 * second / static_cast<double>(every));
        EXPECT_THAT(answer.findings[0].summary, HasSubstr("waiting for the disk"));
    }
}

TEST(Explain, WaitingForMemoryAndForNetworkFilesAreToldApart) {
    Workload work;
    for (int step = 0; step < 600; ++step) {
        Event& event = work.call(device_malloc, work.jitter(50 * us));
        event.args[0] = 1 << 20;
        if (step % 10 == 3) work.block(event, 9 * ms, BlockedReason::page_fault);
        if (step % 10 == 6) work.block(event, 4 * ms, BlockedReason::network_fs);
    }
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 2u) << answer.summary;
    EXPECT_EQ(answer.findings[0].kind, "memory-reclaim");
    EXPECT_EQ(answer.findings[1].kind, "own-io-wait");
    EXPECT_EQ(answer.findings[1].culprits[0].name, "network_fs");
    EXPECT_NE(answer.findings[0].id, answer.findings[1].id);
    EXPECT_EQ(answer.findings[0].verdict, Verdict::proven);
    EXPECT_EQ(answer.findings[1].verdict, Verdict::proven);
}

TEST(Explain, ALockWaitNamesWhoLetGoOfTheLock) {
    Workload work;
    for (int step = 0; step < 500; ++step) {
        Event& event = work.call(device_malloc, work.jitter(60 * us));
        event.args[0] = 1 << 16;
        if (step % 4) continue;
        work.block(event, work.jitter(3 * ms), BlockedReason::futex);
        event.waker_kind = WakerKind::task;
        event.waker_tgid = 900;
        event.waker_comm = to_comm("loader");
    }
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u) << answer.summary;
    EXPECT_EQ(answer.findings[0].kind, "lock-wait");
    EXPECT_EQ(answer.findings[0].culprits[0].name, "loader");
    EXPECT_EQ(answer.findings[0].culprits[0].pid, 900u);
    EXPECT_GE(answer.findings[0].explained_fraction, 0.8);
}

TEST(Explain, SleepsThatAccuseNobodyAreListedOnly) {
    for (const BlockedReason reason :
         {BlockedReason::socket, BlockedReason::timer, BlockedReason::child, BlockedReason::pipe, BlockedReason::poll,
          BlockedReason::other, BlockedReason::ioctl}) {
        Workload work;
        for (int step = 0; step < 400; ++step) {
            Event& event = work.call(async_copy, work.jitter(20 * us));
            if (step % 8 == 0) work.block(event, 5 * ms, reason);
        }
        const ExplainAnswer answer = work.explain();
        EXPECT_TRUE(answer.findings.empty()) << to_string(reason);
        EXPECT_THAT(answer.summary, testing::StartsWith("slow: ")) << to_string(reason);
        EXPECT_FALSE(answer.healthy) << to_string(reason);
        ASSERT_FALSE(answer.rejected.empty());
        EXPECT_GE(answer.rejected[0].ns, 48 * 5 * ms) << to_string(reason);
        EXPECT_NE(answer.slow_calls[0].cause, "unexplained");
    }
}

TEST(Explain, ManyTinyPreemptionsBelowTheFloorsAreNoFinding) {
    Workload work;
    for (int step = 0; step < 20'000; ++step) {
        Event& event = work.call(launch, work.jitter(6 * us));
        event.args[0] = 0x1000;
        if (step % 2) work.preempt(event, 5 * us);
        work.now += ms;
    }
    const ExplainAnswer answer = work.explain();
    EXPECT_TRUE(answer.healthy) << answer.summary;
    EXPECT_GT(rejected_ns(answer.rejected, "cpu-contention"), 20 * ms);
}

TEST(Explain, TheSameTinyPreemptionsAreAFindingWhereTheyAddUp) {
    Workload work;
    for (int step = 0; step < 20'000; ++step) {
        Event& event = work.call(launch, work.jitter(6 * us));
        event.args[0] = 0x1000;
        if (step % 2) work.preempt(event, 5 * us);
    }
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u);
    EXPECT_EQ(answer.findings[0].kind, "cpu-contention");
}

/// Synchronisations that spin 3 ms and, all but the first twenty, are off the CPU for 18 ms, in which as many hogs of a
/// process each have it for the same time. The call names one of them: the latest of 16 slices are known, and of equals
/// the first is kept.
void share_the_cpu(Workload& work, uint32_t hogs, bool names_one = true, bool has_waits = false) {
    for (int step = 0; step < 20; ++step) work.call(stream_sync, work.jitter(3 * ms, 0.1));
    for (uint32_t step = 0; step < 400; ++step) {
        Event& sync = work.call(stream_sync, work.jitter(3 * ms, 0.1));
        work.preempt(sync, 18 * ms, "hog", hog + step % hogs);
        sync.preemptor_ns = 18 * ms / hogs;
        if (!names_one) sync.preemptor_ns = sync.preemptor_tgid = 0;
        const Event call = sync;
        for (uint32_t i = 0; has_waits && i < hogs; ++i) {
            Event wait = call;
            wait.sequence = 0;
            wait.op = op_wait;
            wait.depth = 1;
            wait.start_ns += 100 * us + i * 18 * ms / hogs;
            wait.duration_ns = wait.runnable_ns = wait.preempted_ns = wait.preemptor_ns = 18 * ms / hogs;
            wait.preemptor_tgid = hog + i;
            wait.preemptor_comm = to_comm("hog-" + std::to_string(i));
            work.snapshot.add(wait);
        }
    }
}

TEST(Explain, HogsThatShareACpuAreContentionHoweverManyThereAre) {
    for (const uint32_t hogs : {2u, 7u, 11u}) {
        Workload work;
        share_the_cpu(work, hogs);
        const ExplainAnswer answer = work.explain();
        ASSERT_EQ(answer.findings.size(), 1u) << hogs << ": " << answer.summary;
        const Finding& finding = answer.findings[0];
        EXPECT_EQ(finding.kind, "cpu-contention");
        EXPECT_EQ(finding.verdict, Verdict::proven);
        EXPECT_NEAR(static_cast<double>(finding.waited_ns), 400.0 * 18 * ms, 400.0 * ms);
        EXPECT_EQ(rejected_ns(answer.rejected, "wake-up"), 0u);
        uint64_t named_ns = 0;
        for (const Culprit& culprit : finding.culprits) {
            EXPECT_THAT(culprit.name, testing::AnyOf("hog", "other tasks"));
            if (culprit.name == "hog") named_ns += culprit.ns;
        }
        EXPECT_EQ(finding.culprits.back().name, "other tasks");
        const double seen_ns = 400.0 * 18 * ms / hogs;
        EXPECT_NEAR(static_cast<double>(named_ns), seen_ns, 0.05 * seen_ns) << "what each was seen to take";
        EXPECT_NEAR(static_cast<double>(finding.culprits.back().ns), static_cast<double>(finding.waited_ns) - seen_ns,
                    0.05 * seen_ns);
        EXPECT_THAT(finding.summary, HasSubstr("hog and others had the CPU"));
    }
}

TEST(Explain, WhoeverRanWhereACpuWasLostWasAnotherTask) {
    Workload work;
    share_the_cpu(work, 11, false);
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u) << answer.summary;
    EXPECT_EQ(answer.findings[0].kind, "cpu-contention");
    ASSERT_EQ(answer.findings[0].culprits.size(), 1u);
    EXPECT_EQ(answer.findings[0].culprits[0].name, "other tasks");
    EXPECT_EQ(answer.findings[0].culprits[0].ns, answer.findings[0].waited_ns);
    EXPECT_THAT(answer.findings[0].summary, HasSubstr("other tasks had the CPU"));
    EXPECT_THAT(answer.findings[0].fix, HasSubstr("Raise CPUWeight= of the unit of python (pid 123)"));
}

TEST(Explain, EachWaitOfACallNamesWhoHadTheCpu) {
    Workload work;
    share_the_cpu(work, 6, true, true);
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u) << answer.summary;
    ASSERT_EQ(answer.findings[0].culprits.size(), 6u);
    for (const Culprit& culprit : answer.findings[0].culprits) {
        EXPECT_TRUE(culprit.name.starts_with("hog-")) << culprit.name;
        const double sixth = static_cast<double>(answer.findings[0].waited_ns) / 6;
        EXPECT_NEAR(static_cast<double>(culprit.ns), sixth, 0.01 * sixth);
    }
}

TEST(Explain, WhereTheCpuWasIdleNobodyHadIt) {
    Workload work;
    for (int step = 0; step < 400; ++step) {
        Event& sync = work.call(stream_sync, work.jitter(3 * ms, 0.1));
        work.preempt(sync, 4 * ms, "swapper/3", 0);
    }
    const ExplainAnswer answer = work.explain();
    EXPECT_TRUE(answer.findings.empty()) << answer.summary;
    EXPECT_GE(rejected_ns(answer.rejected, "wake-up"), 1'400 * ms);
}

TEST(Explain, TheDaemonAndTheKernelAreNoSuspects) {
    for (const std::string_view comm :
         {"ingerod", "ingero-worker", "ksoftirqd/3", "kworker/3:1H", "migration/3", "rcu_preempt", "kdamond.0"}) {
        Workload work;
        for (int step = 0; step < 1'000; ++step) {
            Event& sync = work.call(stream_sync, work.jitter(4 * ms, 0.1));
            work.preempt(sync, 4 * ms, comm, 10);
        }
        const ExplainAnswer answer = work.explain();
        EXPECT_TRUE(answer.findings.empty()) << comm;
        EXPECT_THAT(answer.summary, testing::StartsWith("slow: ")) << comm;
        const std::string_view stem = comm.substr(0, comm.find_first_of("/_."));
        EXPECT_GE(rejected_ns(answer.rejected, stem), 3'500 * ms) << comm;
    }
}

TEST(Explain, AnExcludedTaskDoesNotHideTheHogBesideIt) {
    Workload work;
    for (int step = 0; step < 1'000; ++step) {
        Event& sync = work.call(stream_sync, work.jitter(4 * ms, 0.1));
        step % 2 ? work.preempt(sync, 4 * ms) : work.preempt(sync, 4 * ms, "ingerod", 10);
    }
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u);
    ASSERT_EQ(answer.findings[0].culprits.size(), 1u);
    EXPECT_EQ(answer.findings[0].culprits[0].name, "stress-hog");
    EXPECT_GT(rejected_ns(answer.findings[0].rejected, "ingerod"), 1'500 * ms);
}

TEST(Explain, AFirstUseIsNotBlamedOnTheScheduler) {
    Workload work;
    for (uint64_t kernel = 0; kernel < 40; ++kernel) {
        // Loading a kernel runs 20 ms, reads its file, and is off the CPU for 0.3 ms of it.
        Event& first = work.call(launch, 20 * ms);
        first.args[0] = 0x1000 + kernel;
        work.block(first, 2 * ms, BlockedReason::disk);
        work.preempt(first, 300 * us);
        for (int again = 0; again < 20; ++again) work.call(launch, work.jitter(6 * us)).args[0] = 0x1000 + kernel;
    }
    work.now += 10 * second;
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u) << answer.summary;
    EXPECT_EQ(answer.findings[0].kind, "cold-start");
    EXPECT_EQ(answer.findings[0].verdict, Verdict::proven);
    EXPECT_NEAR(static_cast<double>(answer.findings[0].lost_ns), 40.0 * 22 * ms, 1.0 * ms);
    EXPECT_EQ(rejected_ns(answer.rejected, "first use"), 0u) << "it is no hypothesis but the finding";
    EXPECT_NEAR(static_cast<double>(rejected_ns(answer.rejected, "cpu-contention")), 40.0 * 300 * us, 1.0 * ms);
    EXPECT_EQ(answer.slow_calls[0].cause, "first use");
    EXPECT_LT(answer.slow_calls[0].expected_ns, 10 * us);
}

TEST(Explain, AnotherUserSeesNothingOfIt) {
    Workload work;
    contended_syncs(work);
    Filter filter;
    filter.uid = 1'000;
    EXPECT_EQ(work.explain(filter).findings.size(), 1u);
    filter.uid = 1'001;
    const ExplainAnswer other = work.explain(filter);
    EXPECT_EQ(other.calls, 0u);
    EXPECT_TRUE(other.findings.empty());
    EXPECT_TRUE(other.slow_calls.empty());
    EXPECT_TRUE(other.rejected.empty());
    filter.uid.reset();
    filter.pid = python + 1;
    EXPECT_EQ(work.explain(filter).calls, 0u);
}

}  // namespace
}  // namespace ingero
