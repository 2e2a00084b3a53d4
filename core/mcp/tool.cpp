#include "core/mcp/tool.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/mcp/shape.h"
#include "core/model/time.h"

namespace ingero::mcp {

using nlohmann::json;

namespace {

constexpr size_t max_limit = 1'000;
constexpr size_t max_argument_bytes = 64 << 10;
constexpr const char* time_hint =
    "times are like 2026-11-20T14:32:05Z, '2026-11-20 14:32:05' or a number of ns since 1970, durations like 90s, 5m, "
    "2h or 1d";

std::string names_of(const Tool& tool) {
    std::string names;
    for (const Argument& argument : tool.arguments) names += (names.empty() ? "" : ", ") + std::string(argument.name);
    return names.empty() ? "it takes none" : "it takes " + names;
}

Result<void> check(const Argument& argument, const json& value) {
    const std::string name = "argument " + std::string(argument.name);
    if (value.is_string() && value.get_ref<const std::string&>().size() > max_argument_bytes)
        return fail(ErrorCode::bad_request, name + " is longer than 64 KiB");
    switch (argument.type) {
        case Argument::Type::text:
            if (!value.is_string()) return fail(ErrorCode::bad_request, name + " is not a string");
            break;
        case Argument::Type::boolean:
            if (!value.is_boolean()) return fail(ErrorCode::bad_request, name + " is neither true nor false");
            break;
        case Argument::Type::time:
            if (!value.is_string() && !value.is_number_unsigned())
                return fail(ErrorCode::bad_request, name + " is not a time", time_hint);
            break;
        case Argument::Type::integer: {
            const bool fits = value.is_number_unsigned() && value.get<uint64_t>() >= argument.least &&
                              value.get<uint64_t>() <= argument.most;
            if (!fits)
                return fail(ErrorCode::bad_request, name + " is not a whole number from " +
                                                        std::to_string(argument.least) + " to " +
                                                        std::to_string(argument.most));
            break;
        }
    }
    if (argument.choices.empty()) return {};
    std::string choices;
    for (const std::string_view choice : argument.choices) {
        if (value == choice) return {};
        choices += (choices.empty() ? "" : ", ") + std::string(choice);
    }
    return fail(ErrorCode::bad_request, name + " is not one of " + choices);
}

Result<uint64_t> to_time(const json& value, uint64_t now_ns) {
    if (value.is_number_unsigned()) return std::min<uint64_t>(value.get<uint64_t>(), INT64_MAX);
    auto time = parse_time_ns(value.get_ref<const std::string&>(), now_ns);
    if (!time && time.error().hint.empty()) time.error().hint = time_hint;
    return time;
}

Result<uint64_t> to_end_time(const json& value, uint64_t from_ns, uint64_t now_ns) {
    if (value.is_number_unsigned()) return to_time(value, now_ns);
    auto time = parse_end_time_ns(value.get_ref<const std::string&>(), from_ns, now_ns);
    if (!time && time.error().hint.empty()) time.error().hint = time_hint;
    return time;
}

void add_hash(uint64_t& hash, std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x0000'0100'0000'01b3;
}

bool parse_numbers(std::string_view text, std::array<uint64_t, 4>& ret_numbers) {
    for (uint64_t& number : ret_numbers) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc()) return false;
        text.remove_prefix(static_cast<size_t>(end - text.data()));
        if (&number == &ret_numbers.back()) return text.empty();
        if (!text.starts_with('-')) return false;
        text.remove_prefix(1);
    }
    return true;
}

}  // namespace

Result<Call> Call::make(const Tool& tool, json arguments, bool is_live, Ask ask) {
    Call call;
    call.tool_ = &tool;
    call.is_live_ = is_live;
    call.ask_ = std::move(ask);
    if (arguments.is_null()) arguments = json::object();
    if (!arguments.is_object()) return fail(ErrorCode::bad_request, "arguments is not an object", names_of(tool));
    for (const auto& [name, value] : arguments.items()) {
        const auto known = std::find_if(tool.arguments.begin(), tool.arguments.end(),
                                        [&name = name](const Argument& one) { return one.name == name; });
        if (known == tool.arguments.end())
            return fail(ErrorCode::bad_request, "there is no argument " + inert_text(name, 64), names_of(tool));
        if (value.is_null() && !known->required) continue;
        if (auto checked = check(*known, value); !checked) return tl::unexpected(checked.error());
    }
    for (const Argument& argument : tool.arguments)
        if (argument.required && !arguments.contains(argument.name))
            return fail(ErrorCode::bad_request, "argument " + std::string(argument.name) + " is missing",
                        std::string(argument.description));
    call.arguments_ = std::move(arguments);
    if (const auto limit = call.number("limit")) call.limit_ = *limit;
    if (auto taken = call.take_cursor(); !taken) return tl::unexpected(taken.error());
    return call;
}

std::optional<uint64_t> Call::number(const char* name) const {
    const auto found = arguments_.find(name);
    if (found == arguments_.end() || !found->is_number_unsigned()) return std::nullopt;
    return found->get<uint64_t>();
}

std::string Call::text(const char* name) const {
    const auto found = arguments_.find(name);
    return found != arguments_.end() && found->is_string() ? found->get<std::string>() : "";
}

bool Call::flag(const char* name) const {
    const auto found = arguments_.find(name);
    return found != arguments_.end() && *found == true;
}

bool Call::has(const char* name) const {
    const auto found = arguments_.find(name);
    return found != arguments_.end() && !found->is_null();
}

/// Of the tool and what it was asked: a cursor goes with its own question only.
uint64_t Call::key() const {
    uint64_t hash = 0xcbf2'9ce4'8422'2325;
    add_hash(hash, tool_->name);
    for (const auto& [name, value] : arguments_.items()) {
        if (name == "cursor" || name == "limit" || name == "compact") continue;
        add_hash(hash, name);
        add_hash(hash, value.dump(-1, ' ', true, json::error_handler_t::replace));
    }
    return hash >> 32;
}

std::string Call::cursor_for(const json& window, size_t offset) const {
    const auto time = [&](const char* name) {
        return window.is_object() && window.value(name, json()).is_number_integer() ? window[name].get<uint64_t>() : 0;
    };
    return std::to_string(time("from_ns")) + "-" + std::to_string(time("to_ns")) + "-" + std::to_string(offset) + "-" +
           std::to_string(key());
}

Result<void> Call::take_cursor() {
    const std::string cursor = text("cursor");
    if (cursor.empty()) return {};
    std::array<uint64_t, 4> numbers{};
    constexpr uint64_t most_rows = 1'000'000;
    if (!parse_numbers(cursor, numbers) || numbers[2] > most_rows || numbers[3] != key())
        return fail(ErrorCode::bad_request, "the cursor is not from an answer to these arguments",
                    "repeat the arguments of the call that returned it, and add only the cursor");
    fixed_window_ = {numbers[0], numbers[1]};
    offset_ = numbers[2];
    return {};
}

Result<json> Call::window() const {
    json params = json::object();
    if (const auto pid = number("pid")) params["pid"] = *pid;
    if (const std::string node = text("node"); !node.empty()) params["node"] = node;
    if (fixed_window_) {
        params["from_ns"] = fixed_window_->first;
        params["to_ns"] = fixed_window_->second;
        return params;
    }
    const std::string since = text("since");
    const bool has_from = has("from"), has_to = has("to");
    if (!since.empty() && (has_from || has_to))
        return fail(ErrorCode::bad_request, "since cannot be combined with from or to", time_hint);
    if (has_to && !has_from) return fail(ErrorCode::bad_request, "to needs from", time_hint);
    const uint64_t now_ns = ClockTriple::now().realtime_ns;
    if (has_from) {
        const auto from_ns = to_time(arguments_["from"], now_ns);
        if (!from_ns) return tl::unexpected(from_ns.error());
        params["from_ns"] = *from_ns;
        // A stored trace has its own end.
        if (!has_to && !is_live_) return params;
        const auto to_ns = has_to ? to_end_time(arguments_["to"], *from_ns, now_ns) : Result<uint64_t>(now_ns);
        if (!to_ns) return tl::unexpected(to_ns.error());
        if (*from_ns >= *to_ns) return fail(ErrorCode::bad_request, "the window ends before it begins", time_hint);
        params["to_ns"] = *to_ns;
        return params;
    }
    uint64_t length_ns = default_window_ns;
    if (!since.empty()) {
        auto parsed = parse_duration_ns(since);
        if (!parsed || *parsed == 0) return fail(ErrorCode::bad_request, "since is not a duration", time_hint);
        length_ns = *parsed;
    }
    if (is_live_) {
        // Now is when the call came, not when its answer is made.
        params["from_ns"] = now_ns - std::min(now_ns, length_ns);
        params["to_ns"] = now_ns;
    } else if (since.empty()) {
        params["whole_trace"] = true;
    } else {
        params["since_ns"] = length_ns;
    }
    return params;
}

Result<json> Call::select(const std::string& sql, json params, json& ret_head) {
    params["sql"] = sql;
    auto answer = ask("query", std::move(params));
    if (!answer) return answer;
    ret_head = head_of(*answer);
    json rows = json::array();
    const json& columns = answer->at("columns");
    for (const json& row : answer->at("rows")) {
        json one = json::object();
        for (size_t i = 0; i < columns.size(); ++i) one[columns[i].at("name").get<std::string>()] = row[i];
        rows.push_back(std::move(one));
    }
    return rows;
}

std::vector<Argument> with_window(std::vector<Argument> own, bool is_paged) {
    std::vector<Argument> all = std::move(own);
    all.push_back(
        {"since", Argument::Type::text,
         "The time up to now, such as 90s or 5m; with a stored trace, counted back from its end (default: 5m, or "
         "all of a stored trace)"});
    all.push_back({"from", Argument::Type::time, "Start of the window, in place of since: RFC 3339, or ns since 1970"});
    all.push_back({"to", Argument::Type::time, "End of the window, with from (default: now, or the end of the trace)"});
    all.push_back({.name = "pid",
                   .type = Argument::Type::integer,
                   .description = "Only this process",
                   .least = 1,
                   .most = 0x7fff'ffff});
    all.push_back(node_argument);
    all.push_back(compact_argument);
    if (!is_paged) return all;
    all.push_back({.name = "limit",
                   .type = Argument::Type::integer,
                   .description = "At most this many rows",
                   .least = 1,
                   .most = max_limit});
    all.push_back(cursor_argument);
    return all;
}

void drop_before_page(json& rows, size_t offset) {
    rows.erase(rows.begin(), rows.begin() + static_cast<json::difference_type>(std::min(offset, rows.size())));
}

json head_of(const json& answer) {
    json head = json::object();
    for (const char* name : {"node", "window", "coverage", "missing_probes"})
        if (answer.contains(name)) head[name] = answer[name];
    return head;
}

std::span<const Tool> all_tools() {
    static const std::vector<Tool> tools = [] {
        std::vector<Tool> all;
        for (const auto& group :
             {incident_tools(), call_tools(), stats_tools(), timeline_tools(), request_tools(), stack_tools(),
              graph_tools(), rank_tools(), process_tools(), check_tools(), query_tools(), demo_tools()})
            all.insert(all.end(), group.begin(), group.end());
        return all;
    }();
    return tools;
}

const Tool* find_tool(std::string_view name) {
    const auto tools = all_tools();
    const auto found = std::find_if(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
    return found == tools.end() ? nullptr : &*found;
}

json describe(const Tool& tool, std::string_view revision) {
    json described = {{"name", tool.name}, {"description", tool.description}, {"inputSchema", input_schema(tool)}};
    if (revision >= "2025-03-26")
        described["annotations"] = {{"title", tool.title},
                                    {"readOnlyHint", true},
                                    {"destructiveHint", false},
                                    {"idempotentHint", true},
                                    {"openWorldHint", false}};
    if (revision >= "2025-06-18") {
        described["title"] = tool.title;
        described["outputSchema"] = output_schema(tool);
    }
    return described;
}

}  // namespace ingero::mcp
