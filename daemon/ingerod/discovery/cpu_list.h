// A list of CPUs as the kernel writes it.
#pragma once

#include <optional>
#include <set>
#include <string_view>

namespace ingero {

/// "0-3,8"; nullopt where it is not of that form, or names none.
std::optional<std::set<int>> parse_cpu_list(std::string_view text);

}  // namespace ingero
