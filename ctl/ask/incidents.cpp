#include "core/render/incidents.h"

#include <memory>

#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

namespace {

struct IncidentsOptions {
    WindowOptions window;
    uint32_t limit = 100;
};

int run(const Options& options, const IncidentsOptions& incidents) {
    auto params = incidents.window.to_params(options);
    if (!params) return usage_error("incidents", params.error());
    (*params)["limit"] = incidents.limit;
    int exit_code = exit_done;
    const auto answer = ask(options, "incidents", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, text_incidents)) return exit_failed;
    return covers_nothing(*answer) ? exit_partial : exit_done;
}

}  // namespace

void add_incidents(CLI::App& app, Command& command) {
    const auto incidents = std::make_shared<IncidentsOptions>();
    CLI::App* subcommand = app.add_subcommand(
        "incidents", "List the incidents that ingerod detected live in a window, the most lost time first");
    incidents->window.add_to(*subcommand);
    subcommand->add_option("-n,--limit", incidents->limit, "At most this many incidents (default: 100)")
        ->type_name("INCIDENTS")
        ->check(whole_number(1, 1'000));
    add_examples(*subcommand, {{"What went wrong today?", "ingeroctl incidents --since 1d"}});
    subcommand->callback(
        [&command, incidents] { command = [incidents](const Options& options) { return run(options, *incidents); }; });
}

}  // namespace ingero::ctl
