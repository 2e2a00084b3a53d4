#include "core/export/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

namespace ingero {

namespace {

template <class T>
void append(std::string& out, T value) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    out.append(digits.data(), end);
}

}  // namespace

void append_number(std::string& out, uint64_t value) {
    append(out, value);
}

void append_number(std::string& out, int64_t value) {
    append(out, value);
}

void append_json_text(std::string& out, std::string_view text) {
    const bool plain =
        std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
    if (plain) {
        out.append("\"").append(text).append("\"");
        return;
    }
    out += nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace ingero
