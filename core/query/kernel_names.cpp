#include "core/query/kernel_names.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

namespace ingero {

namespace {

constexpr std::string_view label_before = "function 0x";

}  // namespace

std::string function_label(uint64_t handle) {
    std::array<char, 16> digits{};
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), handle, 16);
    return std::string(label_before).append(digits.data(), end);
}

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

void KernelNames::name(const ProcessKey& process, std::string& label) const {
    if (!label.starts_with(label_before)) return;
    uint64_t handle = 0;
    const char* const end = label.data() + label.size();
    const auto [at, error] = std::from_chars(label.data() + label_before.size(), end, handle, 16);
    if (error != std::errc{} || at != end) return;
    if (std::string known = text(number(process, handle)); !known.empty()) label = std::move(known);
}

std::string KernelNames::text(uint32_t number) const {
    return demangler_.text(names_[number]);
}

}  // namespace ingero
