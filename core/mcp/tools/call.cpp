// explain_call: one call, followed to whom it waited for and to the finding that it is evidence of.
#include <algorithm>

#include "core/mcp/shape.h"
#include "core/mcp/tool.h"
#include "core/model/time.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

constexpr uint64_t around_ns = 150'000'000'000;
constexpr size_t max_frames = 16;
constexpr size_t max_frame_bytes = 120;

std::string call_sql(uint64_t id) {
    return "SELECT id, node, pid, tid, comm, source, op, kernel, NULLIF(stream, -1) AS stream, start_ns, duration_ns, "
           "on_cpu_ns, runnable_ns, blocked_ns, blocked_on, syscall, longest_sleep_ns, last_wait_ns, tail_ns, waker, "
           "waker_pid, preemptor, "
           "preemptor_pid, preemptor_ns, waits, depth, bytes, direction, error, split_uncertain, weight, time_weight, "
           "stack_hash, "
           "arg0, arg0 <> 0 AND op LIKE '%Launch%' AND source IN ('CUDA', 'DRIVER') AS launches FROM events WHERE id "
           "= " +
           std::to_string(id);
}

std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result.append(c == '\'' ? 2 : 1, c);
    return result + "'";
}

/// Earlier calls: of the process's op, and of the same function by it. A call without any is a first use.
void add_earlier(Call& call, const json& window, json& found) {
    const json& one = found["call"];
    const std::string before = "SELECT 1 FROM events WHERE pid = " + one["pid"].dump() +
                               " AND op = " + quoted(one["op"].get<std::string>()) + " AND start_ns < " +
                               one["start_ns"].dump();
    const auto is_there = [&](const std::string& condition) -> json {
        json params = json::object(), head;
        if (window.contains("node")) params["node"] = window["node"];
        params["limit"] = 1;
        const auto rows = call.select(before + condition + " LIMIT 1", std::move(params), head);
        return rows ? json(!rows->empty()) : json();
    };
    const json of_op = is_there("");
    found["first_call_of_op"] = of_op.is_null() ? json() : json(of_op == false);
    if (one["launches"] != 1) return;
    const json of_function = of_op == false ? json(false) : is_there(" AND arg0 = " + one["arg0"].dump());
    found["first_use_of_function"] = of_function.is_null() ? json() : json(of_function == false);
}

json frames_of(const json& row) {
    json frames = json::array();
    const json text = row.value("frames", json());
    const json list = text.is_string() ? json::parse(text.get_ref<const std::string&>(), nullptr, false) : json();
    if (!list.is_array()) return frames;
    for (const json& frame : list) {
        if (frames.size() == max_frames) {
            frames.push_back("and " + std::to_string(list.size() - max_frames) + " more");
            break;
        }
        if (frame.is_object() && frame.value("s", json()).is_string())
            frames.push_back(inert_text(frame["s"].get_ref<const std::string&>(), max_frame_bytes));
    }
    return frames;
}

void add_stack(Call& call, json& found) {
    found["stack"] = json::array();
    if (found["call"]["stack_hash"] == 0 || !found["call"]["stack_hash"].is_number()) return;
    json head;
    const auto rows = call.select("SELECT frames FROM stack_traces WHERE hash = " + found["call"]["stack_hash"].dump(),
                                  json::object(), head);
    if (rows && !rows->empty()) found["stack"] = frames_of(rows->front());
}

void add_waits(Call& call, json params, json& found) {
    const json& one = found["call"];
    const uint64_t start_ns = one["start_ns"].get<uint64_t>();
    params["from_ns"] = start_ns;
    params["to_ns"] = start_ns + one["duration_ns"].get<uint64_t>() + 1;
    params["tid"] = one["tid"];
    params["limit"] = 3;
    json links = json::array();
    const auto answer = call.ask("waits", std::move(params));
    if (answer) {
        size_t number = 0;
        for (const json& chain : answer->at("chains")) {
            ++number;
            for (json link : chain.at("links")) {
                link["wait"] = number;
                const json& preemptor = link["preemptor"];
                link["had_the_cpu"] = preemptor.is_object() ? preemptor.value("comm", json()) : json();
                links.push_back(std::move(link));
            }
        }
    }
    found["wait_chain"] = std::move(links);
}

void add_usual(Call& call, const json& params, json& found) {
    found["usual"] = nullptr;
    const auto stats = call.ask("stats", params);
    if (!stats) return;
    for (const json& op : stats->at("ops"))
        if (op.at("op") == found["call"]["op"] && op.at("pid") == found["call"]["pid"])
            found["usual"] = {{"calls", op["count"]},
                              {"p50_ns", op["p50_ns"]},
                              {"p95_ns", op["p95_ns"]},
                              {"p99_ns", op["p99_ns"]},
                              {"max_ns", op["max_ns"]}};
}

void add_findings(Call& call, const json& params, json& found) {
    json list = json::array();
    const auto explained = call.ask("explain", params);
    if (explained) {
        for (const char* name : {"window", "coverage", "missing_probes"}) found[name] = (*explained)[name];
        for (const json& finding : explained->at("findings")) {
            const json& evidence = finding.at("evidence");
            if (std::find(evidence.begin(), evidence.end(), found["call"]["id"]) != evidence.end())
                list.push_back(finding);
        }
    }
    found["findings"] = std::move(list);
}

Result<json> run_call(Call& call) {
    const uint64_t id = *call.number("event");
    json params = json::object();
    if (const std::string node = call.text("node"); !node.empty()) params["node"] = node;
    json found;
    auto rows = call.select(call_sql(id), params, found);
    if (!rows) return rows;
    if (rows->empty())
        return fail(ErrorCode::not_found, "there is no call " + std::to_string(id) + " that you may see",
                    "ids are in evidence of get_incidents, in id of get_timeline and in events.id of run_sql");
    found["call"] = rows->front();
    const json& one = found["call"];
    if (one["node"].is_string()) params["node"] = one["node"];
    if (call.is_live()) params.erase("node");
    params["pid"] = one["pid"];
    add_earlier(call, params, found);
    add_stack(call, found);
    add_waits(call, params, found);
    // The time around the call shows what is usual, and what the call is evidence of.
    const uint64_t start_ns = one["start_ns"].get<uint64_t>(), end_ns = start_ns + one["duration_ns"].get<uint64_t>();
    if (call.is_live()) {
        params["from_ns"] = start_ns - std::min(start_ns, around_ns);
        params["to_ns"] = std::min<uint64_t>(ClockTriple::now().realtime_ns, end_ns + around_ns);
    } else {
        params["whole_trace"] = true;
    }
    add_usual(call, params, found);
    add_findings(call, params, found);
    for (const char* internal : {"arg0", "launches", "stack_hash"}) found["call"].erase(internal);
    found["python"] = nullptr;
    return found;
}

}  // namespace

std::vector<Tool> call_tools() {
    return {
        {.name = "explain_call",
         .title = "One call explained",
         .description =
             "One call by its id: where its time went (on_cpu, runnable: could run and had no CPU, blocked: slept), "
             "who had the CPU or ended the sleep, the chain of waits behind it, its stack, what is usual for the "
             "operation, whether it was a first use, and the findings that it is evidence of.",
         .arguments = {{.name = "event",
                        .type = Argument::Type::integer,
                        .description = "Id of a call: from evidence of get_incidents, id of get_timeline, or "
                                       "events.id of run_sql",
                        .required = true,
                        .least = 1},
                       node_argument,
                       compact_argument},
         .parts = {{"call", "object"},
                   {"usual", "object?"},
                   {"first_call_of_op", "boolean?"},
                   {"first_use_of_function", "boolean?"},
                   {"wait_chain", "table",
                    "wait:integer did:text comm:text? pid:integer tid:integer from_ns:integer duration_ns:integer "
                    "blocked_on:text? syscall:text? detail:text? ended_by:text? had_the_cpu:text? "
                    "throttled:boolean"},
                   {"stack", "texts"},
                   {"python", "texts?"},
                   {"findings", "table",
                    "id:text kind:text severity:text verdict:text summary:text lost_ns:integer "
                    "explained_fraction:number culprits:objects rejected:objects fix:text?"}},
         .run = run_call}};
}

}  // namespace ingero::mcp
