// What the plain-text renderers share: reading JSON that may lack anything, colours, and the parts every answer has.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/render/render.h"

namespace ingero::text {

inline constexpr const char* absent = "-";

/// A member of an object; null where there is none.
const nlohmann::json& member(const nlohmann::json& object, const char* key);
/// A member that is an array; empty where there is none.
const nlohmann::json& list(const nlohmann::json& object, const char* key);
std::optional<uint64_t> number(const nlohmann::json& object, const char* key);
std::optional<double> fraction(const nlohmann::json& object, const char* key);
bool flag(const nlohmann::json& object, const char* key);
/// Escaped; "-" where there is none.
std::string words(const nlohmann::json& object, const char* key);
/// Escaped; empty where there is none.
std::string words_or_empty(const nlohmann::json& object, const char* key);

std::string count(const nlohmann::json& object, const char* key);
std::string duration(const nlohmann::json& object, const char* key);
std::string bytes(const nlohmann::json& object, const char* key);
std::string time(const nlohmann::json& object, const char* key, const TextStyle& style = {});
/// The same to the millisecond.
std::string moment(const nlohmann::json& object, const char* key, const TextStyle& style);
/// "python (4242)", "python", "pid 4242" or "-".
std::string process(const nlohmann::json& object, const char* name_key, const char* pid_key);

enum class Colour { none, bold, dim, red, yellow, green, cyan };
std::string paint(std::string text, Colour colour, const TextStyle& style);
/// Of "high", "medium" or "low".
Colour severity_colour(std::string_view severity);
/// Of ASCII letters.
std::string upper(std::string text);
/// The texts of a list, escaped.
std::string joined(const nlohmann::json& list, const char* separator);

/// How much of the window gaps take, together: all of them, or those in which nothing was recorded.
uint64_t gaps_ns(const nlohmann::json& answer, const Window& window, bool all);
/// "gpu-1, 14:32:00 to 14:37:00 (5 min): nothing recorded for 1 min, 3 events lost (--coverage)".
std::string window_line(const nlohmann::json& answer, const TextStyle& style);
/// The latter part alone, as a line; empty where all was recorded.
std::string recorded_line(const nlohmann::json& answer, const TextStyle& style);
/// What the answer cannot speak of besides: each gap where the style wants that, and probes that are missing.
std::string coverage_lines(const nlohmann::json& answer, const TextStyle& style);

/// "  Fix         pin the engine to …", wrapped under itself.
std::string labelled(std::string_view label, std::string_view value, const TextStyle& style);
/// A split of time as a bar of 24 cells and shares: where it went, at a glance. Empty where there was none.
std::string split_line(const nlohmann::json& split);
/// The largest part of it, "device 97 %".
std::string main_part(const nlohmann::json& split);

}  // namespace ingero::text
