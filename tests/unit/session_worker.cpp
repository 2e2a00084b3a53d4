// The worker of an MCP session that does what its client says, letter by letter, and repeats each letter once it is
// done: t asks the daemon for a turn and waits for it, i gives it back, w asks twice without waiting.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <variant>

#include "core/wire/fd_passing.h"
#include "core/wire/worker_protocol.h"

using namespace ingero;
using nlohmann::json;

namespace {

void tell_daemon(const std::string& bytes) {
    send_with_fd(worker_socket_fd, bytes, -1);
}

bool is_answered(RpcDecoder& decoder) {
    for (;;) {
        const auto message = decoder.next();
        if (!message) return false;
        if (*message) return std::holds_alternative<RpcResponse>(**message);
        std::array<std::byte, 4096> buffer;
        const ssize_t n = recv(worker_socket_fd, buffer.data(), buffer.size(), 0);
        if (n <= 0) return false;
        decoder.feed({buffer.data(), static_cast<size_t>(n)});
    }
}

}  // namespace

int main() {
    RpcDecoder decoder(worker_rpc_limits);
    uint64_t last_id = 0;
    for (;;) {
        pollfd client{worker_client_fd, POLLIN, 0};
        poll(&client, 1, -1);
        char letter = 0;
        const ssize_t n = recv(worker_client_fd, &letter, 1, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n <= 0) return 0;
        if (letter == 'i') {
            tell_daemon(encode(RpcNotification{session_idle, json::array()}));
        } else {
            for (int i = 0; i < (letter == 'w' ? 2 : 1); ++i)
                tell_daemon(encode(RpcRequest{++last_id, session_turn, json::object()}));
            if (!is_answered(decoder)) return 1;
        }
        send(worker_client_fd, &letter, 1, MSG_NOSIGNAL);
    }
}
