// The worker's end of its socketpair: blocking, one request at a time. Single-threaded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/model/unique_fd.h"
#include "daemon/worker/protocol.h"

namespace ingero {

class Channel {
  public:
    struct Request {
        RpcRequest message;
        UniqueFd fd;  ///< that came with it, or none
    };

    /// The socket stays the caller's.
    explicit Channel(int socket) : socket_(socket), decoder_(worker_rpc_limits) {}

    /// The next request; nullopt when the peer has gone. Errors: bad_request or limit (the stream is out of step), or
    /// internal; there is no going on after one.
    Result<std::optional<Request>> receive();
    Result<void> send(const std::string& message);

  private:
    /// False at the end of the stream.
    Result<bool> receive_some();

    int socket_;
    RpcDecoder decoder_;
    std::vector<UniqueFd> fds_;
};

}  // namespace ingero
