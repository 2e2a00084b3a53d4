// How much of our memory callers may hold: a dump lives, and counts as ours, as long as whoever got it keeps the
// descriptor. So strangers have an allowance of bytes that fills up slowly.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "daemon/ingerod/limits/shares.h"

namespace ingero {

class DumpBudget {
  public:
    static constexpr size_t most_bytes = 4 << 20;           ///< a uid, at once
    static constexpr size_t all_bytes = 64 << 20;           ///< all strangers together, at once
    static constexpr std::chrono::minutes refill_time{60};  ///< from nothing to full
    static constexpr size_t least_bytes = 8 << 10;          ///< what the smallest file costs

    bool take(uint32_t uid, size_t bytes, uint64_t now_ns) {
        bytes = std::max(bytes, least_bytes);
        return all_.has(now_ns, bytes) && of_uid_.take(uid, now_ns, bytes) && all_.take(now_ns, bytes);
    }

  private:
    static constexpr uint64_t period_ns(size_t burst) {
        return static_cast<uint64_t>(std::chrono::nanoseconds(refill_time).count()) / burst;
    }

    RateShares of_uid_{most_bytes, period_ns(most_bytes)};
    TokenBucket all_{all_bytes, period_ns(all_bytes)};
};

}  // namespace ingero
