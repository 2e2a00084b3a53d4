// Answers with something of everything, for the tests of their JSON and of their text.
#pragma once

#include <string>

#include "core/model/op.h"
#include "core/render/render.h"
#include "core/render/requests.h"

namespace ingero::render_fixture {

using nlohmann::json;

inline constexpr const char* hostile = "a\x1b[2Jb\nc\xff\u202e\u200b";

inline Event slow_event() {
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

inline SlowCall slow_call() {
    SlowCall call;
    call.event = slow_event();
    call.start_realtime_ns = 1'795'000'000'000'000'000;
    call.expected_ns = 20'000;
    call.excess_ns = 2'985'000;
    call.explained_ns = 2'810'000;
    call.split = {95'000, 100'000, 2'710'000, 100'000};
    return call;
}

inline ExplainAnswer explain_answer() {
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

inline StatsAnswer stats_answer() {
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

inline RequestsAnswer requests_answer() {
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

inline AnswerContext context() {
    return {"gpu-1", {}, {}};
}

inline json status_answer() {
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
        {"overhead",
         {{"budget_permille", 10u}, {"measured_permille", nullptr}, {"thinned", json::array()}, {"in_slices", 1u}}},
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

inline json processes_answer(const std::string& comm = "python") {
    json answer = answer_head("processes", context(), {1, 2}, {true, 0, 0, {}});
    Process process{.key = {4242, 0}, .comm = comm, .cgroup = "/system.slice/vllm.service", .unit = "vllm.service"};
    json one = process_json(process);
    one["start_time_ns"] = 1'795'000'000'000'000'000u;
    one["calls_per_s"] = 1234.5;
    one["slices"] = {
        {"ops", {"cudaLaunchKernel", "cuLaunchKernel"}}, {"share", 0.01}, {"count_error", 0.05}, {"reason", nullptr}};
    one["state"] = "tracing";
    answer["processes"] = json::array({one});
    return answer;
}

}  // namespace ingero::render_fixture
