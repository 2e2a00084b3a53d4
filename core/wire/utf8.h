// UTF-8 as it comes from programs we do not trust: decoded a code point at a time, never assumed to be valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingero {

/// One step through a text.
struct CodePoint {
    uint32_t value = 0;  ///< the code point, or the first byte where `valid` is false
    size_t length = 0;   ///< bytes it takes; an invalid sequence takes its longest valid prefix, at least 1
    bool valid = false;
};

/// The code point that starts at `text[0]`. `text` must not be empty. Overlong forms, surrogates and values over
/// U+10FFFF are invalid.
CodePoint first_code_point(std::string_view text);

bool is_utf8(std::string_view text);

/// The text with every invalid sequence replaced by U+FFFD, as the Unicode standard recommends (one for each maximal
/// subpart). Valid text comes back unchanged.
std::string to_valid_utf8(std::string_view text);

/// Appends a code point, which must be valid.
void append_utf8(std::string& text, uint32_t code_point);

}  // namespace ingero
