#include "daemon/ingerod/probes/call_counters.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <span>

#include "core/model/op.h"
#include "daemon/ingerod/probes/attach/targets.h"

namespace ingero {

namespace {

void add(ingero_call_counters& sum, const ingero_call_counters& one) {
    sum.entries += one.entries;
    sum.records += one.records;
    sum.lost_ring += one.lost_ring;
    sum.lost_frames += one.lost_frames;
    sum.lost_depth += one.lost_depth;
    sum.uncertain += one.uncertain;
    sum.thinned += one.thinned;
    sum.timed += one.timed;
    sum.timed_ns += one.timed_ns;
    sum.passed_by += one.passed_by;
}

ingero_call_counters sum_of(std::span<const ingero_call_counters> all) {
    ingero_call_counters sum{};
    for (const ingero_call_counters& one : all) add(sum, one);
    return sum;
}

/// The place of each target's op in all_ops().
const std::vector<size_t>& ops_of_targets() {
    static const std::vector<size_t> places = [] {
        const auto ops = all_ops();
        std::vector<size_t> result;
        for (const Target& target : all_targets())
            result.push_back(static_cast<size_t>(
                std::find_if(ops.begin(), ops.end(), [&](const Op& op) { return op.id == target.op; }) - ops.begin()));
        return result;
    }();
    return places;
}

}  // namespace

ingero_call_counters read_counters(int map, size_t cpus, uint32_t index) {
    std::vector<ingero_call_counters> of_each_cpu(cpus);
    if (bpf_map_lookup_elem(map, &index, of_each_cpu.data()) != 0) return {};
    return sum_of(of_each_cpu);
}

SymbolCounters read_counters(int map, size_t cpus) {
    const size_t targets = all_targets().size();
    std::vector<uint32_t> keys(targets);
    std::vector<ingero_call_counters> values(targets * cpus);
    uint32_t last_key = 0, count = static_cast<uint32_t>(targets);
    // In one system call, which fails at the end of the map though it has read all: Linux 5.13 has it for such maps.
    (void)bpf_map_lookup_batch(map, nullptr, &last_key, keys.data(), values.data(), &count, nullptr);
    SymbolCounters sums;
    for (uint32_t i = 0; i < targets; ++i)
        sums.push_back(count == targets ? sum_of(std::span(values).subspan(i * cpus, cpus))
                                        : read_counters(map, cpus, i));
    return sums;
}

OpCounters sum_by_op(const SymbolCounters& counters) {
    OpCounters sums(all_ops().size());
    for (size_t i = 0; i < counters.size(); ++i) add(sums[ops_of_targets()[i]], counters[i]);
    return sums;
}

}  // namespace ingero
