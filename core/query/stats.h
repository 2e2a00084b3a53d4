// Statistics by source, op and process over a window, from the column blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/model/event.h"
#include "core/query/coverage.h"

namespace ingero {

/// Whose events an answer may speak of, and the window (CLOCK_REALTIME).
struct Filter {
    Window window;
    std::optional<uint32_t> uid;  ///< only this user's processes; nullopt: all
    std::optional<uint32_t> pid;
};

struct OpStats {
    OpId op = 0;
    uint32_t pid = 0;
    uint64_t count = 0;
    uint64_t errors = 0;                                      ///< return code other than success
    uint64_t p50_ns = 0, p95_ns = 0, p99_ns = 0, max_ns = 0;  ///< nearest rank, exact
    uint64_t total_ns = 0;
    uint64_t bytes = 0;
    uint64_t on_cpu_ns = 0;       ///< without device wait
    uint64_t device_wait_ns = 0;  ///< on CPU inside a call that waits for the device
    uint64_t runnable_ns = 0;
    uint64_t blocked_ns = 0;
    uint64_t lost = 0;  ///< records of this op lost in the window, all processes together
};

struct StatsAnswer {
    Window window;
    Coverage coverage;
    std::vector<OpStats> ops;  ///< by total_ns, largest first
};

Result<StatsAnswer> compute_stats(const StoreSnapshot& snapshot, const Filter& filter);

}  // namespace ingero
