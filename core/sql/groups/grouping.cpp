#include "core/sql/groups/grouping.h"

#include <algorithm>
#include <array>

namespace ingero {

namespace {

using enum ColumnId;
constexpr std::array<ColumnId, 0> of_none{};
constexpr std::array of_pid{tgid};
constexpr std::array of_process{tgid, process_start};
constexpr std::array of_kernel{tgid, process_start, argument_0};
constexpr std::array of_weights{time_weight, weight};

/// Columns that are stored as they are.
template <ColumnId id>
constexpr std::array<ColumnId, 1> only{id};

}  // namespace

std::optional<std::span<const ColumnId>> key_sources(EventColumn column) {
    switch (column) {
        case EventColumn::op:
        case EventColumn::source:
        case EventColumn::op_num:
        case EventColumn::source_num:
        case EventColumn::node:
            return of_none;
        case EventColumn::pid:
            return of_pid;
        case EventColumn::comm:
        case EventColumn::cgroup_id:
        case EventColumn::rank:
        case EventColumn::local_rank:
        case EventColumn::world_size:
            return of_process;
        case EventColumn::kernel:
            return of_kernel;
        case EventColumn::time_weight:
            return of_weights;
        case EventColumn::tid:
            return only<tid>;
        case EventColumn::gpu_id:
        case EventColumn::device:
            return only<device>;
        case EventColumn::arg0:
        case EventColumn::bytes:
            return only<argument_0>;
        case EventColumn::arg1:
        case EventColumn::direction:
            return only<argument_1>;
        case EventColumn::arg2:
            return only<argument_2>;
        case EventColumn::ret_code:
        case EventColumn::error:
            return only<return_code>;
        case EventColumn::stack_hash:
            return only<stack>;
        case EventColumn::blocked_on:
            return only<blocked_reason>;
        case EventColumn::syscall:
            return only<blocked_syscall>;
        case EventColumn::stream:
            return only<stream>;
        case EventColumn::depth:
            return only<depth>;
        case EventColumn::weight:
            return only<weight>;
        case EventColumn::cpu:
            return only<cpu>;
        case EventColumn::waits:
            return only<waits>;
        case EventColumn::split_uncertain:
            return only<flags>;
        case EventColumn::preemptor_pid:
            return only<preemptor_tgid>;
        case EventColumn::waker_pid:
            return only<waker_tgid>;
        default:
            return std::nullopt;
    }
}

bool is_of_operation(EventColumn column) {
    const auto sources = key_sources(column);
    return sources && sources->empty();
}

bool can_be_summed(EventColumn column) {
    switch (column) {
        case EventColumn::id:
        case EventColumn::timestamp:
        case EventColumn::start_ns:
        case EventColumn::end_ns:
        case EventColumn::duration:
        case EventColumn::duration_ns:
        case EventColumn::on_cpu_ns:
        case EventColumn::runnable_ns:
        case EventColumn::blocked_ns:
        case EventColumn::arg0:
        case EventColumn::arg1:
        case EventColumn::arg2:
        case EventColumn::bytes:
        case EventColumn::weight:
        case EventColumn::time_weight:
        case EventColumn::preemptor_ns:
        case EventColumn::preempted_ns:
        case EventColumn::longest_sleep_ns:
        case EventColumn::last_wait_ns:
        case EventColumn::tail_ns:
        case EventColumn::waits:
        case EventColumn::pid:
        case EventColumn::tid:
            return true;
        default:
            return false;
    }
}

bool can_be_divided(EventColumn column) {
    return column == EventColumn::timestamp || column == EventColumn::start_ns || column == EventColumn::duration ||
           column == EventColumn::duration_ns;
}

bool Grouping::has_key(EventColumn column) const {
    return is_of_operation(column) || std::find(keys.begin(), keys.end(), column) != keys.end();
}

std::vector<ColumnId> Grouping::stored() const {
    std::vector<ColumnId> found;
    for (const EventColumn key : keys)
        for (const ColumnId id : key_sources(key).value_or(std::span<const ColumnId>()))
            if (std::find(found.begin(), found.end(), id) == found.end()) found.push_back(id);
    return found;
}

}  // namespace ingero
