// The columns of an event as SQL shows them: what the virtual table gives to SQLite, and exports to their files.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "core/model/op.h"
#include "core/model/text/error_names.h"
#include "core/model/text/syscall_names.h"
#include "core/sql/catalogue.h"
#include "core/sql/events/event_cursor.h"
#include "core/sql/events/event_index.h"

namespace ingero {

/// Rows come in runs of one process: kept from row to row.
struct LastProcess {
    ProcessKey key;
    const EventIndex::ProcessEntry* entry = nullptr;
    bool known = false;
};

/// Writes columns of the row that a cursor stands on to a sink, as SQL shows them. `Sink` accepts a value by number(),
/// lasting_text() (which lives as long as the index) or passing_text(), and nothing for null. Where decoding fails,
/// error() returns why at the end. `Rows` stands on the row, as an EventCursor does.
template <class Rows, class Sink>
class EventRow {
  public:
    EventRow(const EventIndex& index, Rows& rows, LastProcess& last, Sink& sink)
        : index_(index), rows_(rows), last_(last), sink_(sink) {}

    void give(EventColumn column);
    const std::optional<Error>& error() const { return error_; }

  private:
    uint64_t value(ColumnId id) {
        if (const uint64_t* decoded = rows_.decoded(id)) return *decoded;
        auto found = rows_.value(id);
        if (found) return *found;
        error_ = found.error();
        return 0;
    }
    void number(uint64_t value) { sink_.number(value); }
    void number(ColumnId id) { number(value(id)); }
    /// Null where it is 0.
    void number_or_null(uint64_t value) {
        if (value != 0) number(value);
    }
    /// Of what lives as long as the index.
    void lasting_text(std::string_view text) { sink_.lasting_text(text); }
    void passing_text(std::string_view text) {
        if (!text.empty()) sink_.passing_text(text);
    }
    ProcessKey process() { return {static_cast<uint32_t>(value(ColumnId::tgid)), value(ColumnId::process_start)}; }
    const EventIndex::ProcessEntry* entry() {
        const ProcessKey key = process();
        if (!last_.known || key != last_.key) last_ = {key, index_.process(key), true};
        return last_.entry;
    }
    bool is(OpClass op_class) const { return rows_.op().known && rows_.op().known->op_class == op_class; }
    uint64_t realtime(uint64_t monotonic) const { return rows_.boot().window.clock.to_realtime(monotonic); }

    void times(EventColumn column);
    void identity(EventColumn column);
    void waits(EventColumn column);
    void call(EventColumn column);

    const EventIndex& index_;
    Rows& rows_;
    LastProcess& last_;
    Sink& sink_;
    std::optional<Error> error_;
};

template <class Rows, class Sink>
void EventRow<Rows, Sink>::times(EventColumn column) {
    const uint64_t duration = value(ColumnId::duration);
    const uint64_t runnable = std::min(value(ColumnId::runnable), duration);
    const uint64_t blocked = std::min(value(ColumnId::blocked), duration - runnable);
    if (column == EventColumn::on_cpu_ns) number(duration - runnable - blocked);
    if (column == EventColumn::runnable_ns) number(runnable);
    if (column == EventColumn::blocked_ns) number(blocked);
}

template <class Rows, class Sink>
void EventRow<Rows, Sink>::identity(EventColumn column) {
    switch (column) {
        case EventColumn::comm:
            if (const auto* found = entry()) lasting_text(found->process.comm);
            return;
        case EventColumn::cgroup_id: {
            const auto* found = entry();
            return number(found ? static_cast<uint64_t>(found->cgroup_id) : 0);
        }
        case EventColumn::node:
            return lasting_text(rows_.boot().node);
        case EventColumn::rank:
        case EventColumn::local_rank:
        case EventColumn::world_size: {
            const auto* found = entry();
            if (!found) return;
            const ProcessFacts& facts = found->process.facts;
            const auto& value = column == EventColumn::rank         ? facts.rank
                                : column == EventColumn::local_rank ? facts.local_rank
                                                                    : facts.world_size;
            if (value) number(*value);
            return;
        }
        default:
            return;
    }
}

template <class Rows, class Sink>
void EventRow<Rows, Sink>::waits(EventColumn column) {
    switch (column) {
        case EventColumn::blocked_on: {
            const auto reason = static_cast<BlockedReason>(value(ColumnId::blocked_reason));
            if (reason != BlockedReason::none) lasting_text(to_string(reason));
            return;
        }
        case EventColumn::syscall: {
            const uint64_t number = value(ColumnId::blocked_syscall);
            constexpr uint64_t none = Event{}.blocked_syscall;
            if (number != none) passing_text(syscall_name(static_cast<uint16_t>(number)));
            return;
        }
        case EventColumn::preemptor: {
            const uint64_t comm = value(ColumnId::preemptor_comm);
            return passing_text(to_string_view(rows_.comm(comm)));
        }
        case EventColumn::waker: {
            const uint64_t comm = value(ColumnId::waker_comm);
            return passing_text(to_string_view(rows_.comm(comm)));
        }
        case EventColumn::preemptor_pid:
            return number_or_null(visible_pid(static_cast<uint32_t>(value(ColumnId::preemptor_tgid))));
        case EventColumn::waker_pid:
            return number_or_null(visible_pid(static_cast<uint32_t>(value(ColumnId::waker_tgid))));
        case EventColumn::preemptor_ns:
            return number(ColumnId::preemptor_time);
        case EventColumn::preempted_ns:
            return number(ColumnId::preempted);
        case EventColumn::longest_sleep_ns:
            return number(ColumnId::longest_sleep);
        case EventColumn::waits:
            return number(ColumnId::waits);
        case EventColumn::last_wait_ns:
            return number_or_null(value(ColumnId::last_wait));
        case EventColumn::last_runnable_ns:
            if (value(ColumnId::last_wait) != 0) number(ColumnId::last_runnable);
            return;
        case EventColumn::last_blocked_on: {
            const auto reason = static_cast<BlockedReason>(value(ColumnId::last_reason));
            if (reason != BlockedReason::none) lasting_text(to_string(reason));
            return;
        }
        case EventColumn::tail_ns:
            if (value(ColumnId::last_wait) != 0) number(ColumnId::tail);
            return;
        default:
            return;
    }
}

template <class Rows, class Sink>
void EventRow<Rows, Sink>::call(EventColumn column) {
    switch (column) {
        case EventColumn::kernel:
            if (is(OpClass::launch)) {
                const auto& name = index_.kernel_name(process(), value(ColumnId::argument_0));
                if (!name.empty()) lasting_text(name);
            }
            return;
        case EventColumn::bytes:
            if (is(OpClass::alloc) || is(OpClass::copy) || is(OpClass::collective)) number(ColumnId::argument_0);
            return;
        case EventColumn::direction: {
            static constexpr std::array<std::string_view, 5> names = {"H2H", "H2D", "D2H", "D2D", "default"};
            if (!is(OpClass::copy)) return;
            const uint64_t direction = value(ColumnId::argument_1);
            if (direction < names.size()) lasting_text(names[direction]);
            return;
        }
        case EventColumn::gpu_id:
        case EventColumn::device: {
            const uint64_t device = value(ColumnId::device);
            if (device != INGERO_DEVICE_UNKNOWN) number(device);
            return;
        }
        case EventColumn::error:
            return passing_text(error_name(rows_.op().id, static_cast<int32_t>(value(ColumnId::return_code))));
        case EventColumn::split_uncertain:
            return number(value(ColumnId::flags) & INGERO_CALL_SPLIT_UNCERTAIN ? 1 : 0);
        case EventColumn::stream:
            return number(ColumnId::stream);
        case EventColumn::depth:
            return number(ColumnId::depth);
        case EventColumn::cpu:
            return number(ColumnId::cpu);
        case EventColumn::arg2:
            return number(ColumnId::argument_2);
        default:
            return;
    }
}

template <class Rows, class Sink>
void EventRow<Rows, Sink>::give(EventColumn column) {
    switch (column) {
        case EventColumn::id:
            return number(ColumnId::sequence);
        case EventColumn::timestamp:
        case EventColumn::start_ns:
            return number(realtime(value(ColumnId::start)));
        case EventColumn::end_ns:
            return number(realtime(value(ColumnId::start) + value(ColumnId::duration)));
        case EventColumn::pid:
            return number(visible_pid(static_cast<uint32_t>(value(ColumnId::tgid))));
        case EventColumn::tid:
            return number(ColumnId::tid);
        case EventColumn::source:
            return lasting_text(rows_.op().source);
        case EventColumn::op:
            return lasting_text(rows_.op().name);
        case EventColumn::source_num:
            return number(rows_.op().source_number());
        case EventColumn::op_num:
            return number(rows_.op().number());
        case EventColumn::duration:
        case EventColumn::duration_ns:
            return number(ColumnId::duration);
        case EventColumn::arg0:
            return number(ColumnId::argument_0);
        case EventColumn::arg1:
            return number(ColumnId::argument_1);
        case EventColumn::ret_code:
            return number(ColumnId::return_code);
        case EventColumn::stack_hash:
            return number(ColumnId::stack);
        case EventColumn::weight:
            return number(ColumnId::weight);
        case EventColumn::time_weight:
            return number(value(ColumnId::time_weight) != 0 ? ColumnId::time_weight : ColumnId::weight);
        case EventColumn::on_cpu_ns:
        case EventColumn::runnable_ns:
        case EventColumn::blocked_ns:
            return times(column);
        case EventColumn::rank:
        case EventColumn::local_rank:
        case EventColumn::world_size:
        case EventColumn::comm:
        case EventColumn::cgroup_id:
        case EventColumn::node:
            return identity(column);
        case EventColumn::blocked_on:
        case EventColumn::syscall:
        case EventColumn::preemptor:
        case EventColumn::waker:
        case EventColumn::preemptor_pid:
        case EventColumn::waker_pid:
        case EventColumn::preemptor_ns:
        case EventColumn::preempted_ns:
        case EventColumn::longest_sleep_ns:
        case EventColumn::waits:
        case EventColumn::last_wait_ns:
        case EventColumn::last_runnable_ns:
        case EventColumn::last_blocked_on:
        case EventColumn::tail_ns:
            return waits(column);
        default:
            return call(column);
    }
}

}  // namespace ingero
