// Asks a worker of one's own about a closed store: what ingeroctl does with --db, and in which sandbox the store's
// bytes are then read.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "core/model/result.h"

namespace ingero {

struct OwnWorker {
    std::string program;          ///< path of ingero-worker
    std::string store_directory;  ///< with no daemon at work in it
    std::chrono::milliseconds timeout{60'000};
    int fd = -1;  ///< goes along with the request; stays the caller's
};

/// Starts a worker, asks it once, and ends it. Errors: the worker's own; internal (it cannot be started, or died);
/// deadline.
Result<nlohmann::json> ask_own_worker(const OwnWorker& worker, const std::string& method, nlohmann::json params);

}  // namespace ingero
