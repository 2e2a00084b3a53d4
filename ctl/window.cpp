#include "core/model/time.h"
#include "ctl/command.h"
#include "ctl/help.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr const char* since_hint =
    "write how long ago, such as 90s, 5m, 2h or 1d, or a time, such as 14:32 or yesterday";
constexpr const char* time_hint = "times are like 14:32, '2026-11-20 14:32:05', 2026-11-20T14:32:05Z or yesterday";

tl::unexpected<Error> bad_option(const char* option, Error error, const char* hint) {
    if (error.hint.empty()) error.hint = hint;
    error.message = std::string(option) + ": " + error.message;
    return tl::unexpected(std::move(error));
}

}  // namespace

Result<uint64_t> parse_ago_ns(const std::string& text) {
    return parse_duration_ns(text.starts_with('-') ? text.substr(1) : text);
}

void WindowOptions::add_to(CLI::App& command) {
    auto* since_option =
        command
            .add_option("--since", since,
                        "How long before now, or with --db before the end of the trace, such as 90s, 5m, 2h or 1d; "
                        "or a time, as of --from (default: 5m, or all of the trace)")
            ->type_name("WHEN");
    command
        .add_option("--from", from,
                    "Start of the window: 14:32, '2026-11-20 14:32:05', 2026-11-20, today, "
                    "yesterday or RFC 3339; the local zone unless one is given")
        ->type_name("TIME")
        ->excludes(since_option);
    command.add_option("--to", to, "End of the window, as --from, or now (default: now, or the end of the trace)")
        ->type_name("TIME");
    command.add_option("-p,--pid", pid, "Only this process")->type_name("PID")->check(process_number());
    command.add_option("--node", node, "With --db: only this node of a store that has several")->type_name("NAME");
}

Result<json> WindowOptions::to_params() const {
    json params = json::object();
    if (pid) params["pid"] = *pid;
    const uint64_t now_ns = ClockTriple::now().realtime_ns;
    const auto length = since.empty() ? Result<uint64_t>(default_window_ns) : parse_ago_ns(since);
    const auto since_ns = parse_time_ns(since, now_ns);
    if (from.empty() && (length || !since_ns)) {
        if (!length)
            return bad_option("--since", {ErrorCode::bad_request, "neither a duration nor a time: '" + since + "'", ""},
                              since_hint);
        if (*length == 0) return bad_option("--since", {ErrorCode::bad_request, "the window is empty", ""}, since_hint);
        if (!to.empty() && to != "now")
            return bad_option("--to", {ErrorCode::bad_request, "it needs a window that begins at a time", ""},
                              "add --from, or --since with a time");
        params["since_ns"] = *length;
        return params;
    }
    const auto from_ns = from.empty() ? since_ns : parse_time_ns(from, now_ns);
    if (!from_ns) return bad_option("--from", from_ns.error(), time_hint);
    const auto to_ns = to.empty() ? Result<uint64_t>(now_ns) : parse_end_time_ns(to, *from_ns, now_ns);
    if (!to_ns) return bad_option("--to", to_ns.error(), time_hint);
    if (*from_ns >= *to_ns)
        return bad_option(from.empty() ? "--since" : "--from",
                          {ErrorCode::bad_request, "the window is empty: it does not start before its end", ""},
                          time_hint);
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
