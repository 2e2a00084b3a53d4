// Statistics by source, op and process over a window, from the column blocks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
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
    uint32_t pid = 0;                   ///< 0: several processes that rollups record together
    std::optional<std::string> kernel;  ///< with StatsBy::kernel; empty where it is not known
    uint64_t count = 0;
    uint64_t errors = 0;  ///< return code other than success; by weight, as all that is summed
    std::map<int32_t, uint64_t>
        error_codes;  ///< how often each; those that came after max_error_codes others are left out
    uint64_t p50_ns = 0, p95_ns = 0, p99_ns = 0, max_ns = 0;  ///< nearest rank
    bool approximate = false;  ///< the percentiles are within 0.8 %: from rollups, from calls that stand for several,
                               ///< or because there are too many; max_ns is exact always
    uint64_t total_ns = 0;
    uint64_t bytes = 0;
    uint64_t on_cpu_ns = 0;       ///< without device wait
    uint64_t device_wait_ns = 0;  ///< on CPU inside a call that waits for the device
    uint64_t runnable_ns = 0;
    uint64_t blocked_ns = 0;
    uint64_t lost = 0;  ///< records of this op lost in the window, all processes together
};

inline constexpr size_t max_error_codes = 16;

/// What is distinguished besides operation and process.
enum class StatsBy { op, kernel };

/// What is counted, and what is distinguished.
struct StatsOptions {
    StatsBy by = StatsBy::op;
    bool outermost = false;  ///< only calls that were not made inside another traced one: their times add up
};

struct StatsAnswer {
    Window window;
    StatsBy by = StatsBy::op;
    Coverage coverage;
    std::vector<OpStats> ops;  ///< by total_ns, largest first
};

/// By kernel only launches count. Where calls have gone, rollups answer, by operation only and where calls inside
/// others count too: a minute counts where its middle is in the window. They know neither error codes nor which part of
/// a launch was waiting. Errors: those of the store; limit (too many rows for an answer).
Result<StatsAnswer> compute_stats(const StoreSnapshot& snapshot, const Filter& filter,
                                  const StatsOptions& options = {});

}  // namespace ingero
