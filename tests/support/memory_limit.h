// A bound on what a test's own process may take more.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace ingero {

/// What the process may still take, for as long as this lives. Sanitizers, which take memory of their own, have none.
class MemoryLimit {
  public:
    explicit MemoryLimit(uint64_t more_bytes) {
        getrlimit(RLIMIT_DATA, &before_);
        if (is_sanitized) return;
        uint64_t data_kib = 0;
        std::ifstream status("/proc/self/status");
        for (std::string line; std::getline(status, line);)
            if (line.starts_with("VmData:")) data_kib = std::stoull(line.substr(7));
        const rlimit limit{.rlim_cur = data_kib * 1'024 + more_bytes, .rlim_max = before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    }
    ~MemoryLimit() { setrlimit(RLIMIT_DATA, &before_); }

  private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static constexpr bool is_sanitized = true;
#elif defined(__has_feature)
    static constexpr bool is_sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
    static constexpr bool is_sanitized = false;
#endif
    rlimit before_{};
};

}  // namespace ingero
