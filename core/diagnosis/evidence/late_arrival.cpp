#include "core/diagnosis/evidence/late_arrival.h"

#include <algorithm>

#include "core/model/call_time.h"

namespace ingero {

uint64_t median_of(std::vector<uint64_t> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

std::optional<LateArrival> late_arrival(const CollectiveRange& range) {
    if (range.waits.size() < 2) return std::nullopt;
    LateArrival arrival;
    arrival.late = *std::max_element(range.waits.begin(), range.waits.end(),
                                     [](const RankWait& a, const RankWait& b) { return a.arrival_ns < b.arrival_ns; });
    const auto waits_for_root = [&](const RankWait& wait) {
        return wait.broadcast_root && wait.broadcast_root == arrival.late.rank;
    };
    if (std::all_of(range.waits.begin(), range.waits.end(), waits_for_root)) return std::nullopt;
    for (const RankWait& wait : range.waits) {
        arrival.end_ns = std::max(arrival.end_ns, wait.sync_end_ns);
        if (wait.sync_end_ns < arrival.late.arrival_ns) return std::nullopt;
        const uint64_t waited_ns = saturating_subtract(arrival.late.arrival_ns, wait.sync_start_ns);
        const uint64_t ns = std::min(waited_ns, wait.wait_ns);
        if (ns == 0) continue;
        const bool at_once = wait.sync_end_ns - arrival.late.arrival_ns <= ns / 2;
        if (ns > arrival.lateness_ns) {
            arrival.lateness_ns = ns;
            arrival.at_once = at_once;
        }
        arrival.waited.push_back({wait, ns, at_once});
    }
    return arrival;
}

}  // namespace ingero
