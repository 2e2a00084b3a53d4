#include "core/wire/utf8.h"

namespace ingero {

namespace {

struct LeadByte {
    size_t length = 0;  ///< 0: no code point starts with this byte
    uint8_t second_low = 0x80;
    uint8_t second_high = 0xbf;
};

// Table 3-7 of the Unicode standard: narrowing the second byte is what keeps out overlong forms, surrogates and
// values over U+10FFFF.
LeadByte classify(uint8_t byte) {
    if (byte >= 0xc2 && byte <= 0xdf) return {2};
    if (byte == 0xe0) return {3, 0xa0, 0xbf};
    if (byte == 0xed) return {3, 0x80, 0x9f};
    if (byte >= 0xe1 && byte <= 0xef) return {3};
    if (byte == 0xf0) return {4, 0x90, 0xbf};
    if (byte >= 0xf1 && byte <= 0xf3) return {4};
    if (byte == 0xf4) return {4, 0x80, 0x8f};
    return {};
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    if (byte(0) < 0x80) return {byte(0), 1, true};
    const LeadByte lead = classify(byte(0));
    if (lead.length == 0) return {byte(0), 1, false};
    uint32_t value = byte(0) & (0x7f >> lead.length);
    for (size_t i = 1; i < lead.length; ++i) {
        const uint8_t low = i == 1 ? lead.second_low : 0x80;
        const uint8_t high = i == 1 ? lead.second_high : 0xbf;
        if (i >= text.size() || byte(i) < low || byte(i) > high) return {byte(0), i, false};
        value = value << 6 | (byte(i) & 0x3f);
    }
    return {value, lead.length, true};
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const CodePoint point = first_code_point(text);
        if (!point.valid) return false;
        text.remove_prefix(point.length);
    }
    return true;
}

std::string to_valid_utf8(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    while (!text.empty()) {
        const CodePoint point = first_code_point(text);
        if (point.valid) {
            result.append(text.substr(0, point.length));
        } else {
            result.append("\xef\xbf\xbd");
        }
        text.remove_prefix(point.length);
    }
    return result;
}

void append_utf8(std::string& text, uint32_t code_point) {
    const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (code_point < 0x80) {
        put(code_point);
    } else if (code_point < 0x800) {
        put(0xc0 | code_point >> 6);
        put(0x80 | (code_point & 0x3f));
    } else if (code_point < 0x10000) {
        put(0xe0 | code_point >> 12);
        put(0x80 | (code_point >> 6 & 0x3f));
        put(0x80 | (code_point & 0x3f));
    } else {
        put(0xf0 | code_point >> 18);
        put(0x80 | (code_point >> 12 & 0x3f));
        put(0x80 | (code_point >> 6 & 0x3f));
        put(0x80 | (code_point & 0x3f));
    }
}

}  // namespace ingero
