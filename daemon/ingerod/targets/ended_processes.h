// The latest few thousand processes that were known and have ended.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "core/model/process/process.h"

namespace ingero {

class EndedProcesses {
  public:
    static constexpr size_t max_processes = 4'096;

    void put(const ProcessKey& process, bool has_row) {
        if (!processes_.emplace(process, has_row).second) return;
        order_.push_back(process);
        if (order_.size() <= max_processes) return;
        processes_.erase(order_.front());
        without_status_.erase(order_.front());
        order_.pop_front();
    }
    /// One that has this row, which is kept where it does not say how the process ended: that may be reported later.
    void put(const Process& row) {
        put(row.key, true);
        if (row.exit_code == exit_status_unknown) without_status_.emplace(row.key, row);
    }
    bool contains(const ProcessKey& process) const { return processes_.contains(process); }
    bool has_row(const ProcessKey& process) const {
        const auto ended = processes_.find(process);
        return ended != processes_.end() && ended->second;
    }
    /// The row that does not say how the process ended, once; nothing where there is none.
    std::optional<Process> take_without_status(const ProcessKey& process) {
        auto row = without_status_.extract(process);
        if (row.empty()) return std::nullopt;
        return std::move(row.mapped());
    }

  private:
    std::map<ProcessKey, bool> processes_;
    std::map<ProcessKey, Process> without_status_;  ///< of these
    std::deque<ProcessKey> order_;
};

}  // namespace ingero
