// What the detectors find in calls that were made for them, and what they do not find beside.
#include <gmock/gmock.h>

#include <set>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/live/live_window.h"
#include "tests/unit/detectors_fixture.h"

namespace ingero::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(Detectors, ADeviceFaultNamesTheOnlyFunctionUnderWay) {
    snapshot_.add(FunctionRow{.process = python, .handle = 0x3000, .seen_ns = 1, .name = "_Z4fillPfi"});
    for (int step = 0; step < 50; ++step) {
        launch(0x1000);
        launch(0x2000);
        call("cudaStreamSync");
    }
    launch(0x3000);
    launch(0x3000);
    const uint64_t sequence = snapshot_.events().size() + 1;
    call("cudaStreamSync").return_code = 700;
    for (int later = 0; later < 5; ++later) call("cudaLaunchKernel").return_code = 700;
    const Finding finding = found("device-fault");
    EXPECT_EQ(finding.severity, Severity::high);
    EXPECT_EQ(finding.verdict, Verdict::proven);
    ASSERT_THAT(finding.culprits, SizeIs(1));
    EXPECT_EQ(finding.culprits[0].name, "fill(float*, int)");
    EXPECT_THAT(finding.summary, AllOf(HasSubstr("cudaErrorIllegalAddress"), HasSubstr("2 launches of 1 function "),
                                       HasSubstr("5 later calls failed with the same error")));
    EXPECT_EQ(finding.evidence, (std::vector<uint64_t>{sequence, sequence - 1, sequence - 2}));
    EXPECT_THAT(explain(now_ - 10), IsEmpty()) << "it was told of in the window that has it";
}

TEST_F(Detectors, OfSeveralFunctionsUnderWayNoneIsProven) {
    launch(0x1000, 7);
    launch(0x2000, 8);
    launch(0x4000, 9);
    call("cudaStreamSync").stream = 9;
    // An event tells nothing of what was launched after it.
    call("cudaEventSynchronize").stream = 8;
    call("cudaMemcpy").return_code = 710;
    const Finding finding = found("device-fault");
    EXPECT_EQ(finding.verdict, Verdict::partial);
    EXPECT_THAT(finding.culprits, SizeIs(2));
    EXPECT_THAT(finding.summary, HasSubstr("cudaErrorAssert"));
}

TEST_F(Detectors, ErrorsThatLeaveTheContextUsableAreNoFault) {
    for (const int code : {1, 35, 400, 600, 801}) call("cudaMemcpy").return_code = code;
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Detectors, OutOfMemoryIsToldApartFromFreeMemoryInPieces) {
    fill_with_holes();
    fail_to_allocate(64 * mib);
    fail_to_allocate(64 * mib);
    Finding finding = found("gpu-oom");
    EXPECT_EQ(finding.severity, Severity::high);
    EXPECT_EQ(finding.verdict, Verdict::proven);
    EXPECT_THAT(finding.summary, AllOf(HasSubstr("64.0 MiB failed"), HasSubstr("which had 512 MiB allocated; it had "),
                                       HasSubstr("fragmented"), HasSubstr("; 1 more allocation failed")));
    ASSERT_THAT(finding.culprits, SizeIs(1));
    EXPECT_EQ(finding.culprits[0].name, "512 MiB by cudaMalloc, stack 3");
    // More than it ever had is another matter.
    fail_to_allocate(600 * mib);
    finding = found("gpu-oom", now_ - 105 * us);
    EXPECT_THAT(finding.summary, AllOf(HasSubstr("600 MiB failed"), HasSubstr("; its peak was 1.00 GiB")));
}

TEST_F(Detectors, OutOfMemoryHasNewlyLostWhatFailedSinceTheLastPass) {
    LiveWindow window("boot-0", {.since_ns = 1});
    size_t added = 0;
    const auto pass = [&]() -> Finding {
        const std::vector<Event>& all = snapshot_.events();
        window.add({all.begin() + static_cast<std::ptrdiff_t>(added), all.end()});
        added = all.size();
        const ClockTriple now{now_ + 1, now_ + 1, MemorySnapshot::realtime_at_zero_ns + now_ + 1};
        for (Finding& finding : window.pass(now, *snapshot_.processes()))
            if (finding.kind == "gpu-oom") return std::move(finding);
        return {};
    };
    allocate(64 * mib);
    for (int i = 0; i < 3; ++i) fail_to_allocate(64 * mib);
    EXPECT_EQ(pass().newly_lost_ns, 300 * us);
    fail_to_allocate(64 * mib);
    const Finding finding = pass();
    EXPECT_EQ(finding.newly_lost_ns, 100 * us);
    EXPECT_EQ(finding.lost_ns, 400 * us);
    release(0);
    EXPECT_EQ(pass().newly_lost_ns, 0u);
}

TEST_F(Detectors, WhoElseHasMemoryOfTheDeviceIsNamed) {
    allocate(1'024 * mib, 1, {900, 9});
    allocate(8 * mib, 2);
    fail_to_allocate(64 * mib);
    const Finding finding = found("gpu-oom");
    ASSERT_THAT(finding.culprits, SizeIs(2));
    EXPECT_EQ(finding.culprits[0].name, "1.00 GiB by another process") << "who holds most comes first";
    EXPECT_EQ(finding.culprits[0].pid, 900u);
}

TEST_F(Detectors, AllocationsThatAreNeverFreedWhereOthersAreLeak) {
    for (int step = 0; step < 2'000; ++step) {
        const uint64_t kept = allocate(4 * mib, 5), other = allocate(2 * mib, 6);
        launch(0x1000);
        if (step % 50 != 0) release(kept);
        release(other);
        now_ += ms;
    }
    const Finding finding = found("gpu-leak");
    EXPECT_EQ(finding.severity, Severity::medium);
    ASSERT_THAT(finding.culprits, SizeIs(1));
    EXPECT_THAT(finding.culprits[0].name, AllOf(HasSubstr("stack 5"), HasSubstr("40 kept, 1960 freed")));
    EXPECT_THAT(finding.summary, HasSubstr("(160 MiB)"));
    EXPECT_EQ(finding.verdict, Verdict::proven);
}

TEST_F(Detectors, WeightsPoolsAndCachesAreNoLeak) {
    // Weights come first and stay; a pool grows until it is full, and is used from then on.
    for (int i = 0; i < 100; ++i) allocate(16 * mib, 5);
    std::vector<uint64_t> pool;
    for (int step = 0; step < 2'000; ++step) {
        const uint64_t activation = allocate(4 * mib, 5);
        launch(0x1000);
        release(activation);
        if (pool.size() < 64 && random_() % 4 == 0) pool.push_back(allocate(2 * mib, 7));
        if (pool.size() == 64 && random_() % 8 == 0) {
            release(pool[random_() % pool.size()]);
            pool[random_() % pool.size()] = allocate(2 * mib, 7);
        }
        now_ += ms;
    }
    for (const Finding& finding : explain()) ADD_FAILURE() << finding.summary;
}

TEST_F(Detectors, GraphsMadeAgainAndAgainAreToldWithTheirCost) {
    for (int step = 0; step < 40; ++step) {
        if (step % 2 == 0) {
            call("cudaStreamBeginCapture").stream = 4;
            now_ += 3 * ms;
            call("cudaStreamEndCapture").stream = 4;
            Event& made = call("cudaGraphInstantiate", ms);
            made.depth = 0;
            Event& inner = snapshot_.add(made);
            inner.sequence = snapshot_.events().size();
            inner.op = op_of_name("cuGraphInstantiate").value();
            inner.depth = 1;
        }
        call("cudaGraphLaunch");
        now_ += ms;
    }
    const Finding finding = found("graph-recapture");
    EXPECT_EQ(finding.verdict, Verdict::proven);
    // The first graph had to be made.
    EXPECT_NEAR(static_cast<double>(finding.lost_ns), 19 * 4.02 * ms, 0.5 * ms);
    EXPECT_THAT(finding.summary, HasSubstr("captured 19 and instantiated 19 graphs for 40 replays"));
}

TEST_F(Detectors, GraphsThatAreMadeOnceAndReplayedAreNoFinding) {
    // One for each of many shapes at the start, and one more later on.
    const auto capture = [&](uint64_t stream) {
        call("cudaStreamBeginCapture").stream = stream;
        now_ += 3 * ms;
        call("cudaStreamEndCapture").stream = stream;
        call("cudaGraphInstantiate", ms);
    };
    for (uint64_t shape = 0; shape < 67; ++shape) capture(shape);
    for (int step = 0; step < 2'000; ++step) {
        call("cudaGraphLaunch");
        if (step % 500 == 499) capture(1);
        now_ += ms;
    }
    for (const Finding& finding : explain()) ADD_FAILURE() << finding.summary;
}

TEST_F(Detectors, AColdStartSaysWhetherTheBeginningWasSeen) {
    for (uint64_t function = 0; function < 20; ++function) {
        call("cudaLaunchKernel", 8 * ms).args[0] = function;
        for (int again = 0; again < 40; ++again) launch(function);
    }
    EXPECT_THAT(found("cold-start").summary,
                AllOf(HasSubstr("first use of 20 functions took 160 ms"), HasSubstr("; 160 ms of it in launches, "),
                      HasSubstr(" % of the 160 ms that slow launches lost"), testing::Not(HasSubstr("began before"))));
}

TEST_F(Detectors, OfWhatIsSlowEveryTimeTheFirstIsNoColdStart) {
    for (uint64_t function = 0; function < 20; ++function)
        for (int again = 0; again < 10; ++again) call("cudaLaunchKernel", 8 * ms).args[0] = function;
    EXPECT_THAT(explain(), IsEmpty());
}

TEST_F(Detectors, FirstUsesOfLessThanFiveMillisecondsTogetherAreNoColdStart) {
    const auto use = [&](const std::string& name, uint64_t first_ns) {
        call(name, first_ns);
        for (int again = 0; again < 2'000; ++again) {
            call(name, 4'000);
            now_ += ms;
        }
    };
    use("cudaMemcpyAsync", 4 * ms);
    EXPECT_THAT(explain(), IsEmpty());
    use("cudaMemsetAsync", 6 * ms);
    EXPECT_THAT(found("cold-start").summary, HasSubstr("first use of 2 functions took"));
}

TEST_F(Detectors, TheFirstSynchronisationWaitsForTheDeviceAsAnyOther) {
    call("cudaStreamSync", 60 * ms);
    for (int again = 0; again < 100; ++again) call("cudaStreamSync", ms);
    EXPECT_THAT(explain(), IsEmpty());
}

TEST(Catalogue, SaysOfEachKindWhatItProvesAndWhatItCannotSee) {
    std::set<std::string_view> kinds;
    for (const CatalogueEntry& entry : catalogue()) {
        EXPECT_TRUE(kinds.insert(entry.kind).second) << entry.kind;
        for (const std::string_view text : {entry.title, entry.proof, entry.needs, entry.limits})
            EXPECT_FALSE(text.empty()) << entry.kind;
    }
    EXPECT_THAT(kinds, Contains("cold-start"));
}

}  // namespace
}  // namespace ingero::test
