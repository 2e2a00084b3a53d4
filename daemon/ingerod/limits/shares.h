// Resources of which there is only so much, and what each user has of them: the one way in which the daemon counts what
// users take. The table in ingerod(8), RESOURCE LIMITS, lists all of them. Not thread-safe.
//
// A user is the number that UidOwners::owner_of() gives for a uid. Whoever takes something keeps that number to return
// it: the same uid may belong to another user after a reload.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "daemon/ingerod/limits/token_bucket.h"

namespace ingero {

/// The limits of what is held: connections, probes, memory. Root may have all there is.
class Shares {
  public:
    static constexpr uint64_t without_limit = UINT64_MAX;

    /// Without `each`, a user may have no more than is left to others: so however many take all that they can, the next
    /// one finds some.
    explicit Shares(uint64_t total) : total_(total) {}
    Shares(uint64_t total, uint64_t each) : total_(total), each_(each), leaves_others_some_(false) {}

    uint64_t total() const { return total_; }
    uint64_t each() const { return each_; }
    uint64_t left() const { return total_ - used_; }
    uint64_t held_by(uint32_t user) const {
        const auto held = held_.find(user);
        return held == held_.end() ? 0 : held->second;
    }
    /// Who is to give way to `user`, where nothing is left: whoever holds most, if `user` will not have more than they
    /// then have.
    std::optional<uint32_t> who_gives_way_to(uint32_t user) const {
        const auto most = std::max_element(held_.begin(), held_.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
        if (most == held_.end() || most->second < held_by(user) + 2) return std::nullopt;
        return most->first;
    }
    /// Users that have some.
    size_t users() const { return held_.size(); }
    bool may_take(uint32_t user, uint64_t amount) const {
        if (amount > left()) return false;
        if (user == 0) return true;
        const uint64_t held = held_by(user), most = leaves_others_some_ ? left() - amount : each_;
        return held <= most && amount <= most - held;
    }
    /// After may_take().
    void take(uint32_t user, uint64_t amount) {
        if (amount == 0) return;
        used_ += amount;
        held_[user] += amount;
    }
    void give_back(uint32_t user, uint64_t amount) {
        if (amount == 0) return;
        used_ -= amount;
        const auto held = held_.find(user);
        if ((held->second -= amount) == 0) held_.erase(held);
    }

  private:
    uint64_t total_;
    uint64_t each_ = without_limit;
    bool leaves_others_some_ = true;
    uint64_t used_ = 0;
    std::map<uint32_t, uint64_t> held_;  ///< nobody with nothing
};

/// The limits of what is done: so much at once, and then at a steady rate. Root has one too: who exempts it, asks.
class RateShares {
  public:
    RateShares(uint64_t burst, uint64_t period_ns) : full_(burst, period_ns) {}

    bool take(uint32_t user, uint64_t now_ns, uint64_t count = 1) { return of(user, now_ns).take(now_ns, count); }
    /// What something cost that is known only afterwards.
    void charge(uint32_t user, uint64_t now_ns, uint64_t count) { of(user, now_ns).charge(now_ns, count); }
    /// Users whose share is not whole.
    size_t users() const { return buckets_.size(); }

  private:
    static constexpr size_t least_forget_at = 64;

    TokenBucket& of(uint32_t user, uint64_t now_ns) {
        if (buckets_.size() >= forget_at_) forget_full(now_ns);
        return buckets_.try_emplace(user, full_).first->second;
    }

    /// Forgetting a full one changes nothing. Next when there are twice as many as are left, so that a call costs
    /// little.
    void forget_full(uint64_t now_ns) {
        std::erase_if(buckets_, [&](const auto& entry) { return entry.second.is_full(now_ns); });
        forget_at_ = 2 * buckets_.size() < least_forget_at ? least_forget_at : 2 * buckets_.size();
    }

    TokenBucket full_;
    size_t forget_at_ = least_forget_at;
    std::map<uint32_t, TokenBucket> buckets_;
};

}  // namespace ingero
