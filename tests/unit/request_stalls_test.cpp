// What stalled requests longest, and who caused it.
#include "core/model/host_event.h"
#include "tests/unit/requests_fixture.h"

namespace ingero {
namespace {

using namespace requests_fixture;

TEST_F(Requests, NameTheLongestStallAndWhoCausedIt) {
    add(make_span("stalled", 0, 900 * ms));
    add(make_span("spared", 2 * second, 3 * second));
    add(preempted(make_call(launch, 10 * ms, 60 * ms), 50 * ms, "smaller-hog", 8));
    add(preempted(make_call(launch, 100 * ms, 600 * ms), 580 * ms, "stress-ng", 991));
    add(make_call(launch, 2 * second + ms, ms));
    const RequestsAnswer answer = ask();
    const auto& stall = find(answer, "stalled").longest_stall;
    expect_stall(stall, launch, 580 * ms, {"stress-ng", 991});
    ASSERT_TRUE(stall);
    EXPECT_EQ(stall->sequence, 2u);
    EXPECT_EQ(stall->start_realtime_ns, 1'700'000'000 * second + 100 * ms);
    EXPECT_FALSE(find(answer, "spared").longest_stall);
}

TEST_F(Requests, AreStalledBetweenTheCallsOfAThreadThatCallsToo) {
    const auto wait = [](uint64_t start, uint64_t lacked, uint32_t tid, const std::string& by) {
        Event event = preempted(make_call(op_wait, start, lacked + 5 * ms), lacked, by, 991);
        event.tid = tid;
        return event;
    };
    add(make_span("stalled", 0, 900 * ms));
    add(make_span("other", 2 * second, 3 * second, engine));
    add(make_span("of a quota", 4 * second, 5 * second));
    add(make_span("while it slept", 6 * second, 7 * second));
    Event late = wait(5 * second, 50 * ms, server.pid, "after its sleep");
    late.duration_ns = 4 * second;
    add(late);
    Event throttled = wait(4 * second, 80 * ms, server.pid, "next of its queue");
    throttled.return_code = wait_throttled;
    add(throttled);
    add(wait(100 * ms, 300 * ms, server.pid, "cpu-hog"));
    add(wait(150 * ms, 600 * ms, server.pid + 1, "of a thread that calls nothing"));
    Event slept = wait(500 * ms, 0, server.pid, "");
    slept.blocked_ns = 390 * ms;
    add(slept);
    Event inside = wait(10 * ms, 350 * ms, server.pid, "of a call, which has it");
    inside.depth = 1;
    add(inside);
    add(preempted(make_call(launch, 450 * ms, 60 * ms), 50 * ms, "smaller-hog", 8));
    const RequestsAnswer answer = ask();
    expect_stall(find(answer, "stalled").longest_stall, op_wait, 300 * ms, {"cpu-hog", 991});
    EXPECT_EQ(find(answer, "stalled").sums[CallSums::calls], 1u);
    EXPECT_EQ(find(answer, "stalled").sums[CallSums::runnable_ns], 50 * ms) << "the split is of calls";
    EXPECT_FALSE(find(answer, "other").longest_stall);
    EXPECT_FALSE(find(answer, "while it slept").longest_stall);
    expect_stall(find(answer, "of a quota").longest_stall, op_wait, 80 * ms, {"cgroup quota", 0});
}

TEST_F(Requests, AreNotBlamedForAStallThatWasOverBeforeThem) {
    add(make_span("late", 500 * ms, 900 * ms));
    add(preempted(make_call(launch, 0, 510 * ms), 500 * ms, "before", 8));
    add(preempted(make_call(launch, 600 * ms, 110 * ms, server), 100 * ms, "within", 9));
    const RequestsAnswer answer = ask();
    expect_stall(find(answer, "late").longest_stall, launch, 100 * ms, {"within", 9});
}

TEST_F(Requests, KeepTheLongestStallHoweverManyThereAre) {
    add(make_span("a", 0, 50 * second));
    add(make_span("b", 60 * second, 99 * second));
    add(preempted(make_call(launch, 0, 80 * ms), 70 * ms, "first", 1));
    for (uint64_t i = 1; i < 140'000; ++i)
        add(preempted(make_call(launch, i * 200'000 % (40 * second) + 100 * ms, 20'000), 15'000, "small", 2));
    add(preempted(make_call(launch, 70 * second, 30'000), 20'000, "second", 3));
    const RequestsAnswer answer = ask();
    EXPECT_EQ(find(answer, "a").longest_stall->culprit.name, "first");
    EXPECT_EQ(find(answer, "b").longest_stall->culprit.name, "second");
}

}  // namespace
}  // namespace ingero
