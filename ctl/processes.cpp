#include "ctl/command.h"

namespace ingero::ctl {

namespace {

int run(const Options& options) {
    int exit_code = exit_done;
    const auto answer = ask(options, "processes", nlohmann::json::object(), exit_code);
    if (!answer) return exit_code;
    return print(options, *answer, text_processes) ? exit_done : exit_failed;
}

}  // namespace

void add_processes(CLI::App& app, Command& command) {
    app.add_subcommand("processes", "List the traced processes that you may see")->callback([&command] {
        command = run;
    });
}

}  // namespace ingero::ctl
