// graph_lifecycle and graph_frequency: CUDA graphs, from capture to launch.
#include <string>

#include "core/mcp/tool.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

std::string page(const Call& call) {
    return " LIMIT " + std::to_string(call.limit() + 1) + " OFFSET " + std::to_string(call.offset());
}

Result<json> run_lifecycle(Call& call) {
    const auto params = call.window();
    if (!params) return params;
    json found;
    auto graphs = call.select(
        "SELECT pid, arg1 AS exec, MAX(CASE WHEN op LIKE '%GraphInstantiate%' THEN arg0 END) AS graph, "
        "SUM(op LIKE '%GraphInstantiate%') AS instantiated, "
        "MIN(CASE WHEN op LIKE '%GraphInstantiate%' THEN start_ns END) AS instantiated_ns, "
        "SUM(CASE WHEN op LIKE '%GraphInstantiate%' THEN duration_ns ELSE 0 END) AS instantiate_ns, "
        "SUM(op LIKE '%GraphExecUpdate') AS updates, SUM(op LIKE '%GraphUpload') AS uploads, "
        "SUM(op LIKE '%GraphLaunch') AS launches, "
        "SUM(CASE WHEN op LIKE '%GraphLaunch' THEN duration_ns ELSE 0 END) AS launch_ns, "
        "MIN(CASE WHEN op LIKE '%GraphLaunch' THEN start_ns END) AS first_launch_ns, "
        "MAX(CASE WHEN op LIKE '%GraphLaunch' THEN start_ns END) AS last_launch_ns, "
        "MAX(CASE WHEN op LIKE '%GraphExecDestroy' THEN start_ns END) AS destroyed_ns, "
        "SUM(error IS NOT NULL) AS errors FROM events WHERE source = 'GRAPH' AND depth = 0 AND arg1 <> 0 AND "
        "op NOT LIKE '%Capture' AND op NOT LIKE '%GraphDestroy' GROUP BY pid, exec ORDER BY launches DESC, pid, exec" +
            page(call),
        *params, found);
    if (!graphs) return graphs;
    json head;
    auto ops = call.select(
        "SELECT pid, op, COUNT(*) AS count, SUM(error IS NOT NULL) AS errors, SUM(duration_ns) AS total_ns, "
        "MAX(duration_ns) AS max_ns FROM events WHERE source = 'GRAPH' AND depth = 0 GROUP BY pid, op ORDER BY "
        "total_ns "
        "DESC LIMIT 40",
        *params, head);
    if (!ops) return ops;
    found["ops"] = std::move(*ops);
    found["graphs"] = std::move(*graphs);
    return found;
}

Result<json> run_frequency(Call& call) {
    const auto params = call.window();
    if (!params) return params;
    json found;
    auto graphs = call.select(
        "WITH launches AS (SELECT pid, arg1 AS exec, start_ns, duration_ns, start_ns - LAG(start_ns) OVER (PARTITION "
        "BY "
        "pid, arg1 ORDER BY start_ns) AS interval_ns FROM events WHERE source = 'GRAPH' AND depth = 0 AND "
        "op LIKE '%GraphLaunch') SELECT pid, exec, COUNT(*) AS launches, SUM(duration_ns) AS launch_ns, "
        "MAX(duration_ns) AS max_launch_ns, MIN(start_ns) AS first_launch_ns, MAX(start_ns) AS last_launch_ns, "
        "MIN(interval_ns) AS shortest_interval_ns, CAST(AVG(interval_ns) AS INTEGER) AS mean_interval_ns, "
        "MAX(interval_ns) AS longest_interval_ns FROM launches GROUP BY pid, exec ORDER BY launches DESC, pid, exec" +
            page(call),
        *params, found);
    if (!graphs) return graphs;
    for (json& graph : *graphs) {
        const json& mean = graph["mean_interval_ns"];
        graph["launches_per_s"] = mean.is_number() && mean > 0 ? json(1e9 / mean.get<double>()) : json();
    }
    found["graphs"] = std::move(*graphs);
    return found;
}

}  // namespace

std::vector<Tool> graph_tools() {
    return {
        {.name = "graph_lifecycle",
         .title = "CUDA graphs from capture to launch",
         .description =
             "Each executable CUDA graph: when and how long it was instantiated, updated, launched, destroyed; "
             "and all graph operations by process, captures among them. Many instantiations with few launches "
             "each are graphs captured again and again.",
         .arguments = with_window({}),
         .parts = {{"ops", "table", "pid:integer op:text count:integer errors:integer total_ns:integer max_ns:integer"},
                   {.name = "graphs",
                    .type = "table",
                    .columns = "pid:integer exec:integer graph:integer? instantiated:integer instantiated_ns:integer? "
                               "instantiate_ns:integer updates:integer uploads:integer launches:integer "
                               "launch_ns:integer first_launch_ns:integer? last_launch_ns:integer? "
                               "destroyed_ns:integer? errors:integer",
                    .is_paged = true}},
         .run = run_lifecycle},
        {.name = "graph_frequency",
         .title = "How often CUDA graphs are launched",
         .description = "Launches of each executable CUDA graph: how many, how long, how far apart. A long "
                        "longest_interval_ns is a time in which the graph was not launched.",
         .arguments = with_window({}),
         .parts = {{.name = "graphs",
                    .type = "table",
                    .columns = "pid:integer exec:integer launches:integer launches_per_s:number? launch_ns:integer "
                               "max_launch_ns:integer first_launch_ns:integer last_launch_ns:integer "
                               "shortest_interval_ns:integer? mean_interval_ns:integer? longest_interval_ns:integer?",
                    .is_paged = true}},
         .run = run_frequency}};
}

}  // namespace ingero::mcp
