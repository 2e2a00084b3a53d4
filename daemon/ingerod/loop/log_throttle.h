// Lines that targets can bring about are few in the log, whatever the targets do. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/model/time.h"

namespace ingero {

class LogThrottle {
  public:
    static constexpr uint64_t period_ns = 5'000'000'000;

    /// What to put behind the line: of how many like it nothing was said before; nullopt: say nothing.
    std::optional<std::string> take(uint64_t now_ns = monotonic_now_ns()) {
        if (logged_ns_ != 0 && now_ns - logged_ns_ < period_ns) {
            ++unlogged_;
            return std::nullopt;
        }
        logged_ns_ = now_ns;
        const uint64_t unlogged = unlogged_;
        unlogged_ = 0;
        return unlogged == 0 ? std::string() : " (and " + std::to_string(unlogged) + " more like this before)";
    }

  private:
    uint64_t logged_ns_ = 0;
    uint64_t unlogged_ = 0;
};

}  // namespace ingero
