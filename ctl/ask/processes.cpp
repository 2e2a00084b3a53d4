#include <memory>
#include <utility>

#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

int run(const Options& options, const std::string& node) {
    nlohmann::json params = nlohmann::json::object();
    if (!node.empty() && options.db.empty())
        return usage_error("processes",
                           {ErrorCode::bad_request, "--node needs --db", "the daemon's store holds its own node only"});
    if (!node.empty()) params["node"] = node;
    int exit_code = exit_done;
    const auto answer = ask(options, "processes", std::move(params), exit_code);
    if (!answer) return exit_code;
    return print(options, *answer, text_processes) ? exit_done : exit_failed;
}

}  // namespace

void add_processes(CLI::App& app, Command& command) {
    const auto node = std::make_shared<std::string>();
    CLI::App* subcommand = app.add_subcommand("processes", "List the traced processes that you may see");
    subcommand->add_option("--node", *node, "With --db: only this node of a store that has several")->type_name("NAME");
    add_examples(*subcommand, {{"Which programs are traced?", "ingeroctl processes"}});
    subcommand->callback(
        [&command, node] { command = [node](const Options& options) { return run(options, *node); }; });
}

}  // namespace ingero::ctl
