// Figures with units, as people read them. Durations and times: time.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ingero {

/// "12,345,678".
std::string format_count(uint64_t count);
/// "1 process", "2 processes".
std::string format_count(uint64_t count, std::string_view one, std::string_view many);
/// "1.2 GiB": powers of 1024, three significant digits.
std::string format_bytes(uint64_t bytes);
/// "3 d 4 h", "2 h 5 min", "5 min 3 s": for spans that people wait.
std::string format_span(uint64_t ns);
/// "14:32:05" in the local zone, "2026-11-20 14:32:05" where that is not the day of `today_ns`. CLOCK_REALTIME ns.
std::string format_short_time(uint64_t realtime_ns, uint64_t today_ns);
/// "93 %", "0.5 %", "<0.1 %".
std::string format_percent(double fraction);

}  // namespace ingero
