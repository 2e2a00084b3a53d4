#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/model/call_time.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "daemon/ingerod/ingest/ingest.h"
#include "daemon/ingerod/probes/in_flight.h"

namespace ingero {

namespace {

/// What calls that have returned and those in flight both say.
template <class Record>
void copy_entry(const Record& record, Event& event) {
    event.op = record.op;
    event.depth = record.depth;
    event.start_ns = record.start_ns;
    event.process_start_ns = reported_start_ns(record.process_start_ns);
    for (size_t i = 0; i < event.args.size(); ++i) event.args[i] = record.args[i];
    event.stream = record.stream;
    event.tgid = record.tgid;
    event.tid = record.tid;
    event.stack = record.stack;
    event.device = record.device;
    // The direction of copies that have no parameter for it is in their names.
    if (const Op* op = find_op(event.op); op && op->direction != CopyDirection::as_called)
        event.args[1] = static_cast<uint64_t>(op->direction);
}

void copy_call(const ingero_call_record& record, Event& event) {
    copy_entry(record, event);
    event.flags = record.flags;
    event.duration_ns = record.duration_ns;
    event.return_code = record.return_code;
    event.cpu = record.cpu;
    event.weight = record.weight;
    event.time_weight = record.time_weight == record.weight ? 0 : record.time_weight;
}

/// What records of calls and of waits both say.
template <class Record>
void copy_waits(const Record& record, Event& event) {
    event.runnable_ns = record.runnable_ns;
    event.preempted_ns = record.preempted_ns;
    event.blocked_ns = record.blocked_ns;
    event.preemptor_ns = record.preemptor_ns;
    event.preemptor_tgid = record.preemptor_tgid;
    event.waker_tgid = record.waker_tgid;
    event.blocked_reason = static_cast<BlockedReason>(record.blocked_reason);
    event.waker_kind = static_cast<WakerKind>(record.waker_kind);
    event.blocked_syscall = record.blocked_syscall;
    event.waits = record.waits;
    static_assert(sizeof(event.preemptor_comm) == sizeof(record.preemptor_comm));
    memcpy(event.preemptor_comm.data(), record.preemptor_comm, sizeof(record.preemptor_comm));
    memcpy(event.waker_comm.data(), record.waker_comm, sizeof(record.waker_comm));
}

}  // namespace

bool decode_in_flight(std::span<const std::byte> bytes, InFlightCall& ret_call) {
    ingero_in_flight_call record;
    if (bytes.size() < sizeof(record)) return false;
    memcpy(&record, bytes.data(), sizeof(record));
    ret_call = InFlightCall{};
    Event& call = ret_call.call;
    copy_entry(record, call);
    call.duration_ns = record.now_ns - record.start_ns;
    call.runnable_ns = record.runnable_ns;
    call.blocked_ns = record.blocked_ns;
    call.blocked_reason = static_cast<BlockedReason>(record.blocked_reason);
    ret_call.seen_ns = record.now_ns;
    ret_call.activity = static_cast<ThreadActivity>(record.activity);
    if (record.off_ns != 0 && record.off_ns < record.now_ns) ret_call.activity_ns = record.now_ns - record.off_ns;
    static_assert(sizeof(ret_call.comm) == sizeof(record.comm));
    memcpy(ret_call.comm.data(), record.comm, sizeof(record.comm));
    // The wait in progress, up to now.
    if (ret_call.activity == ThreadActivity::runnable) call.runnable_ns += ret_call.activity_ns;
    if (ret_call.activity == ThreadActivity::blocked) call.blocked_ns += ret_call.activity_ns;
    return true;
}

bool decode_function(std::span<const std::byte> bytes, FunctionRow& row, uint64_t& ret_name_address) {
    ingero_function_record record{};
    if (bytes.size() < offsetof(ingero_function_record, name)) return false;
    memcpy(&record, bytes.data(), std::min(bytes.size(), sizeof(record)));
    if (record.type != INGERO_RECORD_FUNCTION || (bytes.size() < sizeof(record) && record.name_address == 0))
        return false;
    row.process = {record.tgid, reported_start_ns(record.process_start_ns)};
    row.handle = record.handle;
    row.seen_ns = record.time_ns;
    row.name.assign(record.name, strnlen(record.name, INGERO_MAX_NAME - 1));
    ret_name_address = record.name_address;
    return true;
}

bool decode_communicator(std::span<const std::byte> bytes, CommunicatorRow& row) {
    ingero_communicator_record record;
    if (bytes.size() < sizeof(record)) return false;
    memcpy(&record, bytes.data(), sizeof(record));
    if (record.type != INGERO_RECORD_COMMUNICATOR) return false;
    row = {.process = {record.tgid, reported_start_ns(record.process_start_ns)},
           .id = record.id,
           .handle = record.handle,
           .hash = record.hash,
           .parent = record.parent,
           .parent_hash = record.parent_hash,
           .seen_ns = record.time_ns,
           .rank = record.rank,
           .ranks = record.ranks,
           .color = record.color,
           .key = record.key,
           .split = record.split,
           .origin = static_cast<CommunicatorOrigin>(record.origin)};
    return true;
}

bool decode_storm(std::span<const std::byte> bytes, StormReport& report) {
    ingero_storm_record record;
    if (bytes.size() < sizeof(record)) return false;
    memcpy(&record, bytes.data(), sizeof(record));
    if (record.type != INGERO_RECORD_STORM) return false;
    report = {.process = {record.tgid, reported_start_ns(record.process_start_ns)},
              .time_ns = record.time_ns,
              .elapsed_ns = record.elapsed_ns,
              .other_calls = record.calls[0],
              .pace = record.pace};
    const std::vector<OpId>& ops = ops_by_thin_slot();
    for (size_t slot = 1; slot < INGERO_THIN_SLOTS; ++slot) {
        if (record.calls[slot] == 0) continue;
        if (slot < ops.size() && is_hot(ops[slot]))
            report.calls.emplace_back(ops[slot], record.calls[slot]);
        else
            report.other_calls += record.calls[slot];
    }
    return true;
}

bool decode_wait(std::span<const std::byte> bytes, WaitRow& row) {
    ingero_wait_record record;
    if (bytes.size() < sizeof(record)) return false;
    memcpy(&record, bytes.data(), sizeof(record));
    if (record.type != INGERO_RECORD_WAIT) return false;
    row = WaitRow{};
    Event& event = row.event;
    event.op = record.op;
    event.depth = record.depth;
    event.flags = record.flags & (INGERO_CALL_SPLIT_UNCERTAIN | INGERO_CALL_IN_IOWAIT);
    event.start_ns = record.start_ns;
    event.duration_ns = record.duration_ns;
    event.process_start_ns = reported_start_ns(record.process_start_ns);
    event.device = INGERO_DEVICE_UNKNOWN;
    copy_waits(record, event);
    event.longest_sleep_ns = record.blocked_ns;
    event.tgid = record.tgid;
    event.tid = record.tid;
    event.cpu = record.cpu;
    if (record.op == op_wait) {
        event.args = {pack_wait_place({record.waker_tid, static_cast<uint16_t>(record.from_cpu),
                                       (record.flags & INGERO_CALL_WAKER_WATCHED) != 0}),
                      record.detail[0], record.detail[1]};
        event.stream = record.detail[2];
        event.return_code = record.detail_kind | (record.flags & INGERO_CALL_THROTTLED ? wait_throttled : 0);
    } else {
        event.args = {record.detail[0], record.detail[1], record.detail[2]};
    }
    if (record.op == op_waits_summed) {
        event.args[1] = record.duration_ns;
        // Of one whose end was not seen it is known only how long it may have been at most.
        if (!event.split_uncertain()) event.duration_ns = saturating_add(record.runnable_ns, record.blocked_ns);
        event.longest_sleep_ns = 0;
    }
    row.uid = record.uid;
    row.level = record.level;
    memcpy(row.comm.data(), record.comm, sizeof(record.comm));
    return true;
}

bool decode_socket(std::span<const std::byte> bytes, SocketRow& row) {
    ingero_socket_record record;
    if (bytes.size() < sizeof(record)) return false;
    memcpy(&record, bytes.data(), sizeof(record));
    if (record.type != INGERO_RECORD_SOCKET) return false;
    row = SocketRow{.event = {}, .inode = record.inode, .uid = record.uid};
    row.event.op = record.op;
    row.event.start_ns = record.time_ns;
    row.event.args = {record.address[0], record.address[1], uint64_t{record.stalled_us} * 1000};
    row.event.stream = record.ports;
    row.event.return_code = record.error;
    row.event.tgid = record.tgid;
    row.event.process_start_ns = reported_start_ns(record.process_start_ns);
    return true;
}

bool decode_call(std::span<const std::byte> bytes, Event& event) {
    uint32_t type = 0;
    if (bytes.size() < sizeof(type)) return false;
    memcpy(&type, bytes.data(), sizeof(type));
    event = Event{};
    if (type == INGERO_RECORD_CALL && bytes.size() >= sizeof(ingero_call_record)) {
        ingero_call_record record;
        memcpy(&record, bytes.data(), sizeof(record));
        copy_call(record, event);
        return true;
    }
    if (type == INGERO_RECORD_CALL_WAIT && bytes.size() >= sizeof(ingero_call_wait_record)) {
        ingero_call_wait_record record;
        memcpy(&record, bytes.data(), sizeof(record));
        copy_call(record.call, event);
        copy_waits(record, event);
        event.longest_sleep_ns = record.longest_sleep_ns;
        event.last_wait_ns = record.last_wait_ns;
        event.last_runnable_ns = record.last_runnable_ns;
        event.last_reason = static_cast<BlockedReason>(record.last_reason);
        event.tail_ns = record.tail_ns;
        return true;
    }
    return false;
}

}  // namespace ingero
