// Waits followed from who waited to whoever ended them, on a real store.
#include "core/query/answers/wait_chains.h"

#include <gmock/gmock.h>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/render/render.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t ms = 1'000'000;
constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t begin = 60 * second;
constexpr ProcessKey caller{100, 5}, server{200, 6}, other{300, 7};

/// A thread that is its process's only one slept, and was woken by another's.
Event make_sleep(ProcessKey process, uint64_t from_ms, uint64_t to_ms, ProcessKey waker,
                 BlockedReason reason = BlockedReason::futex, bool watched = true) {
    Event event;
    event.op = op_wait;
    event.start_ns = begin + from_ms * ms;
    event.duration_ns = event.blocked_ns = event.longest_sleep_ns = (to_ms - from_ms) * ms;
    event.tgid = event.tid = process.pid;
    event.process_start_ns = process.start_ns;
    event.blocked_reason = reason;
    event.waits = 1;
    event.waker_kind = waker.pid != 0 ? WakerKind::task : WakerKind::interrupt;
    event.waker_tgid = waker.pid;
    event.waker_comm = to_comm("waker");
    event.args[0] = pack_wait_place({.waker_tid = waker.pid, .from_cpu = 1, .waker_watched = watched});
    return event;
}

/// It could run, and another process had the CPU.
Event make_preemption(ProcessKey process, uint64_t from_ms, uint64_t to_ms) {
    Event event = make_sleep(process, from_ms, to_ms, {});
    event.runnable_ns = event.preempted_ns = event.preemptor_ns = std::exchange(event.blocked_ns, 0);
    event.longest_sleep_ns = 0;
    event.waker_kind = WakerKind::unknown;
    event.preemptor_tgid = 77;
    event.preemptor_comm = to_comm("hog");
    return event;
}

class WaitChains : public testing::Test {
  protected:
    WaitChains() {
        add(caller, 1000);
        add(server, 1000);
        add(other, 1001);
    }
    void add(ProcessKey key, uint32_t uid) {
        Process process;
        process.key = key;
        process.uid = uid;
        process.comm = "p" + std::to_string(key.pid);
        batch_.processes.push_back(process);
    }
    void add(Event event) {
        event.sequence = batch_.events.size() + 1;
        batch_.events.push_back(event);
    }

    WaitsAnswer ask(WaitsQuery query = {}) {
        if (!committed_) {
            committed_ = true;
            const ClockTriple now{begin, begin, 1'700'000'000 * second};
            StoreOptions options;
            options.clock = [now] { return now; };
            const auto writer = open_writer(directory_.path(), options);
            Session session = make_session("boot-a");
            session.clock = now;
            EXPECT_TRUE(writer->begin_session(session));
            writer->set_first_covered(begin);
            batch_.covered_until_ns = begin + 100 * second;
            EXPECT_TRUE(writer->commit(batch_));
        }
        const auto snapshot = open_snapshot(directory_.path());
        query.filter.window = whole_trace(*snapshot);
        auto answer = compute_waits(*snapshot, query);
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? std::move(*answer) : WaitsAnswer{};
    }
    /// "slept", "ran" and so on: of each link of the longest wait.
    std::vector<std::string> deeds(WaitsQuery query = {}) {
        const WaitsAnswer answer = ask(query);
        std::vector<std::string> deeds;
        if (answer.chains.empty()) return deeds;
        for (const WaitLink& link : answer.chains[0].links) deeds.emplace_back(to_string(link.kind));
        return deeds;
    }

    Batch batch_;

  private:
    TemporaryDirectory directory_;
    bool committed_ = false;
};

TEST_F(WaitChains, EndWhereAnInterruptEndedTheSleep) {
    add(make_sleep(caller, 0, 50, server));
    add(make_sleep(server, 1, 49, {}, BlockedReason::timer));
    EXPECT_THAT(deeds(), ElementsAre("slept", "slept"));
    const WaitsAnswer answer = ask();
    EXPECT_EQ(answer.waits, 2u);
    EXPECT_EQ(answer.chains[0].links[1].duration_ns, 48 * ms);
    EXPECT_EQ(answer.chains[0].links[1].process, server);
}

TEST_F(WaitChains, EndWithWhoWorkedForMostOfTheTime) {
    add(make_sleep(caller, 0, 50, server));
    add(make_sleep(server, 5, 20, {}, BlockedReason::disk));
    EXPECT_THAT(deeds(), ElementsAre("slept", "ran"));
    EXPECT_EQ(ask().chains[0].links[1].duration_ns, 35 * ms);
}

TEST_F(WaitChains, OfWhoWaitedInManySmallPiecesNameWhatForAllTogether) {
    add(make_sleep(caller, 0, 510, server));
    for (uint64_t i = 0; i < 100; ++i) {
        Event read = make_sleep(server, i * 5, i * 5 + 5, {}, BlockedReason::disk);
        read.blocked_ns = read.duration_ns -= 100'000;  // and works a little on each
        add(read);
    }
    const WaitsAnswer answer = ask();
    const WaitLink& link = answer.chains[0].links.at(1);
    EXPECT_EQ(link.kind, LinkKind::slept);
    EXPECT_EQ(link.wait->blocked_reason, BlockedReason::disk);
    EXPECT_EQ(link.duration_ns, 490 * ms);
}

TEST_F(WaitChains, DoNotSayOfWhoWaitedShortlyAndOftenThatItWorked) {
    add(make_sleep(caller, 0, 500, server));
    Event summed = make_sleep(server, 0, 400, {});
    summed.op = op_waits_summed;
    summed.args = {0, 600 * ms, 0};
    summed.waits = 4'000;
    add(summed);
    EXPECT_THAT(deeds(), ElementsAre("slept", "not_known"));
}

TEST_F(WaitChains, SayHowLongOfAWaitWasSleepAndHowLongWantOfACpu) {
    Event wait = make_sleep(caller, 0, 50, server);
    wait.blocked_ns = 30 * ms;
    wait.runnable_ns = 20 * ms;
    add(wait);
    Event meanwhile = make_sleep(server, 0, 29, {}, BlockedReason::disk);
    meanwhile.blocked_ns = 9 * ms;
    meanwhile.runnable_ns = 20 * ms;
    add(meanwhile);
    const WaitsAnswer answer = ask();
    ASSERT_THAT(answer.chains[0].links, SizeIs(2));
    EXPECT_EQ(answer.chains[0].links[0].duration_ns, 30 * ms);
    EXPECT_EQ(answer.chains[0].links[1].kind, LinkKind::no_cpu);
    EXPECT_EQ(answer.chains[0].links[1].duration_ns, 20 * ms);
}

TEST_F(WaitChains, OfAnotherUserAreHiddenThoughItHasNoRows) {
    add(make_sleep(caller, 0, 50, other));
    WaitsQuery query;
    query.filter.uid = 1000;
    EXPECT_THAT(deeds(query), ElementsAre("slept", "hidden"));
}

TEST_F(WaitChains, OfWhoBeganToWaitBeforeAreSeenToo) {
    add(make_sleep(server, 0, 90, {}, BlockedReason::timer));
    add(make_sleep(caller, 10, 92, server));
    WaitsQuery query;
    query.filter.pid = caller.pid;
    EXPECT_THAT(deeds(query), ElementsAre("slept", "slept"));
}

TEST_F(WaitChains, EndWithWhoHadNoCpuAndSayWhoHadIt) {
    add(make_sleep(caller, 0, 50, server));
    add(make_preemption(server, 5, 48));
    EXPECT_THAT(deeds(), ElementsAre("slept", "no_cpu"));
    const nlohmann::json answer = to_json(ask(), {.node = "n", .missing_probes = {}, .comms = {}});
    EXPECT_EQ(answer.at("chains")[0].at("links")[1].at("preemptor").at("comm"), "hog");
    EXPECT_THAT(text_waits(answer), HasSubstr("hog (77) had it for 43 ms"));
}

TEST_F(WaitChains, SayNothingOfWhoWasNotWatchedMeanwhile) {
    add(make_sleep(caller, 0, 50, server, BlockedReason::futex, false));
    add(make_sleep(server, 1, 49, {}));
    EXPECT_THAT(deeds(), ElementsAre("slept", "not_known"));
}

TEST_F(WaitChains, DoNotShowWhatAnotherUsersThreadsDid) {
    add(make_sleep(caller, 0, 50, other));
    add(make_sleep(other, 1, 49, {}, BlockedReason::timer));
    WaitsQuery query;
    query.filter.uid = 1000;
    EXPECT_THAT(deeds(query), ElementsAre("slept", "hidden"));
    EXPECT_EQ(ask(query).waits, 1u);
    EXPECT_THAT(deeds(), ElementsAre("slept", "slept"));
}

TEST_F(WaitChains, OfThreadsThatWaitForEachOtherEnd) {
    for (uint64_t i = 0; i < 100; ++i) {
        add(make_sleep(caller, i * 10, i * 10 + 10, server));
        add(make_sleep(server, i * 10, i * 10 + 10, caller));
    }
    EXPECT_LE(deeds().size(), 16u);
}

TEST_F(WaitChains, AreTheLongestOfThoseAskedFor) {
    for (uint64_t i = 1; i <= 5; ++i) add(make_sleep(caller, i * 100, i * 100 + i, {}));
    Event inside = make_sleep(caller, 900, 990, {});
    inside.depth = 1;
    add(inside);
    add(make_sleep(server, 700, 790, {}));
    WaitsQuery query;
    query.between_calls = true;
    query.filter.pid = caller.pid;
    query.limit = 2;
    const WaitsAnswer answer = ask(query);
    EXPECT_EQ(answer.waits, 5u);
    ASSERT_THAT(answer.chains, SizeIs(2));
    EXPECT_EQ(answer.chains[0].links[0].duration_ns, 5 * ms);
    EXPECT_EQ(answer.chains[1].links[0].duration_ns, 4 * ms);
    query.tid = 12'345;
    EXPECT_THAT(ask(query).chains, IsEmpty());
}

TEST_F(WaitChains, ByThreadAreCountedByKindThoseOfCallersFirst) {
    // A service thread that waits all the time, and one that calls: for a lock in and between calls, and once for a
    // CPU.
    for (uint64_t i = 0; i < 10; ++i) add(make_sleep(server, i * 100, i * 100 + 99, {}, BlockedReason::poll));
    for (uint64_t i = 1; i <= 5; ++i) add(make_sleep(caller, i * 100, i * 100 + i, server));
    Event inside = make_sleep(caller, 900, 902, server);
    inside.depth = 1;
    add(inside);
    add(make_preemption(caller, 950, 954));
    Event call;
    call.op = op::cudaLaunchKernel;
    call.start_ns = begin;
    call.duration_ns = ms;
    call.tgid = call.tid = caller.pid;
    call.process_start_ns = caller.start_ns;
    add(call);
    WaitsQuery query;
    query.by_thread = true;
    const WaitsAnswer answer = ask(query);
    EXPECT_EQ(answer.waits, 17u);
    ASSERT_THAT(answer.chains, SizeIs(4));
    const auto told = [&](size_t i) {
        const WaitChain& chain = answer.chains[i];
        return std::tuple(chain.links[0].process.pid, chain.calls.value(), chain.waits, chain.total_ns / ms,
                          chain.links[0].duration_ns / ms, chain.links[0].kind);
    };
    EXPECT_EQ(told(0), std::tuple(caller.pid, true, 5u, 15u, 5u, LinkKind::slept));
    EXPECT_EQ(told(1), std::tuple(caller.pid, true, 1u, 4u, 4u, LinkKind::no_cpu));
    EXPECT_EQ(told(2), std::tuple(caller.pid, true, 1u, 2u, 2u, LinkKind::slept));
    EXPECT_EQ(told(3), std::tuple(server.pid, false, 10u, 990u, 99u, LinkKind::slept));
    const std::string text = text_waits(to_json(answer, {.node = "n", .missing_probes = {}, .comms = {}}));
    EXPECT_THAT(text, testing::StartsWith("15 ms  p100 (100) thread 100, between calls: 5 waits, the longest\n"));
    EXPECT_THAT(text, HasSubstr("\n\nThreads without recorded calls\n\n990 ms  p200 (200) thread 200: 10 waits, the"));
    EXPECT_THAT(text, testing::Not(HasSubstr("more, which")));
    query.limit = 1;
    const WaitsAnswer one = ask(query);
    EXPECT_EQ(one.chains.at(0).total_ns, 15 * ms);
    EXPECT_EQ(one.kinds, 4u);
    EXPECT_THAT(text_waits(to_json(one, {.node = "n", .missing_probes = {}, .comms = {}})),
                HasSubstr("\n3 more, which --limit shows\n"));
    query.limit = 20;
    query.between_calls = true;
    query.filter.pid = caller.pid;
    EXPECT_THAT(ask(query).chains, SizeIs(2));
}

TEST_F(WaitChains, ByThreadOneThatIsInACallIsACallerInAllThatItWaits) {
    Event inside = make_sleep(caller, 900, 902, server);
    inside.depth = 1;
    add(inside);
    add(make_sleep(caller, 0, 50, server));
    Event throttled = make_preemption(caller, 100, 110);
    throttled.return_code = wait_throttled;
    add(throttled);
    add(make_preemption(caller, 200, 205));
    WaitsQuery query;
    query.by_thread = query.between_calls = true;
    query.tid = caller.pid;
    const WaitsAnswer answer = ask(query);
    ASSERT_THAT(answer.chains, SizeIs(3)) << "a quota is another kind than a preemption";
    for (const WaitChain& chain : answer.chains) EXPECT_EQ(chain.calls, true);
    query.by_thread = false;
    EXPECT_EQ(ask(query).chains.at(0).calls, std::nullopt);
}

TEST_F(WaitChains, OfAPidThatWasUsedAgainNameTheOneThatLivedThen) {
    Process gone;
    gone.key = {200, 1};
    gone.uid = 1000;
    gone.comm = "before";
    gone.exited_ns = begin - second;
    batch_.processes.push_back(gone);
    add(make_sleep(caller, 0, 50, server));
    add(make_sleep(server, 1, 49, {}));
    EXPECT_EQ(ask().chains[0].links[1].process, server);
}

TEST(WaitDetailText, SaysWhatWasWaitedFor) {
    Event wait;
    wait.op = op_wait;
    EXPECT_EQ(wait_detail_text(wait), "");
    wait.return_code = INGERO_DETAIL_LOCK | wait_throttled;
    wait.args[1] = 0x7f00;
    EXPECT_EQ(wait_detail_text(wait), "lock 0x7f00");
    EXPECT_TRUE(is_throttled(wait));
    wait.return_code = INGERO_DETAIL_FILE;
    wait.args = {0, 254 << 20 | 3, 77};
    EXPECT_EQ(wait_detail_text(wait), "file 254:3 inode 77");
    wait.return_code = INGERO_DETAIL_SOCKET;
    wait.args = {0, 0, 0x0100'007f'ffff'0000};
    wait.stream = 5000 << 16 | 99;
    EXPECT_EQ(wait_detail_text(wait), "127.0.0.1:5000");
    wait.args = {0, 0x80fe, 0x0100'0000'0000'0000};
    EXPECT_EQ(wait_detail_text(wait), "[fe80::1]:5000");
    wait.return_code = INGERO_DETAIL_REQUEST;
    wait.args = {0, 259 << 20, 4096 << 8 | 1};
    wait.stream = 1'500;
    EXPECT_EQ(wait_detail_text(wait), "write of 4.00 KiB to 259:0 in 1.5 µs");
    wait.start_ns = 10'000;
    wait.blocked_ns = 2'000;
    Event request;
    ASSERT_TRUE(request_of_wait(wait, request));
    EXPECT_EQ(request.op, op_block_write);
    EXPECT_EQ(request.start_ns, 10'500u);
    EXPECT_EQ(request.args[0], 4096u);
    EXPECT_EQ(request.args[1], 259ull << 32);
    wait.stream = UINT64_MAX;
    ASSERT_TRUE(request_of_wait(wait, request));
    EXPECT_EQ(request.duration_ns, 0u);
}

}  // namespace
}  // namespace ingero
