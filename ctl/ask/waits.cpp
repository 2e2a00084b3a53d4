#include <memory>
#include <optional>

#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

struct WaitsOptions {
    WindowOptions window;
    std::optional<uint32_t> tid;
    bool between_calls = false;
    std::string by = "thread";
    uint32_t limit = 20;
};

int run(const Options& options, const WaitsOptions& waits) {
    auto params = waits.window.to_params(options);
    if (!params) return usage_error("waits", params.error());
    if (waits.tid) (*params)["tid"] = *waits.tid;
    if (waits.between_calls) (*params)["between_calls"] = true;
    (*params)["by"] = waits.by;
    (*params)["limit"] = waits.limit;
    int exit_code = exit_done;
    const auto answer = ask(options, "waits", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, text_waits)) return exit_failed;
    return covers_nothing(*answer) ? exit_partial : exit_done;
}

}  // namespace

void add_waits(CLI::App& app, Command& command) {
    const auto waits = std::make_shared<WaitsOptions>();
    CLI::App* subcommand =
        app.add_subcommand("waits", "Show the longest waits of threads, and the chain of threads that ended each");
    waits->window.add_to(*subcommand);
    subcommand->add_option("--tid", waits->tid, "Only this thread")
        ->type_name("TID")
        ->check(whole_number(1, INT32_MAX, "a thread number"));
    subcommand->add_flag("--between-calls", waits->between_calls, "Only waits outside of traced calls");
    subcommand
        ->add_option("--by", waits->by, "Group the waits of each thread by kind, or list each wait (default: thread)")
        ->type_name("WHAT")
        ->check(one_of({"thread", "wait"}));
    subcommand->add_option("-n,--limit", waits->limit, "At most this many (default: 20)")
        ->type_name("WAITS")
        ->check(whole_number(1, 1'000));
    add_examples(*subcommand,
                 {{"What did a process wait for, between its calls too?", "ingeroctl waits --pid 4711"},
                  {"The five longest waits outside of calls", "ingeroctl waits --between-calls --by wait --limit 5"}});
    subcommand->callback(
        [&command, waits] { command = [waits](const Options& options) { return run(options, *waits); }; });
}

}  // namespace ingero::ctl
