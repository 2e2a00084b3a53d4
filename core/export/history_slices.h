// Requests, steps, phases and incidents of the window, as slices on tracks of their processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/query/answers/stats.h"
#include "core/sql/events/event_index.h"
#include "core/store/rows/history.h"
#include "core/store/store.h"

namespace ingero {

enum class HistoryKind : uint8_t { incident, request, step, phase };
inline constexpr size_t history_kinds = 4;
/// "request" and so on.
std::string_view to_string(HistoryKind kind);

/// The call, or the wait between calls, in which a request was held up for longest.
struct LongestStall {
    uint32_t pid = 0, tid = 0;
    OpId op = 0;
    uint64_t id = 0;
    uint64_t flow = 0;   ///< of the arrow to it, none of another
    uint64_t ns = 0;     ///< of it, within the request
    uint64_t at_ns = 0;  ///< CLOCK_REALTIME, within both
    std::string why, by;
};

struct HistorySlice {
    HistoryKind kind = HistoryKind::request;
    uint32_t boot = 0;  ///< of the index
    ProcessKey process;
    uint64_t start_ns = 0;  ///< CLOCK_REALTIME
    uint64_t end_ns = 0;    ///< not before start_ns
    std::string name;       ///< valid UTF-8, as all texts here
    std::vector<std::pair<std::string, std::string>> texts;
    std::vector<std::pair<std::string_view, uint64_t>> numbers;
    /// Parts of a request that follow each other from the start, each up to the time named.
    std::vector<std::pair<std::string_view, uint64_t>> parts;
    std::optional<LongestStall> stall;
};

/// Of each kind no more than the longest of them.
inline constexpr size_t most_history_slices = 10'000;

struct HistorySlices {
    std::vector<HistorySlice> all;   ///< by start, the longest first
    std::vector<std::string> notes;  ///< what is not among them, and why
};

/// What cannot be read is a note: the events may still be whole. `with_stalls`: what held requests up, where that is
/// found in a few seconds.
HistorySlices read_history_slices(const StoreSnapshot& snapshot, const EventIndex& index, const Filter& filter,
                                  bool with_stalls);

}  // namespace ingero
