// Parameters of a request: read, and refused by name where they are not what they should be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model/result.h"

namespace ingero {

/// An unsigned parameter, or nothing where it is absent or null.
Result<std::optional<uint64_t>> number(const nlohmann::json& params, const char* name, uint64_t most);
/// False where it is absent or null.
Result<bool> flag(const nlohmann::json& params, const char* name);
/// None where it is absent or null.
Result<std::vector<std::string>> texts(const nlohmann::json& params, const char* name, size_t most);

}  // namespace ingero
