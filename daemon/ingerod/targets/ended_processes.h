// The latest few thousand processes that were known and have ended.
#pragma once

#include <cstddef>
#include <deque>
#include <map>

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
        order_.pop_front();
    }
    bool contains(const ProcessKey& process) const { return processes_.contains(process); }
    bool has_row(const ProcessKey& process) const {
        const auto ended = processes_.find(process);
        return ended != processes_.end() && ended->second;
    }

  private:
    std::map<ProcessKey, bool> processes_;
    std::deque<ProcessKey> order_;
};

}  // namespace ingero
