// The columns of stored events: their numbers, and which field of Event each one is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/model/event.h"

namespace ingero {

/// Stored, and never used again for something else.
enum class ColumnId : uint8_t {
    sequence = 1,
    start = 2,
    duration = 3,
    runnable = 4,
    preempted = 5,
    blocked = 6,
    longest_sleep = 7,
    preemptor_time = 8,
    argument_0 = 9,
    argument_1 = 10,
    argument_2 = 11,
    stream = 12,
    process_start = 13,
    tgid = 14,
    tid = 15,
    cpu = 16,
    waits = 17,
    return_code = 18,
    preemptor_tgid = 19,
    waker_tgid = 20,
    op = 21,
    blocked_syscall = 22,
    depth = 23,
    flags = 24,
    blocked_reason = 25,
    waker_kind = 26,
    preemptor_comm = 27,
    waker_comm = 28,
    device = 29,
    weight = 30,
    stack = 31,
    last_wait = 32,
    last_runnable = 33,
    tail = 34,
    last_reason = 35,
    time_weight = 36,
};

/// Numbers of columns are below it: a word has a bit for each.
inline constexpr size_t max_columns = 64;

/// Calls visit(id, get) for each; get(event) is a reference to the field.
template <class Visit>
constexpr void for_each_column(Visit&& visit) {
    using enum ColumnId;
    visit(
        sequence, [](auto& event) -> auto& { return event.sequence; });
    visit(
        start, [](auto& event) -> auto& { return event.start_ns; });
    visit(
        duration, [](auto& event) -> auto& { return event.duration_ns; });
    visit(
        runnable, [](auto& event) -> auto& { return event.runnable_ns; });
    visit(
        preempted, [](auto& event) -> auto& { return event.preempted_ns; });
    visit(
        blocked, [](auto& event) -> auto& { return event.blocked_ns; });
    visit(
        longest_sleep, [](auto& event) -> auto& { return event.longest_sleep_ns; });
    visit(
        preemptor_time, [](auto& event) -> auto& { return event.preemptor_ns; });
    visit(
        argument_0, [](auto& event) -> auto& { return event.args[0]; });
    visit(
        argument_1, [](auto& event) -> auto& { return event.args[1]; });
    visit(
        argument_2, [](auto& event) -> auto& { return event.args[2]; });
    visit(
        stream, [](auto& event) -> auto& { return event.stream; });
    visit(
        process_start, [](auto& event) -> auto& { return event.process_start_ns; });
    visit(
        tgid, [](auto& event) -> auto& { return event.tgid; });
    visit(
        tid, [](auto& event) -> auto& { return event.tid; });
    visit(
        cpu, [](auto& event) -> auto& { return event.cpu; });
    visit(
        waits, [](auto& event) -> auto& { return event.waits; });
    visit(
        return_code, [](auto& event) -> auto& { return event.return_code; });
    visit(
        preemptor_tgid, [](auto& event) -> auto& { return event.preemptor_tgid; });
    visit(
        waker_tgid, [](auto& event) -> auto& { return event.waker_tgid; });
    visit(
        op, [](auto& event) -> auto& { return event.op; });
    visit(
        blocked_syscall, [](auto& event) -> auto& { return event.blocked_syscall; });
    visit(
        depth, [](auto& event) -> auto& { return event.depth; });
    visit(
        flags, [](auto& event) -> auto& { return event.flags; });
    visit(
        blocked_reason, [](auto& event) -> auto& { return event.blocked_reason; });
    visit(
        waker_kind, [](auto& event) -> auto& { return event.waker_kind; });
    visit(
        preemptor_comm, [](auto& event) -> auto& { return event.preemptor_comm; });
    visit(
        waker_comm, [](auto& event) -> auto& { return event.waker_comm; });
    visit(
        device, [](auto& event) -> auto& { return event.device; });
    visit(
        weight, [](auto& event) -> auto& { return event.weight; });
    visit(
        stack, [](auto& event) -> auto& { return event.stack; });
    visit(
        last_wait, [](auto& event) -> auto& { return event.last_wait_ns; });
    visit(
        last_runnable, [](auto& event) -> auto& { return event.last_runnable_ns; });
    visit(
        tail, [](auto& event) -> auto& { return event.tail_ns; });
    visit(
        last_reason, [](auto& event) -> auto& { return event.last_reason; });
    visit(
        time_weight, [](auto& event) -> auto& { return event.time_weight; });
}

template <class Get>
using column_field = std::remove_cvref_t<std::invoke_result_t<Get, Event&>>;

}  // namespace ingero
