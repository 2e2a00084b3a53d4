#include "ctl/ask/requests.h"

#include <memory>

#include "core/model/time.h"
#include "core/render/requests.h"
#include "core/render/table.h"
#include "core/wire/utf8.h"
#include "ctl/help.h"

namespace ingero::ctl {

void RequestsOptions::add_to(CLI::App& command) {
    command.add_option("--request", request, "Only the request, step or phase with this id, as an answer prints it")
        ->type_name("ID");
    command.add_option("--slower-than", slower_than, "Only those that took at least this long, such as 500ms or 2s")
        ->type_name("DURATION");
}

namespace {

constexpr uint32_t most_requests = 10'000;

/// That the named one is not there, and how many others are.
int report_missing(const Options& options, const char* command, const RequestsOptions& requests, nlohmann::json params,
                   const std::string& by) {
    params.erase("request");
    params.erase("slower_than_ns");
    params["limit"] = 1;
    int exit_code = exit_done;
    const auto others = ask(options, "requests", std::move(params), exit_code);
    if (!others) return exit_code;
    std::string what = "there is no " + by + " " + requests.request;
    if (!requests.slower_than.empty()) what += " that took at least " + requests.slower_than;
    what += " in this window";
    if (covers_nothing(*others)) what += ", of which nothing was recorded";
    return report(command,
                  {ErrorCode::not_found,
                   what + "; it has " + format_count(others->value("found", uint64_t{0}), "other", "others"),
                   "--since and --from choose the window, and without --request the longest are listed"},
                  exit_partial);
}

}  // namespace

int run_requests(const Options& options, const char* command, const WindowOptions& window,
                 const RequestsOptions& requests, std::optional<uint32_t> limit, const char* by) {
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
    if (limit && *limit > most_requests)
        return usage_error(command, {ErrorCode::bad_request,
                                     "--limit wants at most " + std::to_string(most_requests) + " requests", ""});
    if (limit) (*params)["limit"] = *limit;
    int exit_code = exit_done;
    const auto answer = ask(options, "requests", *params, exit_code);
    if (!answer) return exit_code;
    const bool is_empty = answer->value("requests", nlohmann::json::array()).empty();
    const bool is_missing = !requests.request.empty() && is_empty;
    if (is_missing && !options.json) return report_missing(options, command, requests, std::move(*params), by);
    if (is_empty && !is_missing && !requests.slower_than.empty() && !options.json) {
        params->erase("slower_than_ns");
        (*params)["limit"] = 1;
        const auto all = ask(options, "requests", *params, exit_code);
        if (!all) return exit_code;
        if (const auto found = all->value("found", uint64_t{0}); found != 0)
            return print_text(options, "None of the " + format_count(found) + " " + by + "s in this window took " +
                                           requests.slower_than + " or longer\n")
                       ? exit_done
                       : exit_failed;
    }
    if (!print(options, *answer, text_requests)) return exit_failed;
    if (is_missing) return exit_partial;
    return covers_nothing(*answer) ? exit_partial : exit_done;
}

void add_requests(CLI::App& app, Command& command) {
    struct Chosen {
        WindowOptions window;
        RequestsOptions requests;
        std::optional<uint32_t> limit;
    };
    const auto chosen = std::make_shared<Chosen>();
    CLI::App* subcommand =
        app.add_subcommand("requests", "List the requests of a window, the longest first, and what held them up");
    chosen->window.add_to(*subcommand);
    chosen->requests.add_to(*subcommand);
    subcommand->add_option("-n,--limit", chosen->limit, "At most this many, the longest first (default: 20)")
        ->type_name("ROWS")
        ->check(whole_number(1, most_requests));
    add_examples(*subcommand, {{"The slowest requests of the last hour", "ingeroctl requests --since 1h -n 5"},
                               {"Why did this one take so long?", "ingeroctl requests --since 1h --request cmpl-17"}});
    subcommand->callback([&command, chosen] {
        command = [chosen](const Options& options) {
            return run_requests(options, "requests", chosen->window, chosen->requests, chosen->limit, "request");
        };
    });
}

}  // namespace ingero::ctl
