#include "core/diagnosis/evidence/late_arrival.h"

#include <algorithm>
#include <map>

#include "core/model/call_time.h"
#include "core/model/collective.h"
#include "core/model/op.h"

namespace ingero {

std::string doubt_of_lateness(uint64_t certain_ns) {
    if (certain_ns == 0) return "; the devices may have been busy all that time, so the wait may have cost nothing";
    return "; the devices may have been busy for the rest of that time, so the wait may have cost " +
           format_duration(certain_ns) + " only";
}

uint64_t median_of(std::vector<uint64_t> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

namespace {

RankWait without_a_wait(const CollectiveRange& range, const EnqueueSkew::Enqueue& entered) {
    RankWait late;
    late.process = entered.process;
    late.tid = late.arrival_tid = entered.tid;
    late.communicator = entered.communicator;
    late.rank = entered.rank;
    late.first_sequence = range.last_sequence;
    late.enqueue_start_ns = late.arrival_ns = entered.start_ns;
    late.free_from_ns = entered.free_from_ns;
    late.arrival_call = entered.call;
    late.sync_op = entered.op;
    late.sync_start_ns = late.sync_end_ns = entered.start_ns;
    late.sync_call = entered.call;
    late.arrival_op = entered.op;
    late.root = entered.root;
    return late;
}

/// A rank that leaves a reduction to another one may do so before the others have come.
bool only_sends(const RankWait& wait) {
    return wait.arrival_op == op::ncclReduce && wait.root && wait.rank && wait.root != wait.rank;
}

}  // namespace

std::optional<LateArrival> late_arrival(const CollectiveRange& range) {
    if (range.waits.empty() || range.local_ranks() < 2) return std::nullopt;
    LateArrival arrival;
    arrival.hash = range.hash;
    arrival.late = *std::max_element(range.waits.begin(), range.waits.end(),
                                     [](const RankWait& a, const RankWait& b) { return a.arrival_ns < b.arrival_ns; });
    if (range.last_to_enter && range.last_to_enter->start_ns > arrival.late.arrival_ns)
        arrival.late = without_a_wait(range, *range.last_to_enter);
    arrival.is_root = std::all_of(range.waits.begin(), range.waits.end(), [&](const RankWait& wait) {
        return is_broadcast(wait.arrival_op) && wait.root && wait.root == arrival.late.rank;
    });
    arrival.first_waiter = {range.waits.front().process, range.waits.front().communicator};
    if (range.waits.size() == 1) arrival.only_waiter = arrival.first_waiter;
    // Who waited for an event may have left before the collective ended, and the late one may have other work behind
    // it.
    uint64_t surely_after_ns = UINT64_MAX;
    arrival.left_after_ns = UINT64_MAX;
    bool has_sent = false;
    for (const RankWait& wait : range.waits) {
        const bool left_before = wait.sync_end_ns < arrival.late.arrival_ns;
        if (left_before && !only_sends(wait)) return std::nullopt;
        has_sent |= left_before;
        if (left_before) continue;
        arrival.end_ns = std::max(arrival.end_ns, wait.sync_end_ns);
        const uint64_t after_ns = wait.sync_end_ns - arrival.late.arrival_ns;
        const bool is_late = wait.process == arrival.late.process && wait.communicator == arrival.late.communicator;
        arrival.left_after_ns = std::min(arrival.left_after_ns, after_ns);
        if (!is_late && !CollectiveWaitsDeriver::is_event_wait(wait.sync_op))
            surely_after_ns = std::min(surely_after_ns, after_ns);
    }
    if (surely_after_ns != UINT64_MAX) arrival.left_after_ns = surely_after_ns;
    if (arrival.is_root) return arrival;
    uint64_t with_earlier_ns = 0;
    for (const RankWait& wait : range.waits) {
        if (wait.sync_end_ns < arrival.late.arrival_ns) continue;
        // Before the root of a broadcast came nobody could go on.
        const uint64_t from_ns = std::max(wait.sync_start_ns, range.root_entered_ns);
        const uint64_t waited_ns = std::min(saturating_subtract(arrival.late.arrival_ns, from_ns), wait.wait_ns);
        with_earlier_ns = std::max(with_earlier_ns, waited_ns);
        // Until then it waited itself, for an earlier one.
        const uint64_t ns =
            std::min(waited_ns, saturating_subtract(arrival.late.arrival_ns, arrival.late.free_from_ns));
        if (ns == 0) continue;
        arrival.lateness_ns = std::max(arrival.lateness_ns, ns);
        arrival.waited.push_back({wait, ns});
    }
    if (arrival.lateness_ns < with_earlier_ns / 2 || (has_sent && arrival.lateness_ns == 0)) return std::nullopt;
    return arrival;
}

uint64_t step_of(std::span<const LateArrival* const> arrivals) {
    std::map<RankKey, uint64_t> latest_end;
    std::vector<uint64_t> steps;
    for (const LateArrival* one : arrivals) {
        uint64_t& end_ns = latest_end[one->first_waiter];
        if (end_ns != 0) steps.push_back(saturating_subtract(one->end_ns, end_ns));
        end_ns = one->end_ns;
    }
    return median_of(std::move(steps));
}

}  // namespace ingero
