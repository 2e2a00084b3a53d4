// Judges calls: first learns what is usual, then holds each call against it. The same for a stored interval and for the
// live window.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/diagnosis/expected.h"
#include "core/diagnosis/findings.h"
#include "core/query/event_filter.h"
#include "core/query/launch_queue.h"
#include "core/query/op_lookup.h"

namespace ingero {

/// The calls with the largest excess, in bounded memory.
class SlowCalls {
  public:
    explicit SlowCalls(size_t limit) : limit_(limit) {}

    bool wants(uint64_t excess_ns) const {
        return limit_ > 0 && (heap_.size() < limit_ || excess_ns > heap_.front().excess_ns);
    }
    void add(SlowCall call);
    /// Largest first.
    std::vector<SlowCall> take();

  private:
    size_t limit_;
    std::vector<SlowCall> heap_;
};

struct JudgedTotals {
    uint64_t rows = 0;
    uint64_t calls = 0;
    uint64_t uncertain = 0;
    uint64_t excess_ns = 0;
    uint64_t explained_ns = 0;
};

/// One boot's calls. `slow` and `totals` are added to and must outlive it.
class Judge {
  public:
    Judge(const ExplainOptions& options, const Window& monotonic, const ClockTriple& clock, EventFilter filter,
          SlowCalls& slow, JudgedTotals& totals);

    /// Calls of the window and of the history before it, in any order.
    void learn(std::span<const Event> block);
    void finish_learning();
    /// Calls of the window; blocks in order of start, rows of a block in any order.
    void judge(std::span<const Event> block);
    void forget_samples();

    const Ledger& ledger() const { return ledger_; }

  private:
    void judge(const Event& event, bool queue_full);

    EventFilter filter_;
    ClockTriple clock_;
    ExpectedTimes expected_;
    Ledger ledger_;
    LaunchQueues queues_;
    OpLookup ops_;
    SlowCalls& slow_;
    JudgedTotals& totals_;
};

}  // namespace ingero
