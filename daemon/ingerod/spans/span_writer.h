// Who writes to the span socket, as the kernel says, and whose spans they may send. Loop thread only.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>

#include "core/model/process/process.h"
#include "core/model/unique_fd.h"
#include "core/spans/span.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/spans/span_limits.h"

namespace ingero {

/// Whose a span is.
struct SpanOwner {
    ProcessKey process;
    uint32_t uid = 0;   ///< of that process
    std::string scope;  ///< SpanRow::scope
};

/// The scope group of a process: its service's, scope's or container's cgroup, else its descendants', which
/// is_tree_scope() recognises.
std::string scope_of(const Process& process);
bool is_tree_scope(std::string_view scope);

class SpanWriter {
  public:
    SpanWriter() = default;  ///< nobody
    /// Of a connected stream socket. Errors: no_such_process where who connected is gone, or cannot be distinguished
    /// from a successor of its pid; `proc` must outlive the writer.
    static SpanResult<SpanWriter> identify(int socket, const ProcFs& proc);

    uint32_t uid() const { return uid_; }  ///< effective, in the daemon's numbering
    /// Root of the daemon's own user and pid namespaces, not of a container; only where a pidfd proves it (Linux 6.5).
    bool is_root() const { return is_root_; }
    const Process& process() const { return process_; }
    const std::string& scope() const { return scope_; }
    /// `user`: whose share it is, see UidOwners.
    SpanLimits::Party party(uint32_t user) const;

    /// Whose a span with this pid and start time is; without a pid, its own scope group's. Errors: no_such_process,
    /// not_yours, rate_limit (the budget is used up).
    SpanResult<SpanOwner> owner(std::optional<uint32_t> pid, std::optional<uint64_t> start_ticks, LookupBudget& budget);

  private:
    SpanResult<Process> find(uint32_t pid, LookupBudget& budget) const;
    SpanResult<uint32_t> translate(uint32_t pid, LookupBudget& budget) const;
    bool may_report(const Process& target) const;

    const ProcFs* proc_ = nullptr;
    uint32_t uid_ = 0;
    bool is_root_ = false;
    Process process_;
    std::string scope_;
    bool in_own_namespace_ = false;  ///< the daemon's pid namespace
    FileId pid_namespace_;
    /// The latest pids asked for, the latest first; believed for a second, while its start time stays.
    struct Known {
        uint32_t pid = 0;
        uint64_t looked_ns = 0;
        Process process;
    };
    std::list<Known> known_;
};

}  // namespace ingero
