// Which characters a text consists of, without regard to any locale, and its parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace ingero {

inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
inline bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
inline bool is_hex(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}
inline bool is_number(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}
inline bool consists_of(std::string_view text, std::string_view others) {
    return std::all_of(text.begin(), text.end(),
                       [&](char c) { return is_letter(c) || is_digit(c) || others.find(c) != std::string_view::npos; });
}

/// The parts of `text` between separators, until `visit` returns false.
template <class F>
void for_each_part(std::string_view text, char separator, F&& visit) {
    while (!text.empty()) {
        const size_t end = std::min(text.find(separator), text.size());
        if (!visit(text.substr(0, end))) return;
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

}  // namespace ingero
