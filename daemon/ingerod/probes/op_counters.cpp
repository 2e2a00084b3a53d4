#include "daemon/ingerod/probes/op_counters.h"

#include <bpf/bpf.h>

#include <span>

#include "core/model/op.h"

namespace ingero {

namespace {

ingero_op_counters sum_of(std::span<const ingero_op_counters> of_each_cpu) {
    ingero_op_counters sums{};
    for (const ingero_op_counters& one : of_each_cpu) {
        sums.entries += one.entries;
        sums.records += one.records;
        sums.lost_ring += one.lost_ring;
        sums.lost_frames += one.lost_frames;
        sums.lost_depth += one.lost_depth;
        sums.uncertain += one.uncertain;
        sums.thinned += one.thinned;
        sums.timed += one.timed;
        sums.timed_ns += one.timed_ns;
        sums.passed_by += one.passed_by;
    }
    return sums;
}

}  // namespace

ingero_op_counters read_counters(int map, size_t cpus, uint32_t index) {
    std::vector<ingero_op_counters> of_each_cpu(cpus);
    if (bpf_map_lookup_elem(map, &index, of_each_cpu.data()) != 0) return {};
    return sum_of(of_each_cpu);
}

OpCounters read_counters(int map, size_t cpus) {
    const size_t ops = all_ops().size();
    std::vector<uint32_t> keys(ops);
    std::vector<ingero_op_counters> values(ops * cpus);
    uint32_t last_key = 0, count = static_cast<uint32_t>(ops);
    // In one system call, which fails at the end of the map though it has read all: Linux 5.13 has it for such maps.
    (void)bpf_map_lookup_batch(map, nullptr, &last_key, keys.data(), values.data(), &count, nullptr);
    OpCounters sums;
    for (uint32_t i = 0; i < ops; ++i)
        sums.push_back(count == ops ? sum_of(std::span(values).subspan(i * cpus, cpus)) : read_counters(map, cpus, i));
    return sums;
}

}  // namespace ingero
