// Requests by measured duration, on a real store.
#include "core/diagnosis/requests.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "tests/unit/requests_fixture.h"

namespace ingero {
namespace {

using namespace requests_fixture;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(Requests, AreRankedByMeasuredDurationWhateverTheyTellOfTokens) {
    for (const auto& [id, took] : {std::pair{"middle", 3 * second}, {"long", 8 * second}, {"short", second}})
        add(make_span(id, second, second + took));
    batch_.spans[1].prompt_tokens = batch_.spans[1].output_tokens = 0;
    batch_.spans[2].prompt_tokens = batch_.spans[2].output_tokens = UINT64_MAX;
    const RequestsAnswer answer = ask();
    EXPECT_THAT(ids(answer), ElementsAre("long", "middle", "short"));
    EXPECT_EQ(answer.requests[0].duration_ns, 8 * second);
    EXPECT_EQ(answer.requests[2].span.output_tokens, UINT64_MAX) << "what was told is shown";
    EXPECT_EQ(answer.requests[0].start_realtime_ns, 1'700'000'001 * second);
    RequestsQuery query;
    query.limit = 1;
    EXPECT_THAT(ids(ask(query)), ElementsAre("long")) << "what is cut off is not chosen by tokens either";
    EXPECT_EQ(ask(query).found, 3u);
}

// As emitters for the earlier agent label a training: a moment where each step begins.
TEST_F(Requests, MomentsWithALabelAreStepsUpToTheNext) {
    const auto moment = [&](uint64_t at, std::vector<std::pair<std::string, std::string>> labels,
                            ProcessKey process = server) {
        SpanRow row = make_span("", at, at, process);
        row.kind = SpanKind::label;
        row.labels = std::move(labels);
        add(row);
    };
    moment(0, {{"epoch", "0"}});
    moment(3 * second, {{"step", "2"}, {"epoch", "0"}});
    moment(second, {{"step", "1"}, {"epoch", "0"}});
    moment(2 * second, {{"step", "other"}}, engine);
    moment(8 * second, {{"epoch", "0"}, {"phase", "epoch_end"}});
    moment(9 * second, {{"phase", "evaluation"}});
    moment(10 * second, {{"lr", "0.1"}});
    moment(11 * second, {{"phase", ""}});
    moment(11 * second, {{"step", "3"}});
    moment(14 * second, {{"phase", "checkpoint"}});
    SpanRow reported = make_span("reported", 4 * second, 5 * second);
    reported.kind = SpanKind::step;
    add(reported);
    add(make_call(launch, 2 * second, ms));
    add(make_call(launch, 4 * second, ms));
    add(make_call(launch, 7 * second, ms));
    add(make_call(launch, 8'500 * ms, ms));
    RequestsQuery query;
    query.kind = SpanKind::step;
    const RequestsAnswer steps = ask(query);
    ASSERT_THAT(ids(steps), ElementsAre("2", "3", "1", "reported")) << "one that nothing ends is none";
    EXPECT_EQ(steps.requests[0].duration_ns, 5 * second) << "it ends with its epoch";
    EXPECT_EQ(calls(steps, "2"), 2u);
    EXPECT_EQ(calls(steps, "1"), 1u);
    EXPECT_EQ(calls(steps, "3"), 0u);
    query.kind = SpanKind::phase;
    const RequestsAnswer phases = ask(query);
    ASSERT_THAT(ids(phases), ElementsAre("evaluation"));
    EXPECT_EQ(phases.requests[0].duration_ns, 2 * second);
    EXPECT_THAT(ask().requests, IsEmpty()) << "no request";
}

TEST_F(Requests, TheCompletionsOfOneAreOneRow) {
    for (const auto& [took, tokens] : {std::pair{10 * ms, 7u}, {12 * ms, 9u}, {11 * ms, 4u}}) {
        SpanRow child = make_span("asked", second + took % 3, second + took);
        child.prompt_tokens = 100;
        child.output_tokens = tokens;
        child.first_token_ns = begin + second + took / 2;
        child.labels = {{"finish_reason", took == 12 * ms ? "length" : "stop"}};
        add(child);
    }
    add(make_span("other", second, second + 5 * ms));
    add(make_span("asked", second + 2 * ms, second + 3 * ms));
    add(make_span("asked", second, second + 20 * ms, engine));
    add(make_call(launch, second + 11 * ms, ms / 2));
    const RequestsAnswer answer = ask();
    EXPECT_EQ(answer.found, 4u) << "one of an id that is used again, and that of another process, are further ones";
    ASSERT_THAT(answer.requests, SizeIs(4));
    const RequestStats& asked = answer.requests[1];
    EXPECT_EQ(asked.duration_ns, 12 * ms);
    EXPECT_EQ(asked.span.output_tokens, 20u);
    EXPECT_EQ(asked.span.prompt_tokens, 100u);
    EXPECT_EQ(asked.span.first_token_ns, begin + second + 5 * ms);
    EXPECT_THAT(asked.span.labels, ElementsAre(std::pair<std::string, std::string>("finish_reason", "length")));
    EXPECT_THAT(asked.span.values, ElementsAre(std::pair<std::string, double>("completions", 3)));
    EXPECT_EQ(asked.co_resident, 2u) << "and none of its own completions";
}

TEST_F(Requests, PhasesOfOneNameThatFollowAtOnceAreEachOne) {
    for (uint64_t i = 0; i < 3; ++i) {
        SpanRow phase = make_span("forward", second + i * ms / 5, second + i * ms / 5 + ms / 10);
        phase.kind = SpanKind::phase;
        add(phase);
        if (i == 0) add(phase);
    }
    RequestsQuery query;
    query.kind = SpanKind::phase;
    EXPECT_EQ(ask(query).found, 3u);
}

TEST_F(Requests, ThatWereSentAgainAreOneThoughTheWallClockWasReadAnew) {
    SpanRow span = make_span("again", second, second + 10 * ms);
    span.output_tokens = 7;
    add(span);
    span.start_ns += 40;
    span.end_ns += 40;
    add(span);
    const RequestsAnswer answer = ask();
    ASSERT_THAT(answer.requests, SizeIs(1));
    EXPECT_EQ(answer.requests[0].span.output_tokens, 7u);
    EXPECT_EQ(answer.requests[0].co_resident, 0u);
}

TEST_F(Requests, OfEqualDurationStandByArrival) {
    add(make_span("second", 2 * second, 3 * second));
    add(make_span("first", second, 2 * second));
    batch_.spans[0].output_tokens = 1'000'000;
    EXPECT_THAT(ids(ask()), ElementsAre("first", "second"));
}

TEST_F(Requests, CountASharedCallEachAndShareItsTime) {
    add(make_span("a", 0, 10 * ms));
    add(make_span("b", 5 * ms, 15 * ms));
    add(make_span("alone", 50 * ms, 60 * ms));
    add(make_call(launch, ms, ms));
    add(make_call(launch, 6 * ms, 2 * ms));
    add(make_call(copy, 9 * ms, 2 * ms));
    add(make_call(stream_sync, 12 * ms, ms));
    add(make_call(device_malloc, 55 * ms, 3 * ms));
    add(make_call(launch, 30 * ms, ms));
    const RequestsAnswer answer = ask();
    EXPECT_EQ(calls(answer, "a"), 3u);
    EXPECT_EQ(calls(answer, "b"), 3u);
    const CallSums& a = find(answer, "a").sums;
    EXPECT_EQ(a[CallSums::launches], 2u);
    EXPECT_EQ(a[CallSums::copies], 1u);
    EXPECT_EQ(a[CallSums::syncs], 0u);
    EXPECT_EQ(a[CallSums::fair_share_ns], ms + 2 * ms / 2 + 2 * ms / 2);
    EXPECT_EQ(find(answer, "b").sums[CallSums::syncs], 1u);
    EXPECT_EQ(find(answer, "a").co_resident, 1u);
    EXPECT_EQ(find(answer, "alone").co_resident, 0u);
    EXPECT_EQ(find(answer, "alone").sums[CallSums::allocations], 1u);
    EXPECT_EQ(find(answer, "alone").sums[CallSums::fair_share_ns], 3 * ms);
}

TEST_F(Requests, CountACallForAsManyAsItStandsFor) {
    add(make_span("a", 0, 10 * ms));
    Event event = make_call(launch, ms, 10);
    event.weight = 8;
    add(event);
    event.time_weight = 5;
    add(event);
    const RequestsAnswer answer = ask();
    EXPECT_EQ(find(answer, "a").sums[CallSums::launches], 16u);
    EXPECT_EQ(find(answer, "a").sums[CallSums::on_cpu_ns], 80u + 50u);
}

TEST_F(Requests, CountNoCallInsideAnother) {
    add(make_span("a", 0, 10 * ms));
    add(make_call(launch, ms, 2 * ms));
    Event inner = make_call(op::cuLaunchKernel, ms, ms);
    inner.depth = 1;
    add(inner);
    const RequestsAnswer answer = ask();
    EXPECT_EQ(calls(answer, "a"), 1u);
    EXPECT_EQ(find(answer, "a").sums[CallSums::on_cpu_ns], 2 * ms);
}

TEST_F(Requests, CountCallsThatBeganBeforeThemOrEndAfter) {
    add(make_span("a", 10 * ms, 20 * ms));
    add(make_call(launch, 8 * ms, 4 * ms));
    add(make_call(launch, 19 * ms, 4 * ms));
    add(make_call(launch, 0, 10 * ms));
    add(make_call(launch, 20 * ms, ms));
    EXPECT_EQ(calls(ask(), "a"), 2u);
}

TEST_F(Requests, SplitTheTimeOfTheirCalls) {
    add(make_span("a", 0, 100 * ms));
    Event event = preempted(make_call(launch, ms, 10 * ms), 4 * ms, "hog", 7);
    event.blocked_ns = 3 * ms;
    add(event);
    add(make_call(stream_sync, 20 * ms, 5 * ms));
    const RequestsAnswer answer = ask();
    const CallSums& sums = find(answer, "a").sums;
    EXPECT_EQ(sums[CallSums::on_cpu_ns], 3 * ms);
    EXPECT_EQ(sums[CallSums::runnable_ns], 4 * ms);
    EXPECT_EQ(sums[CallSums::blocked_ns], 3 * ms);
    EXPECT_EQ(sums[CallSums::device_wait_ns], 5 * ms);
}
TEST_F(Requests, NameTheRequestThatHeldUpTheOthers) {
    // One request with eight completions; light ones arrive meanwhile and wait for their first token.
    for (uint64_t i = 0; i < 8; ++i) add(make_span("heavy", 0, 4 * second + i));
    for (uint64_t i = 0; i < 6; ++i) {
        SpanRow light = make_span("light-" + std::to_string(i), second + i * 100 * ms, 5 * second + i * 100 * ms);
        light.scheduled_ns = light.start_ns + 2 * second;
        light.first_token_ns = light.start_ns + 3 * second;
        add(light);
    }
    const RequestsAnswer answer = ask();
    for (uint64_t i = 0; i < 6; ++i) {
        const RequestStats& light = find(answer, "light-" + std::to_string(i));
        EXPECT_EQ(light.queue_ns, 2 * second);
        EXPECT_EQ(light.ttft_ns, 3 * second);
        EXPECT_EQ(light.co_resident, 6u);
        ASSERT_THAT(light.occupied_by, SizeIs(3));
        EXPECT_EQ(light.occupied_by[0].id, "heavy");
        EXPECT_GT(light.occupied_by[0].share, 0.5);
        EXPECT_LT(light.occupied_by[1].share, 0.2);
    }
    const Occupant& first = find(answer, "light-0").occupied_by[0];
    EXPECT_EQ(first.ns, 8 * 3 * second) << "of each completion, until the first token";
    for (const Occupant& other : find(answer, "heavy").occupied_by)
        EXPECT_NE(other.id, "heavy") << "its own completions do not hold it up";
}

TEST_F(Requests, ThatWereSentAgainCountOnce) {
    for (int i = 0; i < 3; ++i) {
        add(make_span("twice", 0, 10 * ms));
        batch_.spans.back().received_ns = begin + second + i;
    }
    add(make_span("twice", 0, 11 * ms));
    add(make_span("twice", 0, 10 * ms, engine));
    add(make_call(launch, ms, 3 * ms));
    const RequestsAnswer answer = ask();
    EXPECT_EQ(answer.found, 2u) << "of another process is another span, of another end another completion";
    for (const RequestStats& request : answer.requests)
        if (request.span.process == server) {
            EXPECT_EQ(request.duration_ns, 11 * ms);
            EXPECT_EQ(request.co_resident, 0u);
            EXPECT_EQ(request.sums[CallSums::fair_share_ns], 3 * ms);
        }
}

TEST_F(Requests, HaveTheCallsOfTheirOwnProcessAlone) {
    batch_.processes.push_back(make_process(engine, "", 1'000, server.pid));
    add(make_span("a", 0, 10 * ms));
    add(make_span("b", 0, 20 * ms, engine));
    add(make_call(launch, ms, ms));
    add(make_call(launch, 2 * ms, ms, engine));
    add(make_call(launch, 3 * ms, ms, engine));
    const RequestsAnswer answer = ask();
    EXPECT_EQ(calls(answer, "a"), 1u);
    EXPECT_EQ(calls(answer, "b"), 2u);
    EXPECT_EQ(find(answer, "a").co_resident, 0u) << "another scope group";
}

TEST_F(Requests, HaveTheCallsOfTheWholeControlGroup) {
    const std::string service = "/system.slice/vllm.service";
    constexpr ProcessKey below{300, 7}, beside{400, 8}, child{500, 9};
    batch_.processes = {make_process(server, service), make_process(engine, service),
                        make_process(below, service + "/worker"), make_process(beside, service + "2"),
                        make_process(child, "/elsewhere", 1'000, engine.pid)};
    SpanRow span = make_span("a", 0, 10 * ms);
    span.scope = service;
    add(span);
    span = make_span("b", 0, 8 * ms, engine);
    span.scope = service;
    add(span);
    add_call_of_each({server, engine, below, child, beside});
    const RequestsAnswer answer = ask();
    EXPECT_EQ(calls(answer, "a"), 1'111u) << "and of its descendants, but of no other group's";
    EXPECT_EQ(calls(answer, "b"), 1'111u) << "whichever process of the group told of it";
    EXPECT_EQ(find(answer, "a").co_resident, 1u);
}

TEST_F(Requests, HaveTheCallsOfDescendantsAndOfRegisteredProcesses) {
    constexpr ProcessKey grandchild{300, 7}, registered{400, 8}, reused{500, 1}, other{600, 9};
    batch_.processes = {make_process(server),
                        make_process(engine, "", 1'000, server.pid),
                        make_process(grandchild, "", 1'000, engine.pid),
                        make_process(registered),
                        make_process(reused, "", 1'000, server.pid),
                        make_process(other)};
    const std::string scope = "process 100";
    SpanRow span = make_span("a", 0, 10 * ms);
    span.scope = scope;
    add(span);
    SpanRow registration = make_span(registration_id(scope), 0, 0, registered);
    registration.kind = SpanKind::scope;
    registration.scope = scope;
    add(registration);
    add_call_of_each({server, engine, grandchild, registered, reused, other});
    EXPECT_EQ(calls(ask(), "a"), 1'111u) << "not of one that is older than its parent, nor of one that is none of them";
}

TEST_F(Requests, HaveNoCallsOfChildrenOfWhoHadThePidLater) {
    constexpr ProcessKey child{300, 7}, next{server.pid, 20}, child_of_next{301, 30};
    // The one that tells is not traced itself.
    batch_.processes = {make_process(child, "", 1'000, server.pid), make_process(next),
                        make_process(child_of_next, "", 1'000, server.pid)};
    add(make_span("a", 0, 10 * ms));
    batch_.spans.back().scope = "process 100";
    add_call_of_each({child, next, child_of_next});
    EXPECT_EQ(calls(ask(), "a"), 1u);
}

TEST_F(Requests, OfOneUserAreAllThatTheUserSees) {
    batch_.processes = {make_process(server), make_process(engine, "", 2'000)};
    add(make_span("mine", 0, 10 * ms));
    add(make_span("theirs", 0, 20 * ms, engine));
    batch_.spans.back().uid = 2'000;
    const std::string shared = "/system.slice/shared.service";
    for (SpanRow& span : batch_.spans) span.scope = shared;
    for (Process& process : batch_.processes) process.cgroup = shared;
    add(make_call(launch, ms, ms));
    add(make_call(launch, 2 * ms, ms, engine));
    RequestsQuery query;
    EXPECT_EQ(calls(ask(query), "mine"), 2u);
    EXPECT_THAT(find(ask(query), "mine").occupied_by, SizeIs(1));
    query.filter.uid = 1'000;
    const RequestsAnswer mine = ask(query);
    EXPECT_THAT(ids(mine), ElementsAre("mine"));
    EXPECT_EQ(mine.found, 1u);
    EXPECT_EQ(calls(mine, "mine"), 1u);
    EXPECT_EQ(find(mine, "mine").co_resident, 0u);
    EXPECT_THAT(find(mine, "mine").occupied_by, IsEmpty());
    query.filter.uid = 3'000;
    EXPECT_THAT(ask(query).requests, IsEmpty());
}

TEST_F(Requests, OfOneProcessAreThoseOfItsScopeGroupsWithItsCalls) {
    const std::string service = "/system.slice/vllm.service";
    batch_.processes = {make_process(server, service), make_process(engine, service), make_process({300, 7})};
    add(make_span("a", 0, 10 * ms));
    batch_.spans.back().scope = service;
    add(make_span("other", 0, 10 * ms, {300, 7}));
    add(make_call(launch, ms, ms));
    add(make_call(launch, 2 * ms, ms, engine));
    RequestsQuery query;
    query.filter.pid = engine.pid;
    const RequestsAnswer answer = ask(query);
    EXPECT_THAT(ids(answer), ElementsAre("a"));
    EXPECT_EQ(calls(answer, "a"), 1u);
}

TEST_F(Requests, AreChosenByIdDurationAndWindow) {
    add(make_span("a", 0, 2 * second));
    add(make_span("b\xff", 3 * second, 4 * second));
    add(make_span("c", 5 * second, 5 * second + ms));
    RequestsQuery query;
    query.id = "a";
    EXPECT_THAT(ids(ask(query)), ElementsAre("a"));
    query.id = "b\xff";
    EXPECT_THAT(ids(ask(query)), ElementsAre("b\xff"));
    query.id = "b\ufffd";
    EXPECT_THAT(ids(ask(query)), ElementsAre("b\xff")) << "as an answer prints it";
    query.id = "none";
    EXPECT_THAT(ids(ask(query)), IsEmpty());
    query.id = {};
    query.slower_than_ns = second;
    EXPECT_THAT(ids(ask(query)), ElementsAre("a", "b\xff"));
    query.slower_than_ns = 0;
    query.filter.window = {1'700'000'003 * second, 1'700'000'005 * second};
    EXPECT_THAT(ids(ask(query)), ElementsAre("b\xff"));
}

TEST_F(Requests, SayWhatOfThemWasNotCoveredAlsoOutsideOfTheWindow) {
    add(make_span("early", second, 3 * second));
    SpanRow span = make_span("before there was anything", 0, 5 * second);
    span.start_ns = begin - 2 * second;
    add(span);
    RequestsQuery query;
    query.filter.window = {1'700'000'002 * second, 1'700'000'004 * second};
    query.id = "early";
    EXPECT_TRUE(ask(query).coverage.complete);
    query.id = {};
    const RequestsAnswer answer = ask(query);
    EXPECT_EQ(answer.window.from_ns, 1'700'000'002 * second);
    ASSERT_THAT(answer.coverage.gaps, SizeIs(1));
    EXPECT_EQ(answer.coverage.gaps[0].from_ns, 1'699'999'998 * second);
    EXPECT_EQ(answer.coverage.gaps[0].to_ns, 1'700'000'000 * second);
}

TEST_F(Requests, AreNoStepsAndTheOtherWayRound) {
    add(make_span("request", 0, second));
    SpanRow step = make_span("step-17", 0, 2 * second);
    step.kind = SpanKind::step;
    step.labels = {{"epoch", "3"}};
    step.values = {{"loss", 0.25}};
    add(step);
    add(make_call(launch, ms, ms));
    EXPECT_THAT(ids(ask()), ElementsAre("request"));
    EXPECT_EQ(find(ask(), "request").co_resident, 0u);
    RequestsQuery query;
    query.kind = SpanKind::step;
    const RequestsAnswer answer = ask(query);
    EXPECT_EQ(answer.kind, SpanKind::step);
    EXPECT_THAT(ids(answer), ElementsAre("step-17"));
    EXPECT_EQ(calls(answer, "step-17"), 1u);
    EXPECT_THAT(answer.requests[0].span.values, ElementsAre(std::pair<std::string, double>("loss", 0.25)));
}

TEST_F(Requests, SayWhetherCollectivesCount) {
    add(make_span("a", 0, second));
    add(make_call(launch, ms, ms));
    EXPECT_FALSE(ask().counts_collectives);
}

TEST_F(Requests, CountCollectivesWhereThereAreAny) {
    add(make_span("a", 0, second));
    add(make_call(all_reduce, ms, ms));
    const RequestsAnswer answer = ask();
    EXPECT_TRUE(answer.counts_collectives);
    EXPECT_EQ(find(answer, "a").sums[CallSums::collectives], 1u);
}

TEST_F(Requests, ThatEndBeforeTheyBeginAreOfNoLength) {
    add(make_span("odd", 10 * ms, 5 * ms));
    add(make_span("a", 0, 20 * ms));
    add(make_call(launch, ms, ms));
    EXPECT_EQ(ids(ask()).front(), "a");
}

TEST_F(Requests, OfAnEmptyWindowAreNone) {
    const RequestsAnswer answer = ask();
    EXPECT_THAT(answer.requests, IsEmpty());
    EXPECT_EQ(answer.found, 0u);
}

TEST_F(Requests, EachCallIsListedOnceForEachRequestThatItOverlaps) {
    add(make_span("long", 0, 100 * ms));
    add(make_span("short", 10 * ms, 20 * ms));
    add(make_span("late", 50 * ms, 60 * ms));
    add(make_call(launch, 5 * ms, 10 * ms));      // 1: into the short one
    add(make_call(launch, 55 * ms, 100 * ms));    // 2: beyond the end of all
    add(make_call(launch, 20 * ms, 5 * ms));      // 3: begins when the short one ends
    add(make_call(launch, 12 * ms, ms, engine));  // 4: nobody's
    EXPECT_THAT(pairs(),
                testing::UnorderedElementsAre(Pair("long", 1, 2, 10), Pair("short", 1, 2, 5), Pair("long", 3, 1, 5),
                                              Pair("long", 2, 2, 45), Pair("late", 2, 2, 5)));
    RequestsQuery query;
    query.id = "short";
    EXPECT_THAT(pairs(query), ElementsAre(Pair("short", 1, 2, 5)));
    // Who shares a call is told also where the others are not asked for.
    EXPECT_THAT(pairs({}, {begin + 101 * ms, UINT64_MAX}), IsEmpty());
    EXPECT_THAT(pairs({}, {begin + 55 * ms, begin + 60 * ms}),
                testing::UnorderedElementsAre(Pair("long", 1, 2, 10), Pair("long", 3, 1, 5), Pair("long", 2, 2, 45),
                                              Pair("late", 2, 2, 5)));
    query.id = "late";
    query.slower_than_ns = 11 * ms;
    EXPECT_THAT(pairs(query), IsEmpty());
}

TEST_F(Requests, AmongManyThatCallsOverlapArePairedAsEachWithEach) {
    std::mt19937 random(7);
    const auto below = [&](uint64_t n) { return random() % n; };
    struct Times {
        uint64_t from, to;
    };
    std::vector<Times> spans = {{0, 1000 * ms}}, calls;  // one that lasts
    for (int i = 0; i < 300; ++i) {
        const uint64_t from = below(900) * ms;
        spans.push_back({from, from + below(40) * ms});  // some of no length
    }
    for (size_t i = 0; i < spans.size(); ++i) add(make_span("r" + std::to_string(i), spans[i].from, spans[i].to));
    for (int i = 0; i < 300; ++i) {
        calls.push_back({below(900) * ms, below(20) * ms});
        calls.back().to += calls.back().from;
        add(make_call(launch, calls.back().from, calls.back().to - calls.back().from));
    }
    const auto end = [](const Times& times) { return std::max(times.to, times.from + 1); };
    const auto overlap = [&](const Times& a, const Times& b) { return a.from < end(b) && b.from < end(a); };
    std::vector<Pair> expected;
    const auto is_listed = [](size_t span) { return span % 3 == 0; };
    for (size_t call = 0; call < calls.size(); ++call) {
        const auto sharing = static_cast<uint32_t>(
            std::count_if(spans.begin(), spans.end(), [&](const Times& span) { return overlap(span, calls[call]); }));
        for (size_t span = 0; span < spans.size(); ++span) {
            if (!is_listed(span) || !overlap(spans[span], calls[call])) continue;
            const uint64_t from = std::max(spans[span].from, calls[call].from);
            const uint64_t to = std::min(spans[span].to, calls[call].to);
            expected.emplace_back("r" + std::to_string(span), call + 1, sharing, to > from ? (to - from) / ms : 0);
        }
    }
    std::vector<Pair> found;
    for (const Pair& pair : pairs())
        if (is_listed(std::stoul(std::get<0>(pair).substr(1)))) found.push_back(pair);
    EXPECT_GT(expected.size(), 1'000u);
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found, expected);
    RequestsQuery query;
    query.id = "r0";
    EXPECT_EQ(pairs(query).size(), calls.size());  // shared by others that are not listed
    for (const auto& [id, call, sharing, overlapped] : pairs(query))
        EXPECT_EQ(sharing, std::count_if(spans.begin(), spans.end(), [&, call = call](const Times& span) {
                      return overlap(span, calls[call - 1]);
                  }));
}

}  // namespace
}  // namespace ingero
