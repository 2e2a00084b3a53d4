// The answer of `ingeroctl check` and `ingerod --check` as text.

#include <algorithm>
#include <array>

#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;

namespace {

struct State {
    const char* word;
    text::Colour colour;
};

State state_of(const json& check) {
    const std::string name = text::words(check, "state");
    if (name == "pass") return {"pass", text::Colour::green};
    if (name == "note") return {"note", text::Colour::yellow};
    return {"FAIL", text::Colour::red};
}

/// With what to do about it below.
std::string check_line(const json& check, size_t name_width, const TextStyle& style) {
    constexpr size_t state_width = 6;
    const State state = state_of(check);
    std::string name = text::words(check, "name");
    const size_t width = display_width(name);
    name.append(width < name_width ? name_width - width : 0, ' ');
    std::string line = text::paint(state.word, state.colour, style) + "  " + name + "  " +
                       wrap_text(text::words(check, "detail"), style.width, state_width + name_width + 2) + "\n";
    const std::string fix = text::words_or_empty(check, "fix");
    if (!fix.empty()) line += std::string(state_width, ' ') + wrap_text("fix: " + fix, style.width, state_width) + "\n";
    return line;
}

}  // namespace

std::string text_check(const json& answer, const TextStyle& style) {
    const json& checks = text::list(answer, "checks");
    size_t name_width = 0;
    for (const json& check : checks)
        if (style.details || state_of(check).colour != text::Colour::green)
            name_width = std::max(name_width, std::min<size_t>(display_width(text::words(check, "name")), 24));
    std::string failures, notes, passes;
    size_t failed = 0, noted = 0;
    for (const json& check : checks) {
        const text::Colour colour = state_of(check).colour;
        failed += colour == text::Colour::red;
        noted += colour == text::Colour::yellow;
        std::string& lines = colour == text::Colour::red ? failures : colour == text::Colour::yellow ? notes : passes;
        if (&lines != &passes || style.details) lines += check_line(check, name_width, style);
    }
    const bool ready = text::flag(answer, "ready");
    return text::paint(ready ? "Ready" : "NOT READY", ready ? text::Colour::green : text::Colour::red, style) +
           ", node " + text::words(answer, "node") + ": " +
           format_count(checks.size() - failed - noted, "pass", "passes") + (style.details ? "" : " (--all)") + ", " +
           format_count(noted, "note", "notes") + ", " + format_count(failed, "failure", "failures") + "\n" + failures +
           notes + passes;
}

}  // namespace ingero
