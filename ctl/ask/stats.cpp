#include <memory>

#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

struct StatsOptions {
    WindowOptions window;
    std::string by = "op";
    uint32_t limit = 0;
    bool outermost = false;
};

int run(const Options& options, const StatsOptions& stats) {
    auto params = stats.window.to_params(options);
    if (!params) return usage_error("stats", params.error());
    if (stats.by != "op") (*params)["by"] = stats.by;
    if (stats.limit != 0) (*params)["limit"] = stats.limit;
    if (stats.outermost) (*params)["outermost"] = true;
    if (!options.json && !options.all) (*params)["calls_only"] = true;
    int exit_code = exit_done;
    const auto answer = ask(options, "stats", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, text_stats)) return exit_failed;
    return covers_nothing(*answer) ? exit_partial : exit_done;
}

}  // namespace

void add_stats(CLI::App& app, Command& command) {
    const auto stats = std::make_shared<StatsOptions>();
    CLI::App* subcommand =
        app.add_subcommand("stats", "Count and time the traced calls by operation and process, over a window");
    stats->window.add_to(*subcommand);
    subcommand->add_option("--by", stats->by, "Group calls by op, or launches by kernel (default: op)")
        ->type_name("WHAT")
        ->check(one_of({"op", "kernel"}));
    subcommand->add_flag("--outermost", stats->outermost,
                         "Only calls that were not made inside another traced call: their times add up");
    subcommand
        ->add_option("-n,--limit", stats->limit, "At most this many rows, the largest by total time (default: all)")
        ->type_name("ROWS")
        ->check(whole_number(1, 1'000'000));
    add_examples(*subcommand, {{"Which calls took the time?", "ingeroctl stats --since 1m --limit 10"},
                               {"Which kernels are launched?", "ingeroctl stats --by kernel"}});
    subcommand->callback(
        [&command, stats] { command = [stats](const Options& options) { return run(options, *stats); }; });
}

}  // namespace ingero::ctl
