// ingeroctl problems: what can be found, what proves it, and what it cannot see. Asks nobody.
#include <memory>
#include <string>

#include "core/diagnosis/detector.h"
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

nlohmann::json problems(const std::string& kind) {
    nlohmann::json list = nlohmann::json::array();
    for (const CatalogueEntry& entry : catalogue())
        if (kind.empty() || kind == entry.kind)
            list.push_back({{"kind", entry.kind},
                            {"title", entry.title},
                            {"proof", entry.proof},
                            {"needs", entry.needs},
                            {"limits", entry.limits}});
    return {{"schema", "ingero/problems/1"}, {"problems", std::move(list)}};
}

int run_problems(const Options& options, const std::string& kind) {
    const auto answer = problems(kind);
    if (answer["problems"].empty())
        return report(
            "problems",
            {ErrorCode::not_found, "there is no kind of finding named " + kind, "'ingeroctl problems' lists them"},
            exit_failed);
    return print(options, answer, text_problems) ? exit_done : exit_failed;
}

}  // namespace

void add_problems(CLI::App& app, Command& command) {
    const auto kind = std::make_shared<std::string>();
    CLI::App* subcommand =
        app.add_subcommand("problems", "List the kinds of findings: what proves each, and what it cannot see");
    subcommand->add_option("kind", *kind, "Only this one")->type_name("PROBLEM");
    add_examples(*subcommand, {{"What can be found at all?", "ingeroctl problems"},
                               {"What proves that another program had the CPU?", "ingeroctl problems cpu-contention"}});
    subcommand->callback(
        [&command, kind] { command = [kind](const Options& options) { return run_problems(options, *kind); }; });
}

}  // namespace ingero::ctl
