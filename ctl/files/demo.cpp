// ingeroctl demo: recorded scenarios, explained. Needs neither a daemon nor a GPU.
#include <memory>

#include "core/query/sources/demos.h"
#include "core/render/table.h"
#include "core/render/text.h"
#include "ctl/command.h"
#include "ctl/files/demos.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

std::string text_demo(const json& answer, const TextStyle& style) {
    const json& explained = text::member(answer, "explain");
    if (!explained.is_object()) {
        Table table({{"SCENARIO", Align::left}, {"WHAT WAS INJECTED", Align::left, true}});
        for (const json& one : text::list(answer, "scenarios"))
            table.add_row({text::words(one, "name"), text::words(one, "injected")});
        return table.render(style.width, 0) + "\nOne of them, explained: ingeroctl demo SCENARIO\n";
    }
    const json& scenario = text::list(answer, "scenarios")[0];
    return text::paint(text::words(scenario, "title"), text::Colour::bold, style) + "\n" +
           wrap_text("Injected: " + text::words(scenario, "injected"), style.width, 0) + "\n\n" +
           text_explain(explained, style) +
           "\nOther commands read the scenario too: ingeroctl --db demo:" + text::words(scenario, "name") + " stats\n";
}

int run(const Options& options, const std::string& name) {
    if (!options.db.empty())
        return usage_error("demo", {ErrorCode::bad_request, "demo cannot be used with --db", "name a scenario"});
    auto scenarios = read_demos();
    if (!scenarios) return report("demo", scenarios.error(), exit_failed);
    json answer = {{"schema", "ingero/demo/1"}, {"scenarios", std::move(*scenarios)}, {"explain", nullptr}};
    if (!name.empty()) {
        json chosen = json::array();
        for (const json& one : answer["scenarios"])
            if (one.value("name", "") == name) chosen.push_back(one);
        auto explained = ask_stored("demo:" + name, "explain", {{"whole_trace", true}});
        if (!explained) return report("demo", explained.error(), exit_failed);
        answer["scenarios"] = std::move(chosen);
        answer["explain"] = std::move(*explained);
    }
    return print(options, answer, text_demo) ? exit_done : exit_failed;
}

}  // namespace

void add_demo(CLI::App& app, Command& command) {
    const auto name = std::make_shared<std::string>();
    CLI::App* subcommand =
        app.add_subcommand("demo", "Explain a recorded scenario, or list the scenarios; needs no daemon and no GPU");
    subcommand->add_option("scenario", *name, "The scenario to explain (default: list them)")->type_name("SCENARIO");
    add_examples(*subcommand,
                 {{"Which scenarios are there?", "ingeroctl demo"},
                  {"Another program has the CPU: what does that look like?", "ingeroctl demo cpu-contention"}});
    subcommand->callback(
        [&command, name] { command = [name](const Options& options) { return run(options, *name); }; });
}

}  // namespace ingero::ctl
