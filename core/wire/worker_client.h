// Asks a worker of one's own about a closed store: what ingeroctl does with --db, and in which sandbox the store's
// bytes are then read.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/model/result.h"

namespace ingero {

struct OwnWorker {
    std::string program;          ///< path of ingero-worker
    std::string store_directory;  ///< with no daemon at work in it
    std::chrono::milliseconds timeout{60'000};
    int fd = -1;  ///< goes along with each request; stays the caller's, and open as long as the worker is asked
};

/// A worker that is asked again and again, and ends with this. One thread at a time.
class OwnWorkerSession {
  public:
    /// Errors: internal (it cannot be started).
    static Result<OwnWorkerSession> start(const OwnWorker& worker);
    OwnWorkerSession(OwnWorkerSession&&) noexcept;
    OwnWorkerSession& operator=(OwnWorkerSession&&) noexcept;
    ~OwnWorkerSession();

    /// Errors: the worker's own; internal (it died); deadline. After the last two it is of no more use.
    Result<nlohmann::json> ask(const std::string& method, nlohmann::json params);

  private:
    struct Impl;
    explicit OwnWorkerSession(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// Starts a worker, asks it once, and ends it. Errors: the worker's own; internal (it cannot be started, or died);
/// deadline.
Result<nlohmann::json> ask_own_worker(const OwnWorker& worker, const std::string& method, nlohmann::json params);

}  // namespace ingero
