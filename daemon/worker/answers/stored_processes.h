// The processes of a store, as `ingeroctl --db ... processes` lists them.
#pragma once

#include <nlohmann/json.hpp>

#include "core/render/render.h"
#include "core/store/store.h"

namespace ingero {

/// docs/schemas/processes.schema.json. Errors: those of the store.
Result<nlohmann::json> stored_processes(const StoreSnapshot& snapshot, const AnswerContext& context);

}  // namespace ingero
