// Clocks and the pause of a spinning loop.
#pragma once

#include <time.h>

#include <cstdint>

namespace ingero::standin {

inline uint64_t read_clock(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return uint64_t(time.tv_sec) * 1'000'000'000 + uint64_t(time.tv_nsec);
}

inline uint64_t now_ns() {
    return read_clock(CLOCK_MONOTONIC);
}
inline uint64_t thread_cpu_ns() {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

inline timespec to_timespec(uint64_t ns) {
    return {time_t(ns / 1'000'000'000), long(ns % 1'000'000'000)};
}

inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

inline void spin_until(uint64_t target_ns) {
    while (now_ns() < target_ns) cpu_relax();
}

}  // namespace ingero::standin
