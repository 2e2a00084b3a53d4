#include "daemon/worker/mcp_client.h"

#include <malloc.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "core/mcp/session.h"
#include "core/wire/fd_passing.h"
#include "daemon/worker/protocol.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t read_bytes = 64 << 10;

bool send_all(int socket, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = send_with_fd(socket, bytes, -1);
        if (n < 0 && errno == EAGAIN) {
            pollfd wait{socket, POLLOUT, 0};
            poll(&wait, 1, -1);
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
}

/// Who only says nothing more may still listen.
bool is_client_gone() {
    pollfd client{worker_client_fd, 0, 0};
    return poll(&client, 1, 0) > 0 && (client.revents & (POLLHUP | POLLERR)) != 0;
}

/// The daemon at the other end of the worker's socket: one question at a time.
class Daemon {
  public:
    Result<json> ask(const std::string& method, json params = json::object()) {
        const uint64_t id = ++last_id_;
        if (!send_all(worker_socket_fd, encode(RpcRequest{id, method, std::move(params)}))) return gone();
        for (;;) {
            auto message = decoder_.next();
            if (!message) return tl::unexpected(message.error());
            if (*message) {
                auto* response = std::get_if<RpcResponse>(&**message);
                if (!response || response->id != id)
                    return fail(ErrorCode::bad_request, "the daemon sent an answer to another question");
                if (response->error) return tl::unexpected(*response->error);
                return std::move(response->result);
            }
            std::array<std::byte, read_bytes> buffer;
            std::vector<UniqueFd> none;
            const ssize_t n = receive_with_fds(worker_socket_fd, buffer, none);
            if (n <= 0) return gone();
            decoder_.feed({buffer.data(), static_cast<size_t>(n)});
        }
    }

    void notify(const char* what) { send_all(worker_socket_fd, encode(RpcNotification{what, json::array()})); }

  private:
    static tl::unexpected<Error> gone() { return fail(ErrorCode::internal, "the daemon closed the connection"); }

    RpcDecoder decoder_{worker_rpc_limits};
    uint64_t last_id_ = 0;
};

class LiveSource final : public mcp::Source {
  public:
    LiveSource(RequestHandler& handler, Daemon& daemon, std::optional<uint32_t> uid)
        : handler_(handler), daemon_(daemon), uid_(uid) {}

    Result<json> ask(const std::string& method, json params) override {
        if (method == "status" || method == "check" || method == "processes") return daemon_.ask(method);
        if (method == "demo") return daemon_.ask(method, std::move(params));
        if (committed_.is_null()) {
            auto committed = daemon_.ask("commit");
            if (!committed) return committed;
            committed_ = std::move(*committed);
            straggler_options_ = committed_["straggler_options"];
            committed_.erase("straggler_options");
        }
        // As they would arrive over a socket: what is not below 0 is unsigned.
        for (json& value : params)
            if (value.is_number_integer() && value >= 0) value = value.get<uint64_t>();
        // Not the client's to say, whatever a tool may let through.
        params.erase("uid");
        if (uid_) params["uid"] = *uid_;
        if (method == "stragglers") params["options"] = straggler_options_;
        if (auto turn = daemon_.ask(session_turn); !turn) return turn;
        if (is_client_gone()) {
            daemon_.notify(session_idle);
            return fail(ErrorCode::bad_request, "the client has hung up");
        }
        RpcResponse response = handler_.answer({0, method, std::move(params)}, -1);
        malloc_trim(0);  // the memory is for whose turn comes next
        daemon_.notify(session_idle);
        if (response.error) return tl::unexpected(*response.error);
        if (response.result.is_object()) response.result.update(committed_);
        return std::move(response.result);
    }
    bool is_live() const override { return true; }
    void begin_call() override { committed_ = nullptr; }

  private:
    RequestHandler& handler_;
    Daemon& daemon_;
    const std::optional<uint32_t> uid_;
    json committed_;          ///< what the daemon answered to commit, for the running call
    json straggler_options_;  ///< as it is configured
};

class Client {
  public:
    bool is_there() const { return is_there_; }
    bool has_ended() const { return has_ended_; }

    void write(const std::string& line) { is_there_ = is_there_ && send_all(worker_client_fd, line); }

    /// What there is to read now; -1: waits for it, or for the end of the daemon.
    void read(mcp::McpSession& session, int timeout_ms) {
        std::array<pollfd, 2> fds = {{{worker_client_fd, POLLIN, 0}, {worker_socket_fd, 0, 0}}};
        if (has_ended_ || !session.wants_input() || poll(fds.data(), fds.size(), timeout_ms) <= 0) return;
        if (fds[1].revents & (POLLHUP | POLLERR)) is_there_ = false;
        if (fds[0].revents == 0) return;
        std::vector<UniqueFd> none;  // what a client passes along is closed
        const ssize_t n = receive_with_fds(worker_client_fd, buffer_, none);
        if (n < 0 && errno == EAGAIN) return;
        if (n > 0) session.feed({reinterpret_cast<const char*>(buffer_.data()), static_cast<size_t>(n)});
        has_ended_ = n <= 0;
    }

  private:
    bool is_there_ = true;
    bool has_ended_ = false;  ///< it says nothing more, and may still listen
    std::array<std::byte, read_bytes> buffer_{};
};

}  // namespace

Result<void> serve_mcp_client(RequestHandler& handler, std::optional<uint32_t> uid) {
    Daemon daemon;
    daemon.notify(worker_ready);
    Client client;
    LiveSource source(handler, daemon, uid);
    mcp::McpSession* running = nullptr;
    mcp::McpSession session(source, {.version = INGERO_VERSION,
                                     .write = [&](const std::string& line) { client.write(line); },
                                     .look_for_input = [&] { client.read(*running, 0); }});
    running = &session;
    while (client.is_there()) {
        if (session.handle_next()) continue;
        if (client.has_ended()) break;
        // An idle session should cost what it needs, not what its largest question needed.
        malloc_trim(0);
        client.read(session, -1);
    }
    return {};
}

}  // namespace ingero
