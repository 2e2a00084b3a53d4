// What tracing costs the traced threads, by how many calls they make and what one costs them.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "bpf/event.h"
#include "core/model/op.h"
#include "daemon/ingerod/probes/call_probes.h"

namespace ingero {

/// Over the latest interval of at least a second.
struct OverheadFigures {
    std::optional<double> permille;  ///< of the threads' time; empty until measured, or where no cost is known
    struct Thinned {
        OpId op = 0;
        double weight = 1;  ///< calls a record, on average
    };
    std::vector<Thinned> thinned;
};

class OverheadMeter {
  public:
    /// `counters` are the sums of the kernel side since load.
    OverheadMeter(OpCounters counters, uint64_t now_ns);

    /// The thread made a call.
    void note_thread(uint32_t tid);
    bool is_due(uint64_t now_ns) const;
    /// Since the last time; `stack_ns` is what a native stack costs.
    OverheadFigures measure(uint64_t now_ns, OpCounters counters, const std::optional<CallCost>& cost, double stack_ns);

  private:
    CallPrice price_of(const OpCounters& counters, uint64_t now_ns, const CallCost& cost);

    OpCounters last_;
    uint64_t last_ns_;
    std::unordered_set<uint32_t> threads_;
    uint32_t last_tid_ = 0;
    // Of entries that were timed: those that the price was made of are counted up to there.
    uint64_t priced_entries_ = 0, priced_entries_ns_ = 0, priced_at_ns_ = 0;
    std::optional<CallPrice> price_;
};

}  // namespace ingero
