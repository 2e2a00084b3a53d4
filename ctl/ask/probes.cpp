// ingeroctl probes: what is attached, and how often each probe was hit.
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

int run_probes(const Options& options) {
    int exit_code = exit_failed;
    const auto answer = ask(options, "probes", nlohmann::json::object(), exit_code);
    if (!answer) return exit_code;
    return print(options, *answer, text_probes) ? exit_done : exit_failed;
}

}  // namespace

void add_probes(CLI::App& app, Command& command) {
    auto* probes = app.add_subcommand(
        "probes", "List the libraries that probes are attached to, and how often each probe was hit");
    add_examples(*probes, {{"What are probes attached to, and are they hit?", "ingeroctl probes"}});
    probes->callback([&command] { command = run_probes; });
}

}  // namespace ingero::ctl
