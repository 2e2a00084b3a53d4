// What a program that feeds the stand-in's device would have done with its CPU to itself and nothing to wait for but
// the device: its calls replayed from the stand-in's log, each with the time that it ran, on the device's own model. So
// what a fault cost is known of the very run that had it, whatever the machine does meanwhile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/standin/ground_truth_reader.h"

namespace ingero::test {

struct Replayed {
    uint64_t took_ns = 0;         ///< from the first call on to the return of the last wait for the device
    uint64_t undisturbed_ns = 0;  ///< that it would have taken
    uint64_t waits = 0;           ///< for the device
    uint64_t lost_ns() const { return took_ns > undisturbed_ns ? took_ns - undisturbed_ns : 0; }
};

/// Of a process whose threads launch kernels of this length on one stream, copy, and wait for the stream, only one at a
/// time: what passes from the last call of one to the first of another is what that one ran meanwhile. Nothing where
/// the log has no such calls.
inline std::optional<Replayed> replay_undisturbed(const standin::GroundTruth& log, uint32_t pid, uint64_t kernel_ns) {
    std::vector<const standin::Record*> calls;
    for (const standin::Record& record : log.records())
        if (record.pid == pid && record.depth == 0 && standin::finished(record)) calls.push_back(&record);
    const auto waits = [&](const standin::Record& call) {
        return log.name(call).find("Synchronize") != std::string_view::npos;
    };
    const auto device_ns = [&](const standin::Record& call) -> uint64_t {
        const std::string_view name = log.name(call);
        if (name.find("Launch") != std::string_view::npos) return kernel_ns;
        if (name.find("Memcpy") != std::string_view::npos) return 1'000 + call.bytes / 16;
        return 0;
    };
    const auto first = std::find_if(calls.begin(), calls.end(), [&](const auto* call) { return waits(*call); });
    const auto last = std::find_if(calls.rbegin(), calls.rend(), [&](const auto* call) { return waits(*call); }).base();
    if (first == calls.end() || last - first < 10) return std::nullopt;
    // How long a wait takes to return once the device is done, or where it is already.
    std::vector<uint64_t> returns;
    uint64_t done_ns = 0;
    for (auto call = calls.begin(); call != last; ++call) {
        if (const uint64_t ns = device_ns(**call); ns != 0) done_ns = std::max(done_ns, (*call)->end_ns) + ns;
        const uint64_t ready_ns = std::max(done_ns, (*call)->start_ns);
        if (waits(**call) && (*call)->end_ns >= ready_ns) returns.push_back((*call)->end_ns - ready_ns);
    }
    if (returns.empty()) return std::nullopt;
    std::nth_element(returns.begin(), returns.begin() + static_cast<std::ptrdiff_t>(returns.size() / 4), returns.end());
    // Where others held up each of them, no longer than the call itself takes, or than a sleep takes to end: the timer
    // has its slack, and the thread its way back to a CPU.
    const bool sleeps =
        std::any_of(first, last, [](const auto* call) { return (call->flags & GROUND_TRUTH_SLEPT) != 0; });
    const uint64_t return_ns = std::min<uint64_t>(returns[returns.size() / 4], sleeps ? 150'000 : 20'000);

    uint64_t now_ns = (*first)->end_ns, count = 0;
    std::map<uint32_t, uint64_t> ran_ns;  // by thread, up to its latest call
    for (auto call = calls.begin(); call <= first; ++call) ran_ns[(*call)->tid] = (*call)->end_cpu_ns;
    done_ns = 0;
    for (auto call = first + 1; call != last; ++call) {
        const standin::Record& one = **call;
        const auto [before, is_first] = ran_ns.try_emplace(one.tid, one.start_cpu_ns);
        now_ns += one.start_cpu_ns - std::exchange(before->second, one.end_cpu_ns);
        if (waits(one)) {
            ++count;
            now_ns = std::max(now_ns, done_ns) + return_ns;
            continue;
        }
        now_ns += standin::on_cpu_ns(one);
        if (const uint64_t ns = device_ns(one); ns != 0) done_ns = std::max(done_ns, now_ns) + ns;
    }
    return Replayed{(*(last - 1))->end_ns - (*first)->end_ns, now_ns - (*first)->end_ns, count};
}

}  // namespace ingero::test
