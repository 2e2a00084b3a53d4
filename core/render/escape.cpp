#include <algorithm>
#include <array>
#include <cstdio>

#include "core/render/render.h"
#include "core/wire/utf8.h"

namespace ingero {

namespace {

struct Range {
    uint32_t first;
    uint32_t last;
};

// Code points that show nothing and so can hide, reorder or forge text: Unicode's Default_Ignorable_Code_Point,
// Bidi_Control, line and paragraph separators, interlinear annotation, and what is no character at all.
constexpr auto invisible = std::to_array<Range>({
    {0x00ad, 0x00ad}, {0x034f, 0x034f},   {0x061c, 0x061c},   {0x115f, 0x1160},   {0x17b4, 0x17b5},
    {0x180b, 0x180f}, {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},   {0x3164, 0x3164},
    {0xe000, 0xf8ff}, {0xfdd0, 0xfdef},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
    {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff},
});

bool is_invisible(uint32_t point) {
    const auto after = std::upper_bound(invisible.begin(), invisible.end(), point,
                                        [](uint32_t value, const Range& range) { return value < range.first; });
    const bool in_table = after != invisible.begin() && point <= std::prev(after)->last;
    return in_table || (point & 0xfffe) == 0xfffe;
}

std::string hex(const char* format, uint32_t value) {
    std::array<char, 16> buffer;
    std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(value));
    return buffer.data();
}

std::string escape(const CodePoint& point, std::string_view bytes) {
    if (!point.valid) {
        std::string result;
        for (const char byte : bytes) result += hex("\\x%02x", static_cast<uint8_t>(byte));
        return result;
    }
    switch (point.value) {
        case '\n':
            return "\\n";
        case '\t':
            return "\\t";
        case '\r':
            return "\\r";
        case '\\':
            return "\\\\";
        default:
            break;
    }
    if (point.value < 0x20 || point.value == 0x7f) return hex("\\x%02x", point.value);
    if ((point.value >= 0x80 && point.value < 0xa0) || is_invisible(point.value)) return hex("\\u{%04x}", point.value);
    return std::string(bytes);
}

}  // namespace

std::string escape_text(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    while (!text.empty()) {
        const CodePoint point = first_code_point(text);
        result += escape(point, text.substr(0, point.length));
        text.remove_prefix(point.length);
    }
    return result;
}

}  // namespace ingero
