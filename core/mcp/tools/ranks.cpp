// get_stragglers: ranks that keep coming last.
#include <algorithm>

#include "core/mcp/tool.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

Result<json> run_stragglers(Call& call) {
    auto params = call.window();
    if (!params) return params;
    auto found = call.ask("stragglers", std::move(*params));
    if (!found) return found;
    json& list = (*found)["stragglers"];
    list.erase(list.begin(), list.begin() + static_cast<json::difference_type>(std::min(call.offset(), list.size())));
    json waits = json::array();
    for (const json& communicator : found->at("communicators"))
        for (json wait : communicator.at("waits")) {
            wait["communicator"] = communicator.at("id");
            waits.push_back(std::move(wait));
        }
    std::stable_sort(waits.begin(), waits.end(), [](const json& a, const json& b) { return a.at("ns") > b.at("ns"); });
    constexpr size_t most_waits = 20;
    if (waits.size() > most_waits) waits.erase(waits.begin() + most_waits, waits.end());
    (*found)["waits"] = std::move(waits);
    return found;
}

}  // namespace

std::vector<Tool> rank_tools() {
    return {{.name = "get_stragglers",
             .title = "Ranks that come last",
             .description =
                 "Ranks that keep coming last to their collectives: how late, what the others lost by it, and what the "
                 "late rank did meanwhile (cause: what it did for most of that time). waits says which rank waited for "
                 "which, the longest first: a rank that waits is a victim. Of the ranks on this host.",
             .arguments = with_window({}),
             .parts = {{.name = "stragglers",
                        .type = "table",
                        .columns = "id:text communicator:text scope:text rank:integer? pid:integer? comm:text? "
                                   "since_ns:integer detected_ns:integer resolved_ns:integer? lateness_ns:integer "
                                   "threshold_ns:integer late_ranges:integer of_ranges:integer lost_ns:integer "
                                   "worst_ns:integer cause:object? meanwhile:objects",
                        .is_paged = true},
                       {"waits", "table",
                        "communicator:text rank:integer? pid:integer? for_rank:integer? for_pid:integer? ns:integer "
                        "times:integer"}},
             .run = run_stragglers}};
}

}  // namespace ingero::mcp
