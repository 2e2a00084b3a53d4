#include "daemon/ingerod/discovery/mapped_text.h"

#include <algorithm>
#include <utility>

#include "core/model/time.h"

namespace ingero {

std::optional<MappedText::Opened> MappedText::open_anew(const ProcessKey& process, uint64_t address) {
    auto mapping = proc_.mapping_at(process.pid, address);
    if (!mapping) return std::nullopt;
    auto file = proc_.open_mapped_file(process.pid, *mapping);
    if (!file || proc_.start_of(process.pid) != process.start_ns) return std::nullopt;
    return Opened{process, std::move(*mapping), std::make_shared<const UniqueFd>(std::move(*file))};
}

const MappedText::Opened* MappedText::open(const ProcessKey& process, uint64_t address) {
    const auto known = std::find_if(opened_.begin(), opened_.end(), [&](const Opened& one) {
        return one.process == process && one.mapping.start <= address && address < one.mapping.end;
    });
    if (known != opened_.end()) {
        opened_.splice(opened_.begin(), opened_, known);
        return &opened_.front();
    }
    const auto uid = proc_.user_of(process.pid);
    const uint64_t from_ns = monotonic_now_ns();
    if (!uid || !times_.take(owner_of_(*uid), from_ns)) return nullptr;
    auto opened = open_anew(process, address);
    const uint64_t to_ns = monotonic_now_ns();
    times_.charge(owner_of_(*uid), to_ns, (to_ns - from_ns) / 1'000);
    if (!opened) return nullptr;
    if (opened_.size() == max_opened) opened_.pop_back();
    opened_.push_front(std::move(*opened));
    return &opened_.front();
}

std::optional<std::string> MappedText::read(const ProcessKey& process, uint64_t address, size_t most) {
    const Opened* found = open(process, address);
    if (!found) return std::nullopt;
    const Mapping& mapping = found->mapping;
    const size_t bytes = std::min<uint64_t>(most, mapping.end - address);
    auto text =
        proc_.read_at(process.pid, mapping.file, found->file, mapping.offset + (address - mapping.start), bytes);
    const size_t end = text ? text->find('\0') : 0;
    if (end == 0 || (end == std::string::npos && text->size() < most)) return std::nullopt;
    text->resize(std::min(end, text->size()));
    return text;
}

void MappedText::forget(uint32_t pid) {
    opened_.remove_if([pid](const Opened& one) { return one.process.pid == pid; });
}

}  // namespace ingero
