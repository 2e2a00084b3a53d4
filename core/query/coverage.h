// Which part of a window the store can answer for. Every answer carries this.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
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
    bool partial = false;  ///< some calls were seen, but not those that the reason names
};

struct Coverage {
    bool complete = false;  ///< no gap, nothing lost, nothing sampled out
    uint64_t lost = 0;
    /// Calls that other records of their op stand for, by weight; of one user, those of the window whose records are.
    uint64_t sampled_out = 0;
    std::vector<Gap> gaps;
};

/// A window on the wall clock laid onto one boot's monotonic clock by the stored triples.
struct BootWindow {
    uint32_t boot_index = 0;
    Window monotonic;
    ClockTriple clock;  ///< converts the monotonic times of this boot
};

/// What converts the times of one boot, in place of the latest triple that is stored of it.
struct BootClock {
    uint32_t boot_index = 0;
    ClockTriple clock{};
};

/// The time of one boot that only rollups record. Times are CLOCK_MONOTONIC.
struct RolledUp {
    uint32_t boot_index = 0;
    Window monotonic;
    ClockTriple clock;
};

/// The boots whose sessions overlap the window (CLOCK_REALTIME), in order. `fixed` may be of a boot that is not there.
std::vector<BootWindow> boot_windows(const StoreSnapshot& snapshot, Window realtime,
                                     const std::optional<BootClock>& fixed = std::nullopt);
/// When the ingerod that wrote a row at `at_ns` of that boot was last heard of (CLOCK_MONOTONIC, as `at_ns`): nullopt
/// while it may still run. Nobody has recorded the end of what it recorded as going on.
std::optional<uint64_t> writer_end_ns(const std::vector<Session>& sessions, uint32_t boot_index, uint64_t at_ns);
/// The realtime window from the first to the last covered instant of the store; empty when nothing is covered.
Window whole_trace(const StoreSnapshot& snapshot);
/// Whose gaps an answer reports: those of single processes name the process, and are for who may see it.
struct GapFilter {
    std::optional<uint32_t> uid;  ///< only this user's processes; nullopt: all
    std::optional<uint32_t> pid;
    bool by_rollups = false;  ///< the answer counts in what rollups record: its time is a gap in part only
};
/// For each boot that has any in the window (CLOCK_REALTIME), in order. Errors: corrupt.
Result<std::vector<RolledUp>> rolled_up(const StoreSnapshot& snapshot, Window realtime, const GapFilter& filter = {});
/// Gaps of single processes that an answer lists; the shortest beyond them share one line.
inline constexpr size_t max_process_gaps = 256;

/// Gaps between sessions, then those of single processes ("late-attach: libcudart.so.12 (pid 123)"), each in order of
/// time. For one user rows are read: past `deadline` that fails. Errors: corrupt, deadline.
Result<Coverage> coverage(
    const StoreSnapshot& snapshot, Window realtime, const GapFilter& filter = {},
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());

}  // namespace ingero
