#include "daemon/ingerod/discovery/mapped_text.h"

#include <algorithm>
#include <utility>

#include "core/model/time.h"

namespace ingero {

bool MappedText::open(const ProcessKey& process, uint64_t address) {
    const auto holds = [&] {
        return last_ && last_->process == process && last_->mapping.start <= address && address < last_->mapping.end;
    };
    if (holds()) return true;
    last_.reset();
    const auto uid = proc_.user_of(process.pid);
    if (!uid) return false;
    const uint32_t user = owner_of_(*uid);
    if (user != 0 && !opens_.take(user, monotonic_now_ns())) return false;
    auto mapping = proc_.mapping_at(process.pid, address);
    if (!mapping) return false;
    auto file = proc_.open_mapped_file(process.pid, *mapping);
    if (!file || proc_.start_of(process.pid) != process.start_ns) return false;
    last_ = Opened{process, std::move(*mapping), std::make_shared<const UniqueFd>(std::move(*file))};
    return true;
}

std::optional<std::string> MappedText::read(const ProcessKey& process, uint64_t address, size_t most) {
    if (!open(process, address)) return std::nullopt;
    const Mapping& mapping = last_->mapping;
    const size_t bytes = std::min<uint64_t>(most, mapping.end - address);
    auto text = proc_.read_at(process.pid, last_->file, mapping.offset + (address - mapping.start), bytes);
    if (!text) return std::nullopt;
    text->resize(std::min(text->find('\0'), text->size()));
    return text->empty() ? std::nullopt : std::move(text);
}

}  // namespace ingero
