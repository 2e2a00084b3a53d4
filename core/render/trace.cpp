#include "core/render/trace.h"

#include <algorithm>
#include <array>

#include "core/model/call_time.h"
#include "core/model/collective.h"
#include "core/model/op.h"
#include "core/model/text/error_names.h"
#include "core/render/json/values.h"
#include "core/render/table.h"
#include "core/render/text.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

constexpr uint64_t directions = 5;
constexpr std::array<const char*, directions> direction_names = {"host-to-host", "host-to-device", "device-to-host",
                                                                 "device-to-device", "by-address"};
constexpr size_t most_rows = 4096;

json hex(uint64_t value) {
    constexpr const char* digits = "0123456789abcdef";
    std::string text;
    do {
        text.insert(text.begin(), digits[value & 15]);
        value >>= 4;
    } while (value != 0);
    return "0x" + text;
}

json preemptor(const Event& call) {
    if (call.preemptor_tgid == 0 || call.preemptor_ns == 0) return nullptr;
    const uint32_t pid = visible_pid(call.preemptor_tgid);
    return {{"name", to_valid_utf8(to_string_view(call.preemptor_comm))},
            {"pid", pid == 0 ? json() : json(pid)},
            {"ns", call.preemptor_ns}};
}

bool is_of(const Op* op, std::initializer_list<OpClass> classes) {
    return op && std::find(classes.begin(), classes.end(), op->op_class) != classes.end();
}

// A launch's dimensions are packed as bpf/event.h says.
json grid(const Event& call) {
    return {call.args[1] & 0xffff'ffff, call.args[1] >> 32 & 0xffff, call.args[1] >> 48};
}
json block(const Event& call) {
    return {call.args[2] & 0x7ff, call.args[2] >> 11 & 0x7ff, call.args[2] >> 22 & 0x3ff};
}

json collective(const Event& call) {
    const auto one = collective_of(call);
    if (!one) return nullptr;
    const auto or_null = [](const auto& value) { return value ? json(*value) : json(); };
    return {{"communicator", one->communicator == 0 ? json() : json(one->communicator)},
            {"sequence", one->is_numbered() ? json(one->sequence) : json()},
            {"count", or_null(one->count)},
            {"datatype", text_or_null(datatype_name(one->datatype))},
            {"reduction", text_or_null(reduction_name(one->reduction))},
            {"peer", or_null(one->peer)},
            {"root", or_null(one->root)},
            {"group_depth", one->group_depth}};
}

struct ColumnOf {
    const char* name;
    json (*value)(const TracedCall& traced, const Op* op);
};

constexpr auto columns = std::to_array<ColumnOf>({
    {"event", [](const TracedCall& traced, const Op*) -> json { return traced.activity ? "in-flight" : "call"; }},
    {"start_ns", [](const TracedCall& traced, const Op*) -> json { return traced.start_realtime_ns; }},
    {"duration_ns", [](const TracedCall& traced, const Op*) -> json { return traced.call.duration_ns; }},
    {"pid", [](const TracedCall& traced, const Op*) -> json { return visible_pid(traced.call.tgid); }},
    {"tid", [](const TracedCall& traced, const Op*) -> json { return visible_pid(traced.call.tid); }},
    {"comm", [](const TracedCall& traced, const Op*) -> json { return text_or_null(traced.comm); }},
    {"source",
     [](const TracedCall& traced, const Op*) -> json { return std::string(source_name(op_source(traced.call.op))); }},
    {"op", [](const TracedCall& traced, const Op*) -> json { return op_name(traced.call.op); }},
    {"depth", [](const TracedCall& traced, const Op*) -> json { return traced.call.depth; }},
    {"device",
     [](const TracedCall& traced, const Op*) -> json {
         return traced.call.device == INGERO_DEVICE_UNKNOWN ? json() : json(traced.call.device);
     }},
    {"stream", [](const TracedCall& traced, const Op*) -> json { return hex(traced.call.stream); }},
    {"return_code",
     [](const TracedCall& traced, const Op*) -> json {
         return traced.activity ? json() : json(traced.call.return_code);
     }},
    {"error",
     [](const TracedCall& traced, const Op*) -> json {
         return text_or_null(error_name(traced.call.op, traced.call.return_code));
     }},
    {"bytes",
     [](const TracedCall& traced, const Op* op) -> json {
         return is_of(op, {OpClass::alloc, OpClass::copy, OpClass::collective}) ? json(traced.call.args[0]) : json();
     }},
    {"direction",
     [](const TracedCall& traced, const Op* op) -> json {
         const uint64_t direction = traced.call.args[1];
         return is_of(op, {OpClass::copy}) && direction < directions ? json(direction_names[direction]) : json();
     }},
    {"kernel",
     [](const TracedCall& traced, const Op*) -> json { return traced.kernel ? text_or_null(*traced.kernel) : json(); }},
    {"function",
     [](const TracedCall& traced, const Op* op) -> json {
         return is_of(op, {OpClass::launch}) ? hex(traced.call.args[0]) : json();
     }},
    {"grid",
     [](const TracedCall& traced, const Op* op) -> json {
         return is_of(op, {OpClass::launch}) ? grid(traced.call) : json();
     }},
    {"block",
     [](const TracedCall& traced, const Op* op) -> json {
         return is_of(op, {OpClass::launch}) ? block(traced.call) : json();
     }},
    {"collective", [](const TracedCall& traced, const Op*) -> json { return collective(traced.call); }},
    {"on_cpu_ns", [](const TracedCall& traced, const Op*) -> json { return traced.call.on_cpu_ns(); }},
    {"runnable_ns", [](const TracedCall& traced, const Op*) -> json { return traced.call.runnable_ns; }},
    {"blocked_ns", [](const TracedCall& traced, const Op*) -> json { return traced.call.blocked_ns; }},
    {"blocked_on",
     [](const TracedCall& traced, const Op*) -> json {
         return traced.call.blocked_reason == BlockedReason::none
                    ? json()
                    : json(std::string(to_string(traced.call.blocked_reason)));
     }},
    {"last_wait_ns", [](const TracedCall& traced, const Op*) -> json { return traced.call.last_wait_ns == 0 ? json() : json(traced.call.last_wait_ns); }},
    {"last_runnable_ns",
     [](const TracedCall& traced, const Op*) -> json {
         return traced.call.last_wait_ns == 0 ? json() : json(traced.call.last_runnable_ns);
     }},
    {"last_blocked_on",
     [](const TracedCall& traced, const Op*) -> json {
         return traced.call.last_reason == BlockedReason::none ? json()
                                                               : json(std::string(to_string(traced.call.last_reason)));
     }},
    {"tail_ns",
     [](const TracedCall& traced, const Op*) -> json {
         return traced.call.last_wait_ns == 0 ? json() : json(traced.call.tail_ns);
     }},
    {"ran_instead", [](const TracedCall& traced, const Op*) -> json { return preemptor(traced.call); }},
    {"split_uncertain", [](const TracedCall& traced, const Op*) -> json { return traced.call.split_uncertain(); }},
    {"weight", [](const TracedCall& traced, const Op*) -> json { return traced.call.weight; }},
    {"time_weight", [](const TracedCall& traced, const Op*) -> json { return traced.call.times(); }},
    {"activity",
     [](const TracedCall& traced, const Op*) -> json {
         return traced.activity ? json(std::string(to_string(*traced.activity))) : json();
     }},
    {"activity_ns",
     [](const TracedCall& traced, const Op*) -> json {
         return traced.activity_ns == 0 ? json() : json(traced.activity_ns);
     }},
});

json line_head(std::string_view node, const char* event) {
    json line = {{"schema", "ingero/trace/1"}, {"node", to_valid_utf8(node)}};
    for (const ColumnOf& column : columns) line[column.name] = nullptr;
    line["event"] = event;
    line["skipped"] = nullptr;
    return line;
}

std::string what_for(const json& line) {
    std::string result;
    const auto add = [&](const std::string& part) { result += (result.empty() ? "" : ", ") + part; };
    if (member(line, "kernel").is_string())
        add(words(line, "kernel"));
    else if (member(line, "function").is_string())
        add("function " + words(line, "function"));
    if (number(line, "bytes")) add(bytes(line, "bytes"));
    if (member(line, "direction").is_string()) add(words(line, "direction"));
    if (const json& collective = member(line, "collective"); collective.is_object()) {
        if (const auto sequence = number(collective, "sequence")) add("number " + std::to_string(*sequence));
        const auto elements = number(collective, "count");
        if (elements && member(collective, "datatype").is_string())
            add(std::to_string(*elements) + " of " + words(collective, "datatype"));
        if (member(collective, "reduction").is_string()) add(words(collective, "reduction"));
        if (const auto peer = number(collective, "peer")) add("rank " + std::to_string(*peer));
        if (const auto root = number(collective, "root")) add("root " + std::to_string(*root));
    }
    if (words(line, "stream") != "0x0") add("stream " + words(line, "stream"));
    if (const auto device = number(line, "device"); device && *device != 0) add("device " + std::to_string(*device));
    return result;
}

/// Only what took longer than it would be read for.
std::string waits_of(const json& line) {
    constexpr uint64_t of_interest_ns = 20'000;
    std::string result;
    const auto waited = [&](const char* key, const std::string& how) {
        const auto ns = number(line, key);
        if (!ns || *ns < of_interest_ns) return;
        result += (result.empty() ? "" : ", ") + how + " " + duration(line, key);
    };
    const json& preempted = member(line, "ran_instead");
    waited("runnable_ns",
           preempted.is_object() ? "runnable behind " + process(preempted, "name", "pid") + " for" : "runnable");
    waited("blocked_ns",
           member(line, "blocked_on").is_string() ? "blocked on " + words(line, "blocked_on") : "blocked");
    return result;
}

std::string activity_of(const json& line) {
    std::string result = words(line, "activity");
    if (result == "blocked" && member(line, "blocked_on").is_string()) result += " on " + words(line, "blocked_on");
    if (number(line, "activity_ns")) result += " for " + duration(line, "activity_ns");
    return result;
}

}  // namespace

json trace_chunk(const std::vector<TracedCall>& calls, uint64_t skipped) {
    json names = json::array(), rows = json::array();
    for (const ColumnOf& column : columns) names.push_back(column.name);
    for (const TracedCall& traced : calls) {
        const Op* op = find_op(traced.call.op);
        json row = json::array();
        for (const ColumnOf& column : columns) row.push_back(column.value(traced, op));
        rows.push_back(std::move(row));
    }
    return {{"columns", std::move(names)}, {"rows", std::move(rows)}, {"skipped", skipped}};
}

std::vector<json> trace_lines(const json& chunk, std::string_view node) {
    std::vector<json> lines;
    const json& names = list(chunk, "columns");
    const json& rows = list(chunk, "rows");
    const auto skipped = number(chunk, "skipped");
    if (skipped && *skipped != 0) {
        lines.push_back(line_head(node, "skipped"));
        lines.back()["skipped"] = *skipped;
    }
    for (const json& row : rows) {
        if (!row.is_array() || row.size() != names.size() || lines.size() > most_rows) continue;
        json line = line_head(node, "call");
        // A column that this version does not know is left out.
        for (size_t i = 0; i < names.size(); ++i)
            if (names[i].is_string() && line.contains(names[i].get_ref<const std::string&>()) && names[i] != "schema" &&
                names[i] != "node")
                line[names[i].get_ref<const std::string&>()] = row[i];
        lines.push_back(std::move(line));
    }
    return lines;
}

std::string text_trace(const json& line, const TextStyle& style) {
    const std::string event = words(line, "event");
    if (event == "skipped")
        return paint(format_count(number(line, "skipped").value_or(0), "call is", "calls are") +
                         " not shown: there were too many at once",
                     Colour::yellow, style) +
               "\n";
    const bool in_flight = event == "in-flight";
    const std::string took = (in_flight ? "so far " : "") + duration(line, "duration_ns");
    std::string result = time(line, "start_ns") + "  " + process(line, "comm", "pid");
    if (const auto tid = number(line, "tid"); tid && tid != number(line, "pid"))
        result += " tid " + std::to_string(*tid);
    result += "  ";
    const auto depth = number(line, "depth");
    result.append(2 * std::min<size_t>(depth.value_or(0), 8), ' ');
    result += paint(words(line, "op"), in_flight ? Colour::yellow : Colour::bold, style) + "  " + took;
    if (const auto weight = number(line, "weight"); weight && *weight > 1)
        result += "  (1 of " + std::to_string(*weight) + " calls)";
    const std::string what = what_for(line);
    if (!what.empty()) result += "  " + what;
    const std::string waits = in_flight ? activity_of(line) : waits_of(line);
    if (!waits.empty()) result += "  " + paint(waits, Colour::cyan, style);
    if (member(line, "error").is_string()) result += "  " + paint(words(line, "error"), Colour::red, style);
    return result + "\n";
}

}  // namespace ingero
