// Clocks. Inside, everything is CLOCK_MONOTONIC of one boot; wall time is computed on read from stored triples, so that
// a stepped wall clock never reorders events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/model/result.h"

namespace ingero {

/// The three clocks read as close together as possible.
struct ClockTriple {
    uint64_t monotonic_ns = 0;
    uint64_t boottime_ns = 0;
    uint64_t realtime_ns = 0;

    static ClockTriple now();
    uint64_t to_realtime(uint64_t monotonic) const { return monotonic - monotonic_ns + realtime_ns; }
    uint64_t to_monotonic(uint64_t realtime) const {
        const int64_t delta = static_cast<int64_t>(realtime - realtime_ns);
        int64_t result = 0;
        // Clocks come from files and cursors too, which may have them further apart than fits.
        if (__builtin_add_overflow(static_cast<int64_t>(monotonic_ns), delta, &result))
            return delta < 0 ? uint64_t{0} : uint64_t{INT64_MAX};
        return result < 0 ? 0 : static_cast<uint64_t>(result);
    }
};

uint64_t monotonic_now_ns();

/// A half-open interval [from_ns, to_ns); which clock is said where it is used.
struct Window {
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;
    bool contains(uint64_t time_ns) const { return time_ns >= from_ns && time_ns < to_ns; }
    uint64_t length_ns() const { return to_ns > from_ns ? to_ns - from_ns : 0; }
};

/// What is answered about where nobody says: so long, up to now.
inline constexpr uint64_t default_window_ns = 300'000'000'000;

/// "90s", "200us", "5m", "2h", "1d", "1.5s"; a bare number is refused. Errors: bad_request.
Result<uint64_t> parse_duration_ns(std::string_view text);
/// "10GiB", "512MiB", "4096B"; powers of 1024 only. Errors: bad_request.
Result<uint64_t> parse_size_bytes(std::string_view text);
/// "14:32:05", "2026-11-20 14:32", RFC 3339 (local zone unless one is given), "2026-11-20", "today", "yesterday" (its
/// start), "now". A time of day is yesterday's where today's is still to come. CLOCK_REALTIME ns. Errors: bad_request.
Result<uint64_t> parse_time_ns(std::string_view text, uint64_t now_realtime_ns);
/// The same of a window's end: a time of day is the first after `from_ns`; now, where that comes soon. Same errors.
Result<uint64_t> parse_end_time_ns(std::string_view text, uint64_t from_ns, uint64_t now_realtime_ns);
/// What those read as just so much: "200us", "10GiB".
std::string exact_duration(uint64_t ns);
std::string exact_size(uint64_t bytes);
/// "3.2 ms", "45 µs", "1.5 s": three significant digits.
std::string format_duration(uint64_t ns);
/// RFC 3339 in the local zone with milliseconds.
std::string format_time(uint64_t realtime_ns);

}  // namespace ingero
