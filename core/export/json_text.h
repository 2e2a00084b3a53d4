// JSON written piece by piece, ASCII only: a target's text plays no tricks on who prints the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ingero {

void append_number(std::string& out, uint64_t value);
void append_number(std::string& out, int64_t value);
/// In quotes. Invalid UTF-8 becomes U+FFFD.
void append_json_text(std::string& out, std::string_view text);

}  // namespace ingero
