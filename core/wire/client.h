// A blocking client of the control socket, for ingeroctl and tests. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "core/wire/rpc.h"

namespace ingero {

inline constexpr std::string_view default_control_socket = "/run/ingerod/control.sock";

struct ConnectOptions {
    std::string client = "ingero";  ///< who asks, for the daemon's own use
    std::chrono::milliseconds timeout{5'000};
};

/// A connection to one of the daemon's sockets, non-blocking. Errors: not_found (no daemon there; the hint says how to
/// start one), denied (by the socket's mode), deadline, bad_request (a path too long), internal.
Result<UniqueFd> connect_to_daemon(const std::string& path, std::chrono::milliseconds timeout);

class ControlClient {
  public:
    /// Connects and says hello. Errors: not_found (no daemon there; the hint says how to start one), denied (by the
    /// socket's mode), version, limit (too many connections), deadline, or what the daemon answered.
    static Result<ControlClient> connect(const std::string& path, const ConnectOptions& options = {});

    ~ControlClient();
    ControlClient(ControlClient&& other) noexcept;
    ControlClient& operator=(ControlClient&& other) noexcept;

    /// Sends one request and waits for its whole result. `params` is an object. Errors: the daemon's own; deadline;
    /// not_found where the daemon went away; internal where the answer broke off. After a deadline, or where the
    /// connection broke, the client is of no more use. `fd`, where not -1, goes along and stays the caller's.
    Result<nlohmann::json> call(const std::string& method, nlohmann::json params, std::chrono::milliseconds timeout,
                                int fd = -1);

    /// After a call that began a trace or monitor: hands each value that comes to `visit`, until that returns false,
    /// `until` has come (nothing: without end), or nobody reads from the descriptor `output` any more (-1: there is
    /// none). The connection is of no more use then. Errors: as of call().
    Result<void> follow(std::optional<std::chrono::steady_clock::time_point> until, int output,
                        const std::function<bool(const nlohmann::json&)>& visit);

    /// The daemon's answer to hello: version, node, sees_all, features.
    const nlohmann::json& server() const { return server_; }

  private:
    using Deadline = std::chrono::steady_clock::time_point;

    explicit ControlClient(int fd) : fd_(fd) {}
    Result<void> send(std::string_view bytes, Deadline deadline, int fd = -1);
    Result<RpcMessage> receive(Deadline deadline);
    Result<void> wait(short events, Deadline deadline);
    Result<nlohmann::json> wait_for_response(uint64_t id, Deadline deadline);
    Result<uint64_t> send_request(const std::string& method, nlohmann::json params, Deadline deadline, int fd = -1);
    Result<nlohmann::json> exchange(const std::string& method, nlohmann::json params, Deadline deadline, int fd = -1);
    void close();

    int fd_ = -1;
    int output_ = -1;  ///< of follow()
    bool output_ended_ = false;
    uint64_t last_id_ = 0;
    RpcDecoder decoder_{answer_limits};
    nlohmann::json server_;
};

}  // namespace ingero
