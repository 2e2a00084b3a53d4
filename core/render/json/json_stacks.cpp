#include "core/model/call_time.h"
#include "core/model/op.h"
#include "core/render/json/values.h"
#include "core/render/render.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

std::string_view to_string(StacksBy by) {
    switch (by) {
        case StacksBy::process:
            return "process";
        case StacksBy::kernel:
            return "kernel";
        case StacksBy::op:
            break;
    }
    return "op";
}

json to_json(const NamedFrame& frame) {
    return {{"name", to_valid_utf8(frame.text())},
            {"symbol", text_or_null(frame.symbol)},
            {"symbol_offset", frame.symbol.empty() ? json(nullptr) : json(frame.symbol_offset)},
            {"file", text_or_null(frame.file)},
            {"build_id", text_or_null(frame.build_id)},
            {"file_offset", frame.state == FileState::imported ? json(nullptr) : json(frame.file_offset)},
            {"state", std::string(to_string(frame.state))}};
}

json to_json(const StackStats& stats) {
    json frames = json::array();
    for (const NamedFrame& frame : stats.frames) frames.push_back(to_json(frame));
    return {{"op", stats.op ? json(op_name(*stats.op)) : json(nullptr)},
            {"pid", stats.pid ? json(*stats.pid) : json(nullptr)},
            {"kernel", stats.kernel ? text_or_null(*stats.kernel) : json(nullptr)},
            {"count", stats.count},
            {"total_ns", stats.total_ns},
            {"off_cpu_ns", saturating_add(stats.runnable_ns, stats.blocked_ns)},
            {"runnable_ns", stats.runnable_ns},
            {"blocked_ns", stats.blocked_ns},
            {"truncated", stats.end != StackEnd::whole},
            {"end", std::string(to_string(stats.end))},
            {"frames", std::move(frames)}};
}

}  // namespace

json to_json(const StacksAnswer& answer, const AnswerContext& context) {
    json stacks = json::array();
    for (const StackStats& stats : answer.stacks) stacks.push_back(to_json(stats));
    json result = answer_head("stacks", context, answer.window, answer.coverage);
    result["by"] = std::string(to_string(answer.by));
    result["weight"] = answer.off_cpu ? "off_cpu_ns" : "total_ns";
    result["calls"] = answer.calls;
    result["calls_without_stack"] = answer.calls_no_stack;
    result["stacks_lost"] = nullptr;  // what a daemon knows of itself
    result["more"] = answer.more;
    result["stacks"] = std::move(stacks);
    return result;
}

}  // namespace ingero
