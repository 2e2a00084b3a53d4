#include "core/render/render.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;

namespace {

std::string set_list(const json& sets) {
    std::string result;
    for (const json& set : sets)
        result += (result.empty() ? "" : ", ") + text::words(set, "set") + " " +
                  (text::flag(set, "on") ? text::count(set, "functions") : "off");
    return result.empty() ? text::absent : result;
}

std::string library_lines(const json& library, const TextStyle& style) {
    std::string result = text::words(library, "library") + ": " + text::count(library, "attached") + " attached, " +
                         text::count(library, "reading") + " being read, " + text::count(library, "failed") +
                         " failed\n";
    result += wrap_text("  functions: " + set_list(text::list(library, "sets")), style.width, 4) + "\n";
    if (text::number(library, "stepped").value_or(0) != 0)
        result += "  " + text::count(library, "stepped") +
                  " functions are single-stepped: a call costs about ten times as much\n";
    const std::string misplaced = text::joined(text::list(library, "misplaced"), ", "),
                      reasons = text::joined(text::list(library, "reasons"), ", ");
    if (!misplaced.empty())
        result += wrap_text("  not attached, since their symbols point inside another function: " + misplaced,
                            style.width, 4) +
                  "\n";
    if (!reasons.empty()) result += wrap_text("  why: " + reasons, style.width, 4) + "\n";
    return result;
}

}  // namespace

std::string text_probes(const json& answer, const TextStyle& style) {
    const json& libraries = text::list(answer, "libraries");
    const json& probes = text::list(answer, "probes");
    std::string result =
        "Node " + text::words(answer, "node") + ", attached by " + text::words(answer, "attach_method") + "\n";
    if (libraries.empty()) result += "No process maps a GPU library\n";
    for (const json& library : libraries) result += library_lines(library, style);
    if (!probes.empty()) {
        Table table({{"SOURCE"},
                     {"OPERATION", Align::left, true},
                     {"SET", Align::left, false, 3},
                     {"FUNCTIONS", Align::right, false, 2},
                     {"HITS", Align::right},
                     {"RECORDS", Align::right},
                     {"LOST", Align::right},
                     {"UNCERTAIN", Align::right, false, 1}});
        size_t without_hits = 0;
        for (const json& probe : probes) {
            uint64_t lost = 0;
            for (const char* kind : {"lost_ring", "lost_frames", "lost_depth"})
                lost += text::number(probe, kind).value_or(0);
            // Null where hits are not for the caller to know.
            if (text::number(probe, "hits") == uint64_t{0} && lost == 0 && !style.details) {
                ++without_hits;
                continue;
            }
            table.add_row({text::words(probe, "source"), text::words(probe, "op"), text::words(probe, "set"),
                           text::count(probe, "functions"), text::count(probe, "hits"), text::count(probe, "records"),
                           format_count(lost), text::count(probe, "uncertain")});
            const json& symbols = text::list(probe, "symbols");
            const bool is_plain = symbols.size() == 1 && text::words(symbols[0], "symbol") == text::words(probe, "op");
            if (!style.details || is_plain) continue;
            for (const json& symbol : symbols) {
                const std::string name = "  " + text::words(symbol, "symbol");
                table.add_row({"", name, "", "", text::count(symbol, "hits"), "", "", ""});
            }
        }
        result += "\n" + table.render(style.width);
        if (without_hits != 0)
            result += format_count(without_hits, "operation", "operations") + " without a hit: --all\n";
    }
    return result + text::recorded_line(answer, style) + text::coverage_lines(answer, style);
}

}  // namespace ingero
