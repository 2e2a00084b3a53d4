#include "core/query/kernel_names.h"

namespace ingero {

Result<KernelNames> KernelNames::read(const StoreSnapshot& snapshot) {
    const auto functions = snapshot.functions();
    if (!functions) return tl::unexpected(functions.error());
    KernelNames kernels;
    std::map<std::string, uint32_t> known;
    for (const FunctionRow& row : *functions) {
        const auto [at, added] = known.try_emplace(row.name, static_cast<uint32_t>(kernels.names_.size()));
        if (added) kernels.names_.push_back(row.name);
        kernels.numbers_[{row.process, row.handle}] = at->second;
    }
    return kernels;
}

uint32_t KernelNames::number(const ProcessKey& process, uint64_t function) const {
    const auto found = numbers_.find({process, function});
    return found == numbers_.end() ? 0 : found->second;
}

std::string KernelNames::text(uint32_t number) const {
    return demangler_.text(names_[number]);
}

}  // namespace ingero
