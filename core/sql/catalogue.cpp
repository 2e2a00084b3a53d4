#include "core/sql/catalogue.h"

#include <algorithm>
#include <array>

#include "core/model/op.h"

namespace ingero {

namespace {

constexpr auto columns_of_events = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "number of the row: later rows have larger ones"},
    {"timestamp", "INTEGER", "when the call began: CLOCK_REALTIME, ns"},
    {"pid", "INTEGER", "process that called"},
    {"tid", "INTEGER", "thread that called"},
    {"source", "TEXT", "where the call was seen: CUDA (runtime), DRIVER, GRAPH, HOST, IO, TCP, NET, NCCL"},
    {"op", "TEXT", "what was called, such as cudaMalloc"},
    {"duration", "INTEGER", "how long the call took, ns"},
    {"gpu_id", "INTEGER", "the same as device"},
    {"arg0", "INTEGER", "bytes of a copy or allocation, function of a launch, event of a synchronisation"},
    {"arg1", "INTEGER", "address of an allocation, direction of a copy (0 to 4), grid of a launch"},
    {"ret_code", "INTEGER", "what the call returned; 0: success"},
    {"stack_hash", "INTEGER", "stack that it was called on, see stack_traces; 0: none"},
    {"cgroup_id", "INTEGER", "control group of the process, see cgroup_metadata; 0: none"},
    {"node", "TEXT", "machine"},
    {"rank", "INTEGER", "of the process in its job"},
    {"local_rank", "INTEGER", "of the process on its node"},
    {"world_size", "INTEGER", "processes of the job"},
    {"comm", "TEXT", "command of the process"},
    {"start_ns", "INTEGER", "the same as timestamp"},
    {"end_ns", "INTEGER", "when the call returned: CLOCK_REALTIME, ns"},
    {"duration_ns", "INTEGER", "the same as duration"},
    {"on_cpu_ns", "INTEGER", "of the duration, on a CPU: computing, or spinning until the device is done"},
    {"runnable_ns", "INTEGER", "of the duration, able to run and without a CPU"},
    {"blocked_ns", "INTEGER", "of the duration, asleep"},
    {"blocked_on", "TEXT", "what the longest sleep waited for: disk, futex, poll and so on"},
    {"preemptor", "TEXT", "command that had the CPU while this call could run"},
    {"stream", "INTEGER", "handle of the stream; 0: the default stream"},
    {"kernel", "TEXT", "function that a launch launches, demangled"},
    {"bytes", "INTEGER", "bytes copied or allocated"},
    {"direction", "TEXT", "of a copy: H2H, H2D, D2H, D2D or default"},
    {"device", "INTEGER", "ordinal of the device that was current"},
    {"depth", "INTEGER", "traced calls that this one was made inside of; 0: none"},
    {"weight", "INTEGER", "calls that this row stands for: more than 1 where recording was thinned"},
    {"op_num", "INTEGER", "number of op within its source"},
    {"source_num", "INTEGER", "number of source"},
    {"error", "TEXT", "name of what the call returned; null: success"},
    {"syscall", "TEXT", "system call that the longest sleep was in"},
    {"preemptor_pid", "INTEGER", "process that had the CPU while this call could run"},
    {"preemptor_ns", "INTEGER", "of runnable_ns, the part in which it had the CPU"},
    {"preempted_ns", "INTEGER", "of runnable_ns, the part that began with losing the CPU"},
    {"longest_sleep_ns", "INTEGER", "of blocked_ns, the longest part"},
    {"waker", "TEXT", "command that ended the longest sleep"},
    {"waker_pid", "INTEGER", "process that ended the longest sleep"},
    {"waits", "INTEGER", "how often the thread left its CPU during the call"},
    {"cpu", "INTEGER", "CPU that the call returned on"},
    {"arg2", "INTEGER", "block and shared memory of a launch"},
    {"split_uncertain", "INTEGER", "1: the parts of the duration are an estimate"},
});
static_assert(columns_of_events.size() == static_cast<size_t>(EventColumn::split_uncertain) + 1);
static_assert(columns_of_events[static_cast<size_t>(EventColumn::device)].name == "device");

constexpr auto columns_of_ops = std::to_array<SqlColumnInfo>({
    {"source_id", "TEXT", "as events.source has it"},
    {"op_id", "TEXT", "as events.op has it"},
    {"name", "TEXT", "the same as op_id"},
    {"description", "TEXT", "class of the operation: launch, copy, sync and so on"},
    {"source_num", "INTEGER", "as events.source_num has it"},
    {"op_num", "INTEGER", "as events.op_num has it"},
});

constexpr auto columns_of_sources = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "as events.source has it"},
    {"name", "TEXT", "the same as id"},
    {"description", "TEXT", "what is seen there"},
    {"source_num", "INTEGER", "as events.source_num has it"},
});

constexpr auto columns_of_process_names = std::to_array<SqlColumnInfo>({
    {"pid", "INTEGER PRIMARY KEY", "process; of a number that was used again, the latest"},
    {"name", "TEXT", "command"},
    {"seen_at", "INTEGER", "when it was first seen: CLOCK_REALTIME, ns"},
    {"node", "TEXT", "machine"},
    {"uid", "INTEGER", "user"},
    {"parent_pid", "INTEGER", "process that made it"},
    {"unit", "TEXT", "systemd unit"},
    {"cgroup_id", "INTEGER", "control group, see cgroup_metadata; 0: none"},
    {"exited_at", "INTEGER", "when it ended: CLOCK_REALTIME, ns; null: it had not"},
    {"exit_code", "INTEGER", "as wait(2) has it; null: it had not ended"},
});

constexpr auto columns_of_stack_traces = std::to_array<SqlColumnInfo>({
    {"hash", "INTEGER PRIMARY KEY", "as events.stack_hash has it"},
    {"ips", "TEXT", "JSON list: offsets in the files of the frames, innermost first"},
    {"frames", "TEXT", "JSON list of {i: offset, s: symbol, f: file}, innermost first"},
    {"stack", "TEXT", "the frames' names, outermost first, joined by ;"},
    {"pid", "INTEGER", "process that it was first seen in"},
    {"end", "TEXT", "whole, or why it is not"},
});

constexpr auto columns_of_causal_chains = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "identifier"},
    {"detected_at", "INTEGER", "CLOCK_REALTIME, ns"},
    {"severity", "TEXT", "LOW, MEDIUM or HIGH"},
    {"summary", "TEXT", "in one line"},
    {"root_cause", "TEXT", "as the tool that found it says"},
    {"explanation", "TEXT", "as the tool that found it says"},
    {"recommendations", "TEXT", "JSON list of texts"},
    {"cuda_op", "TEXT", "operation it is about"},
    {"cuda_p99_us", "INTEGER", "99th percentile, us"},
    {"cuda_p50_us", "INTEGER", "median, us"},
    {"tail_ratio", "REAL", "one by the other"},
    {"timeline", "TEXT", "JSON list of {layer, op, detail, dur_us}"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_system_snapshots = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "number of the row"},
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"cpu_pct", "REAL", "CPU time in use, percent"},
    {"mem_pct", "REAL", "memory in use, percent"},
    {"mem_avail", "INTEGER", "memory available, MiB"},
    {"swap_mb", "INTEGER", "swap in use, MiB"},
    {"load_avg", "REAL", "load average of a minute"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_sessions = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER PRIMARY KEY", "number of the run of ingerod"},
    {"started_at", "INTEGER", "CLOCK_REALTIME, ns"},
    {"stopped_at", "INTEGER", "CLOCK_REALTIME, ns; 0: it runs, or it did not end cleanly"},
    {"gpu_model", "TEXT", "model of the device"},
    {"gpu_driver", "TEXT", "version of the driver"},
    {"cpu_model", "TEXT", "model of the CPU"},
    {"cpu_cores", "INTEGER", "number of CPUs"},
    {"mem_total", "INTEGER", "memory, MiB"},
    {"kernel", "TEXT", "release of the kernel"},
    {"os_release", "TEXT", "distribution"},
    {"cuda_ver", "TEXT", "version of CUDA"},
    {"python_ver", "TEXT", "version of Python"},
    {"ingero_ver", "TEXT", "version of ingerod"},
    {"pid_filter", "TEXT", "processes that were asked for"},
    {"flags", "TEXT", "options of the recorder"},
    {"node", "TEXT", "machine"},
    {"rank", "INTEGER", "of the process in its job"},
    {"local_rank", "INTEGER", "of the process on its node"},
    {"world_size", "INTEGER", "processes of the job"},
    {"boot_id", "TEXT", "boot of the kernel"},
    {"attach_method", "TEXT", "how probes were attached"},
    {"covered_from", "INTEGER", "from when on calls were seen: CLOCK_REALTIME, ns; null: never"},
    {"covered_to", "INTEGER", "up to when: CLOCK_REALTIME, ns; null: never"},
});

constexpr auto columns_of_event_aggregates = std::to_array<SqlColumnInfo>({
    {"bucket", "INTEGER", "start of the minute: CLOCK_REALTIME, ns"},
    {"source", "TEXT", "as events.source has it"},
    {"op", "TEXT", "as events.op has it"},
    {"pid", "INTEGER", "process that called"},
    {"count", "INTEGER", "calls, thinned ones and those of rollups too"},
    {"stored", "INTEGER", "rows of events"},
    {"sum_dur", "INTEGER", "duration of these rows and of the rollups' calls, ns"},
    {"min_dur", "INTEGER", "shortest of these rows, ns; null: there are only rollups"},
    {"max_dur", "INTEGER", "longest of these rows and of the rollups' calls, ns"},
    {"sum_arg0", "INTEGER", "bytes copied or allocated"},
});

constexpr auto columns_of_cgroup_metadata = std::to_array<SqlColumnInfo>({
    {"cgroup_id", "INTEGER PRIMARY KEY", "as events.cgroup_id has it"},
    {"container_id", "TEXT", "container; null: none known"},
    {"cgroup_path", "TEXT", "path in the hierarchy"},
    {"pod_name", "TEXT", "pod; null: none known"},
    {"namespace", "TEXT", "of the pod; null: none known"},
});

constexpr auto columns_of_annotations = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "number of the row"},
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"labels", "TEXT", "JSON object"},
    {"pid", "INTEGER", "process it is about; 0: all"},
    {"start_time", "INTEGER", "of that process, in clock ticks; null: not told"},
    {"span_start", "INTEGER", "CLOCK_REALTIME, ns; 0: it is about an instant"},
    {"span_end", "INTEGER", "CLOCK_REALTIME, ns; 0: it is about an instant"},
    {"peer_uid", "INTEGER", "user that sent it"},
    {"peer_gid", "INTEGER", "group that sent it; null: not told"},
    {"peer_pid", "INTEGER", "process that sent it; null: not told"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_requests = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "identifier of the request"},
    {"pid", "INTEGER", "process that served it"},
    {"start_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"end_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"duration_ns", "INTEGER", "how long it took, ns"},
    {"queue_ns", "INTEGER", "of it, waiting to begin; null: not told"},
    {"ttft_ns", "INTEGER", "up to the first token; null: not told"},
    {"model", "TEXT", "model that was asked"},
    {"prompt_tokens", "INTEGER", "tokens of the prompt, as the program says"},
    {"output_tokens", "INTEGER", "tokens of the answer, as the program says"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_incidents = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "identifier of the incident"},
    {"kind", "TEXT", "what went wrong"},
    {"severity", "TEXT", "low, medium or high"},
    {"verdict", "TEXT", "proven, partial, unexplained or insufficient-evidence"},
    {"summary", "TEXT", "in one line"},
    {"opened_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"closed_ns", "INTEGER", "CLOCK_REALTIME, ns; null: it is open"},
    {"lost_ns", "INTEGER", "time lost by it"},
    {"explained", "REAL", "part of it that has a cause, 0 to 1"},
    {"node", "TEXT", "machine"},
    {"pid", "INTEGER", "process that lost the time; 0: none of its own"},
    {"updated_ns", "INTEGER", "what these columns say was so at: CLOCK_REALTIME, ns"},
    {"culprits", "TEXT", "JSON list of {name, pid, ns}, largest first"},
    {"finding", "TEXT", "JSON as explain gives it"},
});

constexpr auto columns_of_spans = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "identifier that the program gave; null: none"},
    {"pid", "INTEGER", "process it is about; 0: all of a scope, or of the machine"},
    {"start_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"end_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"duration_ns", "INTEGER", "how long it took, ns"},
    {"queue_ns", "INTEGER", "of it, waiting to begin; null: not told"},
    {"ttft_ns", "INTEGER", "up to the first token; null: not told"},
    {"model", "TEXT", "model that was asked"},
    {"prompt_tokens", "INTEGER", "tokens of the prompt, as the program says"},
    {"output_tokens", "INTEGER", "tokens of the answer, as the program says"},
    {"node", "TEXT", "machine"},
    {"kind", "TEXT", "request, step, phase, label, sample or scope"},
    {"labels", "TEXT", "JSON object of texts"},
    {"numbers", "TEXT", "JSON object of numbers"},
    {"uid", "INTEGER", "user of the process"},
    {"scope", "TEXT", "group of processes it is about; null: the process alone"},
    {"received_ns", "INTEGER", "when it was told: CLOCK_REALTIME, ns"},
    {"number", "INTEGER", "of the row"},
});

constexpr auto columns_of_states = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "number of the row in the store, the same for all values of one time and source"},
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"source", "TEXT", "who measured: host, nvml"},
    {"name", "TEXT", "what was measured"},
    {"value", "REAL", "in the unit that the name says"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_clocks = std::to_array<SqlColumnInfo>({
    {"monotonic_ns", "INTEGER", "CLOCK_MONOTONIC"},
    {"boottime_ns", "INTEGER", "CLOCK_BOOTTIME at that time"},
    {"realtime_ns", "INTEGER", "CLOCK_REALTIME at that time"},
    {"session", "INTEGER", "number of the run of ingerod in the store, from 0"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_rollups = std::to_array<SqlColumnInfo>({
    {"minute_ns", "INTEGER", "where the minute begins: CLOCK_REALTIME, ns"},
    {"source", "TEXT", "as events.source has it"},
    {"op", "TEXT", "as events.op has it"},
    {"pid", "INTEGER", "process that called; 0: several together"},
    {"uid", "INTEGER", "user of the process; null: not known"},
    {"calls", "INTEGER", "that began in the minute and are no rows of events, by weight"},
    {"errors", "INTEGER", "of them that failed"},
    {"total_ns", "INTEGER", "how long they took together"},
    {"max_ns", "INTEGER", "how long the longest took"},
    {"p50_ns", "INTEGER", "median, within 0.8 %; null: not known"},
    {"p95_ns", "INTEGER", "95th percentile, within 0.8 %; null: not known"},
    {"p99_ns", "INTEGER", "99th percentile, within 0.8 %; null: not known"},
    {"bytes", "INTEGER", "copied or allocated"},
    {"on_cpu_ns", "INTEGER", "of the time, on a CPU or waiting for the device"},
    {"runnable_ns", "INTEGER", "of the time, waiting for a CPU"},
    {"blocked_ns", "INTEGER", "of the time, asleep"},
    {"lost", "INTEGER", "records lost in the minute"},
    {"sampled_out", "INTEGER", "calls that other records stand for"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_coverage = std::to_array<SqlColumnInfo>({
    {"from_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"to_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"kind", "TEXT", "gap: calls of that time were not seen; loss: some records were lost or thinned"},
    {"reason", "TEXT", "of a gap"},
    {"partial", "INTEGER", "1: a gap of some calls only, the reason says which"},
    {"source", "TEXT", "of a loss"},
    {"op", "TEXT", "of a loss"},
    {"lost", "INTEGER", "records lost"},
    {"uncertain", "INTEGER", "records whose parts of the duration are an estimate"},
    {"sampled_out", "INTEGER", "calls that other rows stand for, by weight"},
});

constexpr auto columns_of_schema = std::to_array<SqlColumnInfo>({
    {"table_name", "TEXT", "table"},
    {"column_name", "TEXT", "column"},
    {"type", "TEXT", "INTEGER, REAL or TEXT"},
    {"meaning", "TEXT", "what it says"},
});

using enum SqlTableInfo::Kind;

constexpr auto tables = std::to_array<SqlTableInfo>({
    {"events", events, "calls, a row each", columns_of_events, ""},
    {"cuda_events", events, "calls of the CUDA runtime and driver", columns_of_events, "1,4,8"},
    {"host_events", events, "what the host's scheduler and memory did", columns_of_events, "3"},
    {"io_events", events, "reads and writes of disks", columns_of_events, "5"},
    {"net_events", events, "sending, receiving, retransmits", columns_of_events, "6,7"},
    {"nccl_events", events, "collectives", columns_of_events, "9"},
    {"ops", filled, "operations that there are", columns_of_ops, ", PRIMARY KEY(op_id, source_id)"},
    {"sources", filled, "where calls are seen", columns_of_sources, ", PRIMARY KEY(id)"},
    {"process_names", filled, "processes", columns_of_process_names, ""},
    {"stack_traces", filled, "native stacks", columns_of_stack_traces, ""},
    {"causal_chains", history, "findings in traces of other tools", columns_of_causal_chains, ""},
    {"system_snapshots", history, "state of the host", columns_of_system_snapshots, ""},
    {"sessions", filled, "runs of ingerod", columns_of_sessions, ""},
    {"event_aggregates", view, "calls by minute, operation and process", columns_of_event_aggregates,
     "SELECT bucket, source, op, pid, SUM(calls), SUM(stored), SUM(total), MIN(shortest), MAX(longest), SUM(bytes) "
     "FROM ("
     "SELECT timestamp / 60000000000 * 60000000000 AS bucket, source, op, pid, SUM(weight) AS calls, "
     "COUNT(*) AS stored, SUM(duration) AS total, MIN(duration) AS shortest, MAX(duration) AS longest, "
     "SUM(bytes) AS bytes FROM events GROUP BY 1, 2, 3, 4 UNION ALL "
     "SELECT minute_ns / 60000000000 * 60000000000, source, op, pid, calls, 0, total_ns, NULL, max_ns, bytes "
     "FROM rollups) GROUP BY 1, 2, 3, 4"},
    {"cgroup_metadata", filled, "control groups of processes", columns_of_cgroup_metadata, ""},
    {"annotations", history, "labels that programs gave", columns_of_annotations, ""},
    {"requests", history, "requests that programs served", columns_of_requests, ""},
    {"incidents", history, "what was found to be wrong, a row each", columns_of_incidents, ""},
    {"spans", history, "requests, steps, phases and labels that programs told", columns_of_spans, ""},
    {"states", history, "what was measured of hosts and devices, a row each value", columns_of_states, ""},
    {"rollups", history, "what is left of calls whose rows have gone", columns_of_rollups, ""},
    {"clocks", history, "how the clocks moved against each other", columns_of_clocks, ""},
    {"coverage", filled, "what was not seen, and what was lost", columns_of_coverage, ""},
    {"schema_columns", filled, "these descriptions", columns_of_schema, ""},
});

}  // namespace

std::span<const SqlColumnInfo> event_columns() {
    return columns_of_events;
}

std::span<const SqlTableInfo> sql_tables() {
    return tables;
}

const SqlTableInfo* find_sql_table(std::string_view name) {
    const auto found =
        std::find_if(tables.begin(), tables.end(), [&](const auto& table) { return table.name == name; });
    return found == tables.end() ? nullptr : &*found;
}

std::string column_declarations(std::span<const SqlColumnInfo> columns) {
    std::string text;
    for (const SqlColumnInfo& column : columns) {
        if (!text.empty()) text += ", ";
        text.append("\"").append(column.name).append("\" ").append(column.type);
    }
    return text;
}

std::string sql_source_name(uint8_t source) {
    constexpr std::array<std::string_view, 10> published = {"",   "CUDA", "",    "HOST",  "DRIVER",
                                                            "IO", "TCP",  "NET", "GRAPH", "NCCL"};
    const std::string_view known = source_name(source);
    if (known != "unknown") return std::string(known);
    if (source < published.size() && !published[source].empty()) return std::string(published[source]);
    return "source-" + std::to_string(source);
}

}  // namespace ingero
