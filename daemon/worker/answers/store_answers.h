// What a store is made of and whether it is whole, as `ingeroctl db` prints it; and copies of it.
#pragma once

#include <nlohmann/json.hpp>

#include "core/store/store.h"

namespace ingero {

/// docs/schemas/db-info.schema.json.
Result<nlohmann::json> describe_answer(StoreReader& store);
/// docs/schemas/db-verify.schema.json, also of a store that does not open for its damage.
Result<nlohmann::json> verify_answer(const Result<std::unique_ptr<StoreReader>>& store);
/// Writes the store to `fd`, which becomes worker_output_fd for the time. {"bytes": n}.
Result<nlohmann::json> copy_answer(StoreReader& store, int fd);

}  // namespace ingero
