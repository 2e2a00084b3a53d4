// Something of which there is only so much, and what each user has of it. A user may have no more than is left to
// others: so however many take all that they can, the next one finds some. Root may have all. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>

namespace ingero {

class Shares {
  public:
    explicit Shares(uint64_t total) : total_(total) {}

    uint64_t total() const { return total_; }
    uint64_t left() const { return total_ - used_; }
    bool may_take(uint32_t uid, uint64_t amount) const {
        if (amount > left()) return false;
        const auto held = held_.find(uid);
        return uid == 0 || (held == held_.end() ? 0 : held->second) + amount <= left() - amount;
    }
    /// After may_take().
    void take(uint32_t uid, uint64_t amount) {
        used_ += amount;
        held_[uid] += amount;
    }
    void give_back(uint32_t uid, uint64_t amount) {
        used_ -= amount;
        const auto held = held_.find(uid);
        if ((held->second -= amount) == 0) held_.erase(held);
    }

  private:
    uint64_t total_;
    uint64_t used_ = 0;
    std::map<uint32_t, uint64_t> held_;
};

}  // namespace ingero
