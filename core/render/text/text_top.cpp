#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "core/model/call_time.h"
#include "core/model/time.h"
#include "core/render/table.h"
#include "core/render/text.h"
#include "core/render/top.h"

namespace ingero {

using nlohmann::json;
using text::Colour;

namespace {

using Lines = std::vector<std::string>;

constexpr std::array<std::string_view, top_sorts> sort_names = {"lost", "calls", "longest", "memory", "pid"};
constexpr size_t most_of_each = 5;      ///< incidents, calls in flight and requests beside the processes
constexpr size_t fewest_processes = 3;  ///< so many are shown first, where there is little room
constexpr unsigned indent = 2;

void add_lines(Lines& lines, std::string_view text) {
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

double sort_value(const json& process, TopSort sort) {
    constexpr std::array<const char*, top_sorts> keys = {"lost_ns", "calls_per_s", "longest_ns", "gpu_memory_bytes",
                                                         "pid"};
    const double value = text::fraction(process, keys.at(static_cast<size_t>(sort))).value_or(-1);
    return sort == TopSort::pid ? -value : value;
}

bool matches(const json& process, const std::string& filter) {
    const auto has = [&](const std::string& text) { return text.find(filter) != std::string::npos; };
    return has(std::to_string(text::number(process, "pid").value_or(0))) || has(text::words(process, "comm")) ||
           has(text::words_or_empty(process, "unit"));
}

std::vector<const json*> shown_processes(const json& answer, const TopView& view) {
    std::vector<const json*> result;
    for (const json& process : text::list(answer, "processes"))
        if (text::number(process, "pid") && matches(process, view.filter)) result.push_back(&process);
    // Those that are alike stay where they are: nothing jumps from look to look.
    const auto key = [&](const json* process) {
        return std::tuple(-sort_value(*process, view.sort), -sort_value(*process, TopSort::calls),
                          text::number(*process, "pid").value_or(0));
    };
    std::sort(result.begin(), result.end(), [&](const json* a, const json* b) { return key(a) < key(b); });
    return result;
}

bool is_of(const json& row, std::optional<uint64_t> pid) {
    return !pid || text::number(row, "pid") == pid;
}

unsigned severity_of(const json& incident) {
    const std::string severity = text::words(incident, "severity");
    if (severity == "high") return 2;
    return severity == "medium" ? 1 : 0;
}

std::string share(const json& split, const char* key) {
    uint64_t whole = 0;
    for (const char* part : {"on_cpu_ns", "device_wait_ns", "runnable_ns", "blocked_ns"})
        whole = saturating_add(whole, text::number(split, part).value_or(0));
    if (whole == 0) return text::absent;
    return format_percent(static_cast<double>(text::number(split, key).value_or(0)) / static_cast<double>(whole));
}

/// The worst of a process, and how many there are besides.
std::string incident_text(const json& answer, uint64_t pid) {
    const json* worst = nullptr;
    size_t count = 0;
    for (const json& incident : text::list(answer, "incidents")) {
        if (!is_of(incident, pid)) continue;
        ++count;
        if (!worst || severity_of(incident) > severity_of(*worst)) worst = &incident;
    }
    if (!worst) return text::absent;
    return text::words(*worst, "kind") + (count > 1 ? " +" + std::to_string(count - 1) : "");
}

std::string head_line(const json& answer, const TextStyle& style) {
    const json& overhead = text::member(answer, "overhead");
    const auto measured = text::fraction(overhead, "measured_permille"),
               budget = text::fraction(overhead, "budget_permille");
    const size_t processes = text::list(answer, "processes").size(), incidents = text::list(answer, "incidents").size();
    std::string line = text::paint(text::words(answer, "node"), Colour::bold, style) + ": " +
                       text::words(answer, "state") + ", " + format_count(processes, "process", "processes") + ", " +
                       (incidents == 0 ? "no incident open"
                                       : text::paint(format_count(incidents, "incident", "incidents") + " open",
                                                     Colour::yellow, style));
    if (measured) {
        line += ", overhead " + format_percent(*measured / 1000);
        if (budget && *budget > 0 && *measured > *budget)
            line += ", " + text::paint("over budget", Colour::yellow, style);
    }
    const uint64_t lost = text::number(answer, "events_lost").value_or(0);
    if (lost != 0) line += ", " + text::paint(format_count(lost, "event lost", "events lost"), Colour::yellow, style);
    return line;
}

Lines process_lines(const json& answer, const std::vector<const json*>& processes, const TextStyle& style) {
    Table table({{"PID", Align::right},
                 {"COMMAND", Align::left, true},
                 {"RANK", Align::right, false, 5},
                 {"CALLS/S", Align::right, false, 2},
                 {"LONGEST", Align::right, false, 3},
                 {"ON CPU", Align::right, false, 1},
                 {"DEVICE", Align::right},
                 {"NO CPU", Align::right},
                 {"ASLEEP", Align::right, false, 1},
                 {"GPU MEMORY", Align::right, false, 4},
                 {"LOST", Align::right},
                 {"INCIDENT", Align::left, true}});
    for (const json* process : processes) {
        const uint64_t pid = text::number(*process, "pid").value_or(0);
        const json& split = text::member(*process, "split");
        const auto rate = text::fraction(*process, "calls_per_s");
        std::string rank = text::count(*process, "rank");
        if (text::number(*process, "world_size")) rank += "/" + text::count(*process, "world_size");
        table.add_row(
            {std::to_string(pid), text::words(*process, "comm"), rank,
             rate && *rate >= 0 && *rate < 1e15 ? format_count(static_cast<uint64_t>(*rate)) : text::absent,
             text::duration(*process, "longest_ns"), share(split, "on_cpu_ns"), share(split, "device_wait_ns"),
             share(split, "runnable_ns"), share(split, "blocked_ns"), text::bytes(*process, "gpu_memory_bytes"),
             text::number(*process, "lost_ns").value_or(0) == 0 ? text::absent : text::duration(*process, "lost_ns"),
             incident_text(answer, pid)});
    }
    Lines lines;
    add_lines(lines, table.render(style.width, indent));
    return lines;
}

Lines incident_lines(const json& answer, std::optional<uint64_t> pid, const TextStyle& style) {
    Lines lines;
    for (const json& incident : text::list(answer, "incidents")) {
        if (!is_of(incident, pid) || lines.size() >= most_of_each) continue;
        std::string severity = text::upper(text::words(incident, "severity"));
        severity.resize(std::max<size_t>(severity.size(), 6), ' ');
        const std::string what = text::words(incident, "summary") + ": " + text::duration(incident, "lost_ns") +
                                 " lost (ingeroctl explain --incident " + text::words(incident, "id").substr(0, 8) +
                                 ")";
        const size_t room = style.width == 0 ? what.size() : style.width - std::min<size_t>(style.width, indent + 8);
        lines.push_back("  " + text::paint(severity, text::severity_colour(text::words(incident, "severity")), style) +
                        "  " + truncate_text(what, room));
    }
    if (!lines.empty()) lines.insert(lines.begin(), "Open incidents");
    return lines;
}

Lines in_flight_lines(const json& answer, std::optional<uint64_t> pid, const TextStyle& style) {
    Lines lines;
    for (const json& call : text::list(answer, "in_flight")) {
        if (!is_of(call, pid) || lines.size() >= most_of_each) continue;
        std::string line = text::words(call, "op") + " of " + text::process(call, "comm", "pid") + ": " +
                           text::duration(call, "duration_ns");
        if (const std::string activity = text::words_or_empty(call, "activity"); !activity.empty())
            line += ", " + activity +
                    (text::number(call, "activity_ns") ? " for " + text::duration(call, "activity_ns") : "");
        const size_t room = style.width == 0 ? line.size() : style.width - std::min(style.width, indent);
        lines.push_back("  " + truncate_text(line, room));
    }
    if (!lines.empty()) lines.insert(lines.begin(), "Calls that have not returned");
    if (answer.is_object() && !text::member(answer, "in_flight").is_array())
        lines.emplace_back("Calls that have not returned: not known, since ingerod did not answer");
    return lines;
}

Lines request_lines(const json& answer, std::optional<uint64_t> pid, const TextStyle& style) {
    Table table({{"REQUEST", Align::left, true},
                 {"PID", Align::right, false, 2},
                 {"TOOK", Align::right},
                 {"QUEUED", Align::right, false, 1},
                 {"FIRST TOKEN", Align::right, false, 1},
                 {"MODEL", Align::left, true, 3}});
    size_t count = 0;
    for (const json& request : text::list(answer, "requests")) {
        if (!is_of(request, pid) || count >= most_of_each) continue;
        ++count;
        const auto of = text::number(request, "pid");
        table.add_row({text::words(request, "id"), of ? std::to_string(*of) : text::absent,
                       text::duration(request, "duration_ns"), text::duration(request, "queue_ns"),
                       text::duration(request, "ttft_ns"), text::words(request, "model")});
    }
    Lines lines;
    if (count == 0) return lines;
    lines.emplace_back("Slowest requests of the last minute");
    add_lines(lines, table.render(style.width, indent));
    return lines;
}

Lines operation_lines(const json& process, const TextStyle& style) {
    Table table({{"OPERATION", Align::left, true},
                 {"CALLS", Align::right},
                 {"ERRORS", Align::right, false, 1},
                 {"P50", Align::right, false, 2},
                 {"P99", Align::right},
                 {"MAX", Align::right},
                 {"TOTAL", Align::right}});
    const json& ops = text::list(process, "ops");
    for (const json& op : ops)
        table.add_row({text::words(op, "op"), text::count(op, "count"), text::count(op, "errors"),
                       text::duration(op, "p50_ns"), text::duration(op, "p99_ns"), text::duration(op, "max_ns"),
                       text::duration(op, "total_ns")});
    Lines lines;
    if (ops.empty())
        lines.emplace_back("  No traced call returned in this interval");
    else
        add_lines(lines, table.render(style.width, indent));
    return lines;
}

Lines detail_lines(const json& process, const TextStyle& style) {
    std::string line = text::process(process, "comm", "pid");
    const auto add = [&](const char* what, const std::string& value) {
        if (!value.empty() && value != text::absent) line += std::string(", ") + what + value;
    };
    add("", text::words_or_empty(process, "unit"));
    add("rank ", text::count(process, "rank"));
    add("", text::bytes(process, "gpu_memory_bytes") == text::absent
                ? ""
                : text::bytes(process, "gpu_memory_bytes") + " of GPU memory");
    Lines lines;
    add_lines(lines, wrap_text(line, style.width, indent));
    if (const std::string split = text::split_line(text::member(process, "split")); !split.empty())
        add_lines(lines, "  " + wrap_text(split, style.width, indent));
    const Lines operations = operation_lines(process, style);
    lines.insert(lines.end(), operations.begin(), operations.end());
    return lines;
}

/// Of the processes those around the selected one, with the line of titles.
Lines scrolled(Lines lines, const std::vector<const json*>& processes, const TopView& view, size_t room) {
    const auto selected = std::find_if(processes.begin(), processes.end(), [&](const json* process) {
        return view.pid && text::number(*process, "pid") == view.pid;
    });
    const auto at = static_cast<size_t>(selected - processes.begin());
    if (selected != processes.end()) lines[at + 1].replace(0, 1, ">");
    const size_t rows = lines.size() - 1, shown = std::max<size_t>(std::min(rows, room), 1);
    if (rows <= shown) return lines;
    const size_t first = at == rows ? 0 : std::min(at - std::min(at, shown / 2), rows - shown);
    Lines result = {lines[0]};
    result.insert(result.end(), lines.begin() + static_cast<std::ptrdiff_t>(first + 1),
                  lines.begin() + static_cast<std::ptrdiff_t>(first + 1 + shown));
    return result;
}

std::string joined(Lines lines, size_t height) {
    if (height != 0 && lines.size() > height) lines.resize(height);
    std::string result;
    for (const std::string& line : lines) result += line + "\n";
    return result;
}

}  // namespace

std::string_view to_string(TopSort sort) {
    return sort_names.at(static_cast<size_t>(sort));
}

std::optional<TopSort> parse_top_sort(std::string_view text) {
    const auto found = std::find(sort_names.begin(), sort_names.end(), text);
    if (found == sort_names.end()) return std::nullopt;
    return static_cast<TopSort>(found - sort_names.begin());
}

std::vector<uint64_t> top_pids(const json& answer, const TopView& view) {
    std::vector<uint64_t> result;
    for (const json* process : shown_processes(answer, view)) result.push_back(*text::number(*process, "pid"));
    return result;
}

std::string text_top(const json& answer, const TopView& view, const TextStyle& style) {
    const auto processes = shown_processes(answer, view);
    const auto selected = std::find_if(processes.begin(), processes.end(), [&](const json* process) {
        return view.pid && text::number(*process, "pid") == view.pid;
    });
    Lines lines;
    add_lines(lines, wrap_text(head_line(answer, style), style.width, indent));
    add_lines(lines, text::recorded_line(answer, style) + text::coverage_lines(answer, style));
    const bool detail = view.detail && selected != processes.end();
    std::optional<uint64_t> of;
    if (detail) of = text::number(**selected, "pid");
    Lines below;
    for (Lines part :
         {incident_lines(answer, of, style), in_flight_lines(answer, of, style), request_lines(answer, of, style)}) {
        if (part.empty()) continue;
        below.emplace_back();
        below.insert(below.end(), part.begin(), part.end());
    }
    Lines above;
    if (detail) {
        above = detail_lines(**selected, style);
    } else if (processes.empty()) {
        above.emplace_back(view.filter.empty()
                               ? "No traced process that you may see"
                               : "No process has '" + escape_text(view.filter) + "' in its pid, command or unit");
    } else {
        const size_t used = lines.size() + 1 + below.size();
        const size_t room =
            view.height == 0 ? processes.size() : std::max(fewest_processes, view.height - std::min(view.height, used));
        above = scrolled(process_lines(answer, processes, style), processes, view, room);
    }
    lines.insert(lines.end(), above.begin(), above.end());
    lines.insert(lines.end(), below.begin(), below.end());
    return joined(std::move(lines), view.height);
}

}  // namespace ingero
