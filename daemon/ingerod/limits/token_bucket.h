// How often something may be done: so many times at once, and again at a steady rate.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ingero {

class TokenBucket {
  public:
    /// Full at first. `period_ns` is what one token takes to come back.
    TokenBucket(uint64_t burst, uint64_t period_ns) : burst_(burst), period_ns_(period_ns), tokens_(burst) {}

    /// False where so many are not left, and then none is taken. `now_ns` never goes back.
    bool take(uint64_t now_ns, uint64_t count = 1) {
        fill(now_ns);
        if (tokens_ < count) return false;
        tokens_ -= count;
        return true;
    }
    bool has(uint64_t now_ns, uint64_t count) {
        fill(now_ns);
        return tokens_ >= count;
    }
    /// Takes as many as are left.
    void charge(uint64_t now_ns, uint64_t count) {
        fill(now_ns);
        tokens_ -= std::min(tokens_, count);
    }
    bool is_full(uint64_t now_ns) const {
        return (now_ns - std::min(filled_ns_, now_ns)) / period_ns_ >= burst_ - tokens_;
    }
    /// When the next token comes, where there is none.
    uint64_t next_ns() const { return filled_ns_ + period_ns_; }

  private:
    void fill(uint64_t now_ns) {
        if (tokens_ == burst_) filled_ns_ = now_ns;
        const uint64_t come = (now_ns - std::min(filled_ns_, now_ns)) / period_ns_;
        if (come == 0) return;
        tokens_ = std::min(burst_, tokens_ + std::min(come, burst_));
        filled_ns_ += come * period_ns_;
    }

    uint64_t burst_;
    uint64_t period_ns_;
    uint64_t tokens_;
    uint64_t filled_ns_ = 0;
};

}  // namespace ingero
