#include "daemon/ingerod/ingest/overhead.h"

#include <algorithm>
#include <utility>

namespace ingero {

namespace {

constexpr uint64_t interval_ns = 1'000'000'000;
constexpr uint64_t least_timed_entries = 16;
/// What entries took so long ago says nothing of now.
constexpr uint64_t price_holds_ns = 10'000'000'000;

}  // namespace

OverheadMeter::OverheadMeter(OpCounters counters, uint64_t now_ns) : last_(std::move(counters)), last_ns_(now_ns) {}

void OverheadMeter::note_thread(uint32_t tid) {
    if (tid != last_tid_) threads_.insert(last_tid_ = tid);
}

bool OverheadMeter::is_due(uint64_t now_ns) const {
    return now_ns - last_ns_ >= interval_ns;
}

/// A few entries say nothing: what was known before still holds for a while, and they count with the next.
CallPrice OverheadMeter::price_of(const OpCounters& counters, uint64_t now_ns, const CallCost& cost) {
    uint64_t entries = 0, entries_ns = 0;
    for (const ingero_call_counters& one : counters) {
        entries += one.timed;
        entries_ns += one.timed_ns;
    }
    const uint64_t fresh = entries - priced_entries_;
    if (fresh >= least_timed_entries)
        price_ = cost.at(static_cast<double>(entries_ns - priced_entries_ns_) / static_cast<double>(fresh));
    else if (!price_ || now_ns - priced_at_ns_ >= price_holds_ns)
        price_ = cost.alone;
    else
        return *price_;
    priced_entries_ = entries;
    priced_entries_ns_ = entries_ns;
    priced_at_ns_ = now_ns;
    return *price_;
}

OverheadFigures OverheadMeter::measure(uint64_t now_ns, OpCounters counters, const std::optional<CallCost>& cost,
                                       double stack_ns) {
    OverheadFigures figures;
    if (cost) {
        const CallPrice price = price_of(counters, now_ns, *cost);
        double overhead_ns = 0;
        for (size_t i = 0; i < counters.size(); ++i) {
            const auto calls = static_cast<double>(counters[i].entries - last_[i].entries);
            const auto unkept = static_cast<double>(counters[i].thinned - last_[i].thinned);
            const auto passed_by = static_cast<double>(counters[i].passed_by - last_[i].passed_by);
            overhead_ns += passed_by * price.unkept_ns;  // at most: they have no return probe
            overhead_ns += calls * price.unkept_ns + (calls - unkept) * (price.record_ns + stack_ns);
            if (unkept > 0) figures.thinned.push_back({all_ops()[i].id, calls / std::max(calls - unkept, 1.0)});
        }
        // Each traced thread has all of the interval: what a thread does between its calls is time that the calls slow
        // down too.
        const double time_ns =
            static_cast<double>(now_ns - last_ns_) * static_cast<double>(std::max<size_t>(threads_.size(), 1));
        figures.permille = 1000 * overhead_ns / time_ns;
    }
    threads_.clear();
    last_tid_ = 0;
    last_ = std::move(counters);
    last_ns_ = now_ns;
    return figures;
}

}  // namespace ingero
