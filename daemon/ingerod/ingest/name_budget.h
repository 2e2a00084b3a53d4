// How many names of functions the processes of one user may have stored: names come from targets, which can make up any
// number of them. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>

#include "core/model/event.h"
#include "daemon/ingerod/limits/shares.h"

namespace ingero {

class NameBudget {
  public:
    /// A large framework registers some 100,000 as it starts.
    static constexpr uint64_t burst = 1'000'000;
    static constexpr uint64_t period_ns = 10'000'000;  ///< and then one each

    /// `user`: see UidOwners.
    void set_owner(const ProcessKey& process, uint32_t user) { owners_[process] = user; }
    void forget(const ProcessKey& process) { owners_.erase(process); }
    /// False where the owner of the process has no more. Processes whose owner is not known yet share one budget; root
    /// has no limit.
    bool take(const ProcessKey& process, uint64_t now_ns) {
        const auto owner = owners_.find(process);
        const uint32_t user = owner == owners_.end() ? UINT32_MAX : owner->second;
        return user == 0 || rates_.take(user, now_ns);
    }

  private:
    std::map<ProcessKey, uint32_t> owners_;
    RateShares rates_{burst, period_ns};
};

}  // namespace ingero
