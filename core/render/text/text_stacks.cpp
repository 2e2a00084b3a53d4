// Stacks for a reader, and folded: a line a stack, outermost frame first, as flame graph tools read them.
#include <algorithm>

#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

std::string label_of(const json& stack) {
    if (member(stack, "op").is_string()) return words(stack, "op");
    if (const auto pid = number(stack, "pid")) return "pid " + std::to_string(*pid);
    return member(stack, "kernel").is_string() ? words(stack, "kernel") : "unknown kernel";
}

/// What a reader must know of the file besides its name.
std::string remark(const json& frame) {
    const std::string state = words_or_empty(frame, "state");
    return state == "deleted" || state == "rebuilt" || state == "stripped" ? " [" + state + "]" : "";
}

std::string frame_line(const json& frame, const TextStyle& style) {
    std::string file = words_or_empty(frame, "file");
    file = file.substr(file.rfind('/') + 1);
    const std::string name = words(frame, "name");
    const std::string where = member(frame, "symbol").is_string() && !file.empty() ? "  (" + file + ")" : "";
    return "      " + name + paint(where + remark(frame), Colour::dim, style) + "\n";
}

/// The separators of the folded form are taken out of names.
std::string folded_name(std::string name) {
    std::replace(name.begin(), name.end(), ';', ':');
    return name;
}

}  // namespace

std::string text_stacks(const json& answer, const TextStyle& style) {
    const std::string weight = words(answer, "weight");
    std::string result = window_line(answer, style) + coverage_lines(answer, style);
    const json& stacks = list(answer, "stacks");
    if (stacks.empty()) result += "No stacks in this window.\n";
    for (const json& stack : stacks) {
        result += "\n" + paint(label_of(stack), Colour::bold, style) + "  " + duration(stack, weight.c_str()) +
                  (weight == "off_cpu_ns" ? " off CPU" : "") + ", " + count(stack, "count") + " calls\n";
        for (const json& frame : list(stack, "frames")) result += frame_line(frame, style);
        if (flag(stack, "truncated"))
            result += "      " + paint("[truncated: " + words(stack, "end") + "]", Colour::yellow, style) + "\n";
    }
    if (flag(answer, "more")) result += "\nMore stacks were left out: see --limit.\n";
    const auto without = number(answer, "calls_without_stack");
    if (without && *without != 0)
        result += "\n" + count(answer, "calls_without_stack") + " of " + count(answer, "calls") +
                  " calls have no recorded stack.\n";
    if (const auto lost = number(answer, "stacks_lost"); lost && *lost != 0)
        result += "Since ingerod started, " + count(answer, "stacks_lost") +
                  " calls lost their stack: there was no room for a new one, or one user had too many.\n";
    return result;
}

std::string folded_stacks(const json& answer, const TextStyle&) {
    const std::string weight = words(answer, "weight");
    std::string result;
    for (const json& stack : list(answer, "stacks")) {
        std::string line = folded_name(label_of(stack));
        if (flag(stack, "truncated")) line += ";[truncated]";
        const json& frames = list(stack, "frames");
        for (size_t i = frames.size(); i > 0; --i) line += ";" + folded_name(words(frames[i - 1], "name"));
        result += line + " " + std::to_string(number(stack, weight.c_str()).value_or(0)) + "\n";
    }
    return result;
}

}  // namespace ingero
