// `ingeroctl record --footprint` as text.
#include <algorithm>
#include <functional>

#include "core/render/footprint.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;

namespace {

/// Rows of each kind: the rest is in the JSON.
constexpr size_t most_rows = 15;

std::string heading(const std::string& title, size_t rows, const TextStyle& style) {
    const std::string more =
        rows > most_rows ? ", the first " + std::to_string(most_rows) + " of " + format_count(rows) : "";
    return "\n" + text::paint(title + more, text::Colour::bold, style) + "\n";
}

std::string section(const std::string& title, const json& rows, Table table,
                    const std::function<std::vector<std::string>(const json&)>& cells, const TextStyle& style) {
    if (rows.empty()) return "";
    for (size_t i = 0; i < std::min(rows.size(), most_rows); ++i) table.add_row(cells(rows[i]));
    return heading(title, rows.size(), style) + table.render(style.width, 2);
}

std::string call_name(const json& call) {
    const std::string abi = text::words(call, "abi");
    std::string name = text::words_or_empty(call, "name");
    if (name.empty()) name = "number " + text::count(call, "number");
    return abi == "native" ? name : name + " (" + abi + ")";
}

std::string errors_text(const json& call) {
    std::string result;
    for (const json& error : text::list(call, "errors"))
        result += (result.empty() ? "" : ", ") + text::words(error, "name") + " " + text::count(error, "count");
    return result.empty() ? text::absent : result;
}

std::string endpoint_text(const json& endpoint) {
    const std::string address = text::words(endpoint, "address");
    const auto port = text::number(endpoint, "port");
    if (!port) return address;
    const bool brackets = text::words(endpoint, "family") == "inet6";
    return (brackets ? "[" + address + "]" : address) + ":" + std::to_string(*port);
}

/// A sentence for each thing that is missing.
std::string missing_lines(const json& left_out) {
    constexpr std::pair<const char*, const char*> sentences[] = {
        {"records", "accesses were dropped: they came faster than ingerod could read them"},
        {"calls", "system calls were not counted"},
        {"untimed", "system calls have neither time nor outcome"},
        {"errors", "outcomes were not counted"},
        {"files", "opened files have no row: there were too many"},
        {"endpoints", "endpoints have no row: there were too many"},
        {"programs", "programs have no row: there were too many"},
        {"libraries", "libraries have no row: there were too many"},
        {"processes", "processes were not followed, or have no row"},
        {"unreadable", "paths or addresses could not be read"},
        {"other_users", "processes became another user's, and were followed no further"},
        {"compat_calls", "system calls were 32-bit ones: what they touched is not recorded"},
        {"io_uring_calls", "times the processes used io_uring: what goes through its rings is not recorded"},
    };
    std::string result;
    for (const auto& [key, sentence] : sentences)
        if (const auto count = text::number(left_out, key); count && *count > 0)
            result += "  " + format_count(*count) + " " + sentence + "\n";
    return result.empty() ? "" : "\nNot recorded\n" + result;
}

}  // namespace

std::string text_footprint(const json& answer, const TextStyle& style) {
    const json& process = text::member(answer, "process");
    const json& processes = text::list(answer, "processes");
    std::string result = text::process(process, "comm", "pid") +
                         " and what it started: " + format_count(processes.size(), "process", "processes") + "\n" +
                         text::window_line(answer, style);
    result += section(
        "System calls", text::list(answer, "system_calls"),
        Table({{"CALL"}, {"COUNT", Align::right}, {"TIME", Align::right}, {"ERRORS", Align::left, true}}),
        [](const json& row) -> std::vector<std::string> {
            return {call_name(row), text::count(row, "count"), text::duration(row, "total_ns"), errors_text(row)};
        },
        style);
    result += section(
        "Files opened", text::list(answer, "files"),
        Table({{"COUNT", Align::right}, {"RESULT"}, {"PATH", Align::left, true}, {"FLAGS", Align::left, true, 1}}),
        [](const json& row) -> std::vector<std::string> {
            return {text::count(row, "count"), text::words(row, "result"),
                    text::words(row, "path") + (text::flag(row, "cut") ? "…" : ""),
                    text::joined(text::list(row, "flags"), " ")};
        },
        style);
    result += section(
        "Endpoints", text::list(answer, "endpoints"),
        Table({{"COUNT", Align::right},
               {"ACTION"},
               {"FAMILY"},
               {"TRANSPORT", Align::left, false, 1},
               {"RESULT"},
               {"ADDRESS", Align::left, true}}),
        [](const json& row) -> std::vector<std::string> {
            return {text::count(row, "count"),     text::words(row, "action"), text::words(row, "family"),
                    text::words(row, "transport"), text::words(row, "result"), endpoint_text(row)};
        },
        style);
    result += section(
        "Programs run", text::list(answer, "programs"),
        Table({{"COUNT", Align::right},
               {"PATH", Align::left, true},
               {"NAMED", Align::left, true, 1},
               {"ARGV[0]", Align::left, true, 2}}),
        [](const json& row) -> std::vector<std::string> {
            return {text::count(row, "count"), text::words(row, "path"), text::words(row, "named"),
                    text::words(row, "argv0")};
        },
        style);
    result += section(
        "Libraries mapped", text::list(answer, "libraries"),
        Table({{"COUNT", Align::right}, {"PATH", Align::left, true}}),
        [](const json& row) -> std::vector<std::string> {
            return {text::count(row, "count"), text::words(row, "path")};
        },
        style);
    return result + missing_lines(text::member(answer, "left_out"));
}

}  // namespace ingero
