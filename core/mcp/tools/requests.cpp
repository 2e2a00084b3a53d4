// get_requests: requests by measured duration.
#include <algorithm>

#include "core/mcp/tool.h"
#include "core/model/time.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

Result<json> run_requests(Call& call) {
    auto params = call.window();
    if (!params) return params;
    for (const char* name : {"by", "request"})
        if (const std::string text = call.text(name); !text.empty()) (*params)[name] = text;
    if (const std::string slower_than = call.text("slower_than"); !slower_than.empty()) {
        const auto ns = parse_duration_ns(slower_than);
        if (!ns) return tl::unexpected(ns.error());
        (*params)["slower_than_ns"] = *ns;
    }
    (*params)["limit"] = call.wanted_rows();
    auto found = call.ask("requests", std::move(*params));
    if (!found) return found;
    json& requests = (*found)["requests"];
    requests.erase(requests.begin(),
                   requests.begin() + static_cast<json::difference_type>(std::min(call.offset(), requests.size())));
    return found;
}

}  // namespace

std::vector<Tool> request_tools() {
    return {
        {.name = "get_requests",
         .title = "Requests by duration",
         .description =
             "Requests (or training steps, or phases) that programs reported, the longest first: queueing, time to the "
             "first "
             "token, "
             "calls that overlap them, where their time went, the longest stall and who caused it, who else was in the "
             "engine (occupied_by). notes hold for every row: repeat them with any figure that you report.",
         .arguments =
             with_window({{.name = "by", .description = "default: request", .choices = {"request", "step", "phase"}},
                          {"request", Argument::Type::text, "Only this id"},
                          {"slower_than", Argument::Type::text, "Only those at least this long, such as 500ms"}}),
         .parts = {{"notes", "texts"},
                   {"by", "text"},
                   {"found", "integer"},
                   {.name = "requests",
                    .type = "table",
                    .columns =
                        "id:text pid:integer? rank_by_ns:integer start_ns:integer queue_ns:integer? "
                        "ttft_ns:integer? events:object split:object longest_stall:object? co_resident:integer "
                        "fair_share_ns:integer occupied_by:objects prompt_tokens:integer? output_tokens:integer? "
                        "model:text? labels:object values:object",
                    .is_paged = true}},
         .run = run_requests}};
}

}  // namespace ingero::mcp
