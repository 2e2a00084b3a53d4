// The control socket: MessagePack-RPC over a Unix stream socket (docs/control-protocol.md). Anyone may connect; what a
// caller sees is decided per request by the backend. Loop thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/model/result.h"
#include "daemon/ingerod/control/control_backend.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero {

struct ControlOptions {
    std::string version = "0";     ///< of ingerod, for hello
    std::string group = "ingero";  ///< its members see every process
    unsigned connections = 64;
    /// Of these, at most so many by callers who do not see every process: an operator always gets in.
    unsigned unprivileged_connections = 48;
    unsigned connections_per_uid = 16;
    /// By which uids of one user count together. Where there is no room left, whoever has most connections gives one up
    /// for a user who has fewer: one that waits for nothing, where there is one.
    OwnerOf owner_of{};
    /// Of long answers of the daemon's own to callers who do not see every process: one, and those of all connections
    /// together that are not read yet. Of a worker's answers it holds nothing.
    size_t output_bytes = 8 << 20;
    size_t all_output_bytes = 16 << 20;
    /// For a half-sent message, a missing hello, output that is not read.
    std::chrono::milliseconds stall{30'000};
    /// A client was refused; called at most once a second; the text holds nothing of the client's. Default: a log line.
    std::function<void(const Caller&, const std::string&)> on_refusal{};
};

class ControlServer {
  public:
    /// Makes the socket at `path`, mode 0666, in place of one that nobody listens on any more; removes it in the end.
    /// Errors: busy (another daemon listens there), bad_request (a path too long), internal; each with a hint.
    static Result<std::unique_ptr<ControlServer>> bind(EventLoop& loop, ControlBackend& backend,
                                                       const std::string& path, ControlOptions options = {});

    /// Serves a listening socket (from systemd), which becomes this object's. Loop and backend must outlive it; the
    /// backend may call `done` after it is gone.
    ControlServer(EventLoop& loop, ControlBackend& backend, int listening_fd, ControlOptions options = {});
    ~ControlServer();
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;

    size_t connections() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
