#include "core/model/time.h"
#include "ctl/command.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr const char* duration_hint = "durations are like 90s, 5m, 2h or 1d";
constexpr const char* time_hint = "times are like 14:32, '2026-11-20 14:32:05' or 2026-11-20T14:32:05Z";

tl::unexpected<Error> bad_option(const char* option, Error error, const char* hint) {
    if (error.hint.empty()) error.hint = hint;
    error.message = std::string(option) + ": " + error.message;
    return tl::unexpected(std::move(error));
}

}  // namespace

void WindowOptions::add_to(CLI::App& command) {
    auto* since_option =
        command
            .add_option("--since", since,
                        "The time up to now, or with --db up to the end of the trace, such as 90s, 5m, 2h or 1d "
                        "(default: 5m, or all of the trace)")
            ->type_name("DURATION");
    auto* from_option = command
                            .add_option("--from", from,
                                        "Start of the window: 14:32, '2026-11-20 14:32:05' or RFC 3339; "
                                        "the local zone unless one is given")
                            ->type_name("TIME")
                            ->excludes(since_option);
    command.add_option("--to", to, "End of the window (default: now, or the end of the trace)")
        ->type_name("TIME")
        ->excludes(since_option)
        ->needs(from_option);
    command.add_option("--pid", pid, "Only this process")
        ->type_name("PID")
        ->check(CLI::Range(1u, 0x7fffffffu).description(""));
    command.add_option("--node", node, "With --db: only this node of a store that has several")->type_name("NAME");
}

Result<json> WindowOptions::to_params() const {
    json params = json::object();
    if (pid) params["pid"] = *pid;
    if (from.empty()) {
        const auto length = since.empty() ? Result<uint64_t>(default_window_ns) : parse_duration_ns(since);
        if (!length) return bad_option("--since", length.error(), duration_hint);
        if (*length == 0)
            return bad_option("--since", {ErrorCode::bad_request, "the window is empty", ""}, duration_hint);
        params["since_ns"] = *length;
        return params;
    }
    const uint64_t now_ns = ClockTriple::now().realtime_ns;
    const auto from_ns = parse_time_ns(from, now_ns);
    if (!from_ns) return bad_option("--from", from_ns.error(), time_hint);
    const auto to_ns = to.empty() ? Result<uint64_t>(now_ns) : parse_end_time_ns(to, *from_ns, now_ns);
    if (!to_ns) return bad_option("--to", to_ns.error(), time_hint);
    if (*from_ns >= *to_ns)
        return bad_option(
            "--from", {ErrorCode::bad_request, "the window is empty: it does not start before its end", ""}, time_hint);
    params["from_ns"] = *from_ns;
    params["to_ns"] = *to_ns;
    return params;
}

Result<json> WindowOptions::to_params(const Options& options) const {
    if (!node.empty() && options.db.empty())
        return fail(ErrorCode::bad_request, "--node needs --db", "the daemon's store holds its own node only");
    choose_zone(options);
    auto params = to_params();
    if (!params || options.db.empty()) return params;
    if (!node.empty()) (*params)["node"] = node;
    if (to.empty()) params->erase("to_ns");
    if (since.empty() && from.empty()) {
        params->erase("since_ns");
        (*params)["whole_trace"] = true;
    }
    return params;
}

}  // namespace ingero::ctl
