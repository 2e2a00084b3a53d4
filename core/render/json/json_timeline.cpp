#include <algorithm>

#include "core/model/call_time.h"
#include "core/model/op.h"
#include "core/model/text/error_names.h"
#include "core/render/json/values.h"
#include "core/render/timeline.h"

namespace ingero {

using nlohmann::json;

namespace {

json to_json(const TimelineThread& thread, const AnswerContext& context) {
    return {{"pid", visible_pid(thread.process.pid)},
            {"tid", thread.tid},
            {"comm", comm_of(thread.process, context)},
            {"calls", thread.calls},
            {"in_calls_ns", thread.in_calls_ns},
            {"runnable_ns", thread.runnable_ns},
            {"blocked_ns", thread.blocked_ns},
            {"first_ns", thread.first_ns},
            {"last_ns", thread.last_ns}};
}

json to_json(const TimelineStream& stream) {
    return {{"pid", visible_pid(stream.process.pid)},
            {"stream", stream.stream ? json(*stream.stream) : json(nullptr)},
            {"calls", stream.calls},
            {"launches", stream.launches},
            {"copies", stream.copies},
            {"syncs", stream.syncs},
            {"bytes_copied", stream.copies == 0 ? json(nullptr) : json(stream.bytes_copied)},
            {"first_ns", stream.first_ns},
            {"last_ns", stream.last_ns}};
}

/// What has no recorded wait was spent on a CPU at most: waits can be missing.
json to_json(const TimelineGap& gap) {
    return {{"pid", visible_pid(gap.process.pid)},
            {"tid", gap.tid},
            {"from_ns", gap.from_ns},
            {"to_ns", gap.to_ns},
            {"gap_ns", gap.length_ns()},
            {"on_cpu_at_most_ns", gap.off_cpu_ns ? json(gap.length_ns() - *gap.off_cpu_ns) : json(nullptr)},
            {"off_cpu_recorded_ns", gap.off_cpu_ns ? json(*gap.off_cpu_ns) : json(nullptr)},
            {"after", op_name(gap.after)},
            {"before", op_name(gap.before)}};
}

json to_json(const TimelineCall& call, const std::string& kernel) {
    const Event& event = call.event;
    const CallTime time = call_time(event);
    const Op* op = find_op(event.op);
    const bool has_bytes = op && (op->op_class == OpClass::copy || op->op_class == OpClass::alloc);
    return {{"id", event.sequence},
            {"start_ns", call.start_realtime_ns},
            {"duration_ns", event.duration_ns},
            {"pid", visible_pid(event.tgid)},
            {"tid", event.tid},
            {"stream", event.stream == unknown_stream ? json(nullptr) : json(event.stream)},
            {"op", op_name(event.op)},
            {"kernel", text_or_null(kernel)},
            {"bytes", has_bytes ? json(event.args[0]) : json(nullptr)},
            {"on_cpu_ns", time.on_cpu_ns},
            {"runnable_ns", time.runnable_ns},
            {"blocked_ns", time.blocked_ns},
            {"error", text_or_null(error_name(event.op, event.return_code))}};
}

}  // namespace

json to_json(const TimelineAnswer& answer, const AnswerContext& context, const std::vector<std::string>& kernels) {
    json result = answer_head("timeline", context, answer.window, answer.coverage);
    for (const char* name : {"threads", "streams", "gaps", "calls"}) result[name] = json::array();
    for (const TimelineThread& thread : answer.threads) result["threads"].push_back(to_json(thread, context));
    for (const TimelineStream& stream : answer.streams) result["streams"].push_back(to_json(stream));
    for (const TimelineGap& gap : answer.gaps) result["gaps"].push_back(to_json(gap));
    for (size_t i = 0; i < answer.calls.size(); ++i)
        result["calls"].push_back(to_json(answer.calls[i], i < kernels.size() ? kernels[i] : ""));
    result["all_calls"] = answer.all_calls;
    result["all_threads"] = answer.all_threads;
    result["gap_floor_ns"] = answer.gap_floor_ns;
    return result;
}

}  // namespace ingero
