#include "ctl/live/top_answer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/model/call_time.h"
#include "core/render/text.h"
#include "core/render/trace.h"
#include "core/wire/client.h"

namespace ingero::ctl {

using nlohmann::json;
using text::list;
using text::member;

namespace {

/// For what the daemon has sent already.
constexpr std::chrono::milliseconds in_flight_patience{50};
constexpr size_t most_ops = 10;  ///< of a process
constexpr uint64_t requests_back_ns = 60'000'000'000;
constexpr const char* slowest_requests =
    "SELECT id, pid, start_ns, duration_ns, queue_ns, ttft_ns, model FROM requests ORDER BY duration_ns DESC LIMIT 20";

Result<ControlClient> connect(const Options& options) {
    return ControlClient::connect(options.socket, {.client = "ingeroctl " INGERO_VERSION});
}

uint64_t number_of(const json& row, const char* key) {
    return text::number(row, key).value_or(0);
}

json picked(const json& row, std::initializer_list<const char*> keys) {
    json result = json::object();
    for (const char* key : keys) result[key] = member(row, key);
    return result;
}

/// 0 is what is outside of the daemon's pid namespace.
json with_known_pid(json row) {
    if (number_of(row, "pid") == 0) row["pid"] = nullptr;
    return row;
}

bool is_of(const json& row, std::optional<uint32_t> pid) {
    return !pid || text::number(row, "pid") == *pid;
}

/// Calls that have not returned: the daemon sends them as a trace begins.
class InFlight {
  public:
    InFlight(const Options& options, const TopQuestion& question) {
        auto client = connect(options);
        json params = {{"in_flight", true}};
        if (question.pid) params["pid"] = *question.pid;
        if (client && client->call("trace", std::move(params), question.patience)) trace_ = std::move(*client);
    }

    /// The longest first; null where the daemon has no room for one more trace, or it broke off.
    json calls() {
        if (!trace_) return nullptr;
        // A call that goes on may be sent twice.
        std::map<std::pair<uint64_t, uint64_t>, json> by_thread;
        const auto until = std::chrono::steady_clock::now() + in_flight_patience;
        const auto followed = trace_->follow(until, -1, [&](const json& chunk) {
            for (const json& line : trace_lines(chunk, "")) {
                if (text::words(line, "event") != "in-flight" || number_of(line, "depth") != 0) continue;
                by_thread[{number_of(line, "pid"), number_of(line, "tid")}] = with_known_pid(
                    picked(line, {"pid", "tid", "comm", "op", "start_ns", "duration_ns", "activity", "activity_ns"}));
            }
            return true;
        });
        if (!followed) return nullptr;
        json result = json::array();
        for (auto& [thread, call] : by_thread) result.push_back(std::move(call));
        std::stable_sort(result.begin(), result.end(), [](const json& a, const json& b) {
            return number_of(a, "duration_ns") > number_of(b, "duration_ns");
        });
        return result;
    }

  private:
    std::optional<ControlClient> trace_;
};

/// Of a process: where the time in calls went, the longest call, and the operations that took the most.
struct Calls {
    json split = {{"on_cpu_ns", 0}, {"device_wait_ns", 0}, {"runnable_ns", 0}, {"blocked_ns", 0}};
    std::optional<uint64_t> longest_ns;
    json ops = json::array();

    void take_length(uint64_t ns) { longest_ns = std::max(longest_ns.value_or(0), ns); }
    /// The largest by total time first.
    void add(const json& op) {
        for (auto& [key, ns] : split.items()) ns = saturating_add(ns.get<uint64_t>(), number_of(op, key.c_str()));
        take_length(number_of(op, "max_ns"));
        if (ops.size() < most_ops)
            ops.push_back(picked(op, {"op", "count", "errors", "p50_ns", "p99_ns", "max_ns", "total_ns"}));
    }
};

/// That of a process that has gone, whose pid another has now, stays for a while without one.
json open_incidents(const json& answer, const json& processes, const TopQuestion& question) {
    std::map<uint64_t, uint64_t> started_ns;
    for (const json& process : list(processes, "processes"))
        started_ns[number_of(process, "pid")] = number_of(process, "start_time_ns");
    json result = json::array();
    for (const json& incident : list(answer, "incidents")) {
        const uint64_t opened_ns = number_of(incident, "opened_ns");
        if (!member(incident, "closed_ns").is_null()) continue;
        json one =
            picked(incident, {"id", "kind", "severity", "verdict", "summary", "pid", "comm", "opened_ns", "lost_ns"});
        const auto now = started_ns.find(number_of(one, "pid"));
        if (now != started_ns.end() && now->second > opened_ns) one["pid"] = nullptr;
        if (is_of(one, question.pid)) result.push_back(std::move(one));
    }
    return result;
}

json process_rows(const json& processes, const json& stats, const json& looked, const TopQuestion& question) {
    std::map<uint64_t, Calls> calls;
    for (const json& op : list(stats, "ops")) calls[number_of(op, "pid")].add(op);
    for (const json& call : list(looked, "in_flight"))
        calls[number_of(call, "pid")].take_length(number_of(call, "duration_ns"));
    std::map<uint64_t, uint64_t> lost;
    for (const json& incident : list(looked, "incidents")) {
        uint64_t& ns = lost[number_of(incident, "pid")];
        ns = saturating_add(ns, number_of(incident, "lost_ns"));
    }
    json result = json::array();
    for (const json& process : list(processes, "processes")) {
        if (!is_of(process, question.pid)) continue;
        json row = picked(process, {"pid", "comm", "unit", "rank", "world_size", "calls_per_s", "gpu_memory_bytes"});
        const uint64_t pid = number_of(row, "pid");
        Calls& own = calls[pid];
        row["longest_ns"] = own.longest_ns ? json(*own.longest_ns) : json();
        row["split"] = std::move(own.split);
        row["lost_ns"] = lost[pid];
        row["ops"] = std::move(own.ops);
        result.push_back(std::move(row));
    }
    return result;
}

json request_rows(const json& answer, const TopQuestion& question) {
    json result = json::array();
    const json& columns = list(answer, "columns");
    for (const json& row : list(answer, "rows")) {
        json one = json::object();
        for (size_t i = 0; row.is_array() && i < std::min(row.size(), columns.size()); ++i)
            one[text::words(columns[i], "name")] = row[i];
        if (is_of(one, question.pid)) result.push_back(with_known_pid(std::move(one)));
    }
    return result;
}

Result<json> look(const Options& options, ControlClient& client, const TopQuestion& question) {
    // First: what it is sent waits in its socket while the others are asked for.
    InFlight in_flight(options, question);
    const json window = {{"since_ns", question.since_ns}};
    json of_calls = window;
    of_calls.update({{"outermost", true}, {"calls_only", true}});
    if (question.pid) of_calls["pid"] = *question.pid;
    std::map<std::string, json> answers;
    for (const auto& [method, params] : std::map<std::string, json>{
             {"incidents", window}, {"processes", json::object()}, {"stats", of_calls}, {"status", json::object()}}) {
        auto answer = client.call(method, params, question.patience);
        if (!answer) return tl::unexpected(answer.error());
        answers[method] = std::move(*answer);
    }
    const json &status = answers["status"], &stats = answers["stats"];
    json result = picked(stats, {"node", "window", "coverage", "missing_probes"});
    result["schema"] = "ingero/top/1";
    result["state"] = member(status, "state");
    result["overhead"] = picked(member(status, "overhead"), {"budget_permille", "measured_permille"});
    result["events_lost"] = number_of(member(status, "events"), "lost");
    result["incidents"] = open_incidents(answers["incidents"], answers["processes"], question);
    result["in_flight"] = in_flight.calls();
    result["processes"] = process_rows(answers["processes"], stats, result, question);
    if (question.pid && result["processes"].empty())
        return fail(ErrorCode::not_found, "no traced process " + std::to_string(*question.pid) + " that you may see",
                    "'ingeroctl processes' lists those that there are");
    // The rest stands without them.
    const auto requests =
        client.call("query", {{"since_ns", requests_back_ns}, {"sql", slowest_requests}}, question.patience);
    result["requests"] = requests ? request_rows(*requests, question) : json();
    return result;
}

}  // namespace

TopLook look_for_top(const Options& options, const TopQuestion& question) {
    auto client = connect(options);
    if (!client) return {tl::unexpected(client.error())};
    const bool sees_all = client->server().value("sees_all", json(true)) != false;
    return {look(options, *client, question), true, sees_all};
}

}  // namespace ingero::ctl
