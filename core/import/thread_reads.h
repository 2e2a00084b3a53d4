// Which times off the CPU were waits for the thread's own reads. The agent has the two in rows of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "core/model/time.h"

namespace ingero {

/// Fed in order of the rows' ends: a read ends before the wait for it does.
class ThreadReads {
  public:
    void add(uint32_t tid, const Window& read) {
        if (threads_.size() >= max_threads && !threads_.contains(tid)) return;
        std::deque<Window>& latest = threads_[tid];
        latest.push_back(read);
        if (latest.size() > max_reads) latest.pop_front();
    }

    /// Whether nine tenths of that time passed in reads; the rest is the way there and back.
    bool fill(uint32_t tid, const Window& wait) const {
        const auto found = threads_.find(tid);
        if (found == threads_.end()) return false;
        uint64_t read_ns = 0, until_ns = wait.to_ns;
        for (auto read = found->second.rbegin(); read != found->second.rend(); ++read) {
            const Window part{std::max(wait.from_ns, read->from_ns), std::min(until_ns, read->to_ns)};
            if (part.from_ns >= part.to_ns) continue;
            read_ns += part.length_ns();
            until_ns = part.from_ns;
        }
        return read_ns != 0 && read_ns >= wait.length_ns() - wait.length_ns() / 10;
    }

  private:
    static constexpr size_t max_threads = 65'536;
    static constexpr size_t max_reads = 16;  ///< of a thread
    std::unordered_map<uint32_t, std::deque<Window>> threads_;
};

}  // namespace ingero
