// Processes whose mappings cannot be read, since they, or others of their user, block that: each is reported as a gap,
// and tried again until they can be. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "core/model/process/process.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/targets/coverage_gaps.h"

namespace ingero {

class UnreadableProcesses {
  public:
    struct Callbacks {
        /// Looks at the process, and calls add() where it still cannot be read. What it maps may have been mapped since
        /// then.
        std::function<void(uint32_t pid, uint64_t since_ns)> look;
        /// Of one that set_spared() named.
        std::function<void(const ProcessKey&, uint64_t time_ns)> on_spared;
    };
    /// All but `callbacks` must outlive it.
    UnreadableProcesses(EventLoop& loop, const ProcFs& proc, const UidOwners& owners, CoverageGaps& gaps,
                        Callbacks callbacks);

    /// `since_ns`: CLOCK_MONOTONIC.
    void add(uint32_t pid, uint64_t since_ns);
    /// It is spared, and that is known of nobody who can be read.
    void set_spared(const ProcessKey& key, uint64_t time_ns);
    /// What set_spared() noted of it up to then no longer holds.
    void forget_spared(uint32_t pid, uint64_t until_ns);

    static constexpr uint64_t max_processes = 1'024;  ///< gaps of more than these are not stored

  private:
    struct One {
        uint32_t owner = 0;
        uint64_t since_ns = 0;
        bool is_still = false;               ///< as it was looked at last
        std::optional<ProcessKey> spared{};  ///< meanwhile, at `spared_ns`
        uint64_t spared_ns = 0;
    };

    void look_again();

    EventLoop& loop_;
    const ProcFs& proc_;
    const UidOwners& owners_;
    CoverageGaps& gaps_;
    Callbacks callbacks_;
    std::map<uint32_t, One> processes_;  ///< by pid
    uint32_t next_ = 0;                  ///< at which the next turn begins
    Shares shares_{max_processes};
    EventLoop::Source timer_;
};

}  // namespace ingero
