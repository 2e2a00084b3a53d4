#include "core/render/incidents.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

std::string thread(const json& link) {
    return process(link, "comm", "pid") + " thread " + count(link, "tid");
}

std::string slept(const json& link) {
    std::string result = "slept " + duration(link, "duration_ns") + " in " + words(link, "blocked_on");
    const std::string call = words_or_empty(link, "syscall"), detail = words_or_empty(link, "detail");
    if (!call.empty()) result += ", " + call;
    if (!detail.empty()) result += ", " + detail;
    const std::string by = words(link, "ended_by");
    if (by == "interrupt") result += ": ended by an interrupt (a timer, a disk, the network)";
    if (by == "unknown") result += ": what ended it was not recorded";
    return result;
}

std::string deed(const json& link) {
    const std::string did = words(link, "did");
    if (did == "slept") return slept(link);
    if (did == "ran") return "ran " + duration(link, "duration_ns") + " of it: its own work";
    if (did == "hidden") return "is another user's";
    if (did != "no_cpu") return "was not watched then";
    std::string result = "had no CPU for " + duration(link, "duration_ns");
    const json& other = member(link, "preemptor");
    if (flag(link, "throttled"))
        result += ": its cgroup had used up its quota";
    else if (other.is_object())
        result += ": " + process(other, "comm", "pid") + " had it for " + duration(other, "ns");
    return result;
}

}  // namespace

std::string text_chains(const json& chains, const TextStyle& style) {
    std::string result;
    for (const json& chain : chains) {
        const auto depth = number(chain, "depth");
        std::string indent;
        for (const json& link : list(chain, "links")) {
            if (indent.empty()) {
                result += "\n" + paint(duration(chain, "duration_ns"), Colour::bold, style) + "  " + thread(link) +
                          (depth && *depth != 0 ? ", inside a call" : ", between calls") + "\n   " + deed(link) + "\n";
                indent = "   ";
                continue;
            }
            result += indent + "ended by " + thread(link) + "\n" + indent + "   " + deed(link) + "\n";
            indent += "   ";
        }
    }
    return result;
}

std::string text_waits(const json& answer, const TextStyle& style) {
    const std::string result = window_line(answer, style) + coverage_lines(answer, style);
    const json& chains = list(answer, "chains");
    return result + (chains.empty() ? "No waits in this window.\n" : text_chains(chains, style));
}

}  // namespace ingero
