// What is found of times in which a device had nothing to do where a program has several, or captures graphs.
#include <gmock/gmock.h>

#include "tests/unit/gaps_fixture.h"

namespace ingero::test {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class GapsOfDevices : public Gaps {
  protected:
    void launch_on(uint16_t device, uint32_t tid = python.pid) {
        for (int i = 0; i < 5; ++i) {
            Event& event = launch(0x1000);
            event.device = device;
            event.tid = tid;
        }
    }
    void synchronise(uint16_t device, uint64_t ns = 2 * ms, uint32_t tid = python.pid) {
        Event& event = call("cudaStreamSync", ns);
        event.device = device;
        event.tid = tid;
    }
    void step_on(uint16_t device, uint64_t ns = 2 * ms, uint32_t tid = python.pid) {
        launch_on(device, tid);
        synchronise(device, ns, tid);
    }
};

TEST_F(GapsOfDevices, OneThreadThatUsesTwoInTurnKeepsNeitherWaiting) {
    wait_once();
    for (int request = 0; request < 20; ++request) {
        step_on(1);
        for (int token = 0; token < 20; ++token) step_on(0);
    }
    step_on(1);
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(GapsOfDevices, OneThatWaitsIsFoundBesideOneThatAnotherThreadFeeds) {
    for (int round = 0; round < 100; ++round) {
        const uint64_t from_ns = now_;
        step_on(1, 10 * ms, 124);
        now_ = from_ns;
        step_on(0);
        sleep(8 * ms, BlockedReason::futex, worker);
    }
    step_on(0);
    const Finding finding = found("data-starvation");
    EXPECT_EQ(finding.worst.event.device, 0);
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 800e6, 10e6);
}

TEST_F(GapsOfDevices, OfTwoThatWaitForOneThreadTheOneThatItFeedsFirstIsFound) {
    for (int round = 0; round < 100; ++round) {
        launch_on(0);
        launch_on(1);
        synchronise(0);
        synchronise(1);
        sleep(8 * ms, BlockedReason::futex, worker);
    }
    launch_on(0);
    launch_on(1);
    const Finding finding = found("data-starvation");
    EXPECT_EQ(finding.worst.event.device, 0);
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 800e6, 10e6);
}

TEST_F(GapsOfDevices, ACallOnADeviceThatIsNotKnownMayBeOnTheSameOne) {
    for (int round = 0; round < 50; ++round) {
        step_on(1);
        sleep(8 * ms, BlockedReason::futex, worker);
        step_on(INGERO_DEVICE_UNKNOWN);
    }
    step_on(1);
    EXPECT_THAT(explain(), SizeIs(2));
}

class GapsOfGraphs : public Gaps {
  protected:
    void begin_capture(uint64_t stream) {
        call("cudaStreamBeginCapture").stream = stream;
        for (int i = 0; i < 5; ++i) launch(0x2000, stream);
    }
    void end_capture(uint64_t stream) {
        call("cudaStreamEndCapture").stream = stream;
        call("cudaGraphInstantiate", 20 * ms);
    }
};

TEST_F(GapsOfGraphs, WhatIsCapturedKeepsNoStreamBusy) {
    begin_capture(4);
    end_capture(4);
    for (int round = 0; round < 100; ++round) {
        call("cudaGraphLaunch").stream = 7;
        call("cudaStreamSync", 2 * ms).stream = 7;
        sleep(8 * ms, BlockedReason::futex, worker);
    }
    call("cudaGraphLaunch").stream = 7;
    EXPECT_NEAR(static_cast<double>(found("data-starvation").lost_ns), 800e6, 10e6);
}

TEST_F(GapsOfGraphs, WhatIsEnqueuedOnAnotherStreamMeanwhileRuns) {
    steps(100, [&] {
        begin_capture(4);
        launch(0x3000, 7);
        end_capture(4);
        sleep(8 * ms, BlockedReason::futex, worker);
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(GapsOfGraphs, ACaptureThatWasNotSeenToEndHidesNoLaterGap) {
    for (const uint64_t stream : {uint64_t{4}, unknown_stream}) {
        begin_capture(stream);
        steps(50, [&] { sleep(8 * ms, BlockedReason::futex, worker); });
    }
    EXPECT_NEAR(static_cast<double>(found("data-starvation").lost_ns), 800e6, 10e6);
}

TEST_F(GapsOfGraphs, CapturingAGraphIsNoWorkBetweenCalls) {
    wait_once();
    steps(20, [&] {
        begin_capture(4);
        now_ += 40 * ms;
        end_capture(4);
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(GapsOfGraphs, InstantiatingAGraphIsNoWorkBetweenCalls) {
    wait_once();
    steps(20, [&] {
        begin_capture(4);
        end_capture(4);
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(GapsOfGraphs, WhatTheDeviceWaitedForBeforeACaptureIsFound) {
    steps(50, [&] {
        sleep(8 * ms, BlockedReason::futex, worker);
        begin_capture(4);
        end_capture(4);
    });
    EXPECT_NEAR(static_cast<double>(found("data-starvation").lost_ns), 400e6, 10e6);
}

}  // namespace
}  // namespace ingero::test
