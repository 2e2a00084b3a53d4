#include <memory>

#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

int run(const Options& options, const WindowOptions& window) {
    auto params = window.to_params(options);
    if (!params) return usage_error("gpus", params.error());
    int exit_code = exit_done;
    const auto answer = ask(options, "gpus", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, text_gpus)) return exit_failed;
    return covers_nothing(*answer) ? exit_partial : exit_done;
}

}  // namespace

void add_gpus(CLI::App& app, Command& command) {
    const auto window = std::make_shared<WindowOptions>();
    CLI::App* subcommand = app.add_subcommand(
        "gpus", "Show the latest measurements of each GPU and InfiniBand port, and each GPU's last Xid");
    window->add_to(*subcommand);
    add_examples(*subcommand, {{"How are the GPUs now?", "ingeroctl gpus"}});
    subcommand->callback(
        [&command, window] { command = [window](const Options& options) { return run(options, *window); }; });
}

}  // namespace ingero::ctl
