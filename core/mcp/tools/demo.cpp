// run_demo: a recorded scenario, explained.
#include "core/mcp/tool.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

Result<json> run_demo(Call& call) {
    call.set_default_limit(50);
    const std::string name = call.text("scenario");
    auto demo = call.ask("demo", name.empty() ? json::object() : json{{"scenario", name}});
    if (!demo) return demo;
    json answer = demo->value("explain", json());
    if (!answer.is_object()) answer = json::object();
    const auto null_if_absent = [&answer](const char* part) {
        if (!answer.contains(part)) answer[part] = nullptr;
    };
    for (const char* part : {"summary", "healthy", "calls", "excess_ns", "explained_ns"}) null_if_absent(part);
    if (!answer.contains("findings")) answer["findings"] = json::array();
    answer["scenarios"] = std::move((*demo)["scenarios"]);
    drop_before_page(answer["scenarios"], call.offset());
    return answer;
}

}  // namespace

std::vector<Tool> demo_tools() {
    return {{.name = "run_demo",
             .title = "A recorded scenario, explained",
             .description = "What an explanation looks like, and which faults can be distinguished: recordings of one "
                            "injected fault each. Without a scenario their list; with one, what was injected and what "
                            "get_incidents finds in it. Nothing in it is of this host.",
             .arguments = {{"scenario", Argument::Type::text, "Its name in the list"},
                           compact_argument,
                           limit_argument,
                           cursor_argument},
             .parts = {{.name = "scenarios",
                        .type = "table",
                        .columns = "name:text title:text injected:text expected:any",
                        .is_paged = true},
                       {"summary", "text?"},
                       {"healthy", "boolean?"},
                       {"calls", "integer?"},
                       {"excess_ns", "integer?"},
                       {"explained_ns", "integer?"},
                       {"findings", "table",
                        "id:text kind:text severity:text verdict:text summary:text lost_ns:integer "
                        "explained_fraction:number pid:integer? comm:text? culprits:objects rejected:objects "
                        "fix:text? confirm:text?"}},
             .run = run_demo}};
}

}  // namespace ingero::mcp
