#include <algorithm>
#include <utility>

#include "core/model/op.h"
#include "core/model/text/error_names.h"
#include "core/render/incidents.h"
#include "core/render/json/values.h"
#include "core/render/render.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

template <class T>
json number_or_null(T value) {
    return value == 0 ? json(nullptr) : json(value);
}

json fraction_of(uint64_t part, uint64_t whole) {
    if (whole == 0) return nullptr;
    return std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
}

json to_json(const Window& window) {
    return {{"from_ns", window.from_ns}, {"to_ns", window.to_ns}, {"clock", "realtime"}};
}

json to_json(const Coverage& coverage) {
    json gaps = json::array();
    for (const Gap& gap : coverage.gaps)
        gaps.push_back({{"from_ns", gap.from_ns},
                        {"to_ns", gap.to_ns},
                        {"reason", to_valid_utf8(gap.reason)},
                        {"partial", gap.partial}});
    return {{"complete", coverage.complete},
            {"lost", coverage.lost},
            {"sampled_out", coverage.sampled_out},
            {"gaps", std::move(gaps)}};
}

/// Only these classes move or reserve bytes; for the others there is no such figure, which is not the same as none.
bool counts_bytes(OpId id) {
    const Op* op = find_op(id);
    return op &&
           (op->op_class == OpClass::alloc || op->op_class == OpClass::copy || op->op_class == OpClass::collective);
}

json to_json(OpId op, const std::map<int32_t, uint64_t>& codes) {
    json list = json::array();
    for (const auto& [code, count] : codes)
        list.push_back({{"code", code}, {"name", error_name(op, code)}, {"count", count}});
    return list;
}

json to_json(const OpStats& stats) {
    return {{"source", std::string(source_name(op_source(stats.op)))},
            {"op", op_name(stats.op)},
            {"pid", stats.pid == 0 ? json(nullptr) : json(stats.pid)},
            {"count", stats.count},
            {"kernel", stats.kernel ? text_or_null(*stats.kernel) : json(nullptr)},
            {"errors", stats.errors},
            {"error_codes", to_json(stats.op, stats.error_codes)},
            {"p50_ns", stats.p50_ns},
            {"p95_ns", stats.p95_ns},
            {"p99_ns", stats.p99_ns},
            {"max_ns", stats.max_ns},
            {"approximate", stats.approximate},
            {"total_ns", stats.total_ns},
            {"lost_ns", nullptr},  // time lost against the expected is explain's to say
            {"lost", stats.lost},
            {"bytes", counts_bytes(stats.op) ? json(stats.bytes) : json(nullptr)},
            {"on_cpu_ns", stats.on_cpu_ns},
            {"device_wait_ns", stats.device_wait_ns},
            {"runnable_ns", stats.runnable_ns},
            {"blocked_ns", stats.blocked_ns}};
}

json ran_instead(const Event& event) {
    if (event.preemptor_tgid == 0 || event.preemptor_ns == 0) return nullptr;
    return {{"name", to_valid_utf8(to_string_view(event.preemptor_comm))},
            {"pid", number_or_null(visible_pid(event.preemptor_tgid))},
            {"ns", event.preemptor_ns}};
}

json waker(const Event& event) {
    if (event.waker_kind == WakerKind::unknown) return nullptr;
    return {{"kind", std::string(to_string(event.waker_kind))},
            {"name", text_or_null(to_string_view(event.waker_comm))},
            {"pid", number_or_null(visible_pid(event.waker_tgid))}};
}

json waited_for(const Event& event) {
    if (event.blocked_reason == BlockedReason::none || event.longest_sleep_ns == 0) return nullptr;
    return {{"reason", std::string(to_string(event.blocked_reason))},
            {"ns", event.longest_sleep_ns},
            {"waker", waker(event)}};
}

json to_json(const SlowCall& call, const std::string& comm) {
    const TimeSplit& split = call.split;
    return {{"id", number_or_null(call.event.sequence)},
            {"op", op_name(call.event.op)},
            {"pid", call.event.tgid},
            {"tid", call.event.tid},
            {"comm", text_or_null(comm)},
            {"start_ns", call.start_realtime_ns},
            {"duration_ns", call.event.duration_ns},
            {"expected_ns", number_or_null(call.expected_ns)},
            {"excess_ns", call.excess_ns},
            {"explained_ns", call.explained_ns},
            {"explained_fraction", fraction_of(call.explained_ns, call.excess_ns)},
            {"split",
             {{"on_cpu_ns", split.on_cpu_ns},
              {"device_wait_ns", split.device_wait_ns},
              {"runnable_ns", split.runnable_ns},
              {"blocked_ns", split.blocked_ns}}},
            {"ran_instead", ran_instead(call.event)},
            {"waited_for", waited_for(call.event)},
            {"split_uncertain", call.event.split_uncertain()}};
}

json to_json(const std::vector<Culprit>& culprits) {
    json list = json::array();
    for (const Culprit& culprit : culprits) {
        const std::string name =
            culprit.request.empty() ? culprit.name : "request " + culprit.request + ": " + culprit.name;
        list.push_back({{"name", to_valid_utf8(name)}, {"pid", number_or_null(culprit.pid)}, {"ns", culprit.ns}});
    }
    return list;
}

json to_json(const std::vector<RejectedHypothesis>& rejected) {
    json list = json::array();
    for (const RejectedHypothesis& hypothesis : rejected)
        list.push_back({{"hypothesis", to_valid_utf8(hypothesis.hypothesis)}, {"ns", hypothesis.ns}});
    return list;
}

}  // namespace

json finding_json(const Finding& finding, const json& coverage) {
    return {{"id", to_valid_utf8(finding.id)},
            {"kind", to_valid_utf8(finding.kind)},
            {"severity", std::string(to_string(finding.severity))},
            {"verdict", std::string(to_string(finding.verdict))},
            {"summary", to_valid_utf8(finding.summary)},
            {"lost_ns", finding.lost_ns},
            {"lost_low_ns", finding.lost_low_ns},
            {"lost_high_ns", finding.lost_high_ns},
            {"waited_ns", finding.waited_ns},
            {"waited_between_calls_ns", finding.waited_between_calls_ns},
            {"window_share", finding.window_share},
            {"explained_fraction", finding.explained_fraction},
            {"pid", number_or_null(finding.pid)},
            {"comm", text_or_null(finding.comm)},
            {"culprits", to_json(finding.culprits)},
            {"rejected", to_json(finding.rejected)},
            {"evidence", finding.evidence},
            // A finding made of gaps between calls has no worst call.
            {"timeline", finding.worst.event.duration_ns == 0 ? json(nullptr) : to_json(finding.worst, finding.comm)},
            {"fix", text_or_null(finding.fix)},
            {"confirm", text_or_null(finding.confirm)},
            {"coverage", coverage}};
}

namespace {

/// The command of a process: the caller knows it, or a finding about the same process does.
std::string find_comm(const ProcessKey& process, const AnswerContext& context, const std::vector<Finding>& findings) {
    if (const auto known = context.comms.find(process); known != context.comms.end()) return known->second;
    const auto finding =
        std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.owning_process() == process; });
    return finding != findings.end() ? finding->comm : "";
}

json by_cause(const ExcessSums& sums) {
    json list = json::array();
    for (const auto& [cause, ns] : sums.by_cause()) list.push_back({{"cause", cause}, {"ns", ns}});
    return list;
}

json to_json(const std::vector<ExcessGroup>& groups, bool processes) {
    json list = json::array();
    for (const ExcessGroup& group : groups) {
        json one = {{"calls", group.sums.calls},
                    {"busy_ns", group.sums.busy_ns},
                    {"excess_ns", group.sums.excess_ns},
                    {"excess", by_cause(group.sums)}};
        if (processes) {
            one["pid"] = number_or_null(group.pid);
            one["comm"] = text_or_null(group.name);
        } else {
            one["gpu"] = to_valid_utf8(group.name);
        }
        list.push_back(std::move(one));
    }
    return list;
}

json to_json(const std::vector<ExcessSlice>& slices) {
    json list = json::array();
    for (const ExcessSlice& slice : slices) {
        json ops = json::array();
        for (const auto& [op, sums] : slice.ops)
            ops.push_back({{"op", op_name(op)}, {"calls", sums.calls}, {"busy_ns", sums.busy_ns}});
        list.push_back({{"from_ns", slice.wall.from_ns},
                        {"to_ns", slice.wall.to_ns},
                        {"calls", slice.sums.calls},
                        {"excess_ns", slice.sums.excess_ns},
                        {"excess", by_cause(slice.sums)},
                        {"ops", std::move(ops)}});
    }
    return list;
}

}  // namespace

std::string_view to_string(Severity severity) {
    switch (severity) {
        case Severity::low:
            return "low";
        case Severity::medium:
            return "medium";
        case Severity::high:
            return "high";
    }
    return "low";
}

std::string_view to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::proven:
            return "proven";
        case Verdict::partial:
            return "partial";
        case Verdict::unexplained:
            return "unexplained";
        case Verdict::insufficient_evidence:
            return "insufficient-evidence";
    }
    return "unexplained";
}

json answer_head(std::string_view command, const AnswerContext& context, const Window& realtime,
                 const Coverage& coverage) {
    json missing = json::array();
    for (const std::string& probe : context.missing_probes) missing.push_back(to_valid_utf8(probe));
    return {{"schema", "ingero/" + std::string(command) + "/1"},
            {"node", to_valid_utf8(context.node)},
            {"window", to_json(realtime)},
            {"coverage", to_json(coverage)},
            {"missing_probes", std::move(missing)}};
}

json to_json(const StatsAnswer& answer, const AnswerContext& context, size_t limit) {
    json ops = json::array();
    for (const OpStats& stats : answer.ops) {
        if (limit != 0 && ops.size() == limit) break;
        ops.push_back(to_json(stats));
    }
    json result = answer_head("stats", context, answer.window, answer.coverage);
    result["by"] = answer.by == StatsBy::kernel ? "kernel" : "op";
    result["ops"] = std::move(ops);
    return result;
}

json to_json(const ExplainAnswer& answer, const AnswerContext& context) {
    json result = answer_head("explain", context, answer.window, answer.coverage);
    json findings = json::array();
    for (const Finding& finding : answer.findings) {
        findings.push_back(finding_json(finding, result["coverage"]));
        findings.back()["incident"] = text_or_null(finding.incident_id);
    }
    json slow_calls = json::array();
    for (const SlowCall& call : answer.slow_calls)
        slow_calls.push_back(to_json(call, find_comm(call.event.process(), context, answer.findings)));
    result["healthy"] = answer.healthy;
    result["summary"] = to_valid_utf8(answer.summary);
    result["findings"] = std::move(findings);
    result["slow_calls"] = std::move(slow_calls);
    result["calls"] = answer.calls;
    result["excess_ns"] = answer.excess_ns;
    result["explained_ns"] = answer.explained_ns;
    result["excess"] = by_cause(answer.excess);
    result["by_process"] = to_json(answer.by_process, true);
    result["by_gpu"] = to_json(answer.by_gpu, false);
    if (!answer.slices.empty()) result["slices"] = to_json(answer.slices);
    return result;
}

}  // namespace ingero
