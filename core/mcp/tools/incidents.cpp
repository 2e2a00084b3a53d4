// get_incidents: what went wrong, proven by time.
#include "core/mcp/tool.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

constexpr const char* incidents_sql =
    "SELECT id, kind, severity, verdict, summary, opened_ns, closed_ns, lost_ns, explained, pid FROM incidents "
    "ORDER BY lost_ns DESC LIMIT 20";

Result<json> run_incidents(Call& call) {
    auto params = call.window();
    if (!params) return params;
    call.set_default_limit(5);
    auto found = call.ask("explain", *params);
    if (!found) return found;
    // What comes before the page; the answer itself has no limit on findings.
    drop_before_page((*found)["findings"], call.offset());
    for (json& slow : (*found)["slow_calls"]) {
        const json split = slow.at("split");
        if (split.is_object()) slow.update(split);
    }
    params->erase("whole_trace");
    params->erase("since_ns");
    for (const char* end : {"from_ns", "to_ns"}) (*params)[end] = (*found)["window"][end];
    json head;
    auto incidents = call.select(incidents_sql, std::move(*params), head);
    if (!incidents) return incidents;
    (*found)["incidents"] = std::move(*incidents);
    return found;
}

Tool incidents_tool(std::string_view name, std::string_view title, std::string_view description) {
    return {.name = name,
            .title = title,
            .description = description,
            .arguments = with_window({}),
            .parts = {{"summary", "text"},
                      {"healthy", "boolean"},
                      {"calls", "integer"},
                      {"excess_ns", "integer"},
                      {"explained_ns", "integer"},
                      {.name = "findings",
                       .type = "table",
                       .columns = "id:text kind:text severity:text verdict:text summary:text lost_ns:integer "
                                  "lost_low_ns:integer lost_high_ns:integer waited_ns:integer "
                                  "explained_fraction:number pid:integer? comm:text? culprits:objects "
                                  "rejected:objects evidence:integers fix:text? confirm:text?",
                       .is_paged = true},
                      {"slow_calls", "table",
                       "id:integer? op:text pid:integer tid:integer comm:text? start_ns:integer duration_ns:integer "
                       "expected_ns:integer? explained_fraction:number? on_cpu_ns:integer device_wait_ns:integer "
                       "runnable_ns:integer blocked_ns:integer"},
                      {"incidents", "table",
                       "id:text kind:text severity:text verdict:text summary:text opened_ns:integer "
                       "closed_ns:integer? lost_ns:integer explained:number? pid:integer"}},
            .run = run_incidents};
}

}  // namespace

std::vector<Tool> incident_tools() {
    return {
        incidents_tool(
            "get_incidents", "What went wrong",
            "Start here. Findings of a window: what took longer than usual, whose time it was, how much of it was "
            "lost (lost_ns, at least lost_low_ns, at most lost_high_ns) and how long its threads waited in all "
            "(waited_ns), how much "
            "of it "
            "is explained, culprits, hypotheses that were rejected with their ns, a fix and how to confirm it. A "
            "finding "
            "is proven by time on the same thread, never by counts nearby; insufficient-evidence is a valid verdict. "
            "evidence lists ids of calls for explain_call, worst first; then calls that ended late because of a wait "
            "before them. Few or no findings although the program is slow: "
            "get_timeline shows the gaps between calls."),
        incidents_tool("get_causal_chains", "What went wrong (alias)",
                       "The same as get_incidents, under the name of earlier versions."),
    };
}

}  // namespace ingero::mcp
