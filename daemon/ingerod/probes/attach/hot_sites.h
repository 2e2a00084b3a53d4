// The functions of a file that may be called so often that their probes alone cost too much: attached to by a link of
// their own, for whoever maps the file, or, while one of its processes is in slices, for each process by itself.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/model/process/process.h"
#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/probes/attach/targets.h"

namespace ingero {

/// A process that is attached to by itself.
struct OwnLink {
    ProcessKey process;
    std::set<OpId> sliced{};  ///< ops that are looked at in slices only
    uint64_t program = 0;     ///< which it runs: a link does not outlive it
    auto operator<=>(const OwnLink&) const = default;
};

/// From any thread, one call at a time. Each may take as long as the kernel waits for the memory locks of who maps the
/// file.
class HotSites {
  public:
    /// Links `sites` of the file, for one process or, with pid 0, for all. Errors: busy, internal, denied.
    using Link = std::function<Result<UniqueFd>(int file, std::span<const ProbeSite> sites, uint32_t pid)>;
    struct Host {
        Link link;
        /// The file still is what it was when it was first attached to.
        std::function<bool(int file, std::span<const ProbeSite> sites)> is_unchanged;
        /// A link has gone, by which calls may have been entered that have not returned.
        std::function<void()> on_detached;
    };
    /// Nothing is attached to yet.
    HotSites(Host host, UniqueFd file, std::vector<ProbeSite> sites);

    /// Whoever maps the file, from now on. Errors: those of Link; then what was attached to still is.
    Result<void> attach_to_all();
    /// These processes alone, without the ops that are in slices. One that is gone is left out. Errors: those of Link,
    /// internal; then all are attached to, where that was so before, else those that could be, and each other process
    /// keeps the link that it had, if any.
    Result<void> attach_to(const std::set<OwnLink>& processes);
    /// Whom attach_to() has attached to.
    std::set<OwnLink> own() const;
    /// Attaches to what the processes in slices are not attached to. Errors: those of Link, internal, for one of them.
    Result<void> begin_slice();
    void end_slice();
    /// Detaches, for good: from now on all of the above do nothing.
    void end();

    size_t sites() const { return sites_.size(); }

  private:
    Result<UniqueFd> link(int file, const std::set<OpId>& ops, bool wanted, uint32_t pid) const;

    const Host host_;
    const std::vector<ProbeSite> sites_;
    mutable Mutex mutex_;
    UniqueFd file_ INGERO_GUARDED_BY(mutex_);
    bool ended_ INGERO_GUARDED_BY(mutex_) = false;
    UniqueFd all_ INGERO_GUARDED_BY(mutex_);
    std::map<OwnLink, UniqueFd> own_ INGERO_GUARDED_BY(mutex_);
    std::vector<UniqueFd> slice_ INGERO_GUARDED_BY(mutex_);
};

}  // namespace ingero
