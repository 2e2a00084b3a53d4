#include "daemon/ingerod/slices/stage_control.h"

#include <algorithm>

namespace ingero {

namespace {

/// Of the calls: an op with fewer is not worth it, and where those that can be in slices have fewer, none is.
constexpr uint64_t least_of_an_op = 20;
constexpr uint64_t least_of_all = 2;
constexpr size_t max_storms = 1024;

}  // namespace

void StageControl::Storm::count(const StormReport& report) {
    for (const auto& [op, number] : report.calls) {
        calls[op] += number;
        all_calls += number;
    }
    all_calls += report.other_calls;
    latest_ns = std::max(latest_ns, report.time_ns);
}

// What is in slices stays there until the process leaves them.
void StageControl::Storm::choose_ops(uint64_t now_ns) {
    std::set<OpId> hot = ops;
    uint64_t hot_calls = 0;
    for (const auto& [op, number] : calls) {
        if (number >= all_calls / least_of_an_op) hot.insert(op);
        if (hot.contains(op)) hot_calls += number;
    }
    if (hot_calls >= all_calls / least_of_all) ops = std::move(hot);
    calls.clear();
    all_calls = 0;
    looked_ns = now_ns;
}

void StageControl::add(const StormReport& report) {
    if (!storms_.contains(report.process) && storms_.size() >= max_storms) return;
    Storm& storm = storms_[report.process];
    if (storm.ops.empty() && report.time_ns > storm.latest_ns + interruption_ns)
        storm = {.since_ns = report.time_ns - std::min(report.elapsed_ns, interruption_ns)};
    storm.count(report);
}

void StageControl::tick(uint64_t now_ns) {
    for (auto storm = storms_.begin(); storm != storms_.end();) {
        Storm& one = storm->second;
        const uint64_t quiet_ns = now_ns > one.latest_ns ? now_ns - one.latest_ns : 0;
        if (quiet_ns > (one.ops.empty() ? interruption_ns : leave_after_ns)) {
            sliced_.erase(storm->first);
            storm = storms_.erase(storm);
            continue;
        }
        const uint64_t from_ns = one.ops.empty() ? one.since_ns : one.looked_ns;
        if (one.latest_ns >= from_ns + enter_after_ns) one.choose_ops(now_ns);
        if (!one.ops.empty()) sliced_[storm->first] = one.ops;
        ++storm;
    }
    std::erase_if(sliced_, [this](const auto& one) { return !storms_.contains(one.first); });
}

}  // namespace ingero
