// A set of numbers that mostly follow one another.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace ingero {

class SequenceRuns {
  public:
    /// Adds first to last, both included; false where one of them was there already, and then none is added.
    bool add(uint64_t first, uint64_t last) {
        auto next = runs_.upper_bound(first);
        if (next != runs_.end() && next->first <= last) return false;
        const bool after_one = next != runs_.begin();
        const auto previous = after_one ? std::prev(next) : runs_.end();
        if (after_one && previous->second >= first) return false;
        const bool joins_next = next != runs_.end() && next->first - 1 == last;
        const uint64_t end = joins_next ? next->second : last;
        if (joins_next) runs_.erase(next);
        if (after_one && previous->second + 1 == first)
            previous->second = end;
        else
            runs_.emplace(first, end);
        return true;
    }

  private:
    std::map<uint64_t, uint64_t> runs_;  ///< first → last
};

}  // namespace ingero
