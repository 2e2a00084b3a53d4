// From what a tool found to what a client gets: the members that the tool's schema names and no others, text made inert
// and bounded, rows cut to a page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/mcp/tool.h"

namespace ingero::mcp {

/// A page's structured content, whatever a limit says. What is left out is behind the cursor.
inline constexpr size_t max_content_bytes = 48 << 10;

/// Text of a traced program: no control, bidirectional or invisible characters, and at most `max_bytes` long, cut at a
/// character with "…" after it.
std::string inert_text(std::string_view text, size_t max_bytes);

/// The structured content of the call's answer. In compact mode a table is {"columns", "rows"}, columns without any
/// value are left out, "-" stands for a value that is absent, and other members that are null are left out.
nlohmann::json shape(const Call& call, const nlohmann::json& found);

/// The JSON schema that shape() keeps to, in both modes.
nlohmann::json output_schema(const Tool& tool);
nlohmann::json input_schema(const Tool& tool);

}  // namespace ingero::mcp
