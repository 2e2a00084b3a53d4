#include "core/model/text/format.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace ingero {

namespace {

std::string print(const char* format, double value) {
    std::array<char, 64> buffer;
    std::snprintf(buffer.data(), buffer.size(), format, value);
    return buffer.data();
}

}  // namespace

std::string format_count(uint64_t count) {
    std::string digits = std::to_string(count);
    for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
    return digits;
}

std::string format_count(uint64_t count, std::string_view one, std::string_view many) {
    return format_count(count).append(" ").append(count == 1 ? one : many);
}

std::string format_bytes(uint64_t bytes) {
    constexpr std::array<const char*, 7> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto value = static_cast<double>(bytes);
    size_t unit = 0;
    // 1023.5 would print as 1024: the next unit says it better.
    while (value >= 1023.5 && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    const char* format = unit == 0 || value >= 99.95 ? "%.0f " : value >= 9.995 ? "%.1f " : "%.2f ";
    return print(format, value) + units[unit];
}

std::string format_span(uint64_t ns) {
    struct Unit {
        uint64_t seconds;
        const char* name;
    };
    constexpr std::array<Unit, 4> units = {{{86'400, " d"}, {3'600, " h"}, {60, " min"}, {1, " s"}}};
    const uint64_t seconds = ns / 1'000'000'000;
    for (size_t i = 0; i < units.size(); ++i) {
        if (seconds < units[i].seconds) continue;
        std::string result = std::to_string(seconds / units[i].seconds) + units[i].name;
        const uint64_t rest = seconds % units[i].seconds;
        if (i + 1 < units.size() && rest >= units[i + 1].seconds)
            result += " " + std::to_string(rest / units[i + 1].seconds) + units[i + 1].name;
        return result;
    }
    return "0 s";
}

std::string format_short_time(uint64_t realtime_ns, uint64_t today_ns) {
    const auto local_time = [](uint64_t ns) {
        const auto seconds = static_cast<time_t>(ns / 1'000'000'000);
        tm local{};
        localtime_r(&seconds, &local);
        return local;
    };
    const tm time = local_time(realtime_ns), today = local_time(today_ns);
    const bool is_today = time.tm_year == today.tm_year && time.tm_yday == today.tm_yday;
    std::array<char, 64> text{};
    std::strftime(text.data(), text.size(), is_today ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &time);
    return text.data();
}

std::string format_percent(double fraction) {
    const double percent = fraction * 100;
    if (!std::isfinite(percent)) return "-";
    if (percent > 0 && percent < 0.1) return "<0.1 %";
    return print(percent == 0 || percent >= 9.95 ? "%.0f %%" : "%.1f %%", percent);
}

}  // namespace ingero
