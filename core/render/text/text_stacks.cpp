// Stacks for a reader, and folded: a line a stack, outermost frame first, as flame graph tools read them.
#include <algorithm>
#include <utility>

#include "core/model/stack.h"
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

/// The end of what is between brackets that begin at `from`, behind the last; npos where they do not match.
size_t end_of_brackets(std::string_view name, size_t from) {
    std::string open;
    for (size_t at = from; at < name.size(); ++at) {
        const char c = name[at];
        if (c == '<' || c == '(') open += c;
        const bool closes = c == ')' || (c == '>' && name[at - 1] != '-' && name[at - 1] != '=');
        if (!closes) continue;
        if (open.empty() || open.back() != (c == ')' ? '(' : '<')) return std::string_view::npos;
        open.pop_back();
        if (open.empty()) return at + 1;
    }
    return std::string_view::npos;
}

/// A C++ function without its template arguments and parameters, such as "at::native::copy_kernel(…)"; as it is where
/// its brackets do not match, as those of operators.
std::string without_arguments(std::string_view name) {
    constexpr std::string_view anonymous = "(anonymous namespace)";
    std::string result;
    for (size_t at = 0; at < name.size();) {
        if (name.substr(at).starts_with(anonymous)) {
            result += anonymous;
            at += anonymous.size();
        } else if (name[at] == '<' || name[at] == '(') {
            const size_t end = end_of_brackets(name, at);
            if (end == std::string_view::npos) return std::string(name);
            result += end - at == 2 ? name.substr(at, 2) : name[at] == '<' ? "<…>" : "(…)";
            at = end;
        } else {
            result += name[at++];
        }
    }
    return result;
}

std::string frame_line(const json& frame, const TextStyle& style) {
    constexpr size_t indent = 6;
    std::string file = words_or_empty(frame, "file");
    file = file.substr(file.rfind('/') + 1);
    const std::string where =
        (member(frame, "symbol").is_string() && !file.empty() ? "  (" + file + ")" : "") + remark(frame);
    std::string name = words(frame, "name");
    const size_t taken = indent + display_width(where);
    const bool is_too_long = style.width != 0 && !style.details && taken + display_width(name) > style.width;
    // Without a symbol it is a place in a file, of which nothing can be left out.
    if (is_too_long && member(frame, "symbol").is_string()) {
        constexpr size_t least = 20;
        const size_t room = style.width - std::min<size_t>(taken, style.width);
        name = truncate_text(without_arguments(name), std::max(room, least));
    }
    return std::string(indent, ' ') + name + paint(where, Colour::dim, style) + "\n";
}

/// In words, where they say more than the code does.
std::string why_truncated(const json& stack) {
    const std::string end = words(stack, "end");
    for (const auto& [code, said] : {std::pair{StackEnd::no_table, "no call frame information"},
                                     {StackEnd::no_rule, "no rule to unwind this code"},
                                     {StackEnd::no_memory, "the stack's memory makes no sense"},
                                     {StackEnd::too_deep, "deeper than 64 frames"}})
        if (end == to_string(code)) return said;
    return end;
}

/// The separators of the folded form are taken out of names.
std::string folded_name(std::string name) {
    std::replace(name.begin(), name.end(), ';', ':');
    return name;
}

}  // namespace

std::string text_stacks(const json& answer, const TextStyle& style) {
    const std::string weight = words(answer, "weight");
    std::string result;
    const json& stacks = list(answer, "stacks");
    if (stacks.empty()) {
        const bool has_calls = number(answer, "calls_without_stack").value_or(0) != 0;
        const std::string none = has_calls ? "None of the " + count(answer, "calls") +
                                                 " calls in this window has a recorded stack: see stacks in "
                                                 "ingerod.conf(5)."
                                           : "No stacks in this window.";
        return wrap_text(none, style.width, 0) + "\n" + window_line(answer, style) + coverage_lines(answer, style);
    }
    for (const json& stack : stacks) {
        if (!result.empty()) result += "\n";
        result += paint(label_of(stack), Colour::bold, style) + "  " + duration(stack, weight.c_str()) +
                  (weight == "off_cpu_ns" ? " off CPU" : "") + ", " +
                  format_count(number(stack, "count").value_or(0), "call", "calls") + "\n";
        for (const json& frame : list(stack, "frames")) result += frame_line(frame, style);
        if (flag(stack, "truncated"))
            result += "      " + paint("[truncated: " + why_truncated(stack) + "]", Colour::yellow, style) + "\n";
    }
    if (flag(answer, "more")) result += "\nMore stacks were left out: -n shows more.\n";
    const auto without = number(answer, "calls_without_stack");
    if (without && *without != 0)
        result += "\n" + count(answer, "calls_without_stack") + " of " + count(answer, "calls") +
                  " calls have no recorded stack.\n";
    if (const auto lost = number(answer, "stacks_lost"); lost && *lost != 0)
        result += "Since ingerod started, the stacks of " + format_count(*lost, "call", "calls") +
                  " were not stored: the stack table was full, or a user had reached their limit.\n";
    return result + "\n" + window_line(answer, style) + coverage_lines(answer, style);
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
