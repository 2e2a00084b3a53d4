// What there is to say of a file that was written.
#include "core/model/text/format.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

std::string text_export(const json& answer, const TextStyle& style) {
    return window_line(answer, style) + format_count(number(answer, "events").value_or(0), "event", "events") + ", " +
           bytes(answer, "bytes") + "\n" + coverage_lines(answer, style);
}

}  // namespace ingero
