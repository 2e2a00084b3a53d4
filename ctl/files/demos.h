// Stores of the recorded scenarios, core/query/sources/demos.h.
#pragma once

#include <optional>
#include <string>

#include "core/model/result.h"

namespace ingero::ctl {

/// "NAME" of a path "demo:NAME"; nothing of any other path.
std::optional<std::string> demo_of(const std::string& path);
/// Writes the store into the directory, which exists and is empty. Errors: not_found (no such scenario), corrupt,
/// internal.
Result<void> unpack_demo(const std::string& name, const std::string& directory);

}  // namespace ingero::ctl
