#include <cmath>

#include "core/model/op.h"
#include "core/render/json/values.h"
#include "core/render/requests.h"
#include "core/spans/span.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

json number_or_null(const std::optional<uint64_t>& number) {
    return number ? json(*number) : json(nullptr);
}

json stall_json(const RequestStall& stall) {
    const Culprit& culprit = stall.culprit;
    json who = nullptr;
    if (!culprit.name.empty() || culprit.pid != 0)
        who = {{"name", text_or_null(culprit.name)}, {"pid", culprit.pid == 0 ? json(nullptr) : json(culprit.pid)}};
    return {{"ns", stall.ns},   {"kind", stall.kind}, {"culprit", std::move(who)},           {"op", op_name(stall.op)},
            {"pid", stall.pid}, {"tid", stall.tid},   {"start_ns", stall.start_realtime_ns}, {"event", stall.sequence}};
}

json labels_json(const SpanRow& span) {
    json labels = json::object();
    for (const auto& [key, value] : span.labels) labels[to_valid_utf8(key)] = to_valid_utf8(value);
    return labels;
}

json values_json(const SpanRow& span) {
    json values = json::object();
    for (const auto& [key, value] : span.values)
        values[to_valid_utf8(key)] = std::isfinite(value) ? json(value) : json(nullptr);
    return values;
}

json request_json(const RequestStats& request, bool counts_collectives) {
    const SpanRow& span = request.span;
    const CallSums& sums = request.sums;
    json occupied_by = json::array();
    for (const Occupant& occupant : request.occupied_by)
        occupied_by.push_back({{"id", to_valid_utf8(occupant.id)}, {"ns", occupant.ns}, {"share", occupant.share}});
    return {{"id", to_valid_utf8(span.id)},
            {"rank_by_ns", request.duration_ns},
            {"start_ns", request.start_realtime_ns},
            {"queue_ns", number_or_null(request.queue_ns)},
            {"ttft_ns", number_or_null(request.ttft_ns)},
            {"events",
             {{"calls", sums[CallSums::calls]},
              {"launches", sums[CallSums::launches]},
              {"copies", sums[CallSums::copies]},
              {"collectives", counts_collectives ? json(sums[CallSums::collectives]) : json(nullptr)},
              {"syncs", sums[CallSums::syncs]},
              {"allocations", sums[CallSums::allocations]},
              {"errors", sums[CallSums::errors]}}},
            {"split",
             {{"on_cpu_ns", sums[CallSums::on_cpu_ns]},
              {"device_wait_ns", sums[CallSums::device_wait_ns]},
              {"runnable_ns", sums[CallSums::runnable_ns]},
              {"blocked_ns", sums[CallSums::blocked_ns]}}},
            {"longest_stall", request.longest_stall ? stall_json(*request.longest_stall) : json(nullptr)},
            {"co_resident", request.co_resident},
            {"fair_share_ns", sums[CallSums::fair_share_ns]},
            {"occupied_by", std::move(occupied_by)},
            {"prompt_tokens", number_or_null(span.prompt_tokens)},
            {"output_tokens", number_or_null(span.output_tokens)},
            {"model", text_or_null(span.model)},
            {"labels", labels_json(span)},
            {"values", values_json(span)},
            {"pid", span.process.pid == 0 ? json(nullptr) : json(span.process.pid)}};
}

}  // namespace

json to_json(const RequestsAnswer& answer, const AnswerContext& context) {
    json requests = json::array();
    for (const RequestStats& request : answer.requests)
        requests.push_back(request_json(request, answer.counts_collectives));
    json result = answer_head("requests", context, answer.window, answer.coverage);
    result["by"] = std::string(span_kind_name(answer.kind));
    result["notes"] = {shared_calls_note, ranking_note};
    result["found"] = answer.found;
    result["requests"] = std::move(requests);
    return result;
}

}  // namespace ingero
