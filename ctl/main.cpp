// ingeroctl: asks the local ingerod and prints its answers.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include "core/wire/client.h"
#include "ctl/command.h"
#include "ctl/complete.h"
#include "ctl/files/record.h"
#include "ctl/files/support_bundle.h"
#include "ctl/help.h"

namespace {

using namespace ingero;
using namespace ingero::ctl;

constexpr const char* footer =
    "Exit codes: 0 done, 1 failed, 2 usage, 3 findings at or above --fail-on,\n"
    "4 no daemon or not ready, 5 partial answer.";

void add_global_options(CLI::App& app, Options& options) {
    app.set_help_flag("-h,--help", "Print this help, or that of a command, and exit");
    app.add_option("--socket", options.socket, "The daemon's control socket")
        ->type_name("PATH")
        ->envname("INGERO_SOCKET")
        ->default_str(std::string(default_control_socket));
    app.add_option("--db", options.db,
                   "Instead of the daemon, ask a store that no running ingerod uses, a SQLite trace of the earlier Go "
                   "agent, or "
                   "a recorded scenario: demo:NAME")
        ->type_name("PATH");
    app.add_flag("--json", options.json, "Print one line of JSON; its member schema names the schema");
    app.add_flag("--all", options.all, "Print all details: further columns and lines, whole names, the slowest calls");
    app.add_flag("--coverage", options.coverage, "List what was not recorded, and why");
    app.add_flag("--utc", options.utc, "Print times in UTC, and read times without a zone as UTC");
    app.add_flag("--no-color", options.no_colour, "No colours; NO_COLOR in the environment does the same");
    app.add_flag("--no-pager", options.no_pager, "No pager for output that is longer than the terminal");
    app.set_version_flag("--version", "ingeroctl " INGERO_VERSION, "Print the version and exit");
    app.fallthrough();
    app.require_subcommand(1);
    app.formatter(help_formatter());
}

/// The terminal is that program's.
bool runs_programs(std::string_view command) {
    return command == "annotate" || command == "record";
}

struct Group {
    const char* title;
    std::vector<void (*)(CLI::App&, Command&)> commands;
};

/// By what one comes with, in the order of --help.
void add_commands(CLI::App& app, Command& command) {
    const std::vector<Group> groups = {
        {"Ask why", {add_explain, add_incidents, add_stragglers, add_waits, add_stacks}},
        {"Look", {add_status, add_top, add_processes, add_stats, add_trace, add_monitor, add_gpus, add_probes}},
        {"Requests and steps", {add_requests, add_annotate}},
        {"What is stored", {add_query, add_export, add_record, add_db, add_import, add_merge}},
        {"Set up and learn", {add_check, add_reload, add_mcp, add_problems, add_demo, add_support_bundle}},
    };
    for (const Group& group : groups)
        for (const auto& add : group.commands) {
            add(app, command);
            app.get_subcommands([](const CLI::App*) { return true; }).back()->group(group.title);
        }
}

/// Where the first word is that is no option of `app`, nor an option's value. An empty value behind = becomes a word of
/// its own: CLI11 would take the next one for it.
size_t first_plain_word(const CLI::App& app, std::vector<std::string>& words, size_t at) {
    while (at < words.size() && words[at].starts_with('-') && words[at] != "--") {
        const size_t equals = words[at].find('=');
        const CLI::Option* option = app.get_option_no_throw(words[at].substr(0, equals));
        const bool takes_value = option && option->get_items_expected_max() > 0;
        if (takes_value && equals == words[at].size() - 1) {
            words[at].pop_back();
            words.insert(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, "");
            at += 2;
        } else {
            at += takes_value && equals == std::string::npos ? 2 : 1;
        }
    }
    return at;
}

/// The command line, last word first. The -- before a command to annotate is left out: CLI11 looks for what follows it
/// among the words of the program itself.
std::vector<std::string> words_of(const CLI::App& app, int argc, char** argv) {
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    size_t at = first_plain_word(app, words, 0);
    // Where it stands: behind a command that runs another it would be that one's.
    if (at < words.size() && words[at] == "help") words[at] = "--help";
    at = first_plain_word(app, words, at);
    while (at < words.size() && words[at] == "help") words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
    if (at < words.size() && words[at] == "annotate") {
        at = first_plain_word(*app.get_subcommand("annotate"), words, at + 1);
        if (at < words.size() && words[at] == "--") words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
        // As journalctl has it.
        for (size_t i = 0; i < words.size() && words[i] != "--"; ++i)
            if (words[i] == "--until" || words[i].starts_with("--until=")) words[i].replace(0, 7, "--to");
    }
    std::reverse(words.begin(), words.end());
    return words;
}

/// An option whose value is empty, such as that of a variable that is not set: it would count as one that is not given.
/// Empty where there is none.
std::string option_without_value(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_positional() || option->count() == 0 || option->get_items_expected_max() == 0) continue;
        const auto& values = option->results();
        if (std::find(values.begin(), values.end(), "") != values.end()) return option->get_name();
    }
    for (const CLI::App* command : app.get_subcommands())
        if (std::string name = option_without_value(*command); !name.empty()) return name;
    return {};
}

/// A file that is opened later must not become standard output. What is written to one that is closed fails.
void keep_standard_descriptors() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int run(int argc, char** argv) {
    CLI::App app("Finds the host-side causes of slow GPU programs.", "ingeroctl");
    Options options;
    options.socket = default_control_socket;
    Command command;
    add_global_options(app, options);
    add_commands(app, command);
    app.footer(footer);  // not of the commands, which have their own
    // Not a command of the tree: what it is given are words of another command line, options among them.
    if (argc > 1 && std::string_view(argv[1]) == "complete") return complete(app, {argv + 2, argv + argc});
    try {
        app.parse(words_of(app, argc, argv));
    } catch (const CLI::CallForHelp&) {
        if (app.get_subcommands().empty() && !app.remaining().empty())
            return usage_error("usage", explain_usage(app, CLI::ExtrasError(app.remaining())));
        options.pages = !options.no_pager;
        return print_text(options, app.help()) ? exit_done : exit_failed;
    } catch (const CLI::CallForVersion& version) {
        return print_text(options, std::string(version.what()) + "\n") ? exit_done : exit_failed;
    } catch (const CLI::ParseError& error) {
        return usage_error("usage", explain_usage(app, error));
    }
    // What annotate runs for a script is to run in any case.
    const bool runs_for_a_script = app.got_subcommand("annotate");
    if (const std::string option = option_without_value(app); !option.empty() && !runs_for_a_script)
        return usage_error("usage", {ErrorCode::bad_request, option + " wants a value, not an empty one",
                                     "leave the option out, or give it a value; is a variable not set?"});
    const auto chosen = app.get_subcommands();
    options.command = chosen.empty() ? "usage" : chosen.front()->get_name();
    options.pages = !options.no_pager && !chosen.empty() && !runs_programs(options.command);
    if (!options.db.empty() && is_live_only(options.command))
        return usage_error("usage", {ErrorCode::bad_request, options.command + " cannot be used with --db",
                                     "these commands can: query, stats, explain, requests, stacks, waits, "
                                     "stragglers, incidents, processes, gpus, mcp and export"});
    return command(options);
}

}  // namespace

int main(int argc, char** argv) {
    keep_standard_descriptors();
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        return report("internal error", {ErrorCode::internal, error.what(), "please report this"}, exit_failed);
    }
}
