#include "core/model/time.h"

#include <time.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <limits>
#include <span>

namespace ingero {

namespace {

constexpr uint64_t ns_per_s = 1'000'000'000;
constexpr int64_t s_per_day = 86'400;

uint64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);  // cannot fail for the clocks of this file
    return static_cast<uint64_t>(now.tv_sec) * ns_per_s + static_cast<uint64_t>(now.tv_nsec);
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

struct Unit {
    std::string_view name;
    uint64_t factor;
};

constexpr std::array duration_units = std::to_array<Unit>({
    {"ns", 1},
    {"us", 1'000},
    {"µs", 1'000},
    {"ms", 1'000'000},
    {"s", ns_per_s},
    {"m", 60 * ns_per_s},
    {"min", 60 * ns_per_s},
    {"h", 3'600 * ns_per_s},
    {"d", 86'400 * ns_per_s},
});

constexpr std::array size_units = std::to_array<Unit>({
    {"B", 1},
    {"KiB", 1ULL << 10},
    {"MiB", 1ULL << 20},
    {"GiB", 1ULL << 30},
    {"TiB", 1ULL << 40},
});

/// "12.5" times the factor, rounded down, in integers throughout: a double would lose the last digits of large values.
std::optional<uint64_t> scale(std::string_view number, uint64_t factor) {
    uint64_t whole = 0;
    const char* end = number.data() + number.size();
    auto [at, error] = std::from_chars(number.data(), end, whole);
    if (error != std::errc{} || at == number.data()) return std::nullopt;
    uint64_t total = 0;
    if (__builtin_mul_overflow(whole, factor, &total)) return std::nullopt;
    if (at == end) return total;
    if (*at != '.' || at + 1 == end) return std::nullopt;
    uint64_t rest = 0;
    uint64_t place = 1;
    for (++at; at != end; ++at) {
        if (!is_digit(*at)) return std::nullopt;
        if (place >= 1'000'000) continue;  // finer than any unit needs, and factor × 10⁶ still fits
        place *= 10;
        rest = rest * 10 + static_cast<uint64_t>(*at - '0');
    }
    const uint64_t fraction = factor / place * rest + factor % place * rest / place;
    if (__builtin_add_overflow(total, fraction, &total)) return std::nullopt;
    return total;
}

Result<uint64_t> parse_with_units(std::string_view text, std::span<const Unit> units, const char* what,
                                  const char* hint) {
    const size_t split = text.find_first_not_of("0123456789.");
    if (split == std::string_view::npos || split == 0)
        return fail(ErrorCode::bad_request, std::string("not a ") + what + ": '" + std::string(text) + "'", hint);
    for (const Unit& unit : units) {
        if (text.substr(split) != unit.name) continue;
        if (const auto value = scale(text.substr(0, split), unit.factor)) return *value;
        break;
    }
    return fail(ErrorCode::bad_request, std::string("not a ") + what + ": '" + std::string(text) + "'", hint);
}

/// Walks over a text; every step says whether it fitted.
class Scanner {
  public:
    explicit Scanner(std::string_view text) : rest_(text) {}
    bool done() const { return rest_.empty(); }

    bool take(char c) {
        if (rest_.empty() || rest_.front() != c) return false;
        rest_.remove_prefix(1);
        return true;
    }

    /// Exactly `digits` digits.
    bool number(size_t digits, int& ret_value) {
        if (rest_.size() < digits) return false;
        int value = 0;
        for (size_t i = 0; i < digits; ++i) {
            if (!is_digit(rest_[i])) return false;
            value = value * 10 + (rest_[i] - '0');
        }
        rest_.remove_prefix(digits);
        ret_value = value;
        return true;
    }

    /// What follows a decimal point, in ns.
    bool fraction(uint64_t& ret_ns) {
        uint64_t place = ns_per_s / 10;
        uint64_t value = 0;
        size_t digits = 0;
        for (; digits < rest_.size() && is_digit(rest_[digits]); ++digits, place /= 10)
            value += static_cast<uint64_t>(rest_[digits] - '0') * place;
        rest_.remove_prefix(digits);
        ret_ns = value;
        return digits > 0;
    }

    std::string_view rest() const { return rest_; }

  private:
    std::string_view rest_;
};

struct TimeText {
    std::optional<std::chrono::year_month_day> date;
    int hour = 0;
    int minute = 0;
    int second = 0;
    uint64_t fraction_ns = 0;
    std::optional<int64_t> offset_s;  ///< east of UTC; absent: the local zone
};

bool scan_date(Scanner& scan, TimeText& time) {
    int year = 0;
    int month = 0;
    int day = 0;
    if (!scan.number(4, year) || !scan.take('-') || !scan.number(2, month) || !scan.take('-') || !scan.number(2, day))
        return false;
    const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                           std::chrono::day(static_cast<unsigned>(day))};
    // uint64 nanoseconds since 1970 end in 2554.
    if (!date.ok() || year < 1970 || year > 2500) return false;
    time.date = date;
    return true;
}

bool scan_zone(Scanner& scan, TimeText& time) {
    if (scan.done()) return true;
    if (scan.take('Z') || scan.take('z')) {
        time.offset_s = 0;
        return true;
    }
    const bool east = scan.take('+');
    int hours = 0;
    int minutes = 0;
    if (!east && !scan.take('-')) return false;
    if (!scan.number(2, hours) || !scan.take(':') || !scan.number(2, minutes) || hours > 23 || minutes > 59)
        return false;
    time.offset_s = (hours * 3600 + minutes * 60) * (east ? 1 : -1);
    return true;
}

std::chrono::year_month_day date_in_zone(time_t now, std::optional<int64_t> offset_s) {
    if (offset_s)
        return std::chrono::floor<std::chrono::days>(std::chrono::sys_seconds(std::chrono::seconds(now + *offset_s)));
    tm local{};
    localtime_r(&now, &local);
    return {std::chrono::year(local.tm_year + 1900), std::chrono::month(static_cast<unsigned>(local.tm_mon + 1)),
            std::chrono::day(static_cast<unsigned>(local.tm_mday))};
}

constexpr std::string_view now_word = "now";

/// Where a day began, as systemd.time(7) names it.
std::optional<TimeText> scan_day(std::string_view text, time_t now) {
    if (text != "today" && text != "yesterday") return std::nullopt;
    TimeText time;
    time.date = std::chrono::sys_days(date_in_zone(now, std::nullopt)) - std::chrono::days(text == "today" ? 0 : 1);
    return time;
}

std::optional<TimeText> scan_time(std::string_view text, time_t now) {
    if (const auto day = scan_day(text, now)) return day;
    Scanner scan(text);
    TimeText time;
    if (text.size() > 4 && text[4] == '-') {
        if (!scan_date(scan, time)) return std::nullopt;
        if (scan.done()) return time;
        if (!scan.take('T') && !scan.take('t') && !scan.take(' ')) return std::nullopt;
    }
    if (!scan.number(2, time.hour) || !scan.take(':') || !scan.number(2, time.minute)) return std::nullopt;
    if (scan.take(':')) {
        if (!scan.number(2, time.second)) return std::nullopt;
        if (scan.take('.') && !scan.fraction(time.fraction_ns)) return std::nullopt;
    }
    if (time.hour > 23 || time.minute > 59 || time.second > 60) return std::nullopt;  // 60: a leap second
    if (!scan_zone(scan, time) || !scan.done()) return std::nullopt;
    return time;
}

/// Seconds since the epoch; the local zone decides where the text gave none, daylight saving included.
int64_t to_epoch(const TimeText& time, std::chrono::year_month_day date) {
    if (time.offset_s) {
        const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
        return days * s_per_day + time.hour * 3600 + time.minute * 60 + time.second - *time.offset_s;
    }
    tm local{};
    local.tm_year = static_cast<int>(date.year()) - 1900;
    local.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
    local.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
    local.tm_hour = time.hour;
    local.tm_min = time.minute;
    local.tm_sec = time.second;
    local.tm_isdst = -1;
    return mktime(&local);
}

std::string format_scaled(uint64_t scaled, int decimals, std::string_view unit) {
    std::string digits = std::to_string(scaled);
    if (decimals > 0) {
        const size_t wanted = static_cast<size_t>(decimals) + 1;
        if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
        digits.insert(digits.size() - static_cast<size_t>(decimals), 1, '.');
        while (digits.back() == '0') digits.pop_back();
        if (digits.back() == '.') digits.pop_back();
    }
    return digits + " " + std::string(unit);
}

/// In the largest unit of which it is a whole number.
std::string write_with_units(uint64_t value, std::span<const Unit> units) {
    const Unit* largest = &units.front();
    for (const Unit& unit : units)
        if (value % unit.factor == 0 && unit.factor > largest->factor) largest = &unit;
    return std::to_string(value / largest->factor) + std::string(value == 0 ? units.front().name : largest->name);
}

}  // namespace

ClockTriple ClockTriple::now() {
    // A preemption between the reads would shift one clock against the others: of a few tries the tightest counts.
    ClockTriple best;
    uint64_t best_spread = std::numeric_limits<uint64_t>::max();
    for (int attempt = 0; attempt < 4; ++attempt) {
        const uint64_t before = read_clock(CLOCK_MONOTONIC);
        const uint64_t boottime = read_clock(CLOCK_BOOTTIME);
        const uint64_t realtime = read_clock(CLOCK_REALTIME);
        const uint64_t spread = read_clock(CLOCK_MONOTONIC) - before;
        if (spread >= best_spread) continue;
        best_spread = spread;
        best = {before + spread / 2, boottime, realtime};
    }
    return best;
}

uint64_t monotonic_now_ns() {
    return read_clock(CLOCK_MONOTONIC);
}

Result<uint64_t> parse_duration_ns(std::string_view text) {
    return parse_with_units(text, duration_units, "duration",
                            "write a number and a unit, such as 200us, 90s, 5m, 2h or 1d");
}

Result<uint64_t> parse_size_bytes(std::string_view text) {
    return parse_with_units(text, size_units, "size", "write a number and a unit: B, KiB, MiB, GiB or TiB");
}

std::string exact_duration(uint64_t ns) {
    return write_with_units(ns, duration_units);
}

std::string exact_size(uint64_t bytes) {
    return write_with_units(bytes, size_units);
}

Result<uint64_t> parse_time_ns(std::string_view text, uint64_t now_realtime_ns) {
    const auto refuse = [&] {
        return fail(ErrorCode::bad_request, "not a time: '" + std::string(text) + "'",
                    "write 14:32:05, '2026-11-20 14:32', 2026-11-20T14:32:05Z, 2026-11-20, today, yesterday or now");
    };
    if (text == now_word) return now_realtime_ns;
    const auto now_s = static_cast<time_t>(now_realtime_ns / ns_per_s);
    const auto time = scan_time(text, now_s);
    if (!time) return refuse();
    const auto date = time->date ? *time->date : date_in_zone(now_s, time->offset_s);
    int64_t epoch = to_epoch(*time, date);
    if (epoch < 0) return refuse();
    uint64_t result = static_cast<uint64_t>(epoch) * ns_per_s + time->fraction_ns;
    if (!time->date && result > now_realtime_ns) {
        // By date, not by 24 hours: the day between may have 23 or 25.
        epoch = to_epoch(*time, std::chrono::sys_days(date) - std::chrono::days(1));
        if (epoch < 0) return refuse();
        result = static_cast<uint64_t>(epoch) * ns_per_s + time->fraction_ns;
    }
    return result;
}

Result<uint64_t> parse_end_time_ns(std::string_view text, uint64_t from_ns, uint64_t now_realtime_ns) {
    constexpr uint64_t half_a_day_ns = 43'200 * ns_per_s;
    auto latest = parse_time_ns(text, now_realtime_ns);
    if (!latest || text == now_word || scan_time(text, static_cast<time_t>(now_realtime_ns / ns_per_s))->date)
        return latest;
    const auto next = parse_time_ns(text, from_ns + 2 * half_a_day_ns - 1);
    if (!next || *next <= from_ns) return latest;
    if (*next <= now_realtime_ns) return next;
    // Still to come: soon after the start it is meant; else the two were taken for each other.
    return *next - from_ns <= half_a_day_ns ? Result<uint64_t>(std::max(from_ns, now_realtime_ns)) : latest;
}

std::string format_duration(uint64_t ns) {
    static constexpr std::array units = std::to_array<Unit>({{"ns", 1},
                                                             {"µs", 1'000},
                                                             {"ms", 1'000'000},
                                                             {"s", ns_per_s},
                                                             {"min", 60 * ns_per_s},
                                                             {"h", 3'600 * ns_per_s},
                                                             {"d", 86'400 * ns_per_s}});
    size_t chosen = 0;
    while (chosen + 1 < units.size() && ns >= units[chosen + 1].factor) ++chosen;
    const uint64_t factor = units[chosen].factor;
    const uint64_t whole = ns / factor;
    const int decimals = chosen == 0 || whole >= 100 ? 0 : whole >= 10 ? 1 : 2;
    const uint64_t power = decimals == 0 ? 1 : decimals == 1 ? 10 : 100;
    const uint64_t scaled = whole * power + (ns % factor * power + factor / 2) / factor;
    // 999.7 µs rounds to 1000 µs, which is 1 ms.
    if (chosen + 1 < units.size() && scaled >= units[chosen + 1].factor / factor * power)
        return format_scaled(1, 0, units[chosen + 1].name);
    return format_scaled(scaled, decimals, units[chosen].name);
}

std::string format_time(uint64_t realtime_ns) {
    const auto seconds = static_cast<time_t>(realtime_ns / ns_per_s);
    tm local{};
    localtime_r(&seconds, &local);
    const long offset = local.tm_gmtoff;
    const long distance = offset < 0 ? -offset : offset;
    std::array<char, 96> text{};
    std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%03u%c%02ld:%02ld", local.tm_year + 1900,
                  local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                  static_cast<unsigned>(realtime_ns % ns_per_s / 1'000'000), offset < 0 ? '-' : '+', distance / 3600,
                  distance / 60 % 60);
    return text.data();
}

}  // namespace ingero
