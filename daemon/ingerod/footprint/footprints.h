// Footprints of process trees, for those who ask: `footprint` of the control protocol. Each has probes of its own,
// which every system call of the host passes while they are there, so there are few at a time. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "core/model/process/process.h"
#include "core/model/result.h"
#include "daemon/ingerod/control/control_backend.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero {

class Footprints {
  public:
    static constexpr size_t max_recordings = 4;
    /// Of these by callers who do not see every process, and by one of them.
    static constexpr size_t max_unprivileged = 2;
    static constexpr size_t max_of_a_user = 1;

    struct Host {
        std::string node;
        /// Why the process is not to be traced; nothing where it is.
        std::function<std::optional<std::string>(const Process&)> excluded;
        OwnerOf owner_of = {};
    };
    /// Loop and `proc` must outlive it, the loop what it begins too.
    Footprints(EventLoop& loop, const ProcFs& proc, Host host);
    ~Footprints();

    /// Errors: not_found, denied (another user's, or left out by [capture]), busy, and those of FootprintProbes.
    Result<std::unique_ptr<FootprintRecording>> begin(const Caller& caller, uint32_t pid);

  private:
    class Recording;

    Result<void> check_room(const Caller& caller) const;

    EventLoop& loop_;
    const ProcFs& proc_;
    Host host_;
    std::shared_ptr<std::set<Recording*>> recordings_;  ///< shared with them, who may outlive this
};

}  // namespace ingero
