#include "core/render/stragglers.h"

#include <memory>

#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

int run(const Options& options, const WindowOptions& window) {
    auto params = window.to_params(options);
    if (!params) return usage_error("stragglers", params.error());
    int exit_code = exit_done;
    const auto answer = ask(options, "stragglers", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, text_stragglers)) return exit_failed;
    return covers_nothing(*answer) ? exit_partial : exit_done;
}

}  // namespace

void add_stragglers(CLI::App& app, Command& command) {
    const auto window = std::make_shared<WindowOptions>();
    CLI::App* subcommand = app.add_subcommand(
        "stragglers", "Ranks that keep coming last to their collectives, who waited for them, and why");
    window->add_to(*subcommand);
    add_examples(*subcommand, {{"Which rank do the others wait for?", "ingeroctl stragglers --since 10m"}});
    subcommand->callback(
        [&command, window] { command = [window](const Options& options) { return run(options, *window); }; });
}

}  // namespace ingero::ctl
