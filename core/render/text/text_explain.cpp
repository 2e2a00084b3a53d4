#include <algorithm>
#include <array>
#include <utility>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using text::Colour;
using text::labelled;
using text::split_lines;

namespace {

constexpr size_t label_width = 15;  ///< three spaces, the label, padding

std::string continued(std::string_view value, const TextStyle& style) {
    return labelled("", value, style);
}

struct Part {
    const char* key;
    const char* name;
    char mark;
};

constexpr std::array<Part, 4> parts = {{{"on_cpu_ns", "on CPU", '#'},
                                        {"device_wait_ns", "waiting for the device", '='},
                                        {"runnable_ns", "waiting for a CPU", '.'},
                                        {"blocked_ns", "asleep", '-'}}};

uint64_t part_ns(const json& split, const Part& part) {
    // A sum of four must not overflow, whatever a store claims.
    return std::min(text::number(split, part.key).value_or(0), UINT64_MAX / 8);
}

}  // namespace

std::string text::labelled(std::string_view label, std::string_view value, const TextStyle& style) {
    std::string line = "   " + std::string(label);
    line.resize(std::max(line.size() + 1, label_width), ' ');
    return line + wrap_text(value, style.width, label_width) + "\n";
}

std::string text::split_lines(const json& split, const TextStyle& style) {
    constexpr double cells = 40;
    uint64_t whole = 0;
    for (const Part& part : parts) whole += part_ns(split, part);
    if (whole == 0) return "";
    std::string bar;
    std::string legend;
    double position = 0;
    for (const Part& part : parts) {
        const uint64_t ns = part_ns(split, part);
        if (ns == 0) continue;
        const double share = static_cast<double>(ns) / static_cast<double>(whole);
        position += share * cells;
        const auto end = static_cast<size_t>(position + 0.5);
        if (end > bar.size()) bar.resize(end, part.mark);
        legend += (legend.empty() ? "" : ", ") + std::string(1, part.mark) + " " + part.name + " " +
                  format_duration(ns) + " (" + format_percent(share) + ")";
    }
    return continued("[" + bar + "]", style) + continued(legend, style);
}

namespace {

std::string waker_text(const json& waker) {
    if (!waker.is_object()) return "";
    const std::string who = text::process(waker, "name", "pid");
    const std::string kind = text::words(waker, "kind");
    return ", woken by " + (kind == "interrupt" ? "an interrupt" : who);
}

std::string timeline_lines(const json& call, const TextStyle& style) {
    if (!call.is_object()) return "";
    // The worst may be a wait between calls, where no call was held up.
    const bool is_wait = text::words(call, "op") == op_name(op_wait);
    std::string line = (is_wait ? "between its calls" : text::words(call, "op")) + " at " +
                       text::time(call, "start_ns") + (is_wait ? ", " : " took ") + text::duration(call, "duration_ns");
    if (!is_wait && text::number(call, "expected_ns"))
        line += " where " + text::duration(call, "expected_ns") + " is expected";
    if (const auto tid = text::number(call, "tid")) line += ", thread " + std::to_string(*tid);
    std::string result =
        labelled(is_wait ? "Worst wait" : "Worst call", line, style) + split_lines(text::member(call, "split"), style);
    if (const json& other = text::member(call, "ran_instead"); other.is_object())
        result += continued(
            "ran instead: " + text::process(other, "name", "pid") + " for " + text::duration(other, "ns"), style);
    if (const json& wait = text::member(call, "waited_for"); wait.is_object())
        result += continued("waited for: " + text::words(wait, "reason") + " for " + text::duration(wait, "ns") +
                                waker_text(text::member(wait, "waker")),
                            style);
    if (text::flag(call, "split_uncertain"))
        result += continued("a context switch was missed: this time split is an estimate", style);
    return result;
}

std::string culprit_lines(const json& culprits, const TextStyle& style) {
    std::string result;
    for (const json& culprit : culprits)
        result += labelled(result.empty() ? "Culprits" : "",
                           text::duration(culprit, "ns") + "  " + text::process(culprit, "name", "pid"), style);
    return result;
}

std::string rejected_lines(const json& rejected, const TextStyle& style) {
    std::string result;
    for (const json& hypothesis : rejected)
        result += labelled(result.empty() ? "Ruled out" : "",
                           text::words(hypothesis, "hypothesis") + ": " + text::duration(hypothesis, "ns"), style);
    return result;
}

Colour severity_colour(const std::string& severity) {
    if (severity == "high") return Colour::red;
    return severity == "medium" ? Colour::yellow : Colour::cyan;
}

std::string upper(std::string text) {
    for (char& c : text)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    return text;
}

std::string verdict_text(const json& finding) {
    const std::string verdict = text::words(finding, "verdict");
    const auto explained = text::fraction(finding, "explained_fraction");
    if (verdict == "insufficient-evidence") return "insufficient evidence";
    return explained ? verdict + ", " + format_percent(*explained) + " of it explained" : verdict;
}

std::string finding_text(size_t number, const json& finding, const TextStyle& style) {
    const std::string severity = text::words(finding, "severity");
    std::string result =
        std::to_string(number) + ". " + text::paint(upper(severity), severity_colour(severity), style) + "  " +
        text::paint(text::words(finding, "kind"), Colour::bold, style) + ": " + verdict_text(finding) + "\n";
    result += "   " + wrap_text(text::words(finding, "summary"), style.width, 3) + "\n";
    std::string lost = text::duration(finding, "lost_ns");
    const auto low = text::number(finding, "lost_low_ns"), high = text::number(finding, "lost_high_ns");
    if (low && high && *low != *high)
        lost += " (" + text::duration(finding, "lost_low_ns") + " to " + text::duration(finding, "lost_high_ns") + ")";
    lost += " by " + text::process(finding, "comm", "pid");
    if (const auto share = text::fraction(finding, "window_share"))
        lost += ", " + format_percent(*share) + " of the window";
    const auto waited = text::number(finding, "waited_ns");
    if (waited && waited != text::number(finding, "lost_ns"))
        result += labelled("Waited", text::duration(finding, "waited_ns"), style);
    result += labelled("Lost", lost, style);
    result += culprit_lines(text::list(finding, "culprits"), style);
    result += timeline_lines(text::member(finding, "timeline"), style);
    result += rejected_lines(text::list(finding, "rejected"), style);
    const auto add = [&](const char* label, const char* key) {
        const std::string value = text::words_or_empty(finding, key);
        if (!value.empty()) result += labelled(label, value, style);
    };
    add("Fix", "fix");
    add("Confirm", "confirm");
    result += labelled(
        "Evidence",
        format_count(text::list(finding, "evidence").size()) + " events; finding " + text::words(finding, "id"), style);
    return result;
}

std::string looked_at(const json& answer) {
    std::string result = "Inspected " + text::count(answer, "calls") + " calls; " +
                         text::duration(answer, "excess_ns") + " beyond what is usual for them";
    const auto excess = text::number(answer, "excess_ns");
    const auto explained = text::number(answer, "explained_ns");
    if (excess && explained && *excess > 0)
        result +=
            ", " + format_percent(static_cast<double>(*explained) / static_cast<double>(*excess)) + " of it explained";
    return result + "\n";
}

/// The largest part of a call's time.
std::string mainly(const json& split) {
    const auto largest = std::max_element(parts.begin(), parts.end(), [&](const Part& a, const Part& b) {
        return part_ns(split, a) < part_ns(split, b);
    });
    return part_ns(split, *largest) == 0 ? text::absent : largest->name;
}

std::string slow_calls_text(const json& calls, const TextStyle& style) {
    if (calls.empty()) return "";
    Table table({{"OPERATION", Align::left, true},
                 {"PROCESS", Align::left, true},
                 {"STARTED", Align::left, false, 3},
                 {"TOOK", Align::right},
                 {"EXPECTED", Align::right, false, 1},
                 {"EXPLAINED", Align::right, false, 2},
                 {"MAINLY", Align::left}});
    for (const json& call : calls) {
        const auto explained = text::fraction(call, "explained_fraction");
        table.add_row({text::words(call, "op"), text::process(call, "comm", "pid"), text::time(call, "start_ns"),
                       text::duration(call, "duration_ns"), text::duration(call, "expected_ns"),
                       explained ? format_percent(*explained) : text::absent, mainly(text::member(call, "split"))});
    }
    return "\nSlowest calls\n" + table.render(style.width, 2);
}

}  // namespace

std::string text_explain(const json& answer, const TextStyle& style) {
    const json& findings = text::list(answer, "findings");
    const bool healthy = text::flag(answer, "healthy");
    const Colour colour = healthy ? Colour::green : findings.empty() ? Colour::yellow : Colour::bold;
    std::string result = text::paint(wrap_text(text::words(answer, "summary"), style.width, 0), colour, style) + "\n";
    result += text::window_line(answer) + text::coverage_lines(answer, style);
    if (findings.empty())
        result += "\nNo finding. ";
    else
        result += "\n";
    result += looked_at(answer);
    size_t number = 0;
    for (const json& finding : findings) result += "\n" + finding_text(++number, finding, style);
    return result + slow_calls_text(text::list(answer, "slow_calls"), style);
}

}  // namespace ingero
