// Several stores may have the same session, each as far as it went when the store was copied, and less what the store
// had deleted by then. What of it is taken from which copy, so that nothing that one has is lost, and nothing counts
// twice. Times are CLOCK_MONOTONIC of the session's boot.
#pragma once

#include <cstddef>
#include <vector>

#include "core/store/store.h"

namespace ingero {

/// What one store has of a session.
struct SessionCopy {
    Session session;
    std::vector<Window> gave_way;  ///< of calls that are gone though others of their time are there, one a gap's row
};

/// A time, and the copy from which all that began in it is taken.
struct SessionSlice {
    size_t copy = 0;
    Window starts;
};

struct SessionUnion {
    Session session;                   ///< with what the copies cover together
    std::vector<SessionSlice> slices;  ///< in order of time, one after the other from 0 to UINT64_MAX
    std::vector<Window> holes;         ///< of what the session covers: no copy has the calls
};

/// Whether `a` is the copy to begin with: the one that was made later, of two that end alike the one with more.
bool goes_further(const Session& a, const Session& b);

/// Of the copies of one session, of which no later one goes further than one before; at least one. A time is taken from
/// the first copy that has all of its calls, else from the one that has most. Where it can be, a slice ends with a
/// minute: of each minute, calls and rollups are then from one copy.
SessionUnion unite(const std::vector<SessionCopy>& copies);

/// Whether `copy` has something of its session that `stored` lacks.
bool adds_to(const SessionCopy& copy, const SessionCopy& stored);

}  // namespace ingero
