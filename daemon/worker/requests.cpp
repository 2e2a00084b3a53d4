#include "daemon/worker/requests.h"

#include <algorithm>
#include <limits>
#include <new>
#include <optional>

#include "core/diagnosis/explain.h"
#include "core/diagnosis/incidents/incident_history.h"
#include "core/export/export.h"
#include "core/model/op.h"
#include "core/query/answers/gpus.h"
#include "core/query/answers/stacks.h"
#include "core/query/answers/stats.h"
#include "core/query/answers/timeline.h"
#include "core/query/sources/node_snapshot.h"
#include "core/query/sources/recording.h"
#include "core/render/render.h"
#include "core/render/requests.h"
#include "core/render/stragglers.h"
#include "core/render/timeline.h"
#include "core/symbols/symbolizer.h"
#include "core/wire/utf8.h"
#include "core/wire/value.h"
#include "daemon/worker/answers/file_answers.h"
#include "daemon/worker/answers/incident_answers.h"
#include "daemon/worker/answers/store_answers.h"
#include "daemon/worker/answers/stored_processes.h"
#include "daemon/worker/params.h"
#include "daemon/worker/protocol.h"

namespace ingero {

using nlohmann::json;

/// Parameters that stats and explain share.
struct RequestHandler::Query {
    Filter filter;
    size_t limit = 0;  ///< 0: no limit
    bool whole_trace = false;
    bool ends_with_trace = false;          ///< the window does, and not now
    std::optional<uint64_t> since_end_ns;  ///< then: how long it is, where it has no start
    std::string node;                      ///< of a stored trace; empty: all that it has
    bool takes_all_nodes = false;          ///< the answer says of each row which node it is of
    AnswerContext context;
};

namespace {

constexpr size_t default_stacks = 50;
constexpr size_t most_stacks = 10'000;
constexpr size_t most_waits = 1'000;
constexpr size_t most_timeline_calls = 10'000;
constexpr uint64_t most_slices = 100;
constexpr size_t default_requests = 20;
constexpr size_t most_requests = 10'000;
constexpr std::chrono::seconds export_deadline{29};  // before the worker's own, which ends the worker

Result<Window> to_window(std::optional<uint64_t> from, std::optional<uint64_t> to, std::optional<uint64_t> since) {
    if (since && (from || to)) return fail(ErrorCode::bad_request, "since_ns cannot be combined with from_ns or to_ns");
    const uint64_t now = ClockTriple::now().realtime_ns;
    const uint64_t end = to.value_or(now);
    const uint64_t length = std::min(since.value_or(default_window_ns), end);
    const Window window{from.value_or(end - length), end};
    if (window.from_ns >= window.to_ns) return fail(ErrorCode::bad_request, "the window ends before it begins");
    return window;
}

}  // namespace

Result<RequestHandler::Query> RequestHandler::to_query(const json& params) {
    constexpr uint64_t most = std::numeric_limits<int64_t>::max();
    constexpr uint64_t most_id = std::numeric_limits<uint32_t>::max();
    const auto from = number(params, "from_ns", most), to = number(params, "to_ns", most),
               since = number(params, "since_ns", most), pid = number(params, "pid", most_id),
               uid = number(params, "uid", most_id), limit = number(params, "limit", most);
    for (const auto* parameter : {&from, &to, &since, &pid, &uid, &limit})
        if (!*parameter) return tl::unexpected(parameter->error());
    const auto whole_trace = flag(params, "whole_trace");
    if (!whole_trace) return tl::unexpected(whole_trace.error());
    const auto stored = flag(params, "stored");
    if (!stored) return tl::unexpected(stored.error());
    auto missing_probes = texts(params, "missing_probes", max_listed_texts);
    if (!missing_probes) return tl::unexpected(missing_probes.error());
    auto window = to_window(*from, *to, *since);
    if (!window) return tl::unexpected(window.error());

    Query query;
    query.filter.window = *window;
    if (*pid) query.filter.pid = static_cast<uint32_t>(**pid);
    if (*uid) query.filter.uid = static_cast<uint32_t>(**uid);
    query.limit = limit->value_or(0);
    query.whole_trace = *whole_trace;
    query.ends_with_trace = *stored && !*to;
    query.since_end_ns = *since;
    const json node = params.value("node", json(""));
    if (!node.is_string()) return fail(ErrorCode::bad_request, "parameter node is not a string");
    query.node = node.get<std::string>();
    query.context.missing_probes = std::move(*missing_probes);
    return query;
}

namespace {

/// The commands of the processes, for the listed calls. Of a pid that was reused the latest stands.
Result<std::map<ProcessKey, std::string>> read_comms(const StoreSnapshot& snapshot) {
    auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());
    std::sort(processes->begin(), processes->end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    std::map<ProcessKey, std::string> comms;
    for (Process& process : *processes) comms[process.key] = std::move(process.comm);
    return comms;
}

/// What was found live at the same time. One of low severity opens none.
void name_incident(const std::vector<IncidentHistory>& incidents, const ClockTriple& clock,
                   StragglerEpisode& ret_episode) {
    if (ret_episode.severity() == Severity::low) return;
    const uint64_t from_ns = clock.to_realtime(ret_episode.since_ns),
                   to_ns = ret_episode.resolved_ns == 0 ? UINT64_MAX : clock.to_realtime(ret_episode.resolved_ns);
    for (const IncidentHistory& one : incidents)
        if (one.latest.kind == "straggler" && one.latest.process == ret_episode.process && one.opened_ns <= to_ns &&
            one.closed_ns.value_or(UINT64_MAX) >= from_ns)
            ret_episode.incident = one.latest.id;
}

/// Binaries that stay within the limit of a string.
json to_parts(std::string_view bytes) {
    constexpr size_t part_bytes = 48 << 10;
    json parts = json::array();
    for (size_t at = 0; at < bytes.size(); at += part_bytes) {
        const std::string_view part = bytes.substr(at, part_bytes);
        parts.push_back(json::binary({part.begin(), part.end()}));
    }
    return parts;
}

Result<std::optional<ExportCursor>> to_cursor(const json& params) {
    const json cursor = params.value("cursor", json());
    if (cursor.is_null()) return std::nullopt;
    const auto refuse = [] { return fail(ErrorCode::bad_request, "the cursor is not from an export's answer"); };
    if (!cursor.is_object()) return refuse();
    constexpr uint64_t most = std::numeric_limits<int64_t>::max(), most_id = std::numeric_limits<uint32_t>::max();
    const auto start = number(cursor, "start_ns", most), base = number(cursor, "base_ns", most),
               boot = number(cursor, "boot", most_id), monotonic = number(cursor, "monotonic_ns", most),
               boottime = number(cursor, "boottime_ns", most), realtime = number(cursor, "realtime_ns", most);
    for (const auto* part : {&start, &base, &boot, &monotonic, &boottime, &realtime})
        if (!*part || !**part) return refuse();
    return ExportCursor{**start, **base, {static_cast<uint32_t>(**boot), {**monotonic, **boottime, **realtime}}};
}

json cursor_json(const ExportCursor& cursor) {
    const ClockTriple& clock = cursor.boot.clock;
    return {{"start_ns", cursor.start_ns},      {"base_ns", cursor.base_ns},
            {"boot", cursor.boot.boot_index},   {"monotonic_ns", clock.monotonic_ns},
            {"boottime_ns", clock.boottime_ns}, {"realtime_ns", clock.realtime_ns}};
}

}  // namespace

Error too_large() {
    return {ErrorCode::limit, "the answer is too large", "ask for a shorter window, one pid, or fewer rows by limit"};
}

RpcResponse RequestHandler::answer(const RpcRequest& request, int fd) {
    RpcResponse response;
    response.id = request.id;
    try {
        auto result = dispatch(request, fd);
        if (!result)
            response.error = result.error();
        else if (!fits_in_message(*result, worker_rpc_limits))
            response.error = too_large();
        else
            response.result = std::move(*result);
    } catch (const std::bad_alloc&) {
        response.error =
            Error{ErrorCode::limit,
                  "the query needs more memory than the " + std::to_string(memory_bytes_ >> 20) + " MiB a worker has",
                  "ask for a shorter window or one pid, or raise [workers] memory"};
    } catch (const std::exception& error) {
        response.error = Error{ErrorCode::internal, std::string("the worker failed: ") + error.what(), ""};
    }
    return response;
}

Result<json> RequestHandler::dispatch(const RpcRequest& request, int fd) {
    if (request.method == "ping") return json{{"node", node_}, {"store", store_.has_value()}};
    if (request.method == "symbols") return symbols_answer(request.params, fd);
    if (request.method == "unwind") return unwind_answer(fd);
    if (request.method == "symbolize") return symbolize_answer(request.params, fd);
    if (request.method == "names") return names(request.params);
    if (request.method == "gpus") return gpus(request.params);
    if (request.method == "stats") return stats(request.params);
    if (request.method == "stacks") return stacks(request.params);
    if (request.method == "waits") return waits(request.params);
    if (request.method == "stragglers") return stragglers(request.params);
    if (request.method == "timeline") return timeline(request.params);
    if (request.method == "incidents") return incidents(request.params);
    if (request.method == "explain") return explain_window(request.params);
    if (request.method == "requests") return requests(request.params);
    if (request.method == "processes") return processes(request.params);
    if (request.method == "query") return query(request.params);
    if (request.method == "db_verify") return verify_answer(store_);
    if (request.method == "db_info")
        return store_ ? describe_answer(**store_) : Result<json>(tl::unexpected(store_.error()));
    if (request.method == "snapshot")
        return store_ ? copy_answer(**store_, fd) : Result<json>(tl::unexpected(store_.error()));
    if (request.method == "export") return export_events(request.params);
    if (request.method == "record") return record(request.params);
    return fail(ErrorCode::unknown_method, "a worker knows no method \"" + request.method + "\"");
}

/// What has no node in its rows is of one node: a pid of one is not a pid of another, and their times need not meet.
Result<void> RequestHandler::choose_node(std::unique_ptr<StoreSnapshot>& snapshot, const Query& query) {
    const auto nodes = stored_nodes(*snapshot);
    std::string names;
    for (const std::string& node : nodes) names += (names.empty() ? "" : ", ") + to_valid_utf8(node);
    if (!query.node.empty()) {
        if (std::find(nodes.begin(), nodes.end(), query.node) == nodes.end())
            return fail(ErrorCode::not_found, "the store has no such node", "it has " + names);
        snapshot = of_node(std::move(snapshot), query.node);
    } else if (nodes.size() > 1 && !query.takes_all_nodes) {
        return fail(ErrorCode::bad_request, "the store has several nodes, which are not compared",
                    "choose one with --node: " + names);
    }
    return {};
}

/// A snapshot; adds to the query what only the snapshot knows.
Result<std::unique_ptr<StoreSnapshot>> RequestHandler::snapshot_for(Query& query) {
    if (!store_) return tl::unexpected(store_.error());
    auto snapshot = (*store_)->snapshot();
    if (!snapshot) return snapshot;
    if (node_.empty())
        if (auto chosen = choose_node(*snapshot, query); !chosen) return tl::unexpected(chosen.error());
    if (query.whole_trace || query.ends_with_trace) {
        const Window whole = whole_trace(**snapshot);
        Window& window = query.filter.window;
        if (query.since_end_ns) window.from_ns = whole.to_ns - std::min(*query.since_end_ns, whole.to_ns);
        window.to_ns = whole.to_ns;
        if (query.whole_trace) window = whole;
        if (window.from_ns >= window.to_ns && !query.whole_trace)
            return fail(ErrorCode::bad_request, "the trace ends before the window begins",
                        "it ends at " + format_time(whole.to_ns));
    }
    query.context.node = node_;
    // A copied store answers for the node that wrote it, or for those that did.
    if (node_.empty()) {
        query.context.node.clear();
        for (const std::string& node : stored_nodes(**snapshot))
            query.context.node += (query.context.node.empty() ? "" : ", ") + node;
    }
    return snapshot;
}

Result<json> RequestHandler::processes(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    query->whole_trace = true;
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    return stored_processes(**snapshot, query->context);
}

Result<json> RequestHandler::gpus(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    query->takes_all_nodes = true;  // each GPU says whose it is
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    const Window window = query->filter.window;
    auto found = latest_gpus(**snapshot, window, query->filter.pid);
    if (!found) return tl::unexpected(found.error());
    const auto covered = coverage(**snapshot, window, {.uid = query->filter.uid, .pid = query->filter.pid});
    if (!covered) return tl::unexpected(covered.error());
    json answer = answer_head("gpus", query->context, window, *covered);
    answer.update(*found);
    return answer;
}

Result<json> RequestHandler::stats(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    const json by = params.value("by", json("op"));
    if (by != "op" && by != "kernel") return fail(ErrorCode::bad_request, "parameter by is not one of op, kernel");
    const auto calls_only = flag(params, "calls_only");
    if (!calls_only) return tl::unexpected(calls_only.error());
    const auto outermost = flag(params, "outermost");
    if (!outermost) return tl::unexpected(outermost.error());
    auto answer = compute_stats(**snapshot, query->filter,
                                {.by = by == "kernel" ? StatsBy::kernel : StatsBy::op, .outermost = *outermost});
    if (!answer) return tl::unexpected(answer.error());
    // Before the limit: it is of what is shown.
    if (*calls_only) std::erase_if(answer->ops, [](const OpStats& stats) { return !is_call(stats.op); });
    return to_json(*answer, query->context, query->limit);
}

Result<json> RequestHandler::names(const json& params) {
    if (!store_) return tl::unexpected(store_.error());
    const json functions = params.value("functions", json());
    if (!functions.is_array() || functions.size() > max_listed_texts)
        return fail(ErrorCode::bad_request,
                    "names needs functions, a list of at most " + std::to_string(max_listed_texts));
    auto snapshot = (*store_)->snapshot();
    if (!snapshot) return tl::unexpected(snapshot.error());
    json names = json::array();
    Demangler demangler;
    for (const json& function : functions) {
        const bool fits =
            function.is_array() && function.size() == 3 &&
            std::all_of(function.begin(), function.end(), [](const json& part) { return part.is_number_unsigned(); });
        if (!fits) return fail(ErrorCode::bad_request, "a function is [pid, start of the process in ns, handle]");
        const auto row = (*snapshot)->function({function[0].get<uint32_t>(), function[1].get<uint64_t>()},
                                               function[2].get<uint64_t>());
        if (!row) return tl::unexpected(row.error());
        names.push_back(*row ? json(to_valid_utf8(demangler.text((*row)->name))) : json());
    }
    return json{{"names", std::move(names)}};
}

Result<json> RequestHandler::stacks(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    const auto off_cpu = flag(params, "off_cpu");
    if (!off_cpu) return tl::unexpected(off_cpu.error());
    const auto lost = number(params, "stacks_lost", std::numeric_limits<uint64_t>::max());
    if (!lost) return tl::unexpected(lost.error());
    StacksQuery wanted;
    wanted.off_cpu = *off_cpu;
    wanted.limit = query->limit == 0 ? default_stacks : std::min(query->limit, most_stacks);
    const json op = params.value("op", json("")), by = params.value("by", json("op"));
    if (!op.is_string()) return fail(ErrorCode::bad_request, "parameter op is not a string");
    wanted.op = op.get<std::string>();
    if (by == "process")
        wanted.by = StacksBy::process;
    else if (by == "kernel")
        wanted.by = StacksBy::kernel;
    else if (by != "op")
        return fail(ErrorCode::bad_request, "parameter by is not one of op, process, kernel");
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    wanted.filter = query->filter;
    const auto answer = compute_stacks(**snapshot, wanted);
    if (!answer) return tl::unexpected(answer.error());
    json result = to_json(*answer, query->context);
    result["stacks_lost"] = *lost ? json(**lost) : json();
    return result;
}

Result<json> RequestHandler::waits(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    const auto between_calls = flag(params, "between_calls");
    if (!between_calls) return tl::unexpected(between_calls.error());
    WaitsQuery wanted;
    wanted.between_calls = *between_calls;
    const json by = params.value("by", json("wait"));
    if (by != "wait" && by != "thread") return fail(ErrorCode::bad_request, "parameter by is not one of wait, thread");
    wanted.by_thread = by == "thread";
    if (query->limit != 0) wanted.limit = std::min(query->limit, most_waits);
    if (const json tid = params.value("tid", json()); tid.is_number_unsigned()) wanted.tid = tid.get<uint32_t>();
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    wanted.filter = query->filter;
    const auto answer = compute_waits(**snapshot, wanted);
    if (!answer) return tl::unexpected(answer.error());
    return to_json(*answer, query->context);
}

Result<json> RequestHandler::stragglers(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    const auto options = straggler_options(params.value("options", json()));
    if (!options) return tl::unexpected(options.error());
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    auto answer = compute_stragglers(**snapshot, query->filter, *options);
    if (!answer) return tl::unexpected(answer.error());
    const auto incidents = read_incidents(**snapshot, query->filter);
    if (!incidents) return tl::unexpected(incidents.error());
    for (auto& boot : answer->boots)
        for (StragglerEpisode& episode : boot.episodes) name_incident(*incidents, boot.clock, episode);
    auto comms = read_comms(**snapshot);
    if (!comms) return tl::unexpected(comms.error());
    query->context.comms = std::move(*comms);
    return to_json(*answer, query->context);
}

Result<json> RequestHandler::timeline(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    const auto offset = number(params, "offset", most_timeline_calls);
    if (!offset) return tl::unexpected(offset.error());
    const json order = params.value("order", json("time"));
    if (order != "time" && order != "longest")
        return fail(ErrorCode::bad_request, "parameter order is not one of time, longest");
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    TimelineQuery wanted;
    wanted.filter = query->filter;
    wanted.longest_first = order == "longest";
    wanted.calls_before = offset->value_or(0);
    if (query->limit != 0) wanted.calls = std::min(query->limit, most_timeline_calls);
    const auto answer = compute_timeline(**snapshot, wanted);
    if (!answer) return tl::unexpected(answer.error());
    auto comms = read_comms(**snapshot);
    if (!comms) return tl::unexpected(comms.error());
    query->context.comms = std::move(*comms);
    std::vector<std::string> kernels;
    Demangler demangler;
    for (const TimelineCall& call : answer->calls) {
        const Op* op = find_op(call.event.op);
        std::string& kernel = kernels.emplace_back();
        if (!op || op->op_class != OpClass::launch) continue;
        const auto row = (*snapshot)->function(call.event.process(), call.event.args[0]);
        if (!row) return tl::unexpected(row.error());
        if (*row) kernel = demangler.text((*row)->name);
    }
    return to_json(*answer, query->context, kernels);
}

/// Of a window; or one, by its id; or whether that one is over for good.
Result<json> RequestHandler::incidents(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    const auto verify = flag(params, "verify");
    if (!verify) return tl::unexpected(verify.error());
    const json id = params.value("id", json());
    if (!id.is_null() && !id.is_string()) return fail(ErrorCode::bad_request, "parameter id is not a string");
    if (*verify && id.is_null()) return fail(ErrorCode::bad_request, "verify needs id, the id of an incident");
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    if (id.is_null()) return incidents_answer(**snapshot, query->filter, query->limit, query->context);
    const auto& text = id.get_ref<const std::string&>();
    if (!*verify) return incident_answer(**snapshot, query->filter, text, query->context);
    std::optional<Window> fresh;
    if (!query->whole_trace) fresh = query->filter.window;
    return incident_verify_answer(**snapshot, query->filter, text, fresh, query->context);
}

Result<json> RequestHandler::explain_window(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    const auto slices = number(params, "slices", most_slices);
    if (!slices) return tl::unexpected(slices.error());
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    ExplainOptions options;
    options.slices = static_cast<size_t>(slices->value_or(0));
    auto answer = explain(**snapshot, query->filter, options);
    if (!answer) return tl::unexpected(answer.error());
    name_incidents(**snapshot, query->filter, answer->findings);
    auto comms = read_comms(**snapshot);
    if (!comms) return tl::unexpected(comms.error());
    query->context.comms = std::move(*comms);
    if (query->limit != 0 && answer->findings.size() > query->limit) answer->findings.resize(query->limit);
    return to_json(*answer, query->context);
}

Result<json> RequestHandler::requests(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    const auto slower_than = number(params, "slower_than_ns", std::numeric_limits<int64_t>::max());
    if (!slower_than) return tl::unexpected(slower_than.error());
    const json by = params.value("by", json("request")), id = params.value("request", json());
    if (by != "request" && by != "step" && by != "phase")
        return fail(ErrorCode::bad_request, "parameter by is not one of request, step, phase");
    if (!id.is_null() && !id.is_string()) return fail(ErrorCode::bad_request, "parameter request is not a string");
    RequestsQuery wanted;
    wanted.kind = by == "step" ? SpanKind::step : by == "phase" ? SpanKind::phase : SpanKind::request;
    if (id.is_string()) wanted.id = id.get<std::string>();
    if (const json hash = params.value("request_hash", json()); hash.is_string()) wanted.hash = hash.get<std::string>();
    wanted.slower_than_ns = slower_than->value_or(0);
    wanted.limit = query->limit == 0 ? default_requests : std::min(query->limit, most_requests);
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    wanted.filter = query->filter;
    const auto answer = compute_requests(**snapshot, wanted);
    if (!answer) return tl::unexpected(answer.error());
    return to_json(*answer, query->context);
}

// Without a window the statement is about all that there is: it has conditions on time of its own.
Result<json> RequestHandler::query(const json& params) {
    auto parsed = to_query(params);
    if (!parsed) return tl::unexpected(parsed.error());
    const json sql = params.value("sql", json());
    if (!sql.is_string()) return fail(ErrorCode::bad_request, "query needs sql, a statement");
    const auto explain = flag(params, "explain");
    if (!explain) return tl::unexpected(explain.error());
    SqlQuery wanted;
    wanted.sql = sql.get<std::string>();
    wanted.explain = *explain;
    wanted.limit = parsed->limit == 0 ? default_sql_rows : std::min(parsed->limit, most_sql_rows);
    for (const char* key : {"from_ns", "to_ns", "since_ns"})
        if (params.contains(key) && !params[key].is_null()) wanted.whole_trace = parsed->whole_trace;
    parsed->whole_trace = wanted.whole_trace;
    parsed->takes_all_nodes = true;
    auto snapshot = snapshot_for(*parsed);
    if (!snapshot) return tl::unexpected(snapshot.error());
    wanted.filter = parsed->filter;
    if (!sql_) {
        auto engine = SqlEngine::open();
        if (!engine) return tl::unexpected(engine.error());
        sql_ = std::move(*engine);
    }
    auto answer = sql_->run(**snapshot, wanted);
    if (!answer) return tl::unexpected(answer.error());
    return to_json(std::move(*answer), parsed->context);
}

Result<json> RequestHandler::export_events(const json& params) {
    auto query = to_query(params);
    if (!query) return tl::unexpected(query.error());
    const json name = params.value("format", json());
    const auto format = name.is_string() ? export_format(name.get_ref<const std::string&>()) : std::nullopt;
    if (!format) return fail(ErrorCode::bad_request, "parameter format is not one of perfetto, chrome, csv, jsonl");
    const auto cursor = to_cursor(params);
    if (!cursor) return tl::unexpected(cursor.error());
    query->takes_all_nodes = true;
    auto snapshot = snapshot_for(*query);
    if (!snapshot) return tl::unexpected(snapshot.error());
    ExportQuery wanted;
    wanted.filter = query->filter;
    wanted.format = *format;
    wanted.cursor = *cursor;
    wanted.deadline = EventCursor::Clock::now() + export_deadline;
    const auto page = export_page(**snapshot, wanted);
    if (!page) return tl::unexpected(page.error());
    // The coverage is sent once, with the first page.
    Coverage covered;
    if (!*cursor) {
        auto found = coverage(**snapshot, wanted.filter.window, {wanted.filter.uid, wanted.filter.pid});
        if (!found) return tl::unexpected(found.error());
        covered = std::move(*found);
    }
    json answer = answer_head("export", query->context, wanted.filter.window, covered);
    answer["format"] = name;
    answer["events"] = page->events;
    answer["parts"] = to_parts(page->bytes);
    answer["cursor"] = page->next ? cursor_json(*page->next) : json();
    return answer;
}

Result<json> RequestHandler::record(const json& params) {
    if (!store_) return tl::unexpected(store_.error());
    constexpr uint64_t most = std::numeric_limits<int64_t>::max(), most_id = std::numeric_limits<uint32_t>::max();
    const auto uid = number(params, "uid", most_id), pid = number(params, "pid", most_id),
               start = number(params, "start_ns", most), after = number(params, "after", most),
               after_ns = number(params, "after_ns", most);
    for (const auto* parameter : {&uid, &pid, &start, &after, &after_ns})
        if (!*parameter) return tl::unexpected(parameter->error());
    const auto rest = flag(params, "rest");
    if (!rest) return tl::unexpected(rest.error());
    const json unit = params.value("unit", json("")), stacks = params.value("stacks", json::array());
    const bool lists_stacks = stacks.is_array() && stacks.size() <= most_recorded_stacks &&
                              std::all_of(stacks.begin(), stacks.end(), [](const json& id) {
                                  return id.is_number_unsigned() && id.get<uint64_t>() <= most_id;
                              });
    if (!unit.is_string() || !lists_stacks || pid->has_value() == !unit.get_ref<const std::string&>().empty())
        return fail(ErrorCode::bad_request, "record needs pid or unit, and stacks is a list of numbers");
    RecordQuery wanted;
    if (*uid) wanted.uid = static_cast<uint32_t>(**uid);
    wanted.pid = static_cast<uint32_t>(pid->value_or(0));
    wanted.unit = unit.get<std::string>();
    wanted.start_ns = start->value_or(0);
    wanted.after = after->value_or(0);
    wanted.after_ns = after_ns->value_or(0);
    wanted.rest = *rest;
    wanted.stacks = stacks.get<std::vector<uint32_t>>();
    const auto snapshot = (*store_)->snapshot();
    if (!snapshot) return tl::unexpected(snapshot.error());
    const auto page = record_page(**snapshot, wanted);
    if (!page) return tl::unexpected(page.error());
    return json{{"parts", to_parts(encode_batch(page->rows))},
                {"after", page->after},
                {"start_ns", page->start_ns},
                {"more", page->more},
                {"ended", page->has_ended}};
}

}  // namespace ingero
