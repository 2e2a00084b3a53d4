#include "core/diagnosis/incidents/known_processes.h"

#include <iterator>
#include <optional>
#include <string_view>

#include "core/model/call_time.h"

namespace ingero {

namespace {

/// What CUDA_VISIBLE_DEVICES has at this place; nothing where it has no such place.
std::optional<std::string_view> entry_at(std::string_view list, size_t place) {
    for (; place > 0; --place) {
        const size_t comma = list.find(',');
        if (comma == std::string_view::npos) return std::nullopt;
        list.remove_prefix(comma + 1);
    }
    return list.substr(0, list.find(','));
}

bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// The device's number, or its UUID, among those of its container or host.
std::optional<std::string> name_of_device(const Process* process, uint16_t ordinal) {
    if (ordinal == INGERO_DEVICE_UNKNOWN) return std::nullopt;
    if (!process || process->facts.cuda_visible_devices.empty()) return std::to_string(ordinal);
    const auto entry = entry_at(process->facts.cuda_visible_devices, ordinal);
    return entry ? std::optional<std::string>(*entry) : std::nullopt;
}

}  // namespace

uint64_t started_ns(const ProcessKey& process, const ClockTriple& clock) {
    const uint64_t suspended_ns = saturating_subtract(clock.boottime_ns, clock.monotonic_ns);
    return saturating_subtract(process.start_ns, suspended_ns);
}

KnownProcesses::KnownProcesses(const std::vector<Process>& processes, std::map<ProcessKey, uint64_t> dropped_until,
                               const ClockTriple& clock)
    : dropped_until_(std::move(dropped_until)), clock_(clock) {
    Rows rows;
    for (const Process& process : processes) rows[process.key] = &process;
    processes_ = std::make_shared<const Rows>(std::move(rows));
}

KnownProcesses KnownProcesses::of_boot(const std::map<ProcessKey, uint32_t>& boots, uint32_t boot_index,
                                       const ClockTriple& clock) const {
    KnownProcesses own = *this;
    own.boots_ = &boots;
    own.boot_index_ = boot_index;
    own.clock_ = clock;
    return own;
}

const Process* KnownProcesses::find(const ProcessKey& process) const {
    const auto found = processes_->find(process);
    return found == processes_->end() ? nullptr : found->second;
}

const Process* KnownProcesses::during(uint32_t pid, const Window& window) const {
    const auto is_of_another_boot = [&](const ProcessKey& process) {
        if (!boots_) return false;
        const auto boot = boots_->find(process);
        return boot != boots_->end() && boot->second != boot_index_;
    };
    auto one = processes_->upper_bound({pid, UINT64_MAX});
    while (one != processes_->begin() && std::prev(one)->first.pid == pid) {
        --one;
        if (started_ns(one->first, clock_) > window.to_ns || is_of_another_boot(one->first)) continue;
        // Those before it had ended earlier.
        return one->second->exited_ns == 0 || one->second->exited_ns >= window.from_ns ? one->second : nullptr;
    }
    return nullptr;
}

std::string KnownProcesses::name(const ProcessKey& process) const {
    const Process* known = find(process);
    return known ? known->comm : std::string();
}

uint64_t KnownProcesses::exited_ns(const ProcessKey& process) const {
    const Process* known = find(process);
    return known && known->exited_ns != 0 ? known->exited_ns : UINT64_MAX;
}

uint64_t KnownProcesses::dropped_until_ns(const ProcessKey& process) const {
    const auto found = dropped_until_.find(process);
    return found == dropped_until_.end() ? 0 : found->second;
}

SameDevice KnownProcesses::same_device(const ProcessKey& a, uint16_t device_of_a, const ProcessKey& b,
                                       uint16_t device_of_b) const {
    const Process* const known_a = find(a);
    const Process* const known_b = find(b);
    // A container numbers the devices that it was given anew.
    if (known_a && known_b &&
        (known_a->facts.container != known_b->facts.container ||
         known_a->facts.nvidia_visible_devices != known_b->facts.nvidia_visible_devices))
        return SameDevice::unknown;
    const auto name_a = name_of_device(known_a, device_of_a), name_b = name_of_device(known_b, device_of_b);
    if (!name_a || !name_b)
        return device_of_a == device_of_b && !name_a && !name_b ? SameDevice::yes : SameDevice::unknown;
    if (*name_a == *name_b) return SameDevice::yes;
    return is_number(*name_a) == is_number(*name_b) ? SameDevice::no : SameDevice::unknown;
}

}  // namespace ingero
