#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

int run(const Options& options) {
    int exit_code = exit_done;
    const auto answer = ask(options, "status", nlohmann::json::object(), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, text_status)) return exit_failed;
    const auto state = answer->find("state");
    const bool ready = state != answer->end() && (*state == "tracing" || *state == "idle");
    return ready ? exit_done : exit_not_ready;
}

}  // namespace

void add_status(CLI::App& app, Command& command) {
    CLI::App* subcommand =
        app.add_subcommand("status", "Show whether ingerod traces, what it recorded and what it lost");
    add_examples(*subcommand, {{"Does it trace, and is anything lost?", "ingeroctl status"}});
    subcommand->callback([&command] { command = run; });
}

}  // namespace ingero::ctl
