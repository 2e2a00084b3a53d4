#include <algorithm>
#include <iterator>
#include <optional>

#include "core/model/call_time.h"
#include "core/model/op.h"
#include "core/render/incidents.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

std::string lasted(const json& incident) {
    const auto opened = number(incident, "opened_ns"), closed = number(incident, "closed_ns");
    if (!closed) return "open";
    return opened && *closed >= *opened ? format_duration(*closed - *opened) : absent;
}

/// Of a kind without a cost, such as a leak, there is none.
std::string lost(const json& one, const char* key = "lost_ns") {
    constexpr uint64_t worth_a_word_ns = 1'000;
    return number(one, key).value_or(0) < worth_a_word_ns ? absent : duration(one, key);
}

std::string incident_lines(const json& one, const TextStyle& style) {
    const std::string severity = words(one, "severity");
    std::string result = paint(words(one, "kind"), Colour::bold, style) + "  " +
                         paint(severity, severity_colour(severity), style) + ", " + words(one, "verdict") +
                         ", incident " + words(one, "id") + "\n";
    result += "   " + wrap_text(words(one, "summary"), style.width, 3) + "\n";
    const bool open = !number(one, "closed_ns");
    result += labelled("When", time(one, "opened_ns", style) + (open ? ", still open" : ", for " + lasted(one)), style);
    if (lost(one) == absent) return result + labelled("Process", process(one, "comm", "pid"), style);
    return result + labelled("Lost", lost(one) + " by " + process(one, "comm", "pid"), style);
}

/// "+1.2 ms": against the start of the time that is shown.
std::string offset(const json& row, uint64_t from_ns) {
    const auto start = number(row, "start_ns");
    if (!start) return absent;
    if (*start < from_ns) return "-" + format_duration(from_ns - *start);
    return "+" + format_duration(*start - from_ns);
}

std::string mainly(const json& row) {
    const uint64_t on_cpu = number(row, "on_cpu_ns").value_or(0), runnable = number(row, "runnable_ns").value_or(0),
                   blocked = number(row, "blocked_ns").value_or(0);
    if (on_cpu >= runnable && on_cpu >= blocked) {
        const std::optional<OpId> id = op_of_name(words_or_empty(row, "op"));
        const Op* const op = id ? find_op(*id) : nullptr;
        return op && op->waits_for_device ? "device wait" : "on CPU";
    }
    if (blocked >= runnable) {
        const std::string on = words_or_empty(row, "blocked_on");
        return on.empty() ? "asleep" : "asleep in " + on;
    }
    const json& other = member(row, "ran_instead");
    return other.is_object() ? "no CPU: " + process(other, "name", "pid") + " had it" : "no CPU";
}

/// A call that went by as many beside it do.
bool is_like(const json& row, const json& other) {
    constexpr uint64_t short_ns = 10'000;
    const uint64_t a = number(row, "duration_ns").value_or(0), b = number(other, "duration_ns").value_or(0);
    const bool lasted_alike = std::max(a, b) <= short_ns || std::max(a, b) / 2 <= std::min(a, b);
    return lasted_alike && !flag(row, "worst") && !flag(other, "worst") && words(row, "op") == words(other, "op") &&
           number(row, "tid") == number(other, "tid") && number(row, "depth") == number(other, "depth") &&
           mainly(row) == mainly(other);
}

/// Without calls that were made inside others, but for the worst one.
json outermost(const json& rows) {
    const auto worst = std::find_if(rows.begin(), rows.end(), [](const json& row) { return flag(row, "worst"); });
    const uint64_t from_ns = worst == rows.end() ? UINT64_MAX : number(*worst, "start_ns").value_or(UINT64_MAX),
                   to_ns = worst == rows.end() ? 0 : saturating_add(from_ns, number(*worst, "duration_ns").value_or(0));
    json kept = json::array();
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept), [&](const json& row) {
        const uint64_t start_ns = number(row, "start_ns").value_or(0);
        return number(row, "depth").value_or(0) == 0 || flag(row, "worst") || (start_ns >= from_ns && start_ns < to_ns);
    });
    return kept;
}

/// `together`: those that went alike.
std::string rows_text(const json& all, uint64_t from_ns, bool together, const TextStyle& style) {
    constexpr ptrdiff_t most_shown_singly = 2;
    const json rows = together ? outermost(all) : all;
    Table table({{"", Align::left},
                 {"AT", Align::right},
                 {"TOOK", Align::right},
                 {"OPERATION", Align::left, true},
                 {"THREAD", Align::right, false, 2},
                 {"MAINLY", Align::left, true, 1}});
    for (auto row = rows.begin(); row != rows.end();) {
        const auto tid = number(*row, "tid");
        const size_t depth = std::min<uint64_t>(number(*row, "depth").value_or(0), 8);
        auto end = std::find_if_not(row, rows.end(), [&](const json& other) { return is_like(*row, other); });
        if (!together || end - row <= most_shown_singly) end = std::next(row);
        uint64_t took_ns = 0;
        for (auto one = row; one != end; ++one)
            took_ns = saturating_add(took_ns, number(*one, "duration_ns").value_or(0));
        table.add_row(
            {flag(*row, "worst") ? ">" : "", offset(*row, from_ns),
             end - row == 1 ? duration(*row, "duration_ns") : format_duration(took_ns),
             std::string(2 * depth, ' ') + (end - row == 1 ? "" : std::to_string(end - row) + " ") + words(*row, "op"),
             tid ? std::to_string(*tid) : absent, mainly(*row)});
        row = end;
    }
    return table.render(style.width, 2);
}

}  // namespace

std::string text_incidents(const json& answer, const TextStyle& style) {
    const std::string window = window_line(answer, style) + coverage_lines(answer, style);
    const json& incidents = list(answer, "incidents");
    if (incidents.empty()) return "No incident.\n" + window;
    Table table({{"INCIDENT", Align::left},
                 {"KIND", Align::left},
                 {"SEVERITY", Align::left, false, 2},
                 {"PROCESS", Align::left, true},
                 {"OPENED", Align::left, false, 1},
                 {"LASTED", Align::right, false, 4},
                 {"LOST", Align::right, false, 3}});
    for (const json& one : incidents)
        table.add_row({words(one, "id"), words(one, "kind"), words(one, "severity"), process(one, "comm", "pid"),
                       time(one, "opened_ns", style), lasted(one), lost(one)});
    return table.render(style.width, 0) + "\n" + window;
}

std::string text_incident(const json& answer, const TextStyle& style) {
    std::string result = incident_lines(member(answer, "incident"), style);
    bool first = true;
    const json& finding = member(answer, "finding");
    const json& at_worst = list(finding, "culprits");
    for (const json& culprit : at_worst.empty() ? list(member(answer, "incident"), "culprits") : at_worst) {
        const std::string ns = lost(culprit, "ns");
        result +=
            labelled(first ? "Culprits" : "", (ns == absent ? "" : ns + "  ") + process(culprit, "name", "pid"), style);
        first = false;
    }
    first = true;
    for (const json& one : list(finding, "rejected")) {
        result += labelled(first ? "Other time" : "", words(one, "hypothesis") + ": " + duration(one, "ns"), style);
        first = false;
    }
    for (const auto& [label, key] : {std::pair("Fix", "fix"), std::pair("Check", "confirm")})
        if (const std::string value = words_or_empty(finding, key); !value.empty())
            result += labelled(label, value, style);
    const json& detail = member(answer, "detail");
    const uint64_t from_ns = number(detail, "from_ns").value_or(0);
    if (const json& rows = list(detail, "rows"); !rows.empty()) {
        const bool kept = words(answer, "detail_from") == "incident";
        result += "\nAround the worst of it, from " + moment(detail, "from_ns", style) +
                  (kept ? ", as kept with the incident" : "") + "\n" + rows_text(rows, from_ns, !style.details, style);
    }
    if (const json& chains = list(detail, "chains"); !chains.empty())
        result += "\nWhat it waited for\n\n" + text_chains(chains, style);
    if (const json& evidence = list(detail, "evidence"); !evidence.empty())
        result += "\nEvidence\n" + rows_text(evidence, from_ns, false, style);
    result += "\nHistory\n";
    std::string before;
    for (const json& step : list(answer, "history")) {
        const std::string event = words(step, "event"), by_then = lost(step);
        // What was only written again is no news.
        if (!style.details && event == "updated" && by_then == before) continue;
        before = by_then;
        result += "  " + time(step, "at_ns", style) + "  " + event +
                  (by_then == absent ? "" : ", " + by_then + " lost by then") + "\n";
    }
    return result + "\n" + window_line(answer, style) + coverage_lines(answer, style);
}

std::string text_verified(const json& answer, const TextStyle& style) {
    const std::string state = words(answer, "state");
    const Colour colour = state == "fixed" ? Colour::green : state == "not-fixed" ? Colour::red : Colour::yellow;
    const std::string said = state == "fixed" ? "Fixed" : state == "not-fixed" ? "Not fixed" : "Not enough data yet";
    std::string result = paint(said, colour, style) + ": " + wrap_text(words(answer, "why"), style.width, 0) + "\n";
    result += window_line(answer, style) + coverage_lines(answer, style);
    const auto before = fraction(answer, "window_share_before"), now = fraction(answer, "window_share");
    // Of too little nothing was measured, and memory that is kept costs no time.
    const bool is_measured = before && now && (*before > 0 || *now > 0);
    if (is_measured && (state == "fixed" || state == "not-fixed"))
        result += labelled(
            "Lost",
            format_percent(*now) + " of the window; " + format_percent(*before) + " when the incident was worst",
            style);
    if (const std::string confirm = words_or_empty(answer, "confirm"); !confirm.empty())
        result += labelled("Check", confirm, style);
    return result + "\n" + incident_lines(member(answer, "incident"), style);
}

namespace {

std::string causes_text(const json& group) {
    std::string result;
    size_t listed = 0;
    for (const json& one : list(group, "excess")) {
        if (listed++ == 3) break;
        result += (result.empty() ? "" : ", ") + words(one, "cause") + " " + duration(one, "ns");
    }
    return result.empty() ? absent : result;
}

std::string excess_table(const json& answer, const char* key, const char* heading, const TextStyle& style) {
    const std::string window = window_line(answer, style) + coverage_lines(answer, style);
    const json& groups = list(answer, key);
    if (groups.empty()) return "Nothing to explain: no CUDA call was recorded in the window.\n" + window;
    Table table({{heading, Align::left, true},
                 {"CALLS", Align::right},
                 {"IN CALLS", Align::right, false, 2},
                 {"EXCESS", Align::right},
                 {"WHY", Align::left, true}});
    for (const json& group : groups) {
        const std::string name = group.contains("gpu") ? words(group, "gpu") : process(group, "comm", "pid");
        table.add_row({name, count(group, "calls"), duration(group, "busy_ns"), duration(group, "excess_ns"),
                       causes_text(group)});
    }
    return table.render(style.width, 0) + "\n" + window;
}

}  // namespace

std::string text_excess_by_process(const json& answer, const TextStyle& style) {
    return excess_table(answer, "by_process", "PROCESS", style);
}

std::string text_excess_by_gpu(const json& answer, const TextStyle& style) {
    return excess_table(answer, "by_gpu", "GPU", style);
}

}  // namespace ingero
