#include "daemon/ingerod/live/remembered_processes.h"

#include <algorithm>
#include <utility>

#include "core/model/call_time.h"

namespace ingero {

RememberedProcesses::Place RememberedProcesses::place_of(const Remembered& one) {
    const bool lives = one.process.exited_ns == 0;
    return {lives, one.role, lives ? one.put_number : one.process.exited_ns, one.process.key};
}

std::optional<Process> RememberedProcesses::put(const Process& process, ProcessRole role) {
    const auto [known, is_new] = processes_.try_emplace(process.key);
    Remembered& one = known->second;
    if (!is_new) places_.erase(place_of(one));
    one = {process, std::max(one.role, role), ++puts_};
    places_.insert(place_of(one));
    if (processes_.size() <= limit_) return std::nullopt;
    const auto first = processes_.find(places_.begin()->process);
    std::optional<Process> dropped = std::move(first->second.process);
    places_.erase(places_.begin());
    processes_.erase(first);
    return dropped;
}

void RememberedProcesses::set_rank(const ProcessKey& process) {
    const auto known = processes_.find(process);
    if (known == processes_.end()) return;
    places_.erase(place_of(known->second));
    known->second.role = ProcessRole::rank;
    places_.insert(place_of(known->second));
}

void RememberedProcesses::erase(const ProcessKey& process) {
    const auto known = processes_.find(process);
    if (known == processes_.end()) return;
    places_.erase(place_of(known->second));
    processes_.erase(known);
}

std::set<RememberedProcesses::Place>::const_iterator RememberedProcesses::end_of_long_ended(ProcessRole role,
                                                                                            uint64_t now_ns) const {
    return places_.lower_bound({false, role, saturating_subtract(now_ns, remembered_ns_), {}});
}

void RememberedProcesses::forget_ended(uint64_t now_ns) {
    for (const ProcessRole role : {ProcessRole::bystander, ProcessRole::traced}) {
        const auto end = end_of_long_ended(role, now_ns);
        for (auto one = places_.lower_bound({false, role, 0, {}}); one != end; one = places_.erase(one))
            processes_.erase(one->process);
    }
}

std::vector<ProcessKey> RememberedProcesses::long_ended_ranks(uint64_t now_ns) const {
    std::vector<ProcessKey> ranks;
    const auto end = end_of_long_ended(ProcessRole::rank, now_ns);
    for (auto one = places_.lower_bound({false, ProcessRole::rank, 0, {}}); one != end; ++one)
        ranks.push_back(one->process);
    return ranks;
}

const Process* RememberedProcesses::find(const ProcessKey& process) const {
    const auto known = processes_.find(process);
    return known == processes_.end() ? nullptr : &known->second.process;
}

std::vector<Process> RememberedProcesses::all() const {
    std::vector<Process> all;
    all.reserve(processes_.size());
    for (const auto& [key, one] : processes_) all.push_back(one.process);
    return all;
}

}  // namespace ingero
