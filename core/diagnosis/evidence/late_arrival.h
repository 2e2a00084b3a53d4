// Who came last to a range of collectives, and how long others were waiting by then: what follows from the waits of one
// range alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/diagnosis/evidence/collective_waits.h"
#include "core/model/call_time.h"
#include "core/model/time.h"

namespace ingero {

/// Later than this, and than a twentieth of a step, is late, unless something else is configured.
inline constexpr uint64_t default_late_from_ns = 2'000'000;
inline constexpr unsigned default_late_step_percent = 5;

/// The end of what is said of lateness that is not certain. `certain_ns`: that it cost at least.
std::string doubt_of_lateness(uint64_t certain_ns);

struct Waited {
    RankWait rank;
    uint64_t ns = 0;
};

/// One range in which a rank of this host came last.
struct LateArrival {
    uint64_t hash = 0;         ///< of the communicator
    RankWait late;             ///< its part of the range; no more than its arrival where it did not synchronise there
    uint64_t lateness_ns = 0;  ///< that some rank waited for it
    /// From its arrival until the first rank had left: up to so long the devices had work yet, whoever came last.
    uint64_t left_after_ns = 0;
    bool is_root = false;           ///< of a broadcast: the others may have waited there for something to do
    bool waited_elsewhere = false;  ///< most of its lateness it was off the CPU, and not for its device or other ranks
    uint64_t idle_ns = 0;           ///< of its lateness, its device had nothing to do
    uint64_t end_ns = 0;            ///< of the range
    RankKey first_waiter;           ///< of those that synchronised there, by rank
    std::optional<RankKey> only_waiter;  ///< where one alone synchronised there
    std::vector<Waited> waited;

    /// Whether it would show that the rank was late.
    bool shows(const RankKey& rank) const {
        return only_waiter != rank && !(is_root && rank == RankKey(late.process, late.communicator));
    }
    /// Whether it shows how late a rank was: not where that one alone synchronised, nor of a root.
    bool shows_lateness() const { return shows({late.process, late.communicator}); }
    /// The ranks left soon after it came: so that was what they waited for, and not their own devices.
    bool at_once() const { return left_after_ns <= lateness_ns / 2; }
    /// Where the devices had work for longer than it was late, it may have kept nobody waiting, as where its host runs
    /// ahead; but one that waits for its data after each step begins the next one late.
    bool may_cost() const { return left_after_ns <= lateness_ns || waited_elsewhere || idle_ns > lateness_ns / 2; }
    /// Of what a rank waited for it, the time that this surely cost.
    uint64_t certain_ns(uint64_t waited_ns) const {
        return left_after_ns <= waited_ns / 2 ? waited_ns : std::min(waited_ns, idle_ns);
    }
    Window lateness() const { return {late.arrival_ns - lateness_ns, late.arrival_ns}; }
    /// So long, up to its arrival.
    Window before(uint64_t ns) const { return {saturating_subtract(late.arrival_ns, ns), late.arrival_ns}; }
};

/// What is proven: from the time when a rank began to wait for its collectives up to when the last rank entered the
/// last of them, that one had not come; of a broadcast, from when its root had entered it. Nothing where a rank left
/// before, which then did not wait for them, unless it only sends to the root of a reduction, nor where the last one
/// was held up itself most of that time in an earlier collective of theirs. The root of a broadcast is not late to it:
/// the others may wait there for something to do.
std::optional<LateArrival> late_arrival(const CollectiveRange& range);

/// From one to the next, the median, in order of their end; of ranges of the same ranks, since others may synchronise
/// with other collectives. 0: not known.
uint64_t step_of(std::span<const LateArrival* const> arrivals);

/// The upper of the middle two; 0 of none.
uint64_t median_of(std::vector<uint64_t> values);

}  // namespace ingero
