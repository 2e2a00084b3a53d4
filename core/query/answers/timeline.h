// What each thread and stream did in a window: sums, single calls, and the longest gaps between the calls of a thread,
// in which it gave the device nothing to do. Memory is bounded, whatever the window holds: rows are read twice and kept
// by nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/model/event.h"
#include "core/query/answers/stats.h"

namespace ingero {

struct TimelineQuery {
    Filter filter;
    bool longest_first = false;  ///< of calls; else by time
    size_t calls = 20;           ///< single calls in the answer
    size_t calls_before = 0;     ///< of these, so many first ones are left out
    size_t gaps = 8;
    size_t lanes = 16;  ///< threads, and streams: those with the most calls
};

/// Of calls that no other traced call was around. Times are CLOCK_REALTIME; calls count by their weight.
struct TimelineThread {
    ProcessKey process;
    uint32_t tid = 0;
    uint64_t calls = 0;
    uint64_t in_calls_ns = 0, runnable_ns = 0, blocked_ns = 0;
    uint64_t first_ns = 0, last_ns = 0;
};

struct TimelineStream {
    ProcessKey process;
    std::optional<uint64_t> stream;  ///< a handle; 0 is the default stream, nothing: not recorded
    uint64_t calls = 0, launches = 0, copies = 0, syncs = 0;
    uint64_t bytes_copied = 0;
    uint64_t first_ns = 0, last_ns = 0;
};

struct TimelineGap {
    ProcessKey process;
    uint32_t tid = 0;
    uint64_t from_ns = 0, to_ns = 0;  ///< CLOCK_REALTIME
    OpId after = 0, before = 0;
    /// Off the CPU, as far as waits were recorded; nothing where none of the thread's are in the window.
    std::optional<uint64_t> off_cpu_ns;
    uint64_t length_ns() const { return to_ns - from_ns; }
};

struct TimelineCall {
    Event event;
    uint64_t start_realtime_ns = 0;
};

struct TimelineAnswer {
    Window window;
    Coverage coverage;
    uint64_t all_calls = 0;
    uint64_t all_threads = 0;
    uint64_t gap_floor_ns = 0;  ///< all gaps at least so long were seen
    std::vector<TimelineThread> threads;
    std::vector<TimelineStream> streams;
    std::vector<TimelineGap> gaps;  ///< longest first
    std::vector<TimelineCall> calls;
};

/// Errors: those of the store; limit (too many threads).
Result<TimelineAnswer> compute_timeline(const StoreSnapshot& snapshot, const TimelineQuery& query);

}  // namespace ingero
