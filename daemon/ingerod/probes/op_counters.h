// What the kernel side counts of each op, summed over all CPUs.
#pragma once

#include <cstdint>
#include <vector>

#include "bpf/event.h"

namespace ingero {

/// Sums over all CPUs, by op index (targets.h), since load.
using OpCounters = std::vector<ingero_op_counters>;

/// Of one op; all 0 where it cannot be read. `map` is of one value a CPU.
ingero_op_counters read_counters(int map, size_t cpus, uint32_t index);
/// Of all ops.
OpCounters read_counters(int map, size_t cpus);

}  // namespace ingero
