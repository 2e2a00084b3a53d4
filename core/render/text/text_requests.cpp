// Requests for a reader: the two notes, a table from the longest on, and the longest one in full.
#include "core/render/requests.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

std::string culprit_text(const json& stall) {
    const json& culprit = member(stall, "culprit");
    return culprit.is_object() ? process(culprit, "name", "pid") : absent;
}

std::string occupant_text(const json& occupant) {
    const auto share = fraction(occupant, "share");
    return words(occupant, "id") + (share ? " " + format_percent(*share) : "");
}

std::string occupants_text(const json& occupants) {
    std::string result;
    for (const json& occupant : occupants) result += (result.empty() ? "" : ", ") + occupant_text(occupant);
    return result.empty() ? absent : result;
}

std::string pairs_text(const json& pairs) {
    std::string result;
    if (!pairs.is_object()) return result;
    for (const auto& [key, value] : pairs.items())
        result += (result.empty() ? "" : ", ") + escape_text(key) + "=" +
                  (value.is_string() ? escape_text(value.get_ref<const std::string&>())
                                     : value.dump(-1, ' ', true, json::error_handler_t::replace));
    return result;
}

std::string table_text(const json& requests, bool steps, const TextStyle& style) {
    Table table({{steps ? "STEP" : "REQUEST", Align::left, true},
                 {"TOOK", Align::right},
                 {"QUEUE", Align::right, false, 3},
                 {"TTFT", Align::right, false, 2},
                 {"LAUNCHES", Align::right, false, 4},
                 {"COPIES", Align::right, false, 5},
                 {"COLL.", Align::right, false, 8},
                 {"SYNCS", Align::right, false, 5},
                 {"ALLOCS", Align::right, false, 5},
                 {"STALL", Align::right},
                 {"WHY"},
                 {"BY"},
                 {"WITH", Align::right, false, 6},
                 {"FAIR SHARE", Align::right, false, 6},
                 {"OCCUPIED BY", Align::left, true, 1},
                 {"TOKENS", Align::right, false, 7},
                 {"MODEL", Align::left, true, 8}});
    for (const json& request : requests) {
        const json& events = member(request, "events");
        const json& stall = member(request, "longest_stall");
        const json& occupied_by = list(request, "occupied_by");
        std::string tokens = absent;
        if (number(request, "prompt_tokens") || number(request, "output_tokens"))
            tokens = count(request, "prompt_tokens") + "+" + count(request, "output_tokens");
        table.add_row({words(request, "id"), duration(request, "rank_by_ns"), duration(request, "queue_ns"),
                       duration(request, "ttft_ns"), count(events, "launches"), count(events, "copies"),
                       count(events, "collectives"), count(events, "syncs"), count(events, "allocations"),
                       duration(stall, "ns"), words(stall, "kind"), culprit_text(stall), count(request, "co_resident"),
                       duration(request, "fair_share_ns"),
                       occupied_by.empty() ? absent : occupant_text(occupied_by.front()), tokens,
                       words(request, "model")});
    }
    return table.render(style.width);
}

std::string request_text(const json& request, const TextStyle& style) {
    std::string took = words(request, "id") + " took " + duration(request, "rank_by_ns") + " from " +
                       time(request, "start_ns") + " on, beside " + count(request, "co_resident") + " others";
    if (number(request, "queue_ns")) took += "; scheduled after " + duration(request, "queue_ns");
    if (number(request, "ttft_ns")) took += "; first token after " + duration(request, "ttft_ns");
    std::string result = "\n" + labelled("Longest", took, style);
    const json& events = member(request, "events");
    const std::string bar = split_lines(member(request, "split"), style);
    result += labelled("Its calls",
                       count(events, "calls") + " calls, " + count(events, "errors") +
                           " of them failed; a fair share is " + duration(request, "fair_share_ns"),
                       style) +
              bar;
    if (const json& stall = member(request, "longest_stall"); stall.is_object())
        result += labelled("Stalled",
                           duration(stall, "ns") + " " + words(stall, "kind") + " in " + words(stall, "op") + " at " +
                               time(stall, "start_ns") + " of " + process(stall, "comm", "pid") +
                               (member(stall, "culprit").is_object() ? ", by " + culprit_text(stall) : ""),
                           style);
    if (const json& occupied_by = list(request, "occupied_by"); !occupied_by.empty())
        result += labelled("Occupied by", occupants_text(occupied_by), style);
    for (const auto& [label, key] : {std::pair{"Labels", "labels"}, {"Values", "values"}})
        if (const std::string pairs = pairs_text(member(request, key)); !pairs.empty())
            result += labelled(label, pairs, style);
    return result;
}

}  // namespace

std::string text_requests(const json& answer, const TextStyle& style) {
    const json& requests = list(answer, "requests");
    const bool steps = words(answer, "by") == "step";
    std::string result = window_line(answer) + coverage_lines(answer, style) + "\n";
    // Whole lines, however narrow the terminal: they are looked for word by word.
    for (const json& note : list(answer, "notes"))
        if (note.is_string()) result += escape_text(note.get_ref<const std::string&>()) + "\n";
    result += "\n";
    if (requests.empty()) return result + "No " + (steps ? "step" : "request") + " in this window\n";
    result += table_text(requests, steps, style);
    if (const auto found = number(answer, "found"); found && *found > requests.size())
        result += "The longest " + format_count(requests.size()) + " of " + format_count(*found) + "\n";
    return result + request_text(requests.front(), style);
}

}  // namespace ingero
