// What a worker says of a file, checked: it has read foreign bytes, and may be another's by now. All throw
// std::exception.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "core/model/stack.h"

namespace ingero {

/// nlohmann::json makes an unsigned number of any other.
inline uint64_t checked_number(const nlohmann::json& number) {
    if (!number.is_number_unsigned()) throw std::invalid_argument("a value that is not an unsigned number");
    return number.get<uint64_t>();
}

/// Empty where the file has none. It becomes part of paths that the daemon opens.
inline std::string checked_build_id(const nlohmann::json& text) {
    auto build_id = text.get<std::string>();
    if (!build_id.empty() && !is_build_id(build_id)) throw std::invalid_argument("an invalid build-id");
    return build_id;
}

/// The name of a file in a folder, or empty.
inline std::string checked_file_name(const nlohmann::json& text) {
    constexpr size_t longest = 255;
    auto name = text.get<std::string>();
    if (name.size() > longest || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
        throw std::invalid_argument("an invalid file name");
    return name;
}

inline std::string checked_text(const nlohmann::json& text, size_t most_bytes) {
    auto checked = text.get<std::string>();
    if (checked.size() > most_bytes) throw std::invalid_argument("a text that is too long");
    return checked;
}

}  // namespace ingero
