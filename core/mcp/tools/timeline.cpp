// get_timeline: what each thread and stream did in a window, and the gaps between calls, where the GPU has nothing new
// to do.
#include "core/mcp/tool.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

Result<json> run_timeline(Call& call) {
    auto params = call.window();
    if (!params) return params;
    if (const std::string order = call.text("order"); !order.empty()) (*params)["order"] = order;
    (*params)["offset"] = call.offset();
    (*params)["limit"] = call.limit() + 1;
    return call.ask("timeline", std::move(*params));
}

}  // namespace

std::vector<Tool> timeline_tools() {
    return {
        {.name = "get_timeline",
         .title = "Threads, streams and gaps",
         .description =
             "What each thread and stream did in a window. gaps are the longest times between two calls of a thread, "
             "in which it submitted nothing to the GPU: on_cpu_at_most_ns of a gap is the thread's own work (such as "
             "preparing "
             "data), off_cpu_recorded_ns its waiting; null where the thread's waits were not recorded; gaps shorter "
             "than gap_floor_ns may be left out. calls are "
             "single calls, by time or the longest first, for explain_call. Narrow from and to for a closer look.",
         .arguments = with_window(
             {{.name = "order", .description = "Order of calls (default: time)", .choices = {"time", "longest"}}}),
         .parts = {{"threads", "table",
                    "pid:integer tid:integer comm:text? calls:integer in_calls_ns:integer runnable_ns:integer "
                    "blocked_ns:integer first_ns:integer last_ns:integer"},
                   {"streams", "table",
                    "pid:integer stream:integer? calls:integer launches:integer copies:integer syncs:integer "
                    "bytes_copied:integer? first_ns:integer last_ns:integer"},
                   {"gaps", "table",
                    "pid:integer tid:integer from_ns:integer to_ns:integer gap_ns:integer on_cpu_at_most_ns:integer? "
                    "off_cpu_recorded_ns:integer? after:text before:text"},
                   {.name = "calls",
                    .type = "table",
                    .columns = "id:integer start_ns:integer duration_ns:integer pid:integer tid:integer "
                               "stream:integer? op:text kernel:text? bytes:integer? on_cpu_ns:integer "
                               "runnable_ns:integer blocked_ns:integer error:text?",
                    .is_paged = true}},
         .run = run_timeline}};
}

}  // namespace ingero::mcp
