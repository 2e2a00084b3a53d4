// What a process waited for ranks that came late, in all its communicators together. One synchronisation may wait for
// ranks of several of them, and several threads may wait at a time: each moment is lost once.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/evidence/late_arrival.h"

namespace ingero {

/// Of one process: for whom, and how long.
using LateWaits = std::vector<std::pair<const LateArrival*, const Waited*>>;

/// A process that was waited for, as a rank of one communicator or of several.
struct LateOne {
    uint64_t ns = 0;
    std::vector<std::pair<const LateArrival*, Window>> parts;  ///< of that time
    const LateArrival* longest = nullptr;
    uint64_t longest_ns = 0;  ///< of `ns`, in that one
};

struct LateWaitSums {
    uint64_t lost_ns = 0;
    uint64_t newly_lost_ns = 0;  ///< of that, in rows from `new_from_sequence` on
    uint64_t certain_ns = 0;     ///< of that, what the waits surely cost
    size_t times = 0;
    const Waited* longest = nullptr;  ///< of whatever rank of the process
    uint64_t longest_ns = 0;          ///< of lost_ns, in that one
    std::map<ProcessKey, LateOne> late;
    Evidence evidence;
};

LateWaitSums sum_late_waits(LateWaits waits, uint64_t new_from_sequence);

}  // namespace ingero
