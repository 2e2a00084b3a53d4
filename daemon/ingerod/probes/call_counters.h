// What the kernel side counts of the calls of each function that is probed, summed over all CPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bpf/event.h"

namespace ingero {

/// Sums since load, by the index of the target (all_targets()).
using SymbolCounters = std::vector<ingero_call_counters>;
/// The same by op, in the order of all_ops().
using OpCounters = std::vector<ingero_call_counters>;

/// Of one symbol; all 0 where it cannot be read. `map` has one value a CPU.
ingero_call_counters read_counters(int map, size_t cpus, uint32_t index);
/// Of all targets.
SymbolCounters read_counters(int map, size_t cpus);

OpCounters sum_by_op(const SymbolCounters& counters);

}  // namespace ingero
