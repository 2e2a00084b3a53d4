// What a worker reads in a file that came with a request: a library's symbols, its unwind table, names of places.
// Parameters and results: docs/worker.md.
#pragma once

#include <nlohmann/json.hpp>

#include "core/model/result.h"

namespace ingero {

Result<nlohmann::json> symbols_answer(const nlohmann::json& params, int fd);
Result<nlohmann::json> unwind_answer(int fd);
Result<nlohmann::json> symbolize_answer(const nlohmann::json& params, int fd);

}  // namespace ingero
