#include <cstring>

#include "core/model/op.h"
#include "daemon/ingerod/ingest/ingest.h"

namespace ingero {

namespace {

// USER_HZ: the unit of the start time in /proc/PID/stat, by which everyone else names a process's start.
constexpr uint64_t start_unit_ns = 10'000'000;

// The direction of driver copies is in their names: cudaMemcpyKind values.
void name_direction(Event& event) {
    switch (event.op) {
        case make_op(source_driver, 120):
        case make_op(source_driver, 123):
            event.args[1] = 1;
            break;
        case make_op(source_driver, 121):
        case make_op(source_driver, 124):
            event.args[1] = 2;
            break;
        case make_op(source_driver, 122):
        case make_op(source_driver, 125):
        case make_op(source_cuda, 11):
        case make_op(source_cuda, 12):
            event.args[1] = 3;
            break;
        case make_op(source_driver, 2):
        case make_op(source_driver, 3):
            event.args[1] = 4;
            break;
        default:
            break;
    }
}

void copy_call(const ingero_call_record& record, Event& event) {
    event.op = record.op;
    event.depth = record.depth;
    event.flags = record.flags;
    event.start_ns = record.start_ns;
    event.duration_ns = record.duration_ns;
    event.process_start_ns = record.process_start_ns / start_unit_ns * start_unit_ns;
    for (size_t i = 0; i < event.args.size(); ++i) event.args[i] = record.args[i];
    event.stream = record.stream;
    event.tgid = record.tgid;
    event.tid = record.tid;
    event.return_code = record.return_code;
    event.cpu = record.cpu;
    name_direction(event);
}

void copy_waits(const ingero_call_wait_record& record, Event& event) {
    event.runnable_ns = record.runnable_ns;
    event.preempted_ns = record.preempted_ns;
    event.blocked_ns = record.blocked_ns;
    event.longest_sleep_ns = record.longest_sleep_ns;
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
        return true;
    }
    return false;
}

}  // namespace ingero
