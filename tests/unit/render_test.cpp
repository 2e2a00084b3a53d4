// The JSON objects against their schemas, the plain text made of them, and what happens to text that a target wrote.

#include "core/render/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/model/error_names.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/render/requests.h"
#include "core/render/table.h"
#include "core/wire/utf8.h"
#include "test_paths.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* hostile = "a\x1b[2Jb\nc\xff\u202e\u200b";

Event slow_event() {
    Event event;
    event.sequence = 17;
    event.op = op::cudaLaunchKernel;
    event.tgid = 4242;
    event.tid = 4243;
    event.duration_ns = 3'005'000;
    event.runnable_ns = 2'710'000;
    event.preemptor_tgid = 991;
    event.preemptor_ns = 2'600'000;
    event.preemptor_comm = to_comm("stress-ng");
    event.blocked_reason = BlockedReason::disk;
    event.longest_sleep_ns = 100'000;
    event.blocked_ns = 100'000;
    event.waker_kind = WakerKind::task;
    event.waker_tgid = 12;
    event.waker_comm = to_comm("kworker");
    return event;
}

SlowCall slow_call() {
    SlowCall call;
    call.event = slow_event();
    call.start_realtime_ns = 1'795'000'000'000'000'000;
    call.expected_ns = 20'000;
    call.excess_ns = 2'985'000;
    call.explained_ns = 2'810'000;
    call.split = {95'000, 100'000, 2'710'000, 100'000};
    return call;
}

ExplainAnswer explain_answer() {
    ExplainAnswer answer;
    answer.window = {1'795'000'000'000'000'000, 1'795'000'300'000'000'000};
    answer.coverage.complete = true;
    Finding finding;
    finding.id = "cpu-contention-4242";
    finding.kind = "cpu-contention";
    finding.severity = Severity::high;
    finding.verdict = Verdict::proven;
    finding.summary = "stress-ng ran while cudaLaunchKernel wanted the CPU";
    finding.lost_ns = 155'700'000;
    finding.lost_low_ns = 140'000'000;
    finding.lost_high_ns = 160'000'000;
    finding.waited_ns = 170'000'000;
    finding.window_share = 0.12;
    finding.explained_fraction = 0.93;
    finding.pid = 4242;
    finding.comm = "python";
    finding.culprits = {{"stress-ng", 991, 120'300'000}, {"disk", 0, 3'000'000}};
    finding.rejected = {{"disk wait", 3'900'000}};
    finding.evidence = {17, 18};
    finding.worst = slow_call();
    finding.fix = "Pin stress-ng to other CPUs.";
    finding.confirm = "Runnable time stays below 1 ms.";
    answer.findings = {finding};
    answer.slow_calls = {slow_call()};
    answer.calls = 12'345;
    answer.excess_ns = 160'000'000;
    answer.explained_ns = 150'000'000;
    answer.summary = "cpu-contention cost python (4242) 155.7 ms";
    return answer;
}

StatsAnswer stats_answer() {
    StatsAnswer answer;
    answer.window = {1, 2};
    answer.coverage = {false, 3, 4, {{1, 2, "ingerod was not running"}}};
    OpStats launch;
    launch.op = op::cudaLaunchKernel;
    launch.pid = 4242;
    launch.count = 1'234'567;
    launch.p50_ns = 20'300;
    launch.total_ns = 1'000'000;
    launch.runnable_ns = 900'000;
    OpStats copy = launch;
    copy.op = op::cudaMemcpy;
    copy.bytes = 3ULL << 30;
    copy.errors = 4;
    copy.error_codes = {{2, 3}, {12'345, 1}};
    OpStats unknown = launch;
    unknown.op = make_op(99, 7);
    answer.ops = {launch, copy, unknown};
    return answer;
}

RequestsAnswer requests_answer() {
    RequestsAnswer answer;
    answer.window = {1'795'000'000'000'000'000, 1'795'000'300'000'000'000};
    answer.coverage.complete = true;
    answer.found = 17;
    RequestStats request;
    request.span.id = "cmpl-17";
    request.span.process = {4242, 5};
    request.span.labels = {{"tenant", "a b"}};
    request.span.values = {{"loss", 0.25}};
    request.start_realtime_ns = 1'795'000'000'000'000'000;
    request.duration_ns = 8'200'000'000;
    request.queue_ns = 0;
    request.sums[CallSums::calls] = 1'500;
    request.sums[CallSums::launches] = 1'234;
    request.sums[CallSums::on_cpu_ns] = 300'000'000;
    request.sums[CallSums::runnable_ns] = 900'000'000;
    request.sums[CallSums::fair_share_ns] = 410'000'000;
    request.co_resident = 7;
    request.longest_stall = {.ns = 580'000'000,
                             .kind = "cpu-contention",
                             .culprit = {"stress-ng", 991, 580'000'000},
                             .op = op::cudaLaunchKernel,
                             .pid = 4242,
                             .tid = 4243,
                             .start_realtime_ns = 1'795'000'001'000'000'000,
                             .sequence = 17};
    request.occupied_by = {{"heavy", 12'000'000'000, 0.62}, {"light", 2'000'000'000, 0.1}};
    answer.requests.push_back(request);
    request.span = {};
    request.span.id = "cmpl-3";
    request.duration_ns = 8'000'000'000;
    request.queue_ns = {};
    request.longest_stall = {};
    request.occupied_by = {};
    answer.requests.push_back(request);
    return answer;
}

AnswerContext context() {
    return {"gpu-1", {}, {}};
}

json status_answer() {
    json answer = answer_head("status", context(), {1, 2}, {true, 0, 0, {}});
    answer.update(json{
        {"state", "tracing"},
        {"version", "0.1.0"},
        {"uptime_ns", 11'000'000'000'000u},
        {"events",
         {{"recorded", 12'345'678u},
          {"committed", 12'345'000u},
          {"waits", 4'000u},
          {"lost", 0u},
          {"sampled_out", 0u},
          {"split_uncertain", 12u},
          {"stacks_lost", 3u},
          {"stacks_lost_ring", 1u},
          {"names_lost", 0u}}},
        {"overhead", {{"budget_permille", 10u}, {"measured_permille", nullptr}, {"thinned", json::array()}}},
        {"spans",
         {{"connections", 1u}, {"accepted", 2u}, {"waiting", 0u}, {"dropped", 4u}, {"refused", {{"too-old", 3u}}}}},
        {"store", {{"bytes", 1'288'490'188u}, {"cap_bytes", 10ULL << 30}, {"oldest_ns", nullptr}}},
        {"memory_bytes", 47'185'920u},
        {"processes", 3u},
        {"sockets", 1u},
        {"traces", 0u},
        {"relay",
         {{"connected", true},
          {"interval_ns", 1'000'000'000u},
          {"rows", 5u},
          {"refused", 0u},
          {"dropped", 1'234u},
          {"sources",
           {{"gpus", {{"state", "hung"}, {"reason", "the measuring process reported nothing for too long"}}},
            {"ports", {{"state", "absent"}, {"reason", nullptr}}}}}}},
        {"incidents_open", 0u}});
    return answer;
}

json processes_answer(const std::string& comm = "python") {
    json answer = answer_head("processes", context(), {1, 2}, {true, 0, 0, {}});
    Process process{.key = {4242, 0}, .comm = comm, .cgroup = "/system.slice/vllm.service", .unit = "vllm.service"};
    json one = process_json(process);
    one["start_time_ns"] = 1'795'000'000'000'000'000u;
    one["calls_per_s"] = 1234.5;
    one["state"] = "tracing";
    answer["processes"] = json::array({one});
    return answer;
}

/// "" where valid, the errors otherwise; "missing" where there is no validator.
std::string validate(const std::string& command, const json& answer) {
    const std::string document = testing::TempDir() + "ingero-" + command + "-" + std::to_string(getpid()) + ".json";
    std::ofstream(document) << answer.dump();
    const std::string source = INGERO_SOURCE_DIR;
    const std::string line = "/usr/bin/python3 " + source + "/tests/support/validate_schema.py " + source +
                             "/docs/schemas/" + command + ".schema.json " + document + " 2>&1";
    FILE* pipe = popen(line.c_str(), "r");
    std::string output;
    char buffer[256];
    while (fgets(buffer, sizeof(buffer), pipe)) output += buffer;
    const int status = pclose(pipe);
    std::remove(document.c_str());
    if (WEXITSTATUS(status) == 77) return "missing";
    return WEXITSTATUS(status) == 0 ? "" : "invalid: " + output;
}

#define EXPECT_VALID(command, answer)                                                         \
    do {                                                                                      \
        const std::string errors = validate(command, answer);                                 \
        if (errors == "missing") GTEST_SKIP() << "the package python3-jsonschema is missing"; \
        EXPECT_EQ(errors, "");                                                                \
    } while (false)

TEST(Schema, EveryAnswerIsValid) {
    EXPECT_VALID("status", status_answer());
    EXPECT_VALID("processes", processes_answer());
    EXPECT_VALID("stats", to_json(stats_answer(), context()));
    EXPECT_VALID("explain", to_json(explain_answer(), context()));
    EXPECT_VALID("requests", to_json(requests_answer(), context()));
}

TEST(Schema, EmptyAndHostileAnswersAreValidToo) {
    StatsAnswer stats;
    EXPECT_VALID("stats", to_json(stats, {}));
    ExplainAnswer explain;
    EXPECT_VALID("explain", to_json(explain, {}));
    explain = explain_answer();
    Finding& finding = explain.findings[0];
    finding.comm = finding.summary = finding.kind = finding.fix = hostile;
    finding.culprits[0].name = hostile;
    finding.worst.event.preemptor_comm = to_comm("\xff\xfe");
    explain.coverage.gaps = {{1, 2, hostile}};
    EXPECT_VALID("explain", to_json(explain, {hostile, {hostile}, {{{.pid = 4242, .start_ns = 0}, hostile}}}));
}

TEST(Schema, HostileRequestsAreValidToo) {
    EXPECT_VALID("requests", to_json(RequestsAnswer{}, {}));
    RequestsAnswer answer = requests_answer();
    answer.kind = SpanKind::step;
    SpanRow& span = answer.requests[0].span;
    span.id = span.model = hostile;
    span.labels = {{hostile, hostile}, {"", ""}};
    span.values = {{hostile, std::numeric_limits<double>::infinity()}, {"nan", std::nan("")}};
    span.process = {};
    answer.requests[0].longest_stall->culprit = {"", 7, 1};
    answer.requests[1].longest_stall = RequestStall{};
    answer.requests[0].occupied_by = {{hostile, 1, 1}};
    EXPECT_VALID("requests", to_json(answer, {hostile, {hostile}, {}}));
}

TEST(Schema, AMemberMoreOrLessIsInvalid) {
    json answer = status_answer();
    answer["surprise"] = 1;
    const std::string errors = validate("status", answer);
    if (errors == "missing") GTEST_SKIP() << "the package python3-jsonschema is missing";
    EXPECT_THAT(errors, HasSubstr("surprise"));
    answer.erase("surprise");
    answer.erase("state");
    EXPECT_THAT(validate("status", answer), HasSubstr("state"));
}

TEST(RenderJson, AbsentIsNullAndNeverZero) {
    const json stats = to_json(stats_answer(), context());
    EXPECT_TRUE(stats["ops"][0]["bytes"].is_null()) << "a launch has no size";
    EXPECT_EQ(stats["ops"][1]["bytes"], 3ULL << 30);
    EXPECT_TRUE(stats["ops"][0]["lost_ns"].is_null());
    EXPECT_EQ(stats["ops"][2]["op"], "op-99-7");

    ExplainAnswer answer = explain_answer();
    answer.slow_calls[0].expected_ns = 0;
    answer.slow_calls[0].event.preemptor_tgid = 0;
    answer.slow_calls[0].event.blocked_reason = BlockedReason::none;
    answer.findings[0].worst = {};
    const json explain = to_json(answer, context());
    EXPECT_TRUE(explain["slow_calls"][0]["expected_ns"].is_null());
    EXPECT_TRUE(explain["slow_calls"][0]["ran_instead"].is_null());
    EXPECT_TRUE(explain["slow_calls"][0]["waited_for"].is_null());
    EXPECT_TRUE(explain["findings"][0]["timeline"].is_null());
    EXPECT_TRUE(explain["findings"][0]["culprits"][1]["pid"].is_null());
}

TEST(RenderJson, OfARequestTooAbsentIsNull) {
    RequestsAnswer answer = requests_answer();
    const json requests = to_json(answer, context())["requests"];
    EXPECT_EQ(requests[0]["queue_ns"], 0);
    EXPECT_EQ(requests[0]["rank_by_ns"], 8'200'000'000);
    EXPECT_EQ(requests[0]["labels"], (json{{"tenant", "a b"}}));
    EXPECT_EQ(requests[0]["longest_stall"]["culprit"], (json{{"name", "stress-ng"}, {"pid", 991}}));
    for (const char* name : {"queue_ns", "ttft_ns", "longest_stall", "prompt_tokens", "output_tokens", "model", "pid"})
        EXPECT_TRUE(requests[1][name].is_null()) << name;
    EXPECT_TRUE(requests[0]["events"]["collectives"].is_null());
    EXPECT_EQ(requests[0]["events"]["launches"], 1'234);
    answer.counts_collectives = true;
    EXPECT_EQ(to_json(answer, context())["requests"][0]["events"]["collectives"], 0);
}

TEST(RenderJson, ASlowCallSaysWhereItsTimeWent) {
    const json call = to_json(explain_answer(), context())["slow_calls"][0];
    EXPECT_EQ(call["op"], "cudaLaunchKernel");
    EXPECT_EQ(call["comm"], "python") << "known from the finding";
    EXPECT_EQ(call["split"]["runnable_ns"], 2'710'000u);
    EXPECT_EQ(call["ran_instead"], (json{{"name", "stress-ng"}, {"pid", 991}, {"ns", 2'600'000}}));
    EXPECT_EQ(call["waited_for"]["reason"], "disk");
    EXPECT_EQ(call["waited_for"]["waker"], (json{{"kind", "task"}, {"name", "kworker"}, {"pid", 12}}));
    EXPECT_NEAR(call["explained_fraction"].get<double>(), 0.941, 0.001);
}

TEST(RenderJson, CallsOfTwoProgramsThatHadOnePidHaveTheirOwnCommands) {
    ExplainAnswer answer = explain_answer();
    answer.slow_calls.push_back(slow_call());
    answer.slow_calls.push_back(slow_call());
    answer.slow_calls[1].event.process_start_ns += 1;
    answer.slow_calls[2].event.process_start_ns += 2;
    AnswerContext known = context();
    known.comms = {{answer.slow_calls[0].event.process(), "trainer"}, {answer.slow_calls[1].event.process(), "loader"}};
    const json calls = to_json(answer, known)["slow_calls"];
    EXPECT_EQ(calls[0]["comm"], "trainer");
    EXPECT_EQ(calls[1]["comm"], "loader");
    EXPECT_EQ(calls[2]["comm"], nullptr);
}

TEST(RenderJson, TheLimitKeepsTheFirstOps) {
    EXPECT_EQ(to_json(stats_answer(), context(), 1)["ops"].size(), 1u);
    EXPECT_EQ(to_json(stats_answer(), context(), 0)["ops"].size(), 3u);
}

TEST(RenderText, ExplainReadsLikeAVerdict) {
    const std::string text = text_explain(to_json(explain_answer(), context()));
    const std::string when = format_time(1'795'000'000'000'000'000);
    EXPECT_EQ(
        text,
        "HIGH  stress-ng (991) kept the CPU from python (4242)\n"
        "  Slower by   140 ms to 160 ms, 11 to 12 % of the time; waited 170 ms\n"
        "  Took CPU    stress-ng (991) 120 ms, disk 3 ms\n"
        "  Worst call  " +
            when +
            " cudaLaunchKernel 3.01 ms, usually 20 µs\n"
            "              [#=.....................-] 3.2 % on CPU, 3.3 % device, 90 % no CPU, 3.3 % asleep\n"
            "              asleep for 100 µs: disk, woken by kworker (12)\n"
            "  Ruled out   disk wait 3.9 ms\n"
            "  Fix         Pin stress-ng to other CPUs.\n"
            "  Check       Runnable time stays below 1 ms.\n"
            "  Evidence    cpu-contention, proven, 93 % of the time explained; 2 events; finding cpu-contention-4242\n"
            "\n"
            "12,345 calls took 160 ms longer than is usual, 94 % of it explained. The slowest calls: --all\n"
            "gpu-1, " +
            when + " to " + format_time(1'795'000'300'000'000'000) + " (5 min)\n");
    const std::string all = text_explain(to_json(explain_answer(), context()), {.details = true});
    EXPECT_THAT(all, HasSubstr("stress-ng (991) had the CPU for 2.6 ms"));
    EXPECT_THAT(all, HasSubstr("\nSlowest calls\n  OPERATION "));
}

TEST(RenderText, AFindingBeginsWithWhatHappened) {
    const auto first_line = [](const auto& change) {
        ExplainAnswer answer = explain_answer();
        change(answer.findings[0]);
        const std::string text = text_explain(to_json(answer, context()));
        return text.substr(0, text.find('\n'));
    };
    EXPECT_EQ(first_line([](Finding& finding) {
                  finding.culprits[0] = {"cgroup quota", 0, 1};
              }),
              "HIGH  python (4242) was kept off the CPU by its control group's quota");
    EXPECT_EQ(first_line([](Finding& finding) { finding.culprits[0].pid = finding.pid; }),
              "HIGH  other threads of python (4242) kept the CPU from it");
    EXPECT_EQ(first_line([](Finding& finding) { finding.culprits[0].ns = 80'000'000; }),
              "HIGH  stress-ng (991) and others kept the CPU from python (4242)");
    EXPECT_EQ(first_line([](Finding& finding) {
                  finding.kind = "lock-wait";
                  finding.culprits[0].pid = finding.pid;
                  finding.worst.event.op = op_wait;
              }),
              "HIGH  python (4242) waited for a lock that its own threads released");
    EXPECT_EQ(first_line([](Finding& finding) {
                  finding.kind = "own-io-wait";
                  finding.culprits = {{"disk", 0, 1}};
              }),
              "HIGH  python (4242) waited in cudaLaunchKernel for the disk");
    EXPECT_EQ(first_line([](Finding& finding) {
                  finding.kind = "lock-wait";
                  finding.culprits = {{"loader", 7, 1}};
              }),
              "HIGH  python (4242) waited in cudaLaunchKernel for a lock that loader (7) released");
    EXPECT_EQ(first_line([](Finding& finding) { finding.kind = "gpu-oom"; }),
              "HIGH  stress-ng ran while cudaLaunchKernel wanted the CPU");
    EXPECT_EQ(first_line([](Finding& finding) { finding.verdict = Verdict::partial; }),
              "HIGH  stress-ng ran while cudaLaunchKernel wanted the CPU")
        << "what is not proven is not said in short";
}

TEST(RenderText, ANumberIsNotPartedFromItsUnit) {
    EXPECT_EQ(wrap_text("it took about 2.37 ms, not 9 s", 20, 2), "it took about\n  2.37 ms, not 9 s");
    EXPECT_EQ(wrap_text("at most 7 calls of it", 20, 0), "at most 7 calls of\nit");
    EXPECT_EQ(wrap_text("ends in 7 ", 20, 0), "ends in 7");
    EXPECT_EQ(display_width("\x1b[1;31mHIGH\x1b[0m"), 4u);
    EXPECT_EQ(display_width("\x1b[1"), 0u);
}

TEST(RenderText, WhatItCostIsSaidOnce) {
    ExplainAnswer answer = explain_answer();
    answer.findings[0].verdict = Verdict::insufficient_evidence;
    answer.findings[0].summary =
        "a waited; that cost the program 2 ms (1 ms to 3 ms), 1 % of the window; too few calls";
    EXPECT_TRUE(text_explain(to_json(answer, context())).starts_with("HIGH  a waited; too few calls\n  Slower by "));
}

TEST(RenderText, WhatTheSummarySaysOfOtherFindingsIsSaidToo) {
    ExplainAnswer answer = explain_answer();
    answer.summary = answer.findings[0].summary + ", and 1 more finding; 5 calls are left out";
    EXPECT_THAT(text_explain(to_json(answer, context())), HasSubstr("\n5 calls are left out\n"));
}

TEST(RenderText, FitsATerminalOfSixtyColumns) {
    const TextStyle narrow{.width = 60, .short_times = true};
    std::istringstream lines(text_explain(to_json(explain_answer(), context()), narrow) +
                             text_status(status_answer(), narrow));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 60u) << line;
}

TEST(RenderText, RequestsStandAboveTheNotesAndTheLongestInFull) {
    const std::string text = text_requests(to_json(requests_answer(), context()), {80, false});
    const std::string notes =
        "Note: under continuous batching a kernel inside a request's span is not exclusively that request's work; the "
        "same event is counted in every request whose span contains it. Do not sum these counts across rows.\n"
        "Note: rows are ranked by measured span duration only. prompt_tokens and output_tokens are advisory labels "
        "from the emitter and never affect ranking.\n";
    EXPECT_TRUE(text.starts_with("REQUEST ")) << text;
    EXPECT_TRUE(text.ends_with(notes)) << text;
    EXPECT_THAT(text, HasSubstr("cmpl-17  8.2 s"));
    EXPECT_THAT(text, HasSubstr("580 ms  cpu-contention  stress-ng (991)"));
    EXPECT_THAT(text, HasSubstr("The longest 2 of 17\n"));
    EXPECT_THAT(text, HasSubstr("heavy 62 %, light 10 %"));
    EXPECT_THAT(text, HasSubstr("tenant=a b"));
    EXPECT_THAT(text, HasSubstr("loss=0.25"));
    EXPECT_THAT(text, HasSubstr("[######..................]"));
    EXPECT_THAT(text, Not(HasSubstr("LAUNCHES")));
    EXPECT_THAT(text_requests(to_json(requests_answer(), context()), {.details = true}), HasSubstr(" LAUNCHES "));
    const std::string none = text_requests(to_json(RequestsAnswer{}, context()));
    EXPECT_THAT(none, HasSubstr("advisory labels"));
    EXPECT_THAT(none, HasSubstr("No request in this window\n"));
}

TEST(RenderText, AHealthyWindowSaysWhatWasLookedAt) {
    ExplainAnswer answer;
    answer.window = {1'795'000'000'000'000'000, 1'795'000'300'000'000'000};
    answer.coverage.complete = true;
    answer.healthy = true;
    answer.calls = 12'345;
    answer.summary = "healthy";
    const std::string text = text_explain(to_json(answer, context()));
    EXPECT_TRUE(text.starts_with("Healthy\ngpu-1, ")) << text;
}

TEST(RenderText, IncompleteCoverageIsSaid) {
    AnswerContext incomplete = context();
    incomplete.missing_probes = {"cudart", "driver"};
    const std::string text = text_stats(to_json(stats_answer(), incomplete));
    EXPECT_THAT(text, HasSubstr(": nothing recorded, 3 events lost, 4 sampled out (--coverage)\n"));
    EXPECT_THAT(text, Not(HasSubstr("ingerod was not running")));
    EXPECT_THAT(text, HasSubstr("not attached: cudart, driver"));
    const std::string all = text_stats(to_json(stats_answer(), incomplete), {.coverage = true});
    EXPECT_THAT(all, HasSubstr("4 sampled out\n  nothing recorded from "));
    EXPECT_THAT(all, HasSubstr(": ingerod was not running\n"));
}

TEST(RenderText, WhatWasNotRecordedIsToldByItsLength) {
    const auto told = [](std::vector<json> gaps) {
        json answer = to_json(stats_answer(), context());
        answer["window"] = {{"from_ns", 1'000'000'000'000}, {"to_ns", 1'010'000'000'000}};
        answer["coverage"] = {{"complete", false}, {"lost", 0}, {"sampled_out", 0}, {"gaps", gaps}};
        const std::string text = text_stats(answer);
        return text.substr(0, text.find('\n'));
    };
    const auto gap = [](uint64_t from_s, uint64_t to_s, bool partial) -> json {
        return {
            {"from_ns", from_s * 1'000'000'000}, {"to_ns", to_s * 1'000'000'000}, {"partial", partial}, {"reason", ""}};
    };
    EXPECT_THAT(told({gap(900, 1'003, false), gap(1'002, 1'004, false), gap(1'005, 1'006, true)}),
                HasSubstr(" (10 s): 4 s not recorded, 1 s in part (--coverage)"));
    EXPECT_THAT(told({gap(900, 1'003, false), gap(1'002, 1'003, true)}),
                HasSubstr(" (10 s): all but 3 s recorded (--coverage)"));
    EXPECT_THAT(told({gap(1'002, 1'003, true), gap(1'002, 1'005, true)}),
                HasSubstr(": 3 s recorded in part (--coverage)"));
    EXPECT_THAT(told({gap(900, 2'000, true)}), HasSubstr(": recorded in part (--coverage)"));
    EXPECT_THAT(told({gap(900, 2'000, false)}), HasSubstr(": nothing recorded (--coverage)"));
    EXPECT_TRUE(told({}).ends_with(": not all recorded")) << "there is nothing to list";
}

TEST(RenderText, TimesForAReaderAreShort) {
    const uint64_t time = 1'795'176'000'000'000'000, day = 86'400'000'000'000;
    const std::string whole = format_time(time);
    EXPECT_EQ(format_short_time(time, time), whole.substr(11, 8));
    EXPECT_EQ(format_short_time(time, time + day), whole.substr(0, 10) + " " + whole.substr(11, 8));
    EXPECT_EQ(format_short_time(time, time + 365 * day), whole.substr(0, 10) + " " + whole.substr(11, 8));
}

TEST(RenderText, StatsHaveUnitsAndSharesOfTheTotal) {
    const std::string text = text_stats(to_json(stats_answer(), context()));
    EXPECT_THAT(text, HasSubstr("1,234,567"));
    EXPECT_THAT(text, HasSubstr("20.3 µs"));
    EXPECT_THAT(text, HasSubstr("90 %"));
    EXPECT_THAT(text, HasSubstr("3.00 GiB"));
}

TEST(RenderText, StatusAndProcessesShowTheirFigures) {
    const std::string status = text_status(status_answer());
    EXPECT_THAT(status, HasSubstr("1,234 measurements dropped for lack of room\n"));
    EXPECT_THAT(status, HasSubstr("ingerod 0.1.0 on gpu-1: tracing 3 processes, up 3 h 3 min\nIncidents none open\n"));
    EXPECT_THAT(status, HasSubstr("\nRecorded  12,345,678 events, none lost, 3 stacks lost\n"));
    EXPECT_THAT(status, HasSubstr("1.20 GiB of 10.0 GiB, empty"));
    json of_a_stranger = status_answer();
    for (const char* name : {"recorded", "committed", "split_uncertain"}) of_a_stranger["events"][name] = nullptr;
    const std::string hidden = text_status(of_a_stranger);
    EXPECT_THAT(hidden, HasSubstr("\nRecorded  none lost, 3 stacks lost\n"));
    EXPECT_THAT(hidden, HasSubstr("tracing 3 of your processes, "));
    EXPECT_THAT(hidden,
                HasSubstr("\nHidden    what other users' programs do: root and members of group ingero see it\n"));
    EXPECT_THAT(hidden, Not(HasSubstr("Spans")));
    const std::string processes = text_processes(processes_answer());
    EXPECT_THAT(processes, HasSubstr("python"));
    EXPECT_THAT(processes, HasSubstr("1,235"));
    json none = processes_answer();
    none["processes"].clear();
    EXPECT_THAT(text_processes(none), HasSubstr("No traced process that you may see"));
}

TEST(RenderText, EveryLineFitsTheTerminal) {
    for (const unsigned width : {60u, 80u, 100u, 132u}) {
        const TextStyle style{width, false};
        for (const std::string& text :
             {text_stats(to_json(stats_answer(), context()), style), text_processes(processes_answer(), style),
              text_requests(to_json(requests_answer(), context()), style)}) {
            std::istringstream lines(text);
            for (std::string line; std::getline(lines, line);) {
                const bool is_note = line.starts_with("Note: ");
                EXPECT_TRUE(is_note || display_width(line) <= width) << "at width " << width << ": " << line;
            }
        }
    }
}

TEST(RenderText, ColoursAreThereWhenAskedForAndEnd) {
    const std::string text = text_explain(to_json(explain_answer(), context()), {100, true});
    EXPECT_THAT(text, HasSubstr("\x1b[1;31mHIGH\x1b[0m"));
    EXPECT_EQ(text.rfind("\x1b["), text.rfind("\x1b[0m"));
}

TEST(RenderText, TextOfATargetCannotTouchTheTerminal) {
    ExplainAnswer answer = explain_answer();
    Finding& finding = answer.findings[0];
    finding.comm = finding.summary = finding.kind = finding.fix = finding.confirm = finding.id = hostile;
    finding.culprits[0].name = finding.rejected[0].hypothesis = answer.summary = hostile;
    answer.coverage = {false, 0, 0, {{1, 2, hostile}}};
    const AnswerContext hostile_context{hostile, {hostile}, {{{.pid = 4242, .start_ns = 0}, hostile}}};
    StatsAnswer stats = stats_answer();
    stats.coverage = answer.coverage;
    json status = status_answer();
    status["version"] = status["node"] = status["state"] = hostile;
    for (const std::string& text :
         {text_explain(to_json(answer, hostile_context)), text_stats(to_json(stats, hostile_context)),
          text_processes(processes_answer(hostile)), text_status(status)}) {
        EXPECT_THAT(text, HasSubstr("a\\x1b[2Jb\\nc"));
        EXPECT_THAT(text, Not(HasSubstr("\x1b")));
        EXPECT_THAT(text, Not(HasSubstr("\u202e")));
        EXPECT_THAT(text, Not(HasSubstr("\u200b")));
        EXPECT_TRUE(is_utf8(text));
    }
}

TEST(RenderText, JsonOfAnyShapeIsPrintedWithoutThrowing) {
    const std::vector<json> shapes = {
        nullptr,
        1,
        "text",
        json::array(),
        json::object(),
        {{"findings", 1}, {"ops", "x"}, {"processes", json::object()}},
        {{"findings", {1, nullptr}}, {"ops", {1}}, {"processes", {"x"}}, {"slow_calls", {{}}}},
        {{"findings", {{{"timeline", {{"split", {{"blocked_ns", ~0ULL}, {"on_cpu_ns", ~0ULL}}}}}}}}},
        {{"window", {{"from_ns", ~0ULL}, {"to_ns", -5}}}},
        {{"store", {{"bytes", 1e300}}}, {"uptime_ns", -1}}};
    for (const json& shape : shapes)
        for (const auto render : {text_status, text_processes, text_stats, text_explain})
            EXPECT_NO_THROW(static_cast<void>(render(shape, {80, true}))) << shape.dump();
}

TEST(EscapeText, LeavesWhatIsPrintable) {
    EXPECT_EQ(escape_text("python3.11 µs 日本 \U0001f600"), "python3.11 µs 日本 \U0001f600");
}

TEST(EscapeText, EscapesControlsInvalidBytesBidiAndInvisibles) {
    EXPECT_EQ(escape_text("a\tb\nc\rd"), "a\\tb\\nc\\rd");
    EXPECT_EQ(escape_text(std::string_view("\0\x1b\x7f", 3)), "\\x00\\x1b\\x7f");
    EXPECT_EQ(escape_text("\u009b"), "\\u{009b}") << "CSI as one code point";
    EXPECT_EQ(escape_text("\xff\xe2\x82"), "\\xff\\xe2\\x82");
    EXPECT_EQ(escape_text("\u202e\u2066\u200d\ufeff\u2028\u00ad"),
              "\\u{202e}\\u{2066}\\u{200d}\\u{feff}\\u{2028}\\u{00ad}");
    EXPECT_EQ(escape_text("\U000e0041"), "\\u{e0041}");
    EXPECT_EQ(escape_text("\\x1b"), "\\\\x1b") << "an escape cannot be forged";
}

TEST(Table, DropsAndCutsColumnsUntilItFits) {
    Table table({{"NAME", Align::left, true}, {"EXTRA", Align::right, false, 1}, {"N", Align::right}});
    table.add_row({"a-very-long-name-of-something", "12345", "7"});
    EXPECT_EQ(table.render(0), "NAME                           EXTRA  N\na-very-long-name-of-something  12345  7\n");
    EXPECT_EQ(table.render(20), "NAME        EXTRA  N\na-very-lo…  12345  7\n");
    EXPECT_EQ(table.render(12), "NAME       N\na-very-l…  7\n");
}

TEST(Format, FiguresHaveThreeDigitsAndAUnit) {
    EXPECT_EQ(format_count(0), "0");
    EXPECT_EQ(format_count(999), "999");
    EXPECT_EQ(format_count(~0ULL), "18,446,744,073,709,551,615");
    EXPECT_EQ(format_bytes(0), "0 B");
    EXPECT_EQ(format_bytes(1023), "1023 B");
    EXPECT_EQ(format_bytes(1536), "1.50 KiB");
    EXPECT_EQ(format_bytes((1 << 20) - 1), "1.00 MiB");
    EXPECT_EQ(format_span(59'999'999'999), "59 s");
    EXPECT_EQ(format_span(90'061'000'000'000), "1 d 1 h");
    EXPECT_EQ(format_percent(0), "0 %");
    EXPECT_EQ(format_percent(0.0001), "<0.1 %");
    EXPECT_EQ(format_percent(0.055), "5.5 %");
    EXPECT_EQ(format_percent(1), "100 %");
}

TEST(ErrorNames, OfWhatIsNoCallAreTheKernels) {
    EXPECT_EQ(error_name(op_exit, SIGKILL), "signal 9");
    EXPECT_EQ(error_name(op_exit, 1 << 8), "exit status 1");
    EXPECT_EQ(error_name(op_exit, 0), "");
    EXPECT_EQ(error_name(op_block_read, EIO), "EIO");
    EXPECT_EQ(error_name(op::cudaLaunchKernel, 9), "cudaErrorInvalidConfiguration");
}

}  // namespace
}  // namespace ingero
