// The number that a function has in the log and in the tables of the engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ingero::standin {

enum class Fn : uint16_t {
#define FN(name) name,
#include "../functions.def"
#undef FN
    count
};

inline constexpr size_t function_count = size_t(Fn::count);

inline constexpr std::array<std::string_view, function_count> function_names{
#define FN(name) std::string_view(#name),
#include "../functions.def"
#undef FN
};

}  // namespace ingero::standin
