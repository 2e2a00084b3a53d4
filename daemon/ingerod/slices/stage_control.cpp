#include "daemon/ingerod/slices/stage_control.h"

#include <algorithm>
#include <cmath>

#include "bpf/slice_worth.h"

namespace ingero {

namespace {

/// Of the calls: an op with fewer is not worth it, and where those that can be in slices have fewer, none is.
constexpr uint64_t least_of_an_op = 20;
constexpr uint64_t least_of_all = 2;
constexpr size_t max_storms = 1024;
constexpr double of_16ths = 16;

}  // namespace

// Counted at random, the others of each slice vary as they do. Where their cycles are alike, their number is as exact
// as that it agrees with what was counted. What was taken for so much less than it is makes counts so much larger.
std::optional<double> count_error(const ingero_pace& pace) {
    constexpr double most_of_them = 0.5;
    const double others = pace.others / of_16ths, slices = pace.slices / of_16ths;
    if (others < INGERO_LEAST_PACE || slices == 0) return std::nullopt;
    const double a_slice = others / slices;
    const double variance = static_cast<double>(pace.squares) / of_16ths / slices - a_slice * a_slice;
    const double off =
        ingero_are_cycles_alike(&pace) ? std::sqrt(slices) : 2 * std::sqrt(slices * std::max(variance, 1 / slices));
    const double part = off / others;
    if (part >= most_of_them) return std::nullopt;
    return part / (1 - part);
}

void StageControl::Storm::count(const StormReport& report) {
    uint64_t its_calls = report.other_calls;
    for (const auto& [op, number] : report.calls) {
        calls[op] += number;
        its_calls += number;
    }
    all_calls += its_calls;
    latest_ns = std::max(latest_ns, report.time_ns);
    // Of several threads the one that calls most; those that are in no slice have no pace.
    if (report.pace.slices == 0 || its_calls < calls_of_error) return;
    calls_of_error = its_calls;
    error = count_error(report.pace);
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
    all_calls = calls_of_error = 0;
    looked_ns = now_ns;
}

void StageControl::add(const StormReport& report) {
    if (!storms_.contains(report.process) && storms_.size() >= max_storms) return;
    Storm& storm = storms_[report.process];
    if (storm.ops.empty() && report.time_ns > storm.latest_ns + interruption_ns)
        storm = {.since_ns = report.time_ns - std::min(report.elapsed_ns, interruption_ns)};
    storm.count(report);
}

std::optional<double> StageControl::error_of(const ProcessKey& process) const {
    const auto storm = storms_.find(process);
    return storm == storms_.end() ? std::nullopt : storm->second.error;
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
