#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;

std::string text_problems(const json& answer, const TextStyle& style) {
    std::string result;
    for (const json& problem : text::list(answer, "problems")) {
        if (!result.empty()) result += "\n";
        result += text::paint(text::words(problem, "kind"), text::Colour::bold, style) + "  " +
                  text::words(problem, "title") + "\n";
        result += text::labelled("Proof", text::words(problem, "proof"), style);
        result += text::labelled("Needs", text::words(problem, "needs"), style);
        result += text::labelled("Not seen", text::words(problem, "limits"), style);
    }
    return result;
}

}  // namespace ingero
