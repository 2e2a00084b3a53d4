// What the subcommands of ingeroctl share: global options, exit codes, output, the way to the daemon. One file a
// subcommand; each adds itself to the command line and hands back what main() is to run.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/model/result.h"
#include "core/render/render.h"

namespace ingero::ctl {

/// Scripts rely on these; they are printed by --help.
enum ExitCode : int {
    exit_done = 0,
    exit_failed = 1,
    exit_usage = 2,
    exit_findings = 3,
    exit_not_ready = 4,
    exit_partial = 5,
};

struct Options {
    std::string command;  ///< its name
    std::string socket;
    std::string db;  ///< a store or a trace to ask instead of a daemon; empty: the daemon
    bool json = false;
    bool no_colour = false;
    bool utc = false;
    bool all = false;       ///< all details
    bool coverage = false;  ///< each gap
    bool no_pager = false;
    bool pages = false;  ///< a long answer goes through a pager, where there is a terminal
};

/// Longer than the daemon's own deadline for a query, so that its answer explains the delay.
inline constexpr std::chrono::seconds answer_patience{60};

using Renderer = std::function<std::string(const nlohmann::json&, const TextStyle&)>;
using Command = std::function<int(const Options&)>;

/// Each adds its subcommand and sets `command` where that one was chosen.
void add_status(CLI::App& app, Command& command);
void add_processes(CLI::App& app, Command& command);
void add_probes(CLI::App& app, Command& command);
void add_gpus(CLI::App& app, Command& command);
void add_stats(CLI::App& app, Command& command);
void add_stacks(CLI::App& app, Command& command);
void add_waits(CLI::App& app, Command& command);
void add_stragglers(CLI::App& app, Command& command);
void add_query(CLI::App& app, Command& command);
void add_check(CLI::App& app, Command& command);
void add_problems(CLI::App& app, Command& command);
void add_requests(CLI::App& app, Command& command);
void add_explain(CLI::App& app, Command& command);
void add_incidents(CLI::App& app, Command& command);
void add_demo(CLI::App& app, Command& command);
void add_monitor(CLI::App& app, Command& command);
void add_top(CLI::App& app, Command& command);
void add_trace(CLI::App& app, Command& command);
void add_annotate(CLI::App& app, Command& command);
void add_reload(CLI::App& app, Command& command);
void add_import(CLI::App& app, Command& command);
void add_export(CLI::App& app, Command& command);
void add_db(CLI::App& app, Command& command);
void add_mcp(CLI::App& app, Command& command);
void add_merge(CLI::App& app, Command& command);

/// --since, --from, --to and --pid, as every command about a window takes them.
struct WindowOptions {
    std::string since;
    std::string from;
    std::string to;
    std::optional<uint32_t> pid;
    std::string node;

    void add_to(CLI::App& command);
    bool is_given() const { return !since.empty() || !from.empty(); }
    /// The parameters of a request. Errors: bad_request, which is a usage error.
    Result<nlohmann::json> to_params() const;
    /// The same; of a stored trace all of it is asked for, up to its end, where nothing else is said.
    Result<nlohmann::json> to_params(const Options& options) const;
};

/// A duration, also as journalctl(1) takes one: -1h is an hour ago. Errors: bad_request.
Result<uint64_t> parse_ago_ns(const std::string& text);

/// "ingeroctl: what: why" and, where there is one, "hint: what to do", on stderr, escaped. Returns the exit code.
int report(std::string_view what, const Error& error, int exit_code);
int usage_error(std::string_view what, const Error& error);

/// Asks a store or trace, see Options::db. Errors: not_found, busy (a daemon is at work there), those of an import, and
/// those of a worker.
Result<nlohmann::json> ask_stored(const std::string& path, const std::string& method, nlohmann::json params);

/// The directory that has the data file: `path`, or its "store" where a daemon was given `path`. Errors: not_found.
Result<std::string> find_store(const std::string& path);
/// One request about a closed store, to a worker of one's own; `fd`, where not -1, goes along. Errors: busy (a daemon
/// is at work there), and those of a worker.
Result<nlohmann::json> ask_closed_store(const std::string& directory, const std::string& method, int fd = -1);

/// Asks the daemon, or what --db names. On failure it has been reported and `ret_exit_code` says how to leave.
std::optional<nlohmann::json> ask(const Options& options, const std::string& method, nlohmann::json params,
                                  int& ret_exit_code);

/// On stderr, to a reader of text who sees only processes of their own and is shown none.
void note_that_others_are_hidden(const Options& options);

/// Quoted where that has to be.
std::string for_a_shell(const std::string& word);
/// Width and colours of the terminal, and what the options ask for.
TextStyle style_of(const Options& options);

/// One line of JSON with --json, else text in the width and colours of the terminal. False where stdout failed.
bool print(const Options& options, const nlohmann::json& answer, const Renderer& renderer);

/// A text as it is, through a pager where that is wanted and it is long. False where stdout failed.
bool print_text(const Options& options, const std::string& text);

/// One line of many; not flushed, and never paged.
bool print_line(const Options& options, const nlohmann::json& line, const Renderer& renderer);

/// With --utc the local zone is UTC, for times read and printed from then on. Not called before a program is run, which
/// has the caller's zone.
void choose_zone(const Options& options);

/// Nothing of the window was covered: the answer says nothing about it.
bool covers_nothing(const nlohmann::json& answer);
/// What a stored trace has no answer to.
bool is_live_only(std::string_view command);
bool is_complete(const nlohmann::json& answer);

}  // namespace ingero::ctl
