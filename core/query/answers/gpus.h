// GPUs and InfiniBand ports: what was measured of each last within a window, and what happened to it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model/result.h"
#include "core/model/time.h"
#include "core/store/store.h"

namespace ingero {

/// {"gpus": [...], "ports": [...]}, as docs/schemas/gpus.schema.json has them, in order of number and name.
/// `realtime` is CLOCK_REALTIME. Memory is taken for the latest row of each only, however many there are.
/// With `pid` only GPUs that this process was on as they were measured, and no ports.
/// Errors: those of the store.
Result<nlohmann::json> latest_gpus(const StoreSnapshot& snapshot, Window realtime, std::optional<uint32_t> pid = {});

/// The processes that a row of a GPU has: [{"pid", "memory_bytes"}].
nlohmann::json gpu_processes(const StateRow& row);

/// What the bits of `throttle_reasons` are called, lowest first; one that has no name is "bit-N".
std::vector<std::string> throttle_reason_names(uint64_t bits);

}  // namespace ingero
