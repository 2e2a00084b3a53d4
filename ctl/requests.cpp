#include "ctl/requests.h"

#include <memory>

#include "core/model/time.h"
#include "core/render/requests.h"
#include "core/wire/utf8.h"
#include "ctl/help.h"

namespace ingero::ctl {

void RequestsOptions::add_to(CLI::App& command) {
    command.add_option("--request", request, "Only the request, or step, with this id, as an answer prints it")
        ->type_name("ID");
    command.add_option("--slower-than", slower_than, "Only those that took at least this long, such as 500ms or 2s")
        ->type_name("DURATION");
    command.add_option("--top", top, "At most this many, the longest first (default: 20)")
        ->type_name("ROWS")
        ->check(CLI::Range(1u, 10'000u).description(""));
}

int run_requests(const Options& options, const char* command, const WindowOptions& window,
                 const RequestsOptions& requests, const char* by) {
    auto params = window.to_params(options);
    if (!params) return usage_error(command, params.error());
    (*params)["by"] = by;
    if (!requests.request.empty()) (*params)["request"] = to_valid_utf8(requests.request);
    if (!requests.slower_than.empty()) {
        const auto ns = parse_duration_ns(requests.slower_than);
        if (!ns)
            return usage_error(command, {ErrorCode::bad_request, "--slower-than: " + ns.error().message,
                                         "durations are like 500ms, 2s or 1m"});
        (*params)["slower_than_ns"] = *ns;
    }
    if (requests.top != 0) (*params)["limit"] = requests.top;
    int exit_code = exit_done;
    const auto answer = ask(options, "requests", std::move(*params), exit_code);
    if (!answer) return exit_code;
    if (!print(options, *answer, text_requests)) return exit_failed;
    return covers_nothing(*answer) ? exit_partial : exit_done;
}

void add_requests(CLI::App& app, Command& command) {
    struct Chosen {
        WindowOptions window;
        RequestsOptions requests;
    };
    const auto chosen = std::make_shared<Chosen>();
    CLI::App* subcommand =
        app.add_subcommand("requests", "List the requests of a window, the longest first, and what held them up");
    chosen->window.add_to(*subcommand);
    chosen->requests.add_to(*subcommand);
    add_examples(*subcommand, {{"The slowest requests of the last hour", "ingeroctl requests --since 1h --top 5"},
                               {"Why did this one take so long?", "ingeroctl requests --since 1h --request cmpl-17"}});
    subcommand->callback([&command, chosen] {
        command = [chosen](const Options& options) {
            return run_requests(options, "requests", chosen->window, chosen->requests, "request");
        };
    });
}

}  // namespace ingero::ctl
