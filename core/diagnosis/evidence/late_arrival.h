// Who came last to a range of collectives, and how long others were waiting by then: what follows from the waits of one
// range alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/diagnosis/evidence/collective_waits.h"

namespace ingero {

/// Later than this, and than a twentieth of a step, is late, unless something else is configured.
inline constexpr uint64_t default_late_from_ns = 2'000'000;
inline constexpr unsigned default_late_step_percent = 5;

struct Waited {
    RankWait rank;
    uint64_t ns = 0;
    /// It left soon after the late one came: so that was what it waited for, and not its own device.
    bool at_once = false;
};

/// One range in which a rank of this host came last.
struct LateArrival {
    RankWait late;
    uint64_t lateness_ns = 0;  ///< that some rank waited for it
    bool at_once = false;      ///< as of that rank
    uint64_t end_ns = 0;       ///< of the range
    std::vector<Waited> waited;
};

/// What is proven: from the time when a rank began to wait for its collectives up to when the last rank entered the
/// last of them, that one had not come. Nothing where a rank left before, which then did not wait for them, nor where
/// the last one is the root of a broadcast: the others may wait there for something to do.
std::optional<LateArrival> late_arrival(const CollectiveRange& range);

/// The upper of the middle two; 0 of none.
uint64_t median_of(std::vector<uint64_t> values);

}  // namespace ingero
