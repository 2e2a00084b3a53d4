// Requests for a reader: a table from the longest on, the longest one in full, and the two notes.
#include "core/diagnosis/assign.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/render/requests.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

/// Of these it is a task that did it, also where it is not known which; of others without a pid it is what the thread
/// waited for.
bool is_by_somebody(const json& stall) {
    const std::string kind = words(stall, "kind");
    return kind == to_string(Cause::cpu_contention) || kind == to_string(Cause::noisy_neighbour) ||
           kind == to_string(Cause::lock_wait);
}

/// "-" where it has no name.
std::string culprit_text(const json& stall) {
    const json& culprit = member(stall, "culprit");
    const bool is_task = is_by_somebody(stall) && words(culprit, "name") != "other";
    const bool is_nobody = !culprit.is_object() || (!number(culprit, "pid") && !is_task);
    return is_nobody ? absent : process(culprit, "name", "pid");
}

/// "network (socket)".
std::string kind_text(const json& stall) {
    const json& culprit = member(stall, "culprit");
    const std::string kind = words(stall, "kind");
    if (!culprit.is_object() || number(culprit, "pid") || is_by_somebody(stall)) return kind;
    const std::string what = words(culprit, "name");
    return what == "other" ? kind : kind + " (" + what + ")";
}

std::string occupant_text(const json& occupant) {
    const auto share = fraction(occupant, "share");
    return words(occupant, "id") + (share ? " (" + format_percent(*share) + ")" : "");
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

/// What answers; with all details also what the request's program reported of it, and what its calls were.
std::string table_text(const json& requests, const std::string& kind, const TextStyle& style) {
    std::vector<Column> columns = {{kind == "step"    ? "STEP"
                                    : kind == "phase" ? "PHASE"
                                                      : "REQUEST",
                                    Align::left, true},
                                   {"STARTED", Align::left, false, 2},
                                   {"TOOK", Align::right},
                                   {"MAINLY", Align::left, false, 1},
                                   {"STALL", Align::right},
                                   {"WHY", Align::left, true},
                                   {"BY", Align::left, true}};
    // Of these each says something by itself, the first ones most.
    int drop_order = 3;
    if (style.details)
        for (const char* title : {"QUEUE", "TTFT", "LAUNCHES", "COPIES", "COLL.", "SYNCS", "ALLOCS", "CONC.",
                                  "SPLIT TIME", "TOKENS", "MODEL"})
            columns.push_back(
                {title, std::string_view(title) == "MODEL" ? Align::left : Align::right, false, drop_order++});
    Table table(std::move(columns));
    for (const json& request : requests) {
        const json& events = member(request, "events");
        const json& stall = member(request, "longest_stall");
        std::vector<std::string> cells = {words(request, "id"),
                                          moment(request, "start_ns", style),
                                          duration(request, "rank_by_ns"),
                                          main_part(member(request, "split")),
                                          duration(stall, "ns"),
                                          kind_text(stall),
                                          culprit_text(stall)};
        if (style.details) {
            std::string tokens = absent;
            if (number(request, "prompt_tokens") || number(request, "output_tokens"))
                tokens = count(request, "prompt_tokens") + "+" + count(request, "output_tokens");
            for (std::string& cell :
                 std::vector{duration(request, "queue_ns"), duration(request, "ttft_ns"), count(events, "launches"),
                             count(events, "copies"), count(events, "collectives"), count(events, "syncs"),
                             count(events, "allocations"), count(request, "co_resident"),
                             duration(request, "fair_share_ns"), tokens, words(request, "model")})
                cells.push_back(std::move(cell));
        }
        table.add_row(std::move(cells));
    }
    return table.render(style.width);
}

std::string request_text(const json& request, const std::string& kind, const TextStyle& style) {
    std::string took = words(request, "id") + ": started " + moment(request, "start_ns", style) + ", took " +
                       duration(request, "rank_by_ns");
    if (number(request, "queue_ns")) took += "; scheduled after " + duration(request, "queue_ns");
    if (number(request, "ttft_ns")) took += "; first token after " + duration(request, "ttft_ns");
    std::string result = labelled("Slowest", took, style);
    const json& events = member(request, "events");
    const std::string errors =
        number(events, "errors").value_or(0) == 0 ? "" : ", " + count(events, "errors") + " of them failed";
    result += labelled("Calls",
                       count(events, "calls") + errors + "; " + duration(request, "fair_share_ns") +
                           " if each call's time is split evenly among the " + kind + "s it overlaps",
                       style);
    if (const std::string bar = split_line(member(request, "split")); !bar.empty()) result += labelled("", bar, style);
    if (const json& stall = member(request, "longest_stall"); stall.is_object())
        result += labelled("Stalled",
                           duration(stall, "ns") + " " + kind_text(stall) + " " +
                               (words(stall, "op") == op_name(op_wait) ? "between calls" : "in " + words(stall, "op")) +
                               " at " + moment(stall, "start_ns", style) + " of " + process(stall, "comm", "pid") +
                               (culprit_text(stall) == absent ? "" : ", by " + culprit_text(stall)),
                           style);
    const auto others = number(request, "co_resident").value_or(0);
    if (const json& occupied_by = list(request, "occupied_by"); others != 0 || !occupied_by.empty())
        result += labelled("Concurrent",
                           format_count(others, "other " + kind, "other " + kind + "s") +
                               (occupied_by.empty() ? ""
                                                    : std::string("; the overlap ") +
                                                          (number(request, "ttft_ns") ? "until its first token " : "") +
                                                          "was mostly with " + occupants_text(occupied_by)),
                           style);
    for (const auto& [label, key] : {std::pair{"Labels", "labels"}, {"Values", "values"}})
        if (const std::string pairs = pairs_text(member(request, key)); !pairs.empty())
            result += labelled(label, pairs, style);
    return result;
}

}  // namespace

std::string text_requests(const json& answer, const TextStyle& style) {
    const json& requests = list(answer, "requests");
    const std::string by = words(answer, "by"), kind = by == "step" || by == "phase" ? by : "request";
    std::string result;
    if (requests.empty()) {
        result = "No " + kind + " in this window\n";
    } else {
        result = table_text(requests, kind, style);
        if (const auto found = number(answer, "found"); found && *found > requests.size())
            result += "The longest " + format_count(requests.size()) + " of " + format_count(*found) + "\n";
        result += "\n" + request_text(requests.front(), kind, style);
    }
    result += "\n" + window_line(answer, style) + coverage_lines(answer, style) + "\n";
    // Whole lines, however narrow the terminal: they are looked for word by word.
    for (const json& note : list(answer, "notes"))
        if (note.is_string()) result += escape_text(note.get_ref<const std::string&>()) + "\n";
    return result;
}

}  // namespace ingero
