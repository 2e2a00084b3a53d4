// ingeroctl: asks the local ingerod and prints its answers.

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include "core/wire/client.h"
#include "ctl/command.h"
#include "ctl/record.h"

namespace {

using namespace ingero;
using namespace ingero::ctl;

constexpr const char* footer =
    "Exit codes: 0 done, 1 failed, 2 usage, 3 findings at or above --fail-on,\n"
    "4 no daemon or not ready, 5 partial answer.";

void add_global_options(CLI::App& app, Options& options) {
    app.add_option("--socket", options.socket, "The daemon's control socket")
        ->type_name("PATH")
        ->envname("INGERO_SOCKET")
        ->default_str(std::string(default_control_socket));
    app.add_option("--db", options.db, "Ask a closed store or a SQLite trace of the earlier agent, and no daemon")
        ->type_name("PATH");
    app.add_flag("--json", options.json, "Print one line of JSON (docs/schemas)");
    app.add_flag("--no-color", options.no_colour, "No colours; NO_COLOR in the environment does the same");
    app.set_version_flag("--version", "ingeroctl " INGERO_VERSION);
    app.fallthrough();
    app.require_subcommand(1);
    app.footer(footer);
}

/// What a stored trace has no answer to.
bool is_live_only(std::string_view command) {
    constexpr std::array<std::string_view, 10> names = {"annotate", "status", "probes", "check", "trace",
                                                        "monitor",  "reload", "import", "merge", "record"};
    return std::find(names.begin(), names.end(), command) != names.end();
}

int run(int argc, char** argv) {
    CLI::App app("Finds the host-side causes of slow GPU programs.", "ingeroctl");
    Options options;
    options.socket = default_control_socket;
    Command command;
    add_global_options(app, options);
    add_status(app, command);
    add_processes(app, command);
    add_probes(app, command);
    add_stats(app, command);
    add_stacks(app, command);
    add_explain(app, command);
    add_requests(app, command);
    add_query(app, command);
    add_check(app, command);
    add_trace(app, command);
    add_monitor(app, command);
    add_annotate(app, command);
    add_reload(app, command);
    add_import(app, command);
    add_export(app, command);
    add_db(app, command);
    add_merge(app, command);
    add_record(app, command);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& wanted) {  // --help, --version
        return app.exit(wanted);
    } catch (const CLI::ParseError& error) {
        // CLI11 reports a missing subcommand before the word it did not know.
        const auto unknown = app.remaining();
        const std::string why =
            app.get_subcommands().empty() && !unknown.empty() ? "no such command: " + unknown.front() : error.what();
        return usage_error("usage", {ErrorCode::bad_request, why, "see 'ingeroctl --help'"});
    }
    const auto chosen = app.get_subcommands();
    if (!options.db.empty() && !chosen.empty() && is_live_only(chosen.front()->get_name()))
        return usage_error("usage",
                           {ErrorCode::bad_request, chosen.front()->get_name() + " does not go with --db",
                            "a stored trace answers query, stats, explain, requests, stacks, processes and export"});
    return command(options);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        return report("internal error", {ErrorCode::internal, error.what(), "please report this"}, exit_failed);
    }
}
