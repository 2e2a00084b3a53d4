// Recorded scenarios that come with the package: stores of stand-in programs into which one fault each was injected,
// what is to be found in them (tests/detection/corpus), and what explain says of each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/model/result.h"

namespace ingero {

/// Where they are: share/ingero/demo above this program, wherever that was moved to, or where it was installed.
std::string demo_directory();
/// All there are: `scenarios` in docs/schemas/demo.schema.json. Errors: not_found, corrupt.
Result<nlohmann::json> read_demos();
/// The one of that name among `scenarios`. Errors: not_found, with the names there are.
Result<nlohmann::json> find_demo(const nlohmann::json& scenarios, const std::string& name);
/// What `ingeroctl demo NAME --json` of this version prints; without a name what it prints without one. Errors:
/// not_found, corrupt.
Result<nlohmann::json> read_explained_demo(const std::string& name);

}  // namespace ingero
