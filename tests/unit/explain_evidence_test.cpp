// What an explanation stands on: losses, uncertain splits, history, and who may see it.
#include "tests/unit/explain_fixture.h"

namespace ingero {
namespace {

TEST(Explain, NothingIsProvenWhereATenthWasLost) {
    Workload work;
    for (int step = 0; step < 50; ++step) work.call(stream_sync, work.jitter(4 * ms, 0.1));
    contended_syncs(work);
    EXPECT_EQ(work.explain().findings.at(0).verdict, Verdict::proven);
    LossRow row;
    row.from_ns = ms;
    row.to_ns = second;
    row.op = launch;
    row.lost_ring = 506;  // of 5,050 calls
    work.snapshot.add(row);
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u);
    EXPECT_EQ(answer.findings[0].verdict, Verdict::partial);
}

TEST(Explain, AWindowIsNotHealthyWhereATenthOfItsEvidenceIsMissing) {
    const auto explained = [](uint64_t off_ns, uint64_t lost) {
        Workload work;
        for (int i = 0; i < 1'000; ++i) work.call(launch, 5 * us);
        GapRow gap;
        gap.from_ns = second;
        gap.to_ns = second + off_ns;
        gap.reason = GapReason::turned_off;
        gap.subject = "probe set sync";
        if (off_ns != 0) work.snapshot.add(gap);
        LossRow row;
        row.from_ns = ms;
        row.to_ns = second;
        row.op = launch;
        row.lost_ring = lost;
        if (lost != 0) work.snapshot.add(row);
        return work.explain({work.snapshot.whole(), {}, {}});
    };
    EXPECT_TRUE(explained(0, 0).healthy);
    EXPECT_TRUE(explained(9 * second, 100).healthy) << "of 100 s and 1,000 calls";
    const ExplainAnswer off = explained(11 * second, 0), lost = explained(0, 101);
    EXPECT_FALSE(off.healthy);
    EXPECT_TRUE(off.findings.empty());
    EXPECT_EQ(off.summary.rfind("insufficient evidence: probe set sync was turned off for 11", 0), 0u) << off.summary;
    EXPECT_FALSE(lost.healthy);
    EXPECT_EQ(lost.summary.rfind("insufficient evidence: 101 calls were lost; ", 0), 0u) << lost.summary;
}

TEST(Explain, UncertainSplitsAreNoEvidence) {
    Workload work;
    contended_syncs(work);
    uint64_t uncertain = 0;
    for (Event& event : work.snapshot.events()) {
        if (event.op != stream_sync || work.random() % 3) continue;
        event.flags |= INGERO_CALL_SPLIT_UNCERTAIN;
        ++uncertain;
    }
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u);
    EXPECT_NEAR(static_cast<double>(answer.findings[0].waited_ns), (1'000.0 - static_cast<double>(uncertain)) * 4 * ms,
                0.1 * 4'000 * ms);
    EXPECT_THAT(answer.summary, HasSubstr(std::to_string(uncertain) +
                                          " calls have no cause assigned: their time split is an estimate"));
}

TEST(Explain, TooFewCallsAreInsufficientEvidenceAndOnlyWhereSomethingLookedSlow) {
    Workload work;
    for (int i = 0; i < 4; ++i) work.preempt(work.call(stream_sync, 2 * ms), i ? 20 * ms : 0);
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u);
    EXPECT_EQ(answer.findings[0].verdict, Verdict::insufficient_evidence);
    EXPECT_EQ(answer.findings[0].severity, Severity::low);
    EXPECT_EQ(answer.findings[0].explained_fraction, 0);

    Workload quiet;
    for (int i = 0; i < 4; ++i) quiet.call(stream_sync, 20 * ms * (1 + i));
    EXPECT_TRUE(quiet.explain().healthy);

    Workload starting;
    starting.block(starting.call(device_malloc, ms), 200 * ms, BlockedReason::disk);
    EXPECT_TRUE(starting.explain().healthy) << "a first call is unlike any other: no sign of anything";
}

TEST(Explain, CallsOfTheTenMinutesBeforeSayWhatIsUsual) {
    Workload work(3'000 * second);
    work.now = 1'000 * second;
    for (int step = 0; step < 50; ++step) work.call(stream_sync, 2 * ms);
    const uint64_t from = work.now;
    for (int step = 0; step < 5; ++step) work.preempt(work.call(stream_sync, 2 * ms), 20 * ms);
    Filter filter;
    filter.window = {MemorySnapshot::realtime_at_zero_ns + from, MemorySnapshot::realtime_at_zero_ns + work.now};
    const ExplainAnswer answer = work.explain(filter);
    ASSERT_EQ(answer.findings.size(), 1u);
    EXPECT_EQ(answer.findings[0].verdict, Verdict::proven);
    EXPECT_EQ(answer.calls, 5u);
    EXPECT_EQ(answer.findings[0].worst.expected_ns, 2 * ms);
    for (Event& event : work.snapshot.events()) {
        if (event.start_ns < from) event.start_ns -= 700 * second;
    }
    EXPECT_EQ(work.explain(filter).findings.at(0).verdict, Verdict::insufficient_evidence) << "older calls say nothing";
}

TEST(Explain, ManyPidsOfOneCommandAreOneCulprit) {
    Workload work;
    for (uint32_t step = 0; step < 1'000; ++step) {
        Event& sync = work.call(stream_sync, work.jitter(4 * ms, 0.1));
        if (step % 10 == 0) {
            work.preempt(sync, 4 * ms, "backup", 5);
        } else {
            work.preempt(sync, 4 * ms, "stress-hog", hog + step % 8);
        }
        sync.preemptor_ns /= 2;
    }
    const ExplainAnswer answer = work.explain();
    ASSERT_EQ(answer.findings.size(), 1u);
    const auto& culprits = answer.findings[0].culprits;
    ASSERT_EQ(culprits.size(), 3u);
    EXPECT_EQ(culprits[0].name, "stress-hog");
    EXPECT_EQ(culprits[0].pid, 0u);
    EXPECT_EQ(culprits[1].name, "backup");
    EXPECT_EQ(culprits[1].pid, 5u);
    EXPECT_EQ(culprits[2].name, "other tasks");
    const uint64_t sum = culprits[0].ns + culprits[1].ns + culprits[2].ns;
    EXPECT_EQ(sum, answer.findings[0].waited_ns) << "every nanosecond has one culprit";
}

TEST(Explain, TheIdIsTheSameForTheSameCauseOnly) {
    Workload one;
    contended_syncs(one);
    Workload same;
    contended_syncs(same);
    same.snapshot.add(LossRow{});
    EXPECT_EQ(one.explain().findings.at(0).id, same.explain().findings.at(0).id);
    EXPECT_EQ(one.explain().findings.at(0).id.size(), 16u);
    Workload other;
    contended_syncs(other);
    for (Event& event : other.snapshot.events()) event.process_start_ns = 6;
    EXPECT_NE(one.explain().findings.at(0).id, other.explain().findings.at(0).id);
}

TEST(Explain, NestedCallsAreNotCountedTwice) {
    Workload work;
    contended_syncs(work);
    const uint64_t lost = work.explain().findings.at(0).lost_ns;
    const std::vector<Event> outer = work.snapshot.events();
    for (Event event : outer) {
        event.sequence = 0;
        event.depth = 1;
        work.snapshot.add(event);
    }
    EXPECT_EQ(work.explain().findings.at(0).lost_ns, lost);
}

/// Another program's calls before the window, each on another thread, or by another process; then a hog in the window.
/// `known`: so many calls of the window's thread before all these, each as long as the device takes.
Finding hog_found_after(uint32_t calls, uint32_t threads, uint32_t processes, int known = 0) {
    Workload work(3'000 * second);
    work.now = 1'000 * second;
    for (int step = 0; step < known; ++step) work.call(stream_sync, 4 * ms);
    for (uint32_t number = 0; number < calls; ++number) {
        Event& sync = work.call(stream_sync, ms);
        sync.tid = 10'000 + number % threads;
        sync.tgid = 10'000 + number % processes;
    }
    Filter filter;
    filter.window.from_ns = MemorySnapshot::realtime_at_zero_ns + work.now;
    contended_syncs(work);
    filter.window.to_ns = MemorySnapshot::realtime_at_zero_ns + work.now + 1;
    const ExplainAnswer answer = work.explain(filter);
    EXPECT_EQ(answer.findings.size(), 1u) << answer.summary;
    return answer.findings.empty() ? Finding() : answer.findings[0];
}

void expect_same_loss(const Finding& finding, const Finding& expected) {
    EXPECT_EQ(finding.severity, expected.severity);
    EXPECT_EQ(finding.verdict, expected.verdict);
    EXPECT_EQ(finding.lost_low_ns, expected.lost_low_ns);
    EXPECT_EQ(finding.lost_ns, expected.lost_ns);
    EXPECT_EQ(finding.lost_high_ns, expected.lost_high_ns);
}

TEST(Explain, ThreadsThatCalledBeforeTheWindowLeaveRoomForThoseOfIt) {
    for (const uint32_t calls : {1'100u, 5'000u}) {
        SCOPED_TRACE(calls);
        const Finding alone = hog_found_after(calls, 1, 1);
        EXPECT_EQ(alone.severity, Severity::medium);
        EXPECT_GT(alone.lost_low_ns, 200 * ms);
        expect_same_loss(hog_found_after(calls, calls, 1), alone);
    }
    expect_same_loss(hog_found_after(1'100, 1'100, 1'100), hog_found_after(1'100, 1, 1));
}

TEST(Explain, AProcessThatStartsManyThreadsMakesNobodyElsesForgotten) {
    const Finding alone = hog_found_after(5'000, 1, 1, 20);
    EXPECT_EQ(alone.severity, Severity::high) << "how long a cycle takes is known from before the window";
    expect_same_loss(hog_found_after(5'000, 5'000, 1, 20), alone);
}

/// A thread that makes one kind of call beside a hog; `another_waits`: another one of its process, for the device
/// meanwhile.
Finding hog_found_beside(OpId op, bool another_waits) {
    Workload work;
    for (int step = 0; step < 2'000; ++step) {
        Event& event = work.call(op, work.jitter(6 * us));
        event.args[0] = 0x1000;
        if (step % 20 == 7) work.preempt(event, 4 * ms);
        if (another_waits && step % 10 == 9) work.call(stream_sync, work.jitter(2 * ms)).tid = python + 1;
    }
    const ExplainAnswer answer = work.explain();
    EXPECT_EQ(answer.findings.size(), 1u) << answer.summary;
    return answer.findings.empty() ? Finding() : answer.findings[0];
}

// Hundreds of launches that it made before may be under way meanwhile.
TEST(Explain, WhatAThreadLostThatLaunchesWhileAnotherOneWaitsIsNotKnown) {
    const Finding alone = hog_found_beside(launch, false), beside = hog_found_beside(launch, true);
    for (const Finding& finding : {alone, beside}) {
        EXPECT_EQ(finding.kind, "cpu-contention");
        EXPECT_NEAR(static_cast<double>(finding.waited_ns), 400.0 * ms, 4.0 * ms);
        EXPECT_NEAR(static_cast<double>(finding.lost_high_ns), 400.0 * ms, 4.0 * ms);
    }
    EXPECT_EQ(alone.lost_low_ns, alone.lost_ns);
    EXPECT_EQ(alone.severity, Severity::high);
    EXPECT_EQ(alone.verdict, Verdict::proven);
    EXPECT_EQ(beside.lost_low_ns, 0u);
    EXPECT_NEAR(static_cast<double>(beside.lost_ns), 200.0 * ms, 4.0 * ms);
    EXPECT_EQ(beside.severity, Severity::low);
    EXPECT_EQ(beside.verdict, Verdict::partial);
    // Allocating gives the device no work that could last meanwhile.
    const Finding allocating = hog_found_beside(device_malloc, true);
    EXPECT_EQ(allocating.lost_low_ns, allocating.lost_ns);
    EXPECT_EQ(allocating.severity, Severity::high);
}

TEST(Explain, KindsOfCallsOfBeforeTheWindowLeaveRoomForThoseOfIt) {
    const auto explained = [](uint64_t functions) {
        Workload work(3'000 * second);
        work.now = 1'000 * second;
        for (uint64_t number = 0; number < 9'000; ++number) {
            Event& other = work.call(launch, 5 * us);
            other.args[0] = 0x2000 + number % functions;
            other.tgid = other.tid = python + 1;
        }
        Filter filter;
        filter.window.from_ns = MemorySnapshot::realtime_at_zero_ns + work.now;
        contended_syncs(work);
        filter.window.to_ns = MemorySnapshot::realtime_at_zero_ns + work.now + 1;
        return work.explain(filter);
    };
    for (const uint64_t functions : {1u, 9'000u}) {
        const ExplainAnswer answer = explained(functions);
        ASSERT_EQ(answer.findings.size(), 1u) << answer.summary;
        EXPECT_EQ(answer.findings[0].severity, Severity::medium) << functions;
        EXPECT_EQ(answer.findings[0].verdict, Verdict::partial) << functions;
        EXPECT_NEAR(static_cast<double>(answer.findings[0].waited_ns), 4.0 * second, 0.3 * second) << functions;
    }
}

TEST(Explain, AFailedScanIsAnError) {
    Workload work;
    contended_syncs(work);
    work.snapshot.fail_scans({ErrorCode::corrupt, "block 7 is damaged", ""});
    EXPECT_FALSE(ingero::explain(work.snapshot, {work.snapshot.whole(), {}, {}}));
}

}  // namespace
}  // namespace ingero
