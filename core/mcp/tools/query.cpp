// list_processes, get_check and run_sql.
#include "core/mcp/tool.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

Result<json> run_processes(Call& call) {
    json params = json::object();
    if (const std::string node = call.text("node"); !node.empty()) params["node"] = node;
    call.set_default_limit(50);
    auto found = call.ask("processes", std::move(params));
    if (found) drop_before_page((*found)["processes"], call.offset());
    return found;
}

Result<json> run_check(Call& call) {
    if (!call.is_live()) {
        auto found = call.ask("processes", json::object());
        if (!found) return found;
        (*found)["state"] = "stored";
        (*found)["processes"] = (*found)["processes"].size();
        (*found)["checks"] = json::array();
        return found;
    }
    auto status = call.ask("status", json::object());
    if (!status) return status;
    // Without it there is still all that the daemon says of itself.
    auto check = call.ask("check", json::object());
    (*status)["checks"] = check ? (*check)["checks"] : json::array();
    (*status)["ready"] = check ? (*check)["ready"] : json();
    return status;
}

Result<json> run_sql(Call& call) {
    // Without a window the statement is about all there is: its own conditions say which time.
    json params = json::object();
    if (!call.text("since").empty() || call.has("from")) {
        auto window = call.window();
        if (!window) return window;
        params = std::move(*window);
    } else {
        if (const auto pid = call.number("pid")) params["pid"] = *pid;
        if (const std::string node = call.text("node"); !node.empty()) params["node"] = node;
    }
    params["sql"] = call.text("sql");
    call.set_default_limit(100);
    params["limit"] = call.wanted_rows();
    auto found = call.ask("query", std::move(params));
    if (found) drop_before_page((*found)["rows"], call.offset());
    return found;
}

}  // namespace

std::vector<Tool> process_tools() {
    return {{.name = "list_processes",
             .title = "Traced processes",
             .description = "The processes that are traced, or were: ranks, containers, jobs, devices and memory.",
             .arguments = {node_argument, compact_argument, limit_argument, cursor_argument},
             .parts = {{.name = "processes",
                        .type = "table",
                        .columns = "pid:integer comm:text state:text start_time_ns:integer? command:text? unit:text? "
                                   "container:text? pod_name:text? pod_namespace:text? slurm_job:text? rank:integer? "
                                   "local_rank:integer? world_size:integer? devices:any cuda_visible_devices:text? "
                                   "calls_per_s:number? gpu_memory_bytes:integer? cpus_allowed:text?",
                        .is_paged = true}},
             .run = run_processes}};
}

std::vector<Tool> check_tools() {
    return {{.name = "get_check",
             .title = "What is traced, and what is missing",
             .description =
                 "Whether the tracer records what it should: its state, what is attached, what is missing and "
                 "how to fix it, events recorded and lost, overhead. For a stored trace it returns coverage only.",
             .arguments = {compact_argument},
             .parts = {{"state", "text"},
                       {"version", "text?"},
                       {"ready", "boolean?"},
                       {"uptime_ns", "integer?"},
                       {"events", "object?"},
                       {"overhead", "object?"},
                       {"store", "object?"},
                       {"processes", "integer?"},
                       {"incidents_open", "integer?"},
                       {"checks", "table", "name:text state:text detail:text fix:text?"}},
             .run = run_check}};
}

std::vector<Tool> query_tools() {
    return {{.name = "run_sql",
             .title = "SQL over the trace",
             .description =
                 "One SELECT statement (SQLite) over what is stored; it reads only, and time, memory and rows are "
                 "limited. Tables: events (calls: id, start_ns, duration_ns, pid, tid, op, kernel, on_cpu_ns, "
                 "runnable_ns, blocked_ns, blocked_on, preemptor, ...), waits, requests, spans, incidents, processes, "
                 "collectives, stack_traces and more: read the resource ingero://schema, or "
                 "SELECT table_name, column_name, meaning FROM schema_columns. Times are ns.",
             .arguments = with_window({{.name = "sql", .description = "The statement", .required = true}}),
             .parts = {{"columns", "objects"},
                       {.name = "rows", .type = "rows", .is_paged = true},
                       {"truncated", "boolean"},
                       {"elapsed_ns", "integer"}},
             .run = run_sql}};
}

}  // namespace ingero::mcp
