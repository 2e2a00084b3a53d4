// Processes that are looked at later, since their users have had so many looked at already: users take turns. Loop
// thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "core/model/process/process.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero {

class LateLooks {
  public:
    using Look = std::function<void(const ProcessKey&, uint64_t since_ns)>;
    /// So many of one user at once, and then one a period. `loop` must outlive it.
    LateLooks(EventLoop& loop, uint64_t burst, uint64_t period_ns, Look look);

    /// Whether one of the user's may be looked at now; root's always.
    bool may_look(uint32_t owner);
    /// `since_ns`: 0 where nothing new is mapped; else of two the earlier counts. False where too many of the user's
    /// wait: it is asked about again at its next call.
    bool add(uint32_t owner, const ProcessKey& key, uint64_t since_ns);
    /// False where it was not waiting.
    bool forget(const ProcessKey& key);
    /// `since_ns`, or since when the process waits where that is earlier.
    uint64_t since(const ProcessKey& key, uint64_t since_ns) const;
    size_t size() const;

  private:
    void look_at_some();

    EventLoop& loop_;
    Look look_;
    RateShares rates_;
    std::map<uint32_t, std::map<ProcessKey, uint64_t>> waiting_;  ///< by user
    uint32_t next_ = 0;                                           ///< the user whose turn it is
    EventLoop::Source timer_;
};

}  // namespace ingero
