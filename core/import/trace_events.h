// Rows of a trace's table "events" as events of ours: anchors, classes of arguments, and what a 0 means.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/import/trace_database.h"
#include "core/model/event.h"

namespace ingero {

/// In the order that read_event() expects.
const std::vector<std::string>& event_columns();

/// A row as it stands there. Texts live as long as the row.
struct TraceEvent {
    uint64_t timestamp_ns = 0;  ///< CLOCK_REALTIME; of what, depends on the source
    uint64_t duration_ns = 0;
    uint64_t arg0 = 0;
    uint64_t arg1 = 0;
    uint64_t stack_hash = 0;  ///< 0: none
    uint64_t cgroup = 0;      ///< 0: not known
    uint32_t pid = 0;
    uint32_t tid = 0;
    uint32_t gpu_id = 0;
    int32_t return_code = 0;
    OpId op = 0;
    std::string_view comm;
    std::string_view node;

    uint64_t start_ns() const;
    uint64_t end_ns() const { return start_ns() + duration_ns; }
};

/// Nothing where the row cannot be an event: wrong types, an id out of range, a time before 1970 or past 2262.
std::optional<TraceEvent> read_event(const TraceRow& row);

inline constexpr OpId op_sched_switch = 3 << 8 | 1;
inline constexpr OpId op_process_exit = 3 << 8 | 6;

/// Sequence, process start, stack, depth and the time split are the caller's to fill in.
Event to_event(const TraceEvent& row, uint32_t tgid, bool switch_names_own_pid);

}  // namespace ingero
