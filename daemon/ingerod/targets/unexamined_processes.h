// Living processes that are not known otherwise, and have a gap that ends with them: of which it could not be found out
// whether they are to be traced. Loop thread only.
#pragma once

#include <cstdint>
#include <map>

#include "core/model/process/process.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/targets/coverage_gaps.h"

namespace ingero {

class UnexaminedProcesses {
  public:
    /// All must outlive it.
    UnexaminedProcesses(EventLoop& loop, const UidOwners& owners, CoverageGaps& gaps)
        : loop_(loop), owners_(owners), gaps_(gaps) {}

    /// Its gaps end with it; those of more processes than are watched last as long as the daemon. False where it has
    /// ended.
    bool watch(const ProcessKey& process, uint32_t uid);

    static constexpr uint64_t max_processes = 1'024;

  private:
    struct One {
        ProcessKey key;
        uint32_t owner = 0;
        UniqueFd pidfd;
        EventLoop::Source exit_source;
    };

    void on_end(uint32_t pid);

    EventLoop& loop_;
    const UidOwners& owners_;
    CoverageGaps& gaps_;
    std::map<uint32_t, One> processes_;  ///< by pid
    Shares shares_{max_processes};
};

}  // namespace ingero
