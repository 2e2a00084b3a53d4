// Who is recorded beside the traced threads, since it woke them or had their CPU: each is reported once, and now and
// then again, since by then a process may be another program, and a pid another process. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/model/call_time.h"
#include "core/model/event.h"
#include "daemon/ingerod/ingest/ingest.h"

namespace ingero {

class Bystanders {
  public:
    void note(const WaitRow& row) {
        if (row.level != 0) {
            if (wakers_.size() >= max_known) wakers_.clear();
            if (wakers_.insert({row.event.process(), row.uid}).second) fresh_wakers_.push_back(row);
        }
        note_preemptor(row.event);
    }

    void note_preemptor(const Event& event) {
        if (event.preemptor_ns < preemptor_floor_ns || event.preemptor_tgid == 0 ||
            event.preemptor_tgid == INGERO_PID_OUTSIDE || fresh_preemptors_.size() >= max_fresh_preemptors)
            return;
        const uint64_t now_ns = saturating_end_ns(event);
        if (preemptors_.size() >= max_known || now_ns - std::min(now_ns, preemptors_since_ns_) > preemptors_for_ns) {
            preemptors_.clear();
            preemptors_since_ns_ = now_ns;
        }
        if (preemptors_.insert(event.preemptor_tgid).second) fresh_preemptors_.push_back(event.preemptor_tgid);
    }

    /// Those not reported yet.
    std::vector<WaitRow> take_wakers() { return std::exchange(fresh_wakers_, {}); }
    std::vector<uint32_t> take_preemptors() { return std::exchange(fresh_preemptors_, {}); }

  private:
    static constexpr size_t max_known = 4'096;
    static constexpr uint64_t preemptor_floor_ns = 200'000;
    static constexpr uint64_t preemptors_for_ns = 10'000'000'000;
    static constexpr size_t max_fresh_preemptors = 64;  ///< a turn: /proc is read of each

    std::vector<WaitRow> fresh_wakers_;
    std::set<std::pair<ProcessKey, uint32_t>> wakers_;  ///< by user too: a process may become another's
    std::vector<uint32_t> fresh_preemptors_;
    std::unordered_set<uint32_t> preemptors_;  ///< a pid alone
    uint64_t preemptors_since_ns_ = 0;
};

}  // namespace ingero
