#include "core/import/trace_events.h"

#include <limits>

#include "core/model/op.h"

namespace ingero {

namespace {

enum Column {
    timestamp,
    pid,
    tid,
    source,
    op_column,
    duration,
    gpu_id,
    arg0,
    arg1,
    ret_code,
    stack_hash,
    cgroup_id,
    comm,
    node,
    id
};

constexpr OpId op_net_first = 7 << 8;
constexpr uint64_t unknown_direction = 5;

/// The row is written when it ends, and says when that was.
bool is_anchored_at_end(OpId op) {
    const uint8_t source = op_source(op);
    return op == op_sched_switch || source == source_io || source == (op_net_first >> 8);
}

/// "node:sequence"; a node's name may hold colons too.
std::string_view node_of_id(std::string_view id) {
    const size_t colon = id.rfind(':');
    return colon == std::string_view::npos ? std::string_view() : id.substr(0, colon);
}

template <class T>
bool fits(int64_t value, T& ret_number) {
    if (value < std::numeric_limits<T>::min() || value > static_cast<int64_t>(std::numeric_limits<T>::max()))
        return false;
    ret_number = static_cast<T>(value);
    return true;
}

void set_arguments(const TraceEvent& row, bool switch_names_own_pid, Event& event) {
    const Op* op = find_op(row.op);
    event.args = {row.arg0, row.arg1, 0};
    if (row.op == op_sched_switch && switch_names_own_pid) event.args[1] = 0;
    if (op_source(row.op) == source_tcp) event.args[2] = row.gpu_id;  // the connection's state, in a column to spare
    if (!op || op->op_class == OpClass::alloc || op->op_class == OpClass::free) return;
    event.stream = unknown_stream;
    if (op->op_class == OpClass::launch) {
        // Old files have 0 there for every launch: not the default stream, but nothing.
        event.args[1] = 0;
        if (row.arg1 != 0) event.stream = row.arg1;
    }
    if (op->op_class == OpClass::copy && (op_source(row.op) != source_cuda || row.arg1 > unknown_direction))
        event.args[1] = unknown_direction;
    if (op->op_class == OpClass::sync) {
        if (op->name == "cudaStreamSync") event.stream = row.arg0;
        event.args = {};
    }
}

}  // namespace

const std::vector<std::string>& event_columns() {
    static const std::vector<std::string> columns = {"timestamp",  "pid",       "tid",  "source", "op",
                                                     "duration",   "gpu_id",    "arg0", "arg1",   "ret_code",
                                                     "stack_hash", "cgroup_id", "comm", "node",   "id"};
    return columns;
}

uint64_t TraceEvent::start_ns() const {
    if (!is_anchored_at_end(op)) return timestamp_ns;
    return timestamp_ns > duration_ns ? timestamp_ns - duration_ns : 0;
}

std::optional<TraceEvent> read_event(const TraceRow& row) {
    bool wrong = false;
    const auto value = [&](Column column, int64_t otherwise) { return row.integer_or(column, otherwise, wrong); };
    TraceEvent event;
    const int64_t at = value(timestamp, 0), length = value(duration, 0), process = value(pid, 0);
    uint8_t source_number = 0, op_number = 0;
    if (!fits(value(source, 0), source_number) || !fits(value(op_column, 0), op_number) || source_number == 0 ||
        op_number == 0 || !fits(process, event.pid) || !fits(value(tid, process), event.tid) ||
        !fits(value(ret_code, 0), event.return_code))
        return std::nullopt;
    if (!fits(value(gpu_id, 0), event.gpu_id)) event.gpu_id = 0;
    if (at <= 0 || length < 0 || at > std::numeric_limits<int64_t>::max() - length) return std::nullopt;
    event.timestamp_ns = static_cast<uint64_t>(at);
    event.duration_ns = static_cast<uint64_t>(length);
    event.op = make_op(source_number, op_number);
    event.arg0 = static_cast<uint64_t>(value(arg0, 0));
    event.arg1 = static_cast<uint64_t>(value(arg1, 0));
    event.stack_hash = static_cast<uint64_t>(value(stack_hash, 0));
    event.cgroup = static_cast<uint64_t>(value(cgroup_id, 0));
    event.comm = row.text(comm);
    event.node = row.text(node);
    if (event.node.empty()) event.node = node_of_id(row.text(id));
    if (wrong || event.start_ns() == 0) return std::nullopt;
    return event;
}

Event to_event(const TraceEvent& row, uint32_t tgid, bool switch_names_own_pid) {
    Event event;
    event.start_ns = row.start_ns();
    event.duration_ns = row.duration_ns;
    event.op = row.op;
    event.tgid = tgid;
    event.tid = row.tid;
    event.return_code = row.return_code;
    set_arguments(row, switch_names_own_pid, event);
    const uint8_t source = op_source(row.op);
    // Time off the CPU, and time of a device: nobody's on the CPU. Of a system call the split is not known.
    if (row.op == op_sched_switch || source == source_io) {
        event.blocked_ns = event.longest_sleep_ns = event.duration_ns;
        event.blocked_reason = source == source_io ? BlockedReason::disk : BlockedReason::other;
        event.waits = 1;
    }
    if (source == source_net) event.flags |= INGERO_CALL_SPLIT_UNCERTAIN;
    return event;
}

}  // namespace ingero
