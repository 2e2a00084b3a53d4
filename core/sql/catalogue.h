// The tables that statements can name, and what each column means: declared to SQLite, shown by `query --schema`,
// listed in hints. One place, so that none of them can differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingero {

enum class EventColumn : uint8_t {
    id,
    timestamp,
    pid,
    tid,
    source,
    op,
    duration,
    gpu_id,
    arg0,
    arg1,
    ret_code,
    stack_hash,
    cgroup_id,
    node,
    rank,
    local_rank,
    world_size,
    comm,
    start_ns,
    end_ns,
    duration_ns,
    on_cpu_ns,
    runnable_ns,
    blocked_ns,
    blocked_on,
    preemptor,
    stream,
    kernel,
    bytes,
    direction,
    device,
    depth,
    weight,
    op_num,
    source_num,
    error,
    syscall,
    preemptor_pid,
    preemptor_ns,
    preempted_ns,
    longest_sleep_ns,
    last_wait_ns,
    last_runnable_ns,
    last_blocked_on,
    tail_ns,
    waker,
    waker_pid,
    waits,
    cpu,
    arg2,
    split_uncertain,
    time_weight,
};

struct SqlColumnInfo {
    std::string_view name;
    std::string_view type;  ///< SQLite's
    std::string_view meaning;
};

struct SqlTableInfo {
    enum class Kind {
        events,   ///< rows of the blocks
        filled,   ///< a table in memory, filled when a statement names it
        view,     ///< `definition` is its SELECT
        history,  ///< rows of spans, incidents, states, clocks and rollups, as they are asked for
    };
    std::string_view name;
    Kind kind;
    std::string_view meaning;
    std::span<const SqlColumnInfo> columns;
    std::string_view
        definition;  ///< of events: the sources that it has, all where empty. Else what follows the columns
};

/// EventColumn's values are indices of this.
std::span<const SqlColumnInfo> event_columns();
std::span<const SqlTableInfo> sql_tables();
/// nullptr where there is none.
const SqlTableInfo* find_sql_table(std::string_view name);
/// "id INTEGER, timestamp INTEGER".
std::string column_declarations(std::span<const SqlColumnInfo> columns);

/// As events.source has it: "CUDA", "HOST", or "source-42" for a number that has no name.
std::string sql_source_name(uint8_t source);

}  // namespace ingero
