// get_trace_stats and get_stacks: sums over a window.
#include "core/mcp/shape.h"
#include "core/mcp/tool.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

constexpr size_t default_frames = 12;
constexpr size_t max_frame_bytes = 120;

Result<json> run_stats(Call& call) {
    auto params = call.window();
    if (!params) return params;
    if (const std::string by = call.text("by"); !by.empty()) (*params)["by"] = by;
    (*params)["limit"] = call.wanted_rows();
    auto found = call.ask("stats", std::move(*params));
    if (found) drop_before_page((*found)["ops"], call.offset());
    return found;
}

Result<json> run_stacks(Call& call) {
    auto params = call.window();
    if (!params) return params;
    for (const char* name : {"op", "by"})
        if (const std::string text = call.text(name); !text.empty()) (*params)[name] = text;
    if (call.flag("off_cpu")) (*params)["off_cpu"] = true;
    call.set_default_limit(5);
    (*params)["limit"] = call.wanted_rows();
    auto found = call.ask("stacks", std::move(*params));
    if (!found) return found;
    json& stacks = (*found)["stacks"];
    drop_before_page(stacks, call.offset());
    const size_t frames = call.number("frames").value_or(default_frames);
    for (json& stack : stacks) {
        json names = json::array();
        for (const json& frame : stack["frames"]) {
            if (names.size() == frames) break;
            names.push_back(inert_text(frame.at("name").get_ref<const std::string&>(), max_frame_bytes));
        }
        stack["frames_left_out"] = stack["frames"].size() - names.size();
        stack["frames"] = std::move(names);
        stack["python"] = nullptr;
    }
    return found;
}

}  // namespace

std::vector<Tool> stats_tools() {
    return {
        {.name = "get_trace_stats",
         .title = "Statistics by operation",
         .description =
             "How often each operation of each process was called, how long it took (p50, p95, p99, max) and where "
             "the time went: on_cpu, device_wait (waiting for the GPU), runnable (had no CPU), blocked (slept). The "
             "largest total first. by=kernel: launches by kernel.",
         .arguments = with_window(
             {{.name = "by", .description = "What to group by (default: op)", .choices = {"op", "kernel"}}}),
         .parts = {{"by", "text"},
                   {.name = "ops",
                    .type = "table",
                    .columns = "source:text op:text pid:integer? kernel:text? count:integer errors:integer "
                               "p50_ns:integer p95_ns:integer p99_ns:integer max_ns:integer total_ns:integer "
                               "on_cpu_ns:integer device_wait_ns:integer runnable_ns:integer blocked_ns:integer "
                               "bytes:integer? lost:integer approximate:boolean",
                    .is_paged = true}},
         .run = run_stats}};
}

std::vector<Tool> stack_tools() {
    return {
        {.name = "get_stacks",
         .title = "Call stacks by time",
         .description = "The native stacks that calls were made on, those with the most time first; with off_cpu the "
                        "most time off the CPU. Frames are innermost first. python is null where Python lines were "
                        "not captured.",
         .arguments = with_window(
             {{"op", Argument::Type::text, "Only this operation, such as cudaLaunchKernel"},
              {.name = "by", .description = "What to group by (default: op)", .choices = {"op", "process", "kernel"}},
              {"off_cpu", Argument::Type::boolean, "Order by time off the CPU and omit stacks that have none"},
              {.name = "frames",
               .type = Argument::Type::integer,
               .description = "At most this many frames of each (default: 12)",
               .least = 1,
               .most = 64}}),
         .parts = {{"calls", "integer"},
                   {"calls_without_stack", "integer"},
                   {.name = "stacks",
                    .type = "table",
                    .columns = "op:text? pid:integer? kernel:text? count:integer total_ns:integer "
                               "off_cpu_ns:integer runnable_ns:integer blocked_ns:integer end:text frames:texts "
                               "frames_left_out:integer python:texts?",
                    .is_paged = true}},
         .run = run_stacks}};
}

}  // namespace ingero::mcp
