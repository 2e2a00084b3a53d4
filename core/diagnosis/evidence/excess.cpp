#include "core/diagnosis/evidence/excess.h"

#include <algorithm>

#include "core/model/call_time.h"
#include "core/model/op.h"

namespace ingero {

namespace {

constexpr size_t max_groups = 16'384;

void add_assigned(ExcessSums& sums, const Assignment& assignment) {
    sums.excess_ns = saturating_add(sums.excess_ns, assignment.of_all(assignment.excess_ns));
    for (size_t cause = 0; cause < cause_count; ++cause)
        sums.ns[cause] = saturating_add(sums.ns[cause], assignment.of_all(assignment.ns[cause]));
}

void add_uncertain_to(ExcessSums& sums, uint64_t excess_ns, bool waits_for_device) {
    sums.excess_ns = saturating_add(sums.excess_ns, excess_ns);
    sums.uncertain_ns = saturating_add(sums.uncertain_ns, excess_ns);
    if (waits_for_device) sums.uncertain_device_ns = saturating_add(sums.uncertain_device_ns, excess_ns);
}

}  // namespace

void ExcessSums::add(const ExcessSums& other) {
    calls = saturating_add(calls, other.calls);
    busy_ns = saturating_add(busy_ns, other.busy_ns);
    excess_ns = saturating_add(excess_ns, other.excess_ns);
    uncertain_ns = saturating_add(uncertain_ns, other.uncertain_ns);
    uncertain_device_ns = saturating_add(uncertain_device_ns, other.uncertain_device_ns);
    for (size_t cause = 0; cause < cause_count; ++cause) ns[cause] = saturating_add(ns[cause], other.ns[cause]);
}

std::vector<std::pair<std::string, uint64_t>> ExcessSums::by_cause() const {
    std::vector<std::pair<std::string, uint64_t>> list;
    uint64_t rest_ns = excess_ns;
    const auto add_part = [&](std::string name, uint64_t part_ns) {
        const uint64_t part_of_rest_ns = std::min(part_ns, rest_ns);
        rest_ns -= part_of_rest_ns;
        if (part_of_rest_ns != 0) list.emplace_back(std::move(name), part_of_rest_ns);
    };
    for (size_t cause = 0; cause < cause_count; ++cause)
        add_part(std::string(to_string(static_cast<Cause>(cause))), ns[cause]);
    add_part(std::string(uncertain_split), uncertain_ns);
    add_part(std::string(unexplained), rest_ns);
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return list;
}

Excess::Excess(const Window& window, size_t slices) : window_(window), slices_(slices), index_(max_groups) {}

ExcessSums& Excess::group_of(const Event& event) {
    const Group group{event.process(), event.device};
    if (last_number_ == KeyIndex<Group>::none || !(group == last_)) {
        last_number_ = index_.find_or_add(group);
        if (last_number_ == KeyIndex<Group>::none) return others_;
        last_ = group;
        if (last_number_ == groups_.size()) groups_.emplace_back();
    }
    return groups_[last_number_];
}

ExcessSlice* Excess::slice_of(const Event& event) {
    if (slices_.empty() || window_.length_ns() == 0) return nullptr;
    const uint64_t start_ns = std::clamp(event.start_ns, window_.from_ns, window_.to_ns - 1) - window_.from_ns;
    const auto number =
        static_cast<size_t>(static_cast<unsigned __int128>(start_ns) * slices_.size() / window_.length_ns());
    return &slices_[number];
}

void Excess::saw(const Event& event) {
    const auto count = [&](auto& sums) {
        sums.calls = saturating_add(sums.calls, event.weight);
        sums.busy_ns = saturating_add(sums.busy_ns, saturating_multiply(event.duration_ns, event.times()));
    };
    count(group_of(event));
    ExcessSlice* slice = slice_of(event);
    if (!slice) return;
    count(slice->sums);
    count(slice->ops[event.op]);
}

void Excess::add(const Event& event, const Assignment& assignment) {
    add_assigned(group_of(event), assignment);
    if (ExcessSlice* slice = slice_of(event)) add_assigned(slice->sums, assignment);
}

void Excess::add_uncertain(const Event& event, uint64_t excess_ns) {
    const Op* const op = find_op(event.op);
    const bool waits_for_device = op && op->waits_for_device;
    add_uncertain_to(group_of(event), excess_ns, waits_for_device);
    if (ExcessSlice* slice = slice_of(event)) add_uncertain_to(slice->sums, excess_ns, waits_for_device);
}

}  // namespace ingero
