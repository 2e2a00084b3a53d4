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

}  // namespace

std::string text_check(const json& answer, const TextStyle& style) {
    const json& checks = text::list(answer, "checks");
    constexpr size_t state_width = 6;
    size_t name_width = 0;
    for (const json& check : checks)
        name_width = std::max(name_width, std::min<size_t>(display_width(text::words(check, "name")), 24));
    const size_t indent = state_width + name_width + 2;
    std::string result;
    size_t failed = 0, notes = 0;
    for (const json& check : checks) {
        const State state = state_of(check);
        failed += state.colour == text::Colour::red;
        notes += state.colour == text::Colour::yellow;
        std::string name = text::words(check, "name");
        const size_t width = display_width(name);
        name.append(width < name_width ? name_width - width : 0, ' ');
        result += text::paint(state.word, state.colour, style) + "  " + name + "  " +
                  wrap_text(text::words(check, "detail"), style.width, indent) + "\n";
        const std::string fix = text::words_or_empty(check, "fix");
        if (!fix.empty())
            result += std::string(state_width, ' ') + wrap_text("fix: " + fix, style.width, state_width) + "\n";
    }
    const bool ready = text::flag(answer, "ready");
    result += text::paint(ready ? "Ready" : "NOT READY", ready ? text::Colour::green : text::Colour::red, style) +
              ", node " + text::words(answer, "node") + ": " +
              format_count(checks.size() - failed - notes, "pass", "passes") + ", " +
              format_count(notes, "note", "notes") + ", " + format_count(failed, "failure", "failures") + "\n";
    return result;
}

}  // namespace ingero
