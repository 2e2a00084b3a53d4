// How much of our memory callers may hold: a dump lives, and counts as ours, as long as whoever got it keeps the
// descriptor. So strangers have an allowance of bytes that fills up slowly.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace ingero {

class DumpBudget {
  public:
    using Clock = std::chrono::steady_clock;

    static constexpr size_t most_bytes = 4 << 20;           ///< a uid, at once
    static constexpr size_t all_bytes = 64 << 20;           ///< all strangers together, at once
    static constexpr std::chrono::minutes refill_time{60};  ///< from nothing to full
    static constexpr size_t least_bytes = 8 << 10;          ///< what the smallest file costs
    static constexpr size_t max_uids = 1'024;

    bool take(uint32_t uid, size_t bytes, Clock::time_point now) {
        bytes = std::max(bytes, least_bytes);
        for (auto one = of_uid_.begin(); one != of_uid_.end();)
            one = one->first != uid && one->second.full(most_bytes, now) ? of_uid_.erase(one) : std::next(one);
        if (!of_uid_.contains(uid) && of_uid_.size() >= max_uids) return false;
        return of_uid_[uid].has(bytes, most_bytes, now) && all_.has(bytes, all_bytes, now) &&
               of_uid_[uid].take(bytes) && all_.take(bytes);
    }

  private:
    struct Bucket {
        size_t used = 0;
        Clock::time_point since{};

        /// Of what was used, takes back what has filled up since; whether that was all.
        bool full(size_t most, Clock::time_point now) {
            const auto passed = std::chrono::duration<double>(now - since) / std::chrono::duration<double>(refill_time);
            const auto back = static_cast<size_t>(static_cast<double>(most) * std::min(passed, 1.0));
            if (back == 0) return used == 0;
            used -= std::min(used, back);
            since = now;
            return used == 0;
        }
        bool has(size_t bytes, size_t most, Clock::time_point now) {
            full(most, now);
            if (used == 0) since = now;
            return used + bytes <= most;
        }
        bool take(size_t bytes) {
            used += bytes;
            return true;
        }
    };

    std::map<uint32_t, Bucket> of_uid_;
    Bucket all_;
};

}  // namespace ingero
