#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "core/render/incidents.h"
#include "ctl/ask/explain.h"
#include "ctl/files/demos.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr uint32_t slices = 10;
constexpr size_t fewest_id_digits = 8, id_digits = 16;
/// What led up to an incident is part of it.
constexpr uint64_t before_incident_ns = 10'000'000'000;

struct Side {
    Options options;
    json params;
};

bool is_incident(const std::string& text) {
    return text.size() >= fewest_id_digits && text.size() <= id_digits &&
           std::all_of(text.begin(), text.end(),
                       [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
}

/// The end of what is asked, from which windows like 10m..5m count back.
Result<uint64_t> end_of_trace(const Options& options, const std::string& node) {
    if (options.db.empty()) return ClockTriple::now().realtime_ns;
    json params = {{"whole_trace", true}, {"limit", 1}};
    if (!node.empty()) params["node"] = node;
    const auto whole = ask_stored(options.db, "incidents", std::move(params));
    if (!whole) return tl::unexpected(whole.error());
    return (*whole)["window"]["to_ns"].get<uint64_t>();
}

Result<void> take_window(Side& side, const std::string& node, const std::string& text) {
    const size_t dots = text.find("..");
    const std::string from = text.substr(0, dots), to = dots == std::string::npos ? "" : text.substr(dots + 2);
    const auto since = parse_duration_ns(from);
    if (since && (dots == std::string::npos || parse_duration_ns(to) || to.empty())) {
        const auto end = end_of_trace(side.options, node);
        if (!end) return tl::unexpected(end.error());
        const uint64_t until = to.empty() ? 0 : *parse_duration_ns(to);
        if (*since <= until || *since > *end)
            return fail(ErrorCode::bad_request, "the window is empty: " + text, "10m..5m is from 10 to 5 minutes ago");
        side.params["from_ns"] = *end - *since;
        side.params["to_ns"] = *end - until;
        return {};
    }
    if (dots == std::string::npos)
        return fail(ErrorCode::bad_request, "neither a window, an incident nor a store: " + text,
                    "name a window such as 10m, 10m..5m or 14:00..14:10, an incident's id or a store's path");
    const uint64_t now_ns = ClockTriple::now().realtime_ns;
    const auto from_ns = parse_time_ns(from, now_ns);
    if (!from_ns) return tl::unexpected(from_ns.error());
    const auto to_ns = parse_end_time_ns(to, *from_ns, now_ns);
    if (!to_ns) return tl::unexpected(to_ns.error());
    if (*from_ns >= *to_ns) return fail(ErrorCode::bad_request, "the window is empty: " + text);
    side.params["from_ns"] = *from_ns;
    side.params["to_ns"] = *to_ns;
    return {};
}

/// The exit code says how to leave where nothing is returned; it has been reported.
std::optional<json> explain_side(const Options& options, const WindowOptions& window, const std::string& text,
                                 int& ret_exit_code) {
    Side side{options, json::object()};
    struct stat status {};
    const bool is_path = demo_of(text) || stat(text.c_str(), &status) == 0;
    if (!is_path && is_incident(text)) {
        json params = {{"id", text}};
        if (!options.db.empty()) params["whole_trace"] = true;
        if (!window.node.empty()) params["node"] = window.node;
        const auto found = ask(options, "incidents", std::move(params), ret_exit_code);
        if (!found) return std::nullopt;
        const uint64_t from_ns = (*found)["window"]["from_ns"].get<uint64_t>();
        side.params["from_ns"] = from_ns - std::min(from_ns, before_incident_ns);
        side.params["to_ns"] = (*found)["window"]["to_ns"];
    } else if (is_path) {
        side.options.db = text;
        side.params["whole_trace"] = true;
    } else if (const auto taken = take_window(side, window.node, text); !taken) {
        ret_exit_code = usage_error("explain", taken.error());
        return std::nullopt;
    }
    if (window.pid) side.params["pid"] = *window.pid;
    if (!window.node.empty()) side.params["node"] = window.node;
    side.params["slices"] = slices;
    return ask(side.options, "explain", std::move(side.params), ret_exit_code);
}

}  // namespace

int run_diff(const Options& options, const WindowOptions& window, const std::string& a, const std::string& b) {
    if (window.is_given())
        return usage_error("explain", {ErrorCode::bad_request, "--diff already names the windows",
                                       "leave out --since, --from and --to"});
    choose_zone(options);
    int exit_code = exit_done;
    const auto before = explain_side(options, window, a, exit_code);
    if (!before) return exit_code;
    const auto after = explain_side(options, window, b, exit_code);
    if (!after) return exit_code;
    const auto changed = explain_diff(*before, *after);
    if (!changed) return report("explain", changed.error(), exit_partial);
    return print(options, *changed, text_explain_diff) ? exit_done : exit_failed;
}

}  // namespace ingero::ctl
