// Which part of a window the store can answer for. Every answer carries this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/time.h"
#include "core/store/store.h"

namespace ingero {

/// CLOCK_REALTIME.
struct Gap {
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;
    std::string reason;
};

struct Coverage {
    bool complete = false;  ///< no gap, nothing lost, nothing sampled out
    uint64_t lost = 0;
    uint64_t sampled_out = 0;  ///< calls that other records of their op stand for, by weight
    std::vector<Gap> gaps;
};

/// A window on the wall clock laid onto one boot's monotonic clock by the stored triples.
struct BootWindow {
    uint32_t boot_index = 0;
    Window monotonic;
    ClockTriple clock;  ///< converts the monotonic times of this boot
};

/// The boots whose sessions overlap the window (CLOCK_REALTIME), in order.
std::vector<BootWindow> boot_windows(const StoreSnapshot& snapshot, Window realtime);
/// The realtime window from the first to the last covered instant of the store; empty when nothing is covered.
Window whole_trace(const StoreSnapshot& snapshot);
Result<Coverage> coverage(const StoreSnapshot& snapshot, Window realtime);

}  // namespace ingero
