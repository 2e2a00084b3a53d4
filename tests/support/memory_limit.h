// A bound on what a test's own process may take more.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "tests/support/sanitized.h"

namespace ingero {

/// What the process may still take, for as long as this lives. Sanitizers, which take memory of their own, have none.
class MemoryLimit {
  public:
    explicit MemoryLimit(uint64_t more_bytes) {
        getrlimit(RLIMIT_DATA, &before_);
        if (test::sanitized) return;
        uint64_t data_kib = 0;
        std::ifstream status("/proc/self/status");
        for (std::string line; std::getline(status, line);)
            if (line.starts_with("VmData:")) data_kib = std::stoull(line.substr(7));
        const rlimit limit{.rlim_cur = data_kib * 1'024 + more_bytes, .rlim_max = before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    }
    ~MemoryLimit() { setrlimit(RLIMIT_DATA, &before_); }

  private:
    rlimit before_{};
};

}  // namespace ingero
