// Which rows an answer may speak of.
#pragma once

#include <set>
#include <vector>

#include "core/model/process/process.h"
#include "core/query/answers/stats.h"

namespace ingero {

/// Rows of processes without a stored process row belong to no known user: only a caller who sees all may see them.
class EventFilter {
  public:
    EventFilter(const Filter& filter, const std::vector<Process>& processes) : pid_(filter.pid), by_uid_(filter.uid) {
        if (!by_uid_) return;
        for (const Process& process : processes) {
            if (process.uid == *filter.uid) visible_.insert(process.key);
        }
    }

    /// The same for the rows of all processes that the caller may see.
    EventFilter of_any_process() const {
        EventFilter filter = *this;
        filter.pid_.reset();
        return filter;
    }

    bool matches(const Event& event) { return matches(event.process()); }
    bool matches(const ProcessKey& process) {
        if (pid_ && process.pid != *pid_) return false;
        if (!by_uid_) return true;
        if (!last_known_ || process != last_) {
            last_ = process;
            last_visible_ = visible_.count(last_) > 0;
            last_known_ = true;
        }
        return last_visible_;
    }

    /// A rollup knows its user, even where the process's own row has gone.
    bool matches(const RollupRow& row) const {
        if (pid_ && row.process.pid != *pid_) return false;
        return !by_uid_ || (row.process.pid != 0 && row.uid == *by_uid_);
    }

    /// Whether a block can hold a row that matches.
    bool may_match(const BlockHeader& header) const {
        return !pid_ || (*pid_ >= header.min_tgid && *pid_ <= header.max_tgid);
    }

  private:
    std::optional<uint32_t> pid_;
    std::optional<uint32_t> by_uid_;
    std::set<ProcessKey> visible_;
    ProcessKey last_;  ///< rows come in runs of one process
    bool last_known_ = false;
    bool last_visible_ = false;
};

}  // namespace ingero
