// What is found of times in which a device had nothing to do, by what its thread did meanwhile, and what is not: a
// program that sleeps, that waits to be asked, or of which too little is known.
#include <gmock/gmock.h>
#include <sys/syscall.h>

#include <algorithm>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/evidence/wait_table.h"
#include "core/diagnosis/live/live_window.h"
#include "core/model/host_event.h"
#include "tests/unit/gaps_fixture.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(Gaps, AWorkerThatComputesIsWhatTheDeviceWaitsFor) {
    steps(100, [&] { sleep(8 * ms, BlockedReason::futex, worker); });
    const Finding finding = found("data-starvation");
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_EQ(finding.severity, Severity::high);
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 800e6, 10e6);
    EXPECT_GE(finding.explained_fraction, 0.99);
    ASSERT_FALSE(finding.culprits.empty());
    EXPECT_EQ(finding.culprits[0].name, "pt_data_worker");
    EXPECT_EQ(finding.culprits[0].pid, worker.pid);
    EXPECT_EQ(finding.evidence.size(), max_evidence);
}

// A thread that hands over what another of its process made, and waits for the lock of their interpreter.
TEST_F(Gaps, WhatAWorkerSleptByItselfMayHaveBeenLostToo) {
    steps(100, [&] {
        slept(worker, now_ + 2 * ms, 5 * ms, BlockedReason::futex);
        sleep(12 * ms, BlockedReason::futex, worker);
    });
    const Finding finding = found("data-starvation");
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 700e6, 10e6);
    EXPECT_EQ(finding.lost_low_ns, finding.lost_ns);
    EXPECT_GE(finding.lost_high_ns, 1'200 * ms);
    EXPECT_LE(finding.lost_high_ns, 1'200 * ms * 8 / 7 + ms);
}

TEST_F(Gaps, AWorkerThatReadsIsToldApartFromOneThatComputes) {
    steps(100, [&] {
        slept(worker, now_ + ms, 6 * ms, BlockedReason::disk);
        sleep(8 * ms, BlockedReason::futex, worker);
    });
    const Finding finding = found("data-starvation");
    ASSERT_THAT(finding.culprits, SizeIs(3));
    EXPECT_EQ(finding.culprits[0].name, "disk, read by pt_data_worker");
    EXPECT_NEAR(static_cast<double>(finding.culprits[0].ns), 600e6, 10e6);
    EXPECT_EQ(finding.culprits[1].name, "pt_data_worker");
    EXPECT_THAT(finding.fix, HasSubstr("Read ahead"));
}

TEST_F(Gaps, AWorkerThatIsKeptOffTheCpuIsToldWithWhoRan) {
    const Culprit culprit = kept_off_the_cpu(777, "hog");
    EXPECT_EQ(culprit.name, "pt_data_worker, without a CPU (hog ran)");
    EXPECT_THAT(found("data-starvation").fix, HasSubstr("keep what runs instead off them"));
    EXPECT_NEAR(static_cast<double>(culprit.ns), 600e6, 10e6);
}

TEST_F(Gaps, AWorkerThatAQuotaKeepsOffTheCpuIsToldWithThatAndNotWithWhoRan) {
    EXPECT_EQ(kept_off_the_cpu(777, "hog", wait_throttled).name, "pt_data_worker, without a CPU (its cgroup's quota)");
    EXPECT_THAT(found("data-starvation").fix, HasSubstr("more workers would share the same quota"));
}

TEST_F(Gaps, NeitherTheIdleTaskNorAKernelThreadKeepsAWorkerOffTheCpu) {
    EXPECT_EQ(kept_off_the_cpu(0, "swapper/3").name, "pt_data_worker, without a CPU");
    EXPECT_EQ(kept_off_the_cpu(9, "kworker/3:1").name, "pt_data_worker, without a CPU");
}

TEST_F(Gaps, AWorkerOfAWorkerIsFollowedThroughAPoll) {
    // A thread of its own waits in poll for the worker, and hands over what that made.
    steps(100, [&] {
        slept(python, now_, 8 * ms, BlockedReason::poll, worker).tid = 124;
        Event& wait = sleep(8 * ms, BlockedReason::futex, python);
        wait.args[0] = pack_wait_place({.waker_tid = 124, .from_cpu = 0, .waker_watched = true});
    });
    EXPECT_EQ(found("data-starvation").culprits.at(0).name, "pt_data_worker");
}

TEST_F(Gaps, AThreadThatPreparesItsBatchesItselfIsNamed) {
    wait_once();
    steps(100, [&] { now_ += 8 * ms; });
    const Finding finding = found("data-starvation");
    EXPECT_EQ(finding.culprits.at(0).name, "python, on the CPU between its calls");
    EXPECT_THAT(finding.fix, HasSubstr("num_workers"));
}

TEST_F(Gaps, WorkOfLessThanTheDevicesBetweenStepsIsNoStarvation) {
    wait_once();
    steps(100, [&] { now_ += ms; });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, AFewShortWaitsForALoaderThatKeepsUpAreNone) {
    int number = 0;
    steps(3'000, [&] {
        if (++number % 50 == 0) sleep(3 * ms, BlockedReason::futex, worker);
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, AProgramThatSleepsByItselfIsHealthy) {
    steps(100, [&] { sleep(8 * ms, BlockedReason::timer); });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, AWaitThatTimesOutIsNoProofOfWork) {
    steps(100, [&] { sleep(8 * ms, BlockedReason::futex); });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, AServerThatWaitsToBeAskedIsHealthy) {
    steps(50, [&] { sleep(8 * ms, BlockedReason::poll, stranger); });
    steps(50, [&] { sleep(8 * ms, BlockedReason::poll); });
    // Its port is the one that is known, the other end's was given by the system.
    steps(50, [&] {
        Event& wait = sleep(8 * ms, BlockedReason::socket, stranger);
        wait.return_code = static_cast<int32_t>(WaitDetail::socket);
        wait.stream = inet | 41'000ull << 16 | 8'000;
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, AServerWhoseOtherThreadWaitsToBeAskedIsHealthy) {
    steps(100, [&] {
        slept(python, now_, 8 * ms, BlockedReason::poll, stranger).tid = 124;
        Event& wait = sleep(8 * ms, BlockedReason::futex, python);
        wait.args[0] = pack_wait_place({.waker_tid = 124, .from_cpu = 0, .waker_watched = true});
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, CopyingAModelIsNoStarvation) {
    for (int part = 0; part < 100; ++part) {
        call("cudaMemcpy", 2 * ms);
        sleep(8 * ms, BlockedReason::disk);
    }
    step();
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, ADeviceWithWorkOnAnotherStreamIsNotIdle) {
    steps(100, [&] {
        launch(0x2000, 7);
        sleep(8 * ms, BlockedReason::futex, worker);
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, WhatWasEnqueuedWhileAThreadWaitedIsNotDone) {
    steps(100, [&] {
        const uint64_t sync_ns = now_;
        now_ -= ms;
        launch(0x2000).tid = 777;
        now_ = sync_ns;
        sleep(8 * ms, BlockedReason::futex, worker);
    });
    EXPECT_THAT(explain(), IsEmpty());
    // As they are recorded: at their end, the launch before the synchronisation that had begun before it.
    std::vector<Event> events = snapshot_.events();
    std::stable_sort(events.begin(), events.end(),
                     [](const Event& a, const Event& b) { return a.end_ns() < b.end_ns(); });
    LiveWindow window("boot-0", {.since_ns = 1});
    for (const Event& event : events) window.add({event});
    const auto processes = snapshot_.processes();
    EXPECT_THAT(window.pass({now_, now_, MemorySnapshot::realtime_at_zero_ns + now_}, *processes), IsEmpty());
}

TEST_F(Gaps, WhatAnotherThreadStillWaitsForIsNotDone) {
    wait_once();
    steps(100, [&] {
        const uint64_t from_ns = now_;
        launch(0x2000, 7).tid = 777;
        Event& wait = call("cudaStreamSync", 10 * ms);
        wait.tid = 777;
        wait.stream = 7;
        const uint64_t to_ns = now_;
        now_ = from_ns + ms;
        step();
        now_ = to_ns;
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, ACopyOfAnotherThreadKeepsTheDeviceBusyWhileItLasts) {
    wait_once();
    steps(100, [&] {
        const uint64_t from_ns = now_;
        for (const auto& [name, ns] : {std::pair("cudaMemcpyAsync", 20 * ms), {"cudaStreamSync", 5 * us}}) {
            Event& event = call(name, ns);
            event.tid = 777;
            event.stream = 7;
        }
        const uint64_t to_ns = now_;
        now_ = from_ns + ms;
        step();
        now_ = from_ns + 17 * ms;
        step();
        now_ = to_ns;
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, BlocksAreJudgedInOrderOfEnd) {
    constexpr size_t block_rows = MemorySnapshot::block_rows, turns = 6;
    wait_once();
    for (size_t turn = 0; turn < turns; ++turn) {
        while (snapshot_.events().size() % block_rows != block_rows - 1) launch(0x1000);
        call("cudaStreamSync", 2 * ms);
        // The next block has what began before the last call of this one: a wait for the device that goes on.
        const uint64_t drained_ns = now_;
        for (size_t i = 1; i < block_rows; ++i)
            slept(stranger, drained_ns - 3 * ms, 3 * ms + i * us, BlockedReason::timer);
        now_ -= 3 * ms;
        call("cudaStreamSync", 203 * ms).tid = 777;
        now_ = drained_ns;
        sleep(390 * ms, BlockedReason::futex, worker);
    }
    step();
    EXPECT_NEAR(static_cast<double>(found("data-starvation").lost_ns), turns * 190e6, 10e6);
}

TEST_F(Gaps, ACallInWhichAnotherThreadSynchronisesIsNoWorkOfItsThreads) {
    wait_once();
    steps(100, [&] {
        const uint64_t from_ns = now_;
        now_ += ms;
        call("cudaStreamSync").tid = 777;
        now_ = from_ns;
        call("cudaMalloc", 8 * ms);
    });
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Gaps, WithoutWaitsTheEvidenceIsInsufficientAndSaysWhich) {
    steps(600, [&] { now_ += 8 * ms; });
    const Finding finding = found("data-starvation");
    EXPECT_EQ(finding.verdict, Verdict::insufficient_evidence);
    EXPECT_EQ(finding.severity, Severity::low);
    EXPECT_THAT(finding.summary, HasSubstr("waited for between calls was not recorded"));
    EXPECT_THAT(finding.culprits, IsEmpty());
}

TEST_F(Gaps, WhereCallsWereLostTheEvidenceIsInsufficientAndSaysWhich) {
    steps(600, [&] { sleep(8 * ms, BlockedReason::futex, worker); });
    LossRow loss{.from_ns = second, .to_ns = now_, .op = op_of_name("cudaLaunchKernel").value()};
    loss.lost_ring = 3;
    snapshot_.add(loss);
    const Finding finding = found("data-starvation");
    EXPECT_EQ(finding.verdict, Verdict::insufficient_evidence);
    EXPECT_THAT(finding.summary, HasSubstr("calls were lost"));
}

TEST_F(Gaps, AProgramThatIsRecordedInSlicesIsNotIdleWhereItsLaunchesLeftNoRow) {
    for (int step = 0; step < 50; ++step) {
        sleep(90 * ms, BlockedReason::futex, worker);
        for (int i = 0; step % 10 == 0 && i < 500; ++i) {
            Event& event = launch(0x1000);
            event.weight = 100;
            event.time_weight = 50;
        }
        call("cudaStreamSync", 5 * ms);
    }
    EXPECT_THAT(explain(), IsEmpty());
    for (Event& event : snapshot_.events()) event.time_weight = 0;
    EXPECT_EQ(found("data-starvation").severity, Severity::high) << "thinned, each step would have rows";
}

TEST_F(Gaps, AWorkerThatWasNotWatchedIsNotBlamed) {
    steps(100, [&] { sleep(8 * ms, BlockedReason::futex, worker, false); });
    EXPECT_THAT(explain(), IsEmpty());
    steps(100, [&] { sleep(8 * ms, BlockedReason::futex, worker); });
    const Finding finding = found("data-starvation");
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_NEAR(finding.explained_fraction, 0.5, 0.02);
}

TEST_F(Gaps, OfAnotherUsersWorkerNothingIsSaid) {
    Process own;
    own.key = python;
    own.comm = "python";
    own.uid = 1'000;
    snapshot_.add(own);
    Process hidden;
    hidden.key = worker;
    hidden.comm = "pt_data_worker";
    hidden.parent_pid = python.pid;
    hidden.uid = 1'001;
    snapshot_.add(hidden);
    steps(100, [&] { sleep(8 * ms, BlockedReason::futex, worker); });
    const auto answer = ingero::explain(
        snapshot_, {.window = {MemorySnapshot::realtime_at_zero_ns, MemorySnapshot::realtime_at_zero_ns + now_ + 1},
                    .uid = 1'000,
                    .pid = {}});
    ASSERT_TRUE(answer);
    EXPECT_THAT(answer->findings, IsEmpty());
}

TEST_F(Gaps, WhoAsksAnotherAndWaitsIsIdleInAToolCall) {
    steps(20, [&] {
        Event& wait = sleep(40 * ms, BlockedReason::socket, stranger);
        wait.return_code = static_cast<int32_t>(WaitDetail::socket);
        wait.args[1] = 0;
        wait.args[2] = 0x0100'007f'ffff'0000;  // ::ffff:127.0.0.1 in network order
        wait.stream = inet | 8'000ull << 16 | 41'000;
    });
    const Finding finding = found("idle-in-tool-call");
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_EQ(finding.culprits.at(0).name, "client at 127.0.0.1:8000");
    EXPECT_EQ(finding.culprits[0].pid, stranger.pid);
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 800e6, 10e6);
}

/// A connection of python's to 127.0.0.1:8000 on which it waits.
void wait_for_tool(Event& wait, uint16_t own_port = 41'000) {
    wait.return_code = static_cast<int32_t>(WaitDetail::socket);
    wait.args[2] = 0x0100'007f'ffff'0000;
    wait.stream = inet | 8'000ull << 16 | own_port;
}

TEST_F(Gaps, WhatHadToBeSentAgainIsToldApartFromTheTool) {
    steps(10, [&] {
        const uint64_t asked_ns = now_;
        wait_for_tool(sleep(660 * ms, BlockedReason::socket, stranger));
        resent(python, asked_ns + 200 * ms, 200 * ms);
        resent(python, asked_ns + 600 * ms, 600 * ms);  // tells of all of it once more
    });
    const auto findings = explain();
    ASSERT_THAT(findings, SizeIs(2));
    const Finding& lost = findings[0];
    EXPECT_EQ(lost.kind, "network-retransmit");
    EXPECT_EQ(lost.verdict, Verdict::proven);
    EXPECT_EQ(lost.severity, Severity::high);
    EXPECT_EQ(lost.lost_ns, 6'000 * ms);
    EXPECT_EQ(lost.culprits.at(0).name, "127.0.0.1:8000");
    EXPECT_THAT(lost.summary, HasSubstr("waited for retransmissions, 10 times, mostly to 127.0.0.1:8000; that cost"));
    EXPECT_EQ(findings[1].kind, "idle-in-tool-call");
    EXPECT_EQ(findings[1].lost_ns, 600 * ms);  // until the tool had answered
}

TEST_F(Gaps, WhatAWorkerSentAgainIsNoStarvation) {
    steps(20, [&] {
        Event& wait = slept(worker, now_, 40 * ms, BlockedReason::socket, stranger);
        wait_for_tool(wait);
        resent(worker, now_ + 38 * ms, 38 * ms);
        sleep(40 * ms, BlockedReason::futex, worker);
    });
    const Finding lost = found("network-retransmit");
    EXPECT_EQ(lost.lost_ns, 20 * 38 * ms);
    EXPECT_EQ(lost.culprits.at(0).name, "127.0.0.1:8000, asked by pt_data_worker");
}

TEST_F(Gaps, ARetransmitIsNoProofForAnotherConnectionTimeOrProcess) {
    steps(20, [&] {
        const uint64_t asked_ns = now_;
        wait_for_tool(sleep(40 * ms, BlockedReason::socket, stranger));
        resent(python, asked_ns + 30 * ms, 30 * ms, 41'001);  // another connection
        resent(stranger, asked_ns + 30 * ms, 30 * ms);        // another process
        resent(python, asked_ns - 100 * us, 500 * us);        // before it
        resent(python, asked_ns + 30 * ms, 0);                // nobody knows since when
    });
    EXPECT_EQ(found("idle-in-tool-call").lost_ns, 800 * ms);
    EXPECT_THAT(explain(), SizeIs(1));
}

TEST_F(Gaps, WaitsThatEndedBeforeItWasSentAgainWereForWhatCame) {
    // Data comes all the time, while something that the program said is lost and sent again after a second.
    for (int i = 0; i < 10; ++i) {
        const uint64_t lost_ns = now_;
        steps(40, [&] { wait_for_tool(sleep(25 * ms, BlockedReason::socket, stranger)); });
        resent(python, now_, now_ - lost_ns);
    }
    EXPECT_THAT(explain(), Not(testing::Contains(testing::Field(&Finding::kind, "network-retransmit"))));
}

TEST_F(Gaps, WhoIsAskedNothingWaitsForNothingThatIsSentAgain) {
    steps(20, [&] {
        const uint64_t from_ns = now_;
        Event& wait = sleep(40 * ms, BlockedReason::socket, stranger);
        wait_for_tool(wait);
        wait.stream = inet | 41'000ull << 16 | 8'000;  // it serves, and its last answer does not arrive
        wait.blocked_syscall = SYS_recvfrom;
        resent(python, from_ns + 39 * ms, 39 * ms, 8'000, 41'000);
    });
    EXPECT_THAT(explain(), IsEmpty());
    // Sending that answer is another thing.
    steps(20, [&] {
        const uint64_t from_ns = now_;
        Event& wait = sleep(40 * ms, BlockedReason::socket, stranger);
        wait_for_tool(wait);
        wait.stream = inet | 41'000ull << 16 | 8'000;
        wait.blocked_syscall = SYS_sendto;
        resent(python, from_ns + 39 * ms, 39 * ms, 8'000, 41'000);
    });
    EXPECT_EQ(found("network-retransmit").lost_ns, 20 * 39 * ms);
}

TEST_F(Gaps, AConnectionThatWasGivenUpHasLostItsPort) {
    steps(3, [&] {
        const uint64_t from_ns = now_;
        wait_for_tool(sleep(7'000 * ms, BlockedReason::socket), 0);
        resent(python, from_ns + 1'000 * ms, 1'000 * ms);
        resent(python, from_ns + 6'000 * ms, 6'000 * ms);
    });
    const auto findings = explain();
    ASSERT_FALSE(findings.empty());
    EXPECT_EQ(findings[0].kind, "network-retransmit");
    EXPECT_EQ(findings[0].lost_ns, 3 * 6'000 * ms);
}

TEST_F(Gaps, MoreStallsThanAreKeptLeaveTheLongOnes) {
    for (size_t i = 0; i < 3 * WaitTable::max_waits; ++i) resent(stranger, second + i * 2 * ms, ms);
    steps(10, [&] {
        const uint64_t asked_ns = now_;
        wait_for_tool(sleep(210 * ms, BlockedReason::socket, stranger));
        resent(python, asked_ns + 200 * ms, 200 * ms);
    });
    const auto findings = explain();
    ASSERT_FALSE(findings.empty());
    EXPECT_EQ(findings[0].kind, "network-retransmit");
    EXPECT_EQ(findings[0].lost_ns, 2'000 * ms);
}

TEST_F(Gaps, ACallThatWaitsForWhatIsSentAgainIsFoundWithTheOtherEnd) {
    for (int i = 0; i < 30; ++i) call("cudaMemcpyAsync", 20 * us);
    for (int i = 0; i < 4; ++i) {
        const uint64_t begin_ns = now_;
        Event& copy = call("cudaMemcpyAsync", 250 * ms);
        copy.blocked_ns = copy.longest_sleep_ns = 249 * ms;
        copy.blocked_reason = BlockedReason::socket;
        Event& wait = slept(python, begin_ns + ms, 249 * ms, BlockedReason::socket);
        wait.depth = 1;
        wait_for_tool(wait);
        resent(python, begin_ns + 241 * ms, 240 * ms);
    }
    const Finding lost = found("network-retransmit");
    EXPECT_EQ(lost.verdict, Verdict::proven);
    EXPECT_EQ(lost.lost_ns, 4 * 240 * ms);
    EXPECT_EQ(lost.culprits.at(0).name, "127.0.0.1:8000");
    EXPECT_THAT(lost.summary, HasSubstr("in 4 calls waiting for retransmissions to 127.0.0.1:8000"));
}

TEST_F(Gaps, WhoWaitsForAProgramThatItStartedIsIdleInAToolCall) {
    steps(20, [&] { sleep(40 * ms, BlockedReason::child, stranger); });
    EXPECT_THAT(found("idle-in-tool-call").summary,
                HasSubstr("a program that it had started, 20 times, mostly client; that cost"));
}

TEST_F(Gaps, ACheckpointThatIsSyncedStallsItsStep) {
    for (int round = 0; round < 5; ++round) {
        steps(10, [&] { now_ += 50 * us; });
        Event& copy = call("cudaMemcpyAsync");
        copy.args = {64 * mib, 2, 0};
        call("cudaStreamSync", 4 * ms);
        now_ += 5 * ms;
        Event& wait = sleep(200 * ms, BlockedReason::disk);
        wait.blocked_syscall = SYS_fsync;
    }
    step();
    const Finding finding = found("checkpoint-stall");
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_GE(finding.explained_fraction, 0.95);
    EXPECT_EQ(finding.culprits.at(0).name, "disk");
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 1'025e6, 20e6);
    EXPECT_THAT(finding.summary, AllOf(HasSubstr("5 checkpoints"), HasSubstr("320 MiB")));
}

TEST_F(Gaps, WritingWithoutACopyFromTheDeviceIsNoCheckpoint) {
    steps(50, [&] { sleep(40 * ms, BlockedReason::disk).blocked_syscall = SYS_fdatasync; });
    const Finding finding = found("own-io-wait");
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_EQ(finding.severity, Severity::high);
    EXPECT_EQ(finding.lost_ns, 2'000 * ms);
    EXPECT_EQ(finding.lost_high_ns, 2'000 * ms);
    EXPECT_EQ(finding.culprits.at(0).name, "disk");
    EXPECT_THAT(finding.summary, HasSubstr("waited for writes, 50 times, mostly to disk; the longest wait took 40"));
}

TEST_F(Gaps, WhoSleepsByChoiceAfterWritingMayHaveLostNothing) {
    const auto write = [&] { sleep(4 * ms, BlockedReason::disk).blocked_syscall = SYS_fsync; };
    steps(100, [&] {
        write();
        sleep(4 * ms, BlockedReason::timer);
    });
    steps(100, [&] {
        write();
        sleep(4 * ms, BlockedReason::poll, stranger);
    });
    EXPECT_THAT(explain(), IsEmpty());
    steps(100, write);
    const Finding finding = found("own-io-wait");
    EXPECT_EQ(finding.lost_low_ns, 400 * ms);
    EXPECT_EQ(finding.lost_ns, 400 * ms);
    EXPECT_EQ(finding.lost_high_ns, 1'200 * ms);
}

TEST_F(Gaps, WhatAWorkerWritesForItIsNamedWithTheWorker) {
    steps(50, [&] {
        slept(worker, now_, 9 * ms, BlockedReason::network_fs).blocked_syscall = SYS_fsync;
        sleep(10 * ms, BlockedReason::futex, worker);
    });
    const auto findings = explain();
    ASSERT_FALSE(findings.empty());
    EXPECT_EQ(findings[0].kind, "own-io-wait");
    EXPECT_EQ(findings[0].lost_ns, 450 * ms);
    EXPECT_EQ(findings[0].culprits.at(0).name, "network_fs, written by pt_data_worker");
}

TEST_F(Gaps, TwoCausesAreBothFoundAndNoTimeIsTwice) {
    const uint64_t begin = now_;
    steps(40, [&] {
        sleep(8 * ms, BlockedReason::futex, worker);
        Event& wait = sleep(10 * ms, BlockedReason::child, stranger);
        wait.blocked_syscall = SYS_wait4;
    });
    const auto findings = explain();
    ASSERT_THAT(findings, SizeIs(2));
    EXPECT_EQ(findings[0].kind, "idle-in-tool-call");
    EXPECT_EQ(findings[1].kind, "data-starvation");
    EXPECT_NEAR(static_cast<double>(findings[0].lost_ns), 400e6, 1e6);
    EXPECT_NEAR(static_cast<double>(findings[1].lost_ns), 320e6, 1e6);
    EXPECT_LE(findings[0].lost_ns + findings[1].lost_ns, now_ - begin);
}

TEST_F(Gaps, LiveVerdictsAreThoseOfTheStore) {
    steps(100, [&] {
        slept(worker, now_ + ms, 6 * ms, BlockedReason::disk);
        sleep(8 * ms, BlockedReason::futex, worker);
    });
    const Finding stored = found("data-starvation", now_ - 900 * ms);
    LiveWindow window("boot-0", {.history_ns = 900 * ms, .judged_ns = 900 * ms, .since_ns = 1});
    window.add(snapshot_.events());
    const auto processes = snapshot_.processes();
    const auto live = window.pass({now_ + 1, now_ + 1, MemorySnapshot::realtime_at_zero_ns + now_ + 1}, *processes);
    ASSERT_THAT(live, SizeIs(1));
    EXPECT_EQ(live[0].id, stored.id);
    EXPECT_NEAR(static_cast<double>(live[0].lost_ns), static_cast<double>(stored.lost_ns), 1);
    EXPECT_EQ(live[0].verdict, stored.verdict);
    EXPECT_EQ(live[0].culprits.at(0).name, stored.culprits.at(0).name);
    EXPECT_EQ(live[0].evidence, stored.evidence);
}

TEST_F(Gaps, MoreWaitsThanAreKeptLeaveTheLongOnes) {
    for (size_t i = 0; i < WaitTable::max_waits + 1'000; ++i)
        slept(stranger, second + i * 10 * us, 5 * us, BlockedReason::timer);
    steps(100, [&] { sleep(8 * ms, BlockedReason::futex, worker); });
    EXPECT_EQ(found("data-starvation").culprits.at(0).name, "pt_data_worker");
}

}  // namespace
}  // namespace ingero::test
