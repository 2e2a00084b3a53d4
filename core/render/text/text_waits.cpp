#include <utility>

#include "core/render/incidents.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

std::string thread(const json& link) {
    const auto tid = number(link, "tid");
    return process(link, "comm", "pid") + " thread " + (tid ? std::to_string(*tid) : absent);
}

std::string slept(const json& link) {
    std::string where;
    const auto add = [&](const std::string& part) {
        if (!part.empty()) where += (where.empty() ? " in " : ", ") + part;
    };
    // No kind of sleep that has a name.
    if (const std::string kind = words_or_empty(link, "blocked_on"); kind != "other") add(kind);
    add(words_or_empty(link, "syscall"));
    add(words_or_empty(link, "detail"));
    const std::string by = words(link, "ended_by"), result = "slept " + duration(link, "duration_ns") + where;
    if (by == "interrupt") return result + ": ended by an interrupt (a timer, a disk, the network)";
    if (by != "unknown") return result;
    return result + (where.empty() ? ": neither what it waited for nor what ended it was recorded"
                                   : ": what ended it was not recorded");
}

std::string deed(const json& link) {
    const std::string did = words(link, "did");
    if (did == "slept") return slept(link);
    if (did == "ran") return "ran for " + duration(link, "duration_ns") + " of the wait";
    if (did == "hidden") return "is another user's";
    if (did != "no_cpu") return "was not being recorded then";
    std::string result = "had no CPU for " + duration(link, "duration_ns");
    const json& other = member(link, "preemptor");
    if (flag(link, "throttled"))
        result += ": its cgroup had used up its quota";
    else if (other.is_object())
        result += ": " + process(other, "comm", "pid") + " had it for " + duration(other, "ns");
    return result;
}

std::string wrapped(const std::string& text, size_t indent, const TextStyle& style) {
    return std::string(indent, ' ') + wrap_text(text, style.width, indent) + "\n";
}

}  // namespace

std::string text_chains(const json& chains, const TextStyle& style) {
    std::string result;
    bool of_others = false;
    for (const json& chain : chains) {
        if (!result.empty()) result += "\n";
        // By thread alone it is known.
        const json& calls = member(chain, "calls");
        if (calls.is_boolean() && !calls.get<bool>() && !std::exchange(of_others, true))
            result += "Threads without recorded calls\n\n";
        const auto depth = number(chain, "depth");
        const uint64_t waits = number(chain, "waits").value_or(1);
        size_t indent = 0;
        for (const json& link : list(chain, "links")) {
            if (indent == 0) {
                const std::string took = duration(chain, waits > 1 ? "total_ns" : "duration_ns");
                const std::string who = thread(link) +
                                        (depth && *depth != 0 ? ", inside a call"
                                         : of_others          ? ""
                                                              : ", between calls") +
                                        (waits > 1 ? ": " + format_count(waits) + " waits, the longest" : "");
                result += paint(took, Colour::bold, style) + "  " +
                          wrap_text(who, style.width, display_width(took) + 2) + "\n" + wrapped(deed(link), 3, style);
            } else {
                result += wrapped("ended by " + thread(link), indent, style) + wrapped(deed(link), indent + 3, style);
            }
            indent += 3;
        }
    }
    return result;
}

std::string text_waits(const json& answer, const TextStyle& style) {
    const json& chains = list(answer, "chains");
    const uint64_t kinds = number(answer, "kinds").value_or(0);
    const std::string more =
        kinds > chains.size() ? "\n" + format_count(kinds - chains.size()) + " more, which --limit shows\n" : "";
    return (chains.empty() ? "No waits in this window.\n" : text_chains(chains, style) + more + "\n") +
           window_line(answer, style) + coverage_lines(answer, style);
}

}  // namespace ingero
