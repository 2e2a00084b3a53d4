#include "core/sql/catalogue.h"

#include <algorithm>
#include <array>

#include "core/model/op.h"
#include "core/sql/catalogue_columns.h"

namespace ingero {

namespace {

using enum SqlTableInfo::Kind;

constexpr auto tables = std::to_array<SqlTableInfo>({
    {"events", events, "calls, a row each", columns_of_events, ""},
    {"cuda_events", events, "calls of the CUDA runtime and driver", columns_of_events, "1,4,8"},
    {"host_events", events, "events of the host's scheduler and memory", columns_of_events, "3"},
    {"io_events", events, "requests to disks: reads, writes, flushes", columns_of_events, "5"},
    {"net_events", events, "sockets: sending, receiving, retransmits, errors", columns_of_events, "6,7"},
    {"nccl_events", events, "collectives", columns_of_events, "9"},
    {"ops", filled, "all operations", columns_of_ops, ", PRIMARY KEY(op_id, source_id)"},
    {"sources", filled, "where calls are recorded", columns_of_sources, ", PRIMARY KEY(id)"},
    {"process_names", filled, "processes, the latest of each pid", columns_of_process_names, ""},
    {"processes", filled, "processes, and what each is part of", columns_of_processes, ""},
    {"stack_traces", filled, "native stacks", columns_of_stack_traces, ""},
    {"causal_chains", history, "findings in traces of other tools", columns_of_causal_chains, ""},
    {"system_snapshots", history, "state of the host", columns_of_system_snapshots, ""},
    {"sessions", filled, "runs of ingerod", columns_of_sessions, ""},
    {"event_aggregates", view, "calls by minute, operation and process", columns_of_event_aggregates,
     "SELECT bucket, source, op, pid, SUM(calls), SUM(stored), SUM(total), MIN(shortest), MAX(longest), SUM(bytes) "
     "FROM ("
     "SELECT timestamp / 60000000000 * 60000000000 AS bucket, source, op, pid, SUM(weight) AS calls, "
     "COUNT(*) AS stored, SUM(duration * time_weight) AS total, MIN(duration) AS shortest, MAX(duration) AS longest, "
     "SUM(CASE WHEN ret_code = 0 THEN bytes * weight END) AS bytes FROM events GROUP BY 1, 2, 3, 4 UNION ALL "
     "SELECT minute_ns / 60000000000 * 60000000000, source, op, pid, calls, 0, total_ns, NULL, max_ns, bytes "
     "FROM rollups) GROUP BY 1, 2, 3, 4"},
    {"cgroup_metadata", filled, "control groups of processes", columns_of_cgroup_metadata, ""},
    {"annotations", history, "labels that programs sent", columns_of_annotations, ""},
    {"requests", history, "requests that programs served", columns_of_requests, ""},
    {"request_events", history, "calls that overlap requests, a row each pair", columns_of_request_events, ""},
    {"incidents", history, "incidents that ingerod found, a row each", columns_of_incidents, ""},
    {"spans", history, "requests, steps, phases and labels that programs reported", columns_of_spans, ""},
    {"states", history, "measurements of hosts and devices, a row each value", columns_of_states, ""},
    {"gpu_samples", history, "measurements of GPUs, a row each time; null: not reported", columns_of_gpu_samples, ""},
    {"gpu_events", history, "errors that GPUs reported, and GPUs that were lost or appeared", columns_of_gpu_events,
     ""},
    {"port_samples", history, "measurements of InfiniBand ports, a row each time; null: not reported",
     columns_of_port_samples, ""},
    {"libraries", history, "what was attached to and let go, a row each time", columns_of_libraries, ""},
    {"rollups", history, "sums by minute of calls whose rows were removed", columns_of_rollups, ""},
    {"clocks", history, "samples of the clocks, to convert one into another", columns_of_clocks, ""},
    {"communicators", filled, "NCCL communicators, a row each rank", columns_of_communicators,
     ", PRIMARY KEY(id, pid)"},
    {"collectives", view, "NCCL collectives, as they were put on streams", columns_of_collectives,
     "SELECT e.id, e.timestamp, e.duration_ns, e.pid, e.tid, e.op, c.communicator, NULLIF(e.arg1, 0), c.rank, "
     "c.nranks, NULLIF(e.arg2 >> 32 & 4294967295, 0), e.bytes, "
     "e.bytes / CASE WHEN e.arg2 & 15 IN (0, 1, 10, 11) THEN 1 WHEN e.arg2 & 15 IN (6, 9) THEN 2 "
     "WHEN e.arg2 & 15 IN (2, 3, 7) THEN 4 WHEN e.arg2 & 15 IN (4, 5, 8) THEN 8 END, "
     "CASE e.arg2 & 15 WHEN 0 THEN 'int8' WHEN 1 THEN 'uint8' WHEN 2 THEN 'int32' WHEN 3 THEN 'uint32' "
     "WHEN 4 THEN 'int64' WHEN 5 THEN 'uint64' WHEN 6 THEN 'float16' WHEN 7 THEN 'float32' WHEN 8 THEN 'float64' "
     "WHEN 9 THEN 'bfloat16' WHEN 10 THEN 'float8e4m3' WHEN 11 THEN 'float8e5m2' END, "
     "CASE e.arg2 >> 4 & 7 WHEN 0 THEN 'sum' WHEN 1 THEN 'prod' WHEN 2 THEN 'max' WHEN 3 THEN 'min' "
     "WHEN 4 THEN 'avg' WHEN 5 THEN 'own' END, "
     "CASE WHEN e.op_num IN (7, 8) THEN NULLIF(e.arg2 >> 11 & 2097151, 0) - 1 END, "
     "CASE WHEN e.op_num NOT IN (7, 8) THEN NULLIF(e.arg2 >> 11 & 2097151, 0) - 1 END, "
     "e.arg2 >> 7 & 7, e.stream, e.device, e.error, e.node "
     "FROM nccl_events e LEFT JOIN communicators c ON c.id = e.arg1 AND c.pid = e.pid "
     "WHERE e.op_num IN (3, 4, 5, 6, 7, 8, 104, 105) AND e.arg2 >> 10 & 1 = 0"},
    {"waits", view, "long waits of threads off the CPU, in calls and between them", columns_of_waits,
     "SELECT id, timestamp, end_ns, duration_ns, pid, tid, comm, depth, runnable_ns, blocked_ns, blocked_on, syscall, "
     "wait_detail(ret_code, arg1, arg2, stream), waker_pid, CASE WHEN waker_pid IS NOT NULL THEN NULLIF(arg0 & "
     "4294967295, 0) END, waker, preemptor_pid, "
     "preemptor, preemptor_ns, ret_code >> 8 & 1, arg0 >> 32 & 65535, cpu, split_uncertain, node "
     "FROM host_events WHERE op_num = 1"},
    {"short_waits", view, "short waits of threads off the CPU, summed each second; time in interrupts, migrations",
     columns_of_short_waits,
     "SELECT id, timestamp, timestamp + arg1, pid, tid, comm, waits, runnable_ns, blocked_ns, arg0, arg2, node "
     "FROM host_events WHERE op_num = 21 AND NOT split_uncertain"},
    {"interrupts", view, "interrupts of 50 us and more that took a traced thread's CPU; at most 200 a second",
     columns_of_interrupts,
     "SELECT id, timestamp, duration_ns, pid, tid, comm, CASE op_num WHEN 31 THEN 'hard' ELSE 'soft' END, arg0, "
     "CASE WHEN op_num = 32 THEN CASE arg0 WHEN 0 THEN 'HI' WHEN 1 THEN 'TIMER' WHEN 2 THEN 'NET_TX' WHEN 3 THEN "
     "'NET_RX' WHEN 4 THEN 'BLOCK' WHEN 5 THEN 'IRQ_POLL' WHEN 6 THEN 'TASKLET' WHEN 7 THEN 'SCHED' WHEN 8 THEN "
     "'HRTIMER' WHEN 9 THEN 'RCU' END END, cpu, node FROM host_events WHERE op_num IN (31, 32)"},
    {"socket_events", view, "errors and retransmits of sockets", columns_of_socket_events,
     "SELECT id, timestamp, pid, op, socket_peer(arg0, arg1, stream), errno_name(ret_code), "
     "CASE WHEN op_num = 1 THEN NULLIF(arg2, 0) END, node FROM net_events WHERE source_num = 6"},
    {"coverage", filled, "gaps in the recording, and lost records", columns_of_coverage, ""},
    {"schema_columns", filled, "descriptions of all tables and columns", columns_of_schema, ""},
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
