// A row's time split made safe to calculate with. Rows come from files that anyone may have written: parts may exceed
// the whole and sums may wrap, and no answer may depend on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/model/event.h"

namespace ingero {

constexpr uint64_t saturating_add(uint64_t a, uint64_t b) {
    return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max() : a + b;
}
constexpr uint64_t saturating_multiply(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}
constexpr uint64_t saturating_subtract(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

/// The largest where it does not fit, 0 where it is negative.
inline uint64_t saturating_ns(float value) {
    // 2^64 is the first float that does not fit.
    if (value >= 18446744073709551616.0f) return std::numeric_limits<uint64_t>::max();
    return value > 0 ? static_cast<uint64_t>(value) : 0;
}

/// on_cpu_ns + runnable_ns + blocked_ns == duration_ns, and preemptor_ns <= runnable_ns, always.
struct CallTime {
    uint64_t duration_ns = 0;
    uint64_t on_cpu_ns = 0;
    uint64_t runnable_ns = 0;
    uint64_t blocked_ns = 0;
    uint64_t preemptor_ns = 0;
};

/// All but preemptor_ns.
constexpr CallTime split_time(uint64_t duration_ns, uint64_t runnable_ns, uint64_t blocked_ns) {
    CallTime time;
    time.duration_ns = duration_ns;
    time.runnable_ns = std::min(runnable_ns, duration_ns);
    time.blocked_ns = std::min(blocked_ns, duration_ns - time.runnable_ns);
    time.on_cpu_ns = duration_ns - time.runnable_ns - time.blocked_ns;
    return time;
}

inline CallTime call_time(const Event& event) {
    CallTime time = split_time(event.duration_ns, event.runnable_ns, event.blocked_ns);
    time.preemptor_ns = std::min(event.preemptor_ns, time.runnable_ns);
    return time;
}

inline uint64_t saturating_end_ns(const Event& event) {
    return saturating_add(event.start_ns, event.duration_ns);
}

}  // namespace ingero
