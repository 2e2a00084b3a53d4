#include "core/render/stragglers.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

constexpr size_t most_waits = 10;

std::string rank_of(const json& object, const char* rank_key, const char* pid_key) {
    const auto rank = number(object, rank_key);
    const auto pid = number(object, pid_key);
    if (rank) return "rank " + std::to_string(*rank);
    return pid ? "pid " + std::to_string(*pid) : absent;
}

std::string straggler_text(const json& one, const TextStyle& style) {
    const bool over = number(one, "resolved_ns").has_value();
    const std::string who = rank_of(one, "rank", "pid") + ", " + process(one, "comm", "pid") + ",";
    const std::string line = paint(who, Colour::bold, style) + " " +
                             paint(over ? "came last" : "comes last", over ? Colour::yellow : Colour::red, style) +
                             " in " + count(one, "late") + " of " + count(one, "of_ranges") +
                             " rounds, late by a median of " + duration(one, "lateness_ns") + " (late means " +
                             duration(one, "threshold_ns") + " or more)";
    std::string result = "\n" + wrap_text(line, style.width, 2) + "\n";
    std::string when = "from " + time(one, "since_ns", style);
    if (over) when += " to " + time(one, "resolved_ns", style);
    result += labelled("When", when + ", detected at " + time(one, "detected_ns", style), style);
    result += labelled("Lost",
                       duration(one, "lost_ns") + " in " + count(one, "late_ranges") + " rounds, " +
                           duration(one, "worst_ns") + " in the worst",
                       style);
    const json& cause = member(one, "cause");
    result += labelled("Cause",
                       cause.is_object() ? words(cause, "text") + " for " + duration(cause, "ns")
                                         : std::string("no single cause explains half of the delay"),
                       style);
    bool first = true;
    const uint64_t lost_ns = number(one, "lost_ns").value_or(0);
    for (const json& part : list(one, "meanwhile")) {
        // What is less is in the JSON.
        if (number(part, "ns").value_or(0) < lost_ns / 1'000) break;
        result += labelled(first ? "Meanwhile" : "", duration(part, "ns") + "  " + words(part, "text"), style);
        first = false;
    }
    first = true;
    for (const json& condition : list(one, "conditions")) {
        result += labelled(first ? "Compared" : "", words(condition, "text"), style);
        first = false;
    }
    if (!member(one, "incident").is_string()) return result;
    return result + labelled("Incident", words(one, "incident"), style);
}

std::string communicator_text(const json& one, const TextStyle& style) {
    std::string result =
        "\n" +
        wrap_text("Communicator " + words(one, "id") + ": " + count(one, "size") + " ranks, " + count(one, "ranges") +
                      " rounds compared, one every " + duration(one, "step_ns") + " (median)",
                  style.width, 2) +
        "\n";
    Table table({{"RANK", Align::left},
                 {"PROCESS", Align::left, true},
                 {"ROUNDS", Align::right, false, 2},
                 {"TIMES LATE", Align::right},
                 {"TOTAL DELAY", Align::right},
                 {"WAITED", Align::right}});
    for (const json& rank : list(one, "ranks"))
        table.add_row({count(rank, "rank"), process(rank, "comm", "pid"), count(rank, "ranges"), count(rank, "late"),
                       duration(rank, "late_ns"), duration(rank, "waited_ns")});
    result += table.render(style.width, 2);
    size_t shown = 0;
    for (const json& wait : list(one, "waits")) {
        if (shown++ == most_waits) break;
        result += "  " + rank_of(wait, "rank", "pid") + " waited " + duration(wait, "ns") + " for " +
                  rank_of(wait, "for_rank", "for_pid") + ", " + count(wait, "times") + " times\n";
    }
    return result;
}

}  // namespace

std::string text_stragglers(const json& answer, const TextStyle& style) {
    std::string result;
    const json& stragglers = list(answer, "stragglers");
    const json& communicators = list(answer, "communicators");
    if (communicators.empty())
        result += wrap_text("No ranks to compare: no collectives of two ranks of one communicator were recorded.",
                            style.width, 0) +
                  "\n";
    else if (stragglers.empty())
        result += "No straggler.\n";
    for (const json& one : stragglers) result += straggler_text(one, style);
    for (const json& one : communicators) result += communicator_text(one, style);
    if (result.starts_with('\n')) result.erase(0, 1);
    if (!communicators.empty()) result += "  A round is the collectives between two synchronisations.\n";
    if (!stragglers.empty() || !communicators.empty()) result += "\n";
    return result + window_line(answer, style) + coverage_lines(answer, style);
}

}  // namespace ingero
