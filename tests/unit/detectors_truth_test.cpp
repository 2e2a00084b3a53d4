// What detectors must not call proven, or not find at all: what looks like a cause and is none, and what is not known.
#include <gmock/gmock.h>

#include "core/diagnosis/incidents/incidents.h"
#include "core/diagnosis/live/live_window.h"
#include "tests/unit/detectors_fixture.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class DeviceFault : public Detectors {
  protected:
    void sync(uint64_t stream, uint16_t device, const std::string& name = "cudaStreamSync") {
        Event& event = call(name);
        event.stream = stream;
        event.device = device;
    }
    void fail() { call("cudaStreamSync").return_code = 700; }
    Finding fault() {
        fail();
        return found("device-fault");
    }
    void expect_only(uint64_t function) {
        const Finding finding = fault();
        EXPECT_EQ(finding.verdict, Verdict::proven) << finding.summary;
        ASSERT_THAT(finding.culprits, SizeIs(1)) << finding.summary;
        EXPECT_EQ(finding.culprits[0].function, function);
    }
    void expect_doubt(size_t candidates) {
        const Finding finding = fault();
        EXPECT_EQ(finding.verdict, Verdict::partial) << finding.summary;
        EXPECT_THAT(finding.culprits, SizeIs(candidates)) << finding.summary;
    }
};

TEST_F(DeviceFault, ManyLaunchesOfOneFunctionDoNotHideAnEarlierOne) {
    launch(0x1000);
    for (int again = 0; again < 200; ++again) launch(0x2000);
    expect_doubt(2);
}

TEST_F(DeviceFault, WhatAnotherThreadEnqueuedWhileTheFailingCallWaitedIsASuspect) {
    launch(0x1000);
    Event& stored = call("cudaStreamSync", 100 * ms);
    stored.return_code = 700;
    const Event failing = stored;  // those that follow may move it
    now_ = failing.start_ns + 50 * ms;
    launch(0x2000).tid = 777;
    now_ = failing.end_ns() + ms;
    launch(0x3000).tid = 777;
    const Finding finding = found("device-fault");
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_THAT(finding.culprits, SizeIs(2));
}

TEST_F(DeviceFault, StreamsOfTwoDevicesAreTwoAlsoWhereTheyHaveOneNumber) {
    launch(0x1000, 0).device = 0;
    launch(0x2000, 0).device = 1;
    sync(0, 1);
    expect_only(0x1000);
}

TEST_F(DeviceFault, ADevicesSynchronisationSaysNothingOfAnother) {
    launch(0x1000, 7).device = 0;
    launch(0x2000, 8).device = 1;
    launch(0x3000, 9).device = 1;
    sync(0, 1, "cudaDeviceSync");
    expect_only(0x1000);
}

TEST_F(DeviceFault, ASynchronisationSaysNothingOfWhatWasLaunchedWhileItWaited) {
    launch(0x1000);
    const Event waiting = call("cudaStreamSync", 50 * ms);
    now_ = waiting.start_ns + ms;
    launch(0x2000).tid = 777;
    now_ = waiting.end_ns();
    expect_only(0x2000);
}

TEST_F(DeviceFault, ALaunchThatStandsForOthersLeavesADoubt) {
    launch(0x1000).weight = 8;
    expect_doubt(1);
}

TEST_F(DeviceFault, WhatAGraphLaunchedIsNotKnown) {
    launch(0x1000);
    call("cudaGraphLaunch");
    expect_doubt(1);
}

TEST_F(DeviceFault, AGraphThatIsDoneLeavesNoDoubt) {
    call("cudaGraphLaunch").device = 0;
    sync(0, 0);
    launch(0x1000).device = 0;
    expect_only(0x1000);
}

TEST_F(DeviceFault, ALaunchThatFailedIsNoSuspect) {
    launch(0x1000);
    launch(0x2000).return_code = 1;
    expect_only(0x1000);
}

TEST_F(DeviceFault, WithoutASynchronisationWhatIsOlderMayStillRun) {
    launch(0x1000);
    now_ += 20 * second;
    launch(0x2000);
    expect_doubt(1);
}

TEST_F(DeviceFault, ALostLaunchLeavesADoubt) {
    for (int again = 0; again < 100; ++again) launch(0x1000);
    LossRow lost;
    lost.from_ns = now_ - ms;
    lost.to_ns = now_;
    lost.op = op_of_name("cudaLaunchKernel").value();
    lost.lost_ring = 1;
    snapshot_.add(lost);
    expect_doubt(1);
}

TEST_F(DeviceFault, MoreStreamsThanAreKeptLeaveADoubt) {
    launch(0x1000, 1 << 20);
    for (uint64_t stream = 0; stream < 3'000; ++stream) sync(stream, INGERO_DEVICE_UNKNOWN);
    expect_doubt(1);
}

class Leak : public Detectors {
  protected:
    /// Every 50th allocation of its place is kept; `instead` says what is done beside it.
    template <class Instead>
    void steps(int count, Instead instead) {
        for (int step = 0; step < count; ++step) {
            const uint64_t kept = allocate(4 * mib, 5);
            launch(0x1000);
            if (step % 50 != 0)
                release(kept);
            else
                instead();
            now_ += ms;
        }
    }
};

TEST_F(Leak, ACacheThatWasFilledBeforeItWasLookedAtIsNone) {
    // Entries are replaced one by one: the old ones were allocated before what is looked at.
    std::vector<uint64_t> old;
    for (int entry = 0; entry < 100; ++entry) old.push_back(allocate(4 * mib, 5));
    now_ = 800 * second;
    steps(2'000, [&] {
        release(old.back());
        old.pop_back();
    });
    for (const Finding& finding : explain(799 * second)) ADD_FAILURE() << finding.summary;
}

TEST_F(Leak, OfAProcessThatBeganBeforeItIsNotProven) {
    now_ = 800 * second;
    steps(2'000, [] {});
    const Finding finding = found("gpu-leak", 799 * second);
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_THAT(finding.summary, HasSubstr("began before"));
}

TEST_F(Leak, AsManyLostFreesAsAllocationsThatAreKeptAreNone) {
    steps(2'000, [] {});
    LossRow lost;
    lost.from_ns = second;
    lost.to_ns = now_;
    lost.op = op_of_name("cudaFree").value();
    lost.lost_ring = 40;
    snapshot_.add(lost);
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Leak, AModelThatWasLoadedLayerByLayerIsNone) {
    for (int layer = 0; layer < 64; ++layer) {
        const uint64_t staging = allocate(64 * mib);
        allocate(64 * mib);
        call("cudaMemcpy", 2 * ms);
        release(staging);
        now_ += 20 * ms;
    }
    for (int step = 0; step < 2'000; ++step) {
        launch(0x1000);
        now_ += 100 * ms;
    }
    for (const Finding& finding : explain()) ADD_FAILURE() << finding.summary;
}

TEST_F(Leak, OfAProcessThatEndedIsToldUpToItsEnd) {
    steps(2'000, [] {});
    add_process(python, "python", now_);
    now_ += 100 * second;
    EXPECT_EQ(found("gpu-leak").verdict, Verdict::proven) << "the time after it counts for nothing";
}

class OutOfMemory : public Detectors {};

TEST_F(OutOfMemory, OfAProcessThatBeganBeforeTellsLeastAmountsAndProvesNothing) {
    now_ = 800 * second;
    fill_with_holes();
    fail_to_allocate(64 * mib);
    const Finding finding = found("gpu-oom", 799 * second);
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_THAT(finding.summary, AllOf(HasSubstr("which had at least 512 MiB allocated"), HasSubstr("began before"),
                                       Not(HasSubstr("peak")), Not(HasSubstr("fragmented"))));
}

TEST_F(OutOfMemory, ARestartOfTheDaemonIsAnEndOfWhatIsKnown) {
    fill_with_holes();
    snapshot_.add_session(500 * second, 1'000 * second);
    now_ = 600 * second;
    fail_to_allocate(64 * mib);
    EXPECT_EQ(found("gpu-oom", 550 * second).verdict, Verdict::partial);
}

TEST_F(OutOfMemory, WhatBeganAfterTheDaemonIsKnownWholeThoughItsCoverageBeganLater) {
    const ProcessKey early{200, 502 * second};
    for (const uint64_t settles_ns : {5 * second, 100 * second}) {
        MemorySnapshot snapshot(1'000 * second);
        snapshot.add_session(500 * second, 1'000 * second, settles_ns);
        snapshot_ = snapshot;
        now_ = 700 * second;
        allocate(512 * mib, 3, early);
        Event& failing = call("cudaMalloc", 100 * us, early);
        failing.args[0] = 64 * mib;
        failing.return_code = 2;
        failing.device = 0;
        const auto findings = explain(699 * second);
        ASSERT_THAT(findings, SizeIs(1));
        EXPECT_EQ(findings[0].verdict, settles_ns == 5 * second ? Verdict::proven : Verdict::partial)
            << "where it covers nothing for so long, calls were dropped";
    }
}

TEST_F(OutOfMemory, WhoHasEndedHoldsNothing) {
    allocate(1'024 * mib, 1, {900, 9});
    allocate(8 * mib, 2);
    add_process({900, 9}, "gone", now_);
    now_ += ms;
    fail_to_allocate(64 * mib);
    const Finding finding = found("gpu-oom");
    ASSERT_THAT(finding.culprits, SizeIs(1));
    EXPECT_EQ(finding.culprits[0].pid, python.pid);
}

TEST_F(OutOfMemory, AProcessWithoutANameIsStillSomebody) {
    add_process({900, 9}, "");
    allocate(1'024 * mib, 1, {900, 9});
    fail_to_allocate(64 * mib);
    EXPECT_EQ(found("gpu-oom").culprits.at(0).name, "1.00 GiB by another process");
}

TEST_F(OutOfMemory, WhereOthersAreLeftOutItSaysSo) {
    allocate(1'024 * mib, 1, {900, 9});
    fill_with_holes();
    fail_to_allocate(64 * mib);
    const Finding finding = found("gpu-oom", 0, python.pid);
    EXPECT_THAT(finding.summary,
                AllOf(HasSubstr("memory of other processes is not counted"), Not(HasSubstr("pieces"))));
    EXPECT_EQ(finding.verdict, Verdict::proven);
}

TEST_F(OutOfMemory, WhatWasFreeOnAnotherDeviceIsNoMemoryInPieces) {
    release(allocate(1'024 * mib, 3, python, 1));
    allocate(512 * mib, 3);
    fail_to_allocate(64 * mib);
    EXPECT_THAT(found("gpu-oom").summary, HasSubstr("which had 512 MiB allocated on device 0, its peak"));
}

TEST_F(OutOfMemory, MemoryThatAnotherProcessTookIsNotInPieces) {
    fill_with_holes();
    allocate(512 * mib, 1, {900, 9});
    fail_to_allocate(64 * mib);
    EXPECT_THAT(found("gpu-oom").summary, Not(HasSubstr("fragmented")));
}

TEST_F(OutOfMemory, AProcessOnAnotherDeviceOfTheSameNumberHoldsNothingHere) {
    add_process({900, 9}, "elsewhere", 0, "3,0");
    allocate(1'024 * mib, 1, {900, 9});
    fill_with_holes();
    fail_to_allocate(64 * mib);
    const Finding finding = found("gpu-oom");
    EXPECT_THAT(finding.summary, HasSubstr("fragmented"));
    EXPECT_THAT(finding.culprits, SizeIs(1));
}

TEST_F(OutOfMemory, AProcessOnTheSameDeviceByAnotherNumberIsNamed) {
    add_process({900, 9}, "neighbour", 0, "3,0");
    allocate(1'024 * mib, 1, {900, 9}, 1);
    fail_to_allocate(64 * mib);
    EXPECT_EQ(found("gpu-oom").culprits.at(0).name, "1.00 GiB by neighbour");
}

TEST_F(OutOfMemory, WhatAPoolHeldIsNoMemoryInPieces) {
    Event& pooled = call("cudaMallocAsync");
    pooled.args = {1'024 * mib, 0x1000, 0};
    pooled.device = 0;
    call("cudaFreeAsync").args[0] = 0x1000;
    fail_to_allocate(64 * mib);
    EXPECT_THAT(found("gpu-oom").summary, Not(HasSubstr("fragmented")));
}

// As PyTorch does: what it keeps it frees, and then asks again.
TEST_F(OutOfMemory, ThatWasGotOnTheNextTryIsOfLowSeverity) {
    const uint64_t kept = allocate(512 * mib, 3);
    for (int times = 0; times < 2; ++times) fail_to_allocate(64 * mib);
    EXPECT_EQ(found("gpu-oom").severity, Severity::high) << "it may get it yet";
    release(kept);
    allocate(64 * mib);
    Finding finding = found("gpu-oom");
    EXPECT_EQ(finding.severity, Severity::low);
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_THAT(finding.summary, AllOf(HasSubstr("cudaMalloc of 64.0 MiB failed"), HasSubstr("which had 512 MiB"),
                                       HasSubstr("; 1 more allocation failed; it then got the memory")));
    EXPECT_THAT(finding.fix, HasSubstr("The program went on"));
    // The one that was not got is the one to tell of.
    fail_to_allocate(128 * mib);
    fail_to_allocate(256 * mib);
    finding = found("gpu-oom");
    EXPECT_EQ(finding.severity, Severity::high);
    EXPECT_THAT(finding.summary, AllOf(HasSubstr("cudaMalloc of 128 MiB failed"), HasSubstr("which had 64.0 MiB"),
                                       HasSubstr("; 3 more allocations failed"), Not(HasSubstr("then got"))));
    EXPECT_THAT(finding.fix, Not(HasSubstr("The program went on")));
}

TEST_F(OutOfMemory, OfAThreadThatAsksForLessIsOfLowSeverityWhereItGetsHalfOfItSoon) {
    const auto severity_with = [&](uint64_t pause_ns, uint64_t got_bytes) {
        const uint64_t from_ns = now_;
        for (const uint64_t bytes : {1'000 * mib, 900 * mib, 810 * mib}) fail_to_allocate(bytes);
        now_ += pause_ns;
        allocate(got_bytes);
        const Finding finding = found("gpu-oom", from_ns);
        const bool is_low = finding.severity == Severity::low, is_half = got_bytes < 1'000 * mib;
        EXPECT_EQ(finding.summary.find("it then got the memory") != std::string::npos, is_low) << finding.summary;
        EXPECT_EQ(finding.summary.find("at least half of it") != std::string::npos, is_low && is_half);
        return finding.severity;
    };
    EXPECT_EQ(severity_with(0, 500 * mib), Severity::low);
    EXPECT_EQ(severity_with(0, 450 * mib), Severity::high) << "less than half of the first";
    EXPECT_EQ(severity_with(2 * second, 500 * mib), Severity::high) << "it is something else";
    EXPECT_EQ(severity_with(2 * second, 1'000 * mib), Severity::low);
    EXPECT_EQ(severity_with(60 * second, 1'000 * mib), Severity::high) << "for another request";
}

TEST_F(OutOfMemory, IsOfHighSeverityWhereAnotherThreadOrDeviceGotTheMemory) {
    fail_to_allocate(64 * mib);
    allocate(64 * mib, 0, python, 1);
    allocate(64 * mib);
    snapshot_.events().back().tid = 777;
    EXPECT_EQ(found("gpu-oom").severity, Severity::high);
    allocate(64 * mib);
    EXPECT_EQ(found("gpu-oom").severity, Severity::low);
}

TEST_F(OutOfMemory, OfMoreSizesThanAreKeptIsOfHighSeverity) {
    for (uint64_t size = 1; size <= 70; ++size) fail_to_allocate(size * mib);
    allocate(70 * mib);
    EXPECT_EQ(found("gpu-oom").severity, Severity::high);
}

class Recapture : public Detectors {
  protected:
    void capture() {
        call("cudaStreamBeginCapture").stream = 4;
        now_ += 100 * ms;
        call("cudaStreamEndCapture").stream = 4;
        call("cudaGraphInstantiate", 20 * ms);
    }
    void replay(int times) {
        for (int again = 0; again < times; ++again) {
            call("cudaGraphLaunch");
            now_ += 10 * ms;
        }
    }
};

TEST_F(Recapture, AGraphForEachOfFourShapesAsTheyFirstComeIsNone) {
    for (int shape = 0; shape < 4; ++shape) {
        capture();
        replay(10);
    }
    for (const Finding& finding : explain()) ADD_FAILURE() << finding.summary;
}

TEST_F(Recapture, ManyGraphsThatAreMadeAtTheStartAreNone) {
    for (int shape = 0; shape < 30; ++shape) {
        capture();
        replay(1);
    }
    replay(500);
    for (const Finding& finding : explain()) ADD_FAILURE() << finding.summary;
}

TEST_F(Recapture, AHabitIsFoundThoughThousandsOfCapturesAreMoreThanAreKept) {
    for (int step = 0; step < 3'000; ++step) {
        capture();
        replay(1);
    }
    EXPECT_EQ(found("graph-recapture").verdict, Verdict::proven);
}

class Flood : public Detectors {
  protected:
    /// Short ones that come and go, each with one call.
    void flood(const std::string& name, uint32_t processes) {
        for (uint32_t number = 0; number < processes; ++number) {
            const ProcessKey process{10'000 + number, now_};
            Event& event = call(name, 5 * us, process);
            event.args = {mib, next_address_ += 0x10'0000, 0};
            add_process(process, "short", now_);
        }
    }
};

TEST_F(Flood, OfShortProcessesDoesNotHideALeak) {
    flood("cudaMalloc", 3'000);
    for (int step = 0; step < 2'000; ++step) {
        const uint64_t kept = allocate(4 * mib, 5);
        if (step % 50 != 0) release(kept);
        now_ += ms;
    }
    EXPECT_THAT(found("gpu-leak").culprits, SizeIs(1));
}

TEST_F(Flood, OfShortProcessesDoesNotHideAFailure) {
    flood("cudaMalloc", 3'000);
    fail_to_allocate(64 * mib);
    flood("cudaMalloc", 3'000);
    EXPECT_EQ(found("gpu-oom").evidence.size(), 1u);
}

TEST_F(Flood, OfShortProcessesDoesNotHideGraphsThatAreMadeAgain) {
    flood("cudaGraphLaunch", 6'000);
    for (int step = 0; step < 40; ++step) {
        call("cudaStreamBeginCapture").stream = 4;
        now_ += 30 * ms;
        call("cudaStreamEndCapture").stream = 4;
        call("cudaGraphLaunch");
    }
    EXPECT_THAT(found("graph-recapture").summary, HasSubstr("captured"));
}

class Live : public testing::Test {
  protected:
    static constexpr uint64_t start_ns = 100 * second;

    Event call(const std::string& name, uint64_t duration_ns) {
        Event event;
        event.sequence = ++sequence_;
        event.op = op_of_name(name).value();
        event.tgid = event.tid = python.pid;
        event.process_start_ns = start_ns;
        event.start_ns = now_ += 10 * us;
        now_ += event.duration_ns = duration_ns;
        return event;
    }
    void cold_start(LiveWindow& window) {
        std::vector<Event> events;
        for (uint64_t function = 0; function < 20; ++function) {
            for (int again = 0; again < 40; ++again) {
                events.push_back(call("cudaLaunchKernel", again == 0 ? 8 * ms : 5 * us));
                events.back().args[0] = function;
            }
        }
        window.add(std::move(events));
    }
    std::vector<Finding> pass(LiveWindow& window) {
        Process process;
        process.key = {python.pid, start_ns};
        process.comm = "python";
        return window.pass({now_, now_, MemorySnapshot::realtime_at_zero_ns + now_}, {process});
    }

    uint64_t now_ = start_ns + second, sequence_ = 0;
};

TEST_F(Live, AColdStartOfAProcessThatWasSeenFromItsStartIsTheFirstUse) {
    LiveWindow window("boot", {.since_ns = 50 * second});
    cold_start(window);
    const auto findings = pass(window);
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_THAT(findings[0].summary, Not(HasSubstr("began before")));
}

TEST_F(Live, OfAProcessThatBeganBeforeTheRecordingOrTheCallsThatAreKeptTheBeginningIsNotKnown) {
    LiveWindow late("boot", {.since_ns = start_ns + 1});
    cold_start(late);
    EXPECT_THAT(pass(late), Each(Field(&Finding::summary, HasSubstr("began before"))));
    EXPECT_THAT(pass(late), SizeIs(1));

    LiveWindow short_of_memory("boot", {.max_bytes = 1, .since_ns = 50 * second});
    short_of_memory.add({call("cudaMalloc", 5 * us)});
    cold_start(short_of_memory);
    const auto findings = pass(short_of_memory);
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_THAT(findings[0].summary, HasSubstr("began before"));
}

TEST_F(Live, OutOfMemoryIsProvenOnlyOfAProcessThatWasSeenFromItsStart) {
    for (const bool seen : {true, false}) {
        LiveWindow window("boot", {.since_ns = seen ? 50 * second : start_ns + 1});
        std::vector<Event> events = {call("cudaMalloc", 20 * us), call("cudaMalloc", 20 * us)};
        events[0].args = {64 * mib, 0x1000, 0};
        events[1].args = {64 * mib, 0, 0};
        events[1].return_code = 2;
        window.add(std::move(events));
        const auto findings = pass(window);
        ASSERT_THAT(findings, SizeIs(1));
        EXPECT_EQ(findings[0].verdict, seen ? Verdict::proven : Verdict::partial);
    }
}

// Blocks come in order of their first call: the one with the next try may have an earlier one of another thread.
TEST_F(Live, OutOfMemoryThatWasGotOnTheNextTryOpensNoIncident) {
    const auto allocation = [this](uint64_t address) {
        std::vector<Event> block = {call("cudaMalloc", 20 * us)};
        block[0].args = {64 * mib, address, 0};
        block[0].return_code = address == 0 ? 2 : 0;
        return block;
    };
    for (const bool in_order : {true, false}) {
        LiveWindow window("boot", {.since_ns = 50 * second});
        std::vector<Event> failing = allocation(0), retry = allocation(0x1000);
        window.add(in_order ? failing : retry);
        window.add(in_order ? retry : failing);
        IncidentTracker incidents("boot");
        const ClockTriple now{now_, now_, MemorySnapshot::realtime_at_zero_ns + now_};
        auto findings = pass(window);
        ASSERT_THAT(findings, SizeIs(1));
        EXPECT_EQ(findings[0].severity, Severity::low);
        EXPECT_GT(findings[0].newly_lost_ns, 0u);
        EXPECT_THAT(incidents.observe(findings, now), IsEmpty());
        window.add(allocation(0));
        findings = pass(window);
        ASSERT_THAT(findings, SizeIs(1));
        EXPECT_EQ(findings[0].severity, Severity::high);
        EXPECT_THAT(incidents.observe(findings, now), SizeIs(1));
    }
}

}  // namespace
}  // namespace ingero::test
