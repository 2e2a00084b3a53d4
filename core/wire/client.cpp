#include "core/wire/client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/wire/fd_passing.h"

namespace ingero {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr const char* start_hint =
    "start it with 'systemctl enable --now ingerod', or name another daemon's socket with --socket or INGERO_SOCKET";

tl::unexpected<Error> connect_error(const std::string& path, int error_number) {
    const std::string message = errno_message("no ingerod at " + path, error_number);
    if (error_number == ENOENT || error_number == ECONNREFUSED || error_number == ENOTDIR)
        return fail(ErrorCode::not_found, message, start_hint);
    if (error_number == EACCES || error_number == EPERM)
        return fail(ErrorCode::denied, errno_message("cannot connect to " + path, error_number),
                    "the socket and its directory must be open to this user");
    if (error_number == EAGAIN)
        return fail(ErrorCode::deadline, "ingerod at " + path + " does not accept connections",
                    "see 'systemctl status ingerod'");
    return fail(ErrorCode::internal, errno_message("cannot connect to " + path, error_number));
}

tl::unexpected<Error> gone() {
    return fail(ErrorCode::not_found, "ingerod closed the connection", "see 'systemctl status ingerod'");
}

/// Who answers writes to this connection itself: where that ends, so does the answer.
tl::unexpected<Error> broken_off() {
    return fail(ErrorCode::internal, "the answer is incomplete: ingerod or its ingero-worker ended while sending it",
                "try again, with a shorter window or one pid; 'journalctl -u ingerod' says why it ended");
}

}  // namespace

Result<UniqueFd> connect_to_daemon(const std::string& path, milliseconds timeout) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(address.sun_path))
        return fail(ErrorCode::bad_request, "a socket's path has 1 to 107 bytes: " + path);
    std::memcpy(address.sun_path, path.data(), path.size());
    UniqueFd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int fd = socket_fd.get();
    if (fd < 0) return fail(ErrorCode::internal, errno_message("socket", errno));
    // connect() on a Unix socket waits while the backlog is full, and for as long as the send timeout says.
    const timeval limit{timeout.count() / 1000, timeout.count() % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
        return connect_error(path, errno);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return socket_fd;
}

Result<ControlClient> ControlClient::connect(const std::string& path, const ConnectOptions& options) {
    const auto deadline = steady_clock::now() + options.timeout;
    auto fd = connect_to_daemon(path, options.timeout);
    if (!fd) return tl::unexpected(fd.error());
    ControlClient client(fd->release());
    const json hello{{"version", control_protocol_version}, {"client", options.client}};
    auto answer = client.exchange("hello", hello, deadline);
    if (!answer) return tl::unexpected(answer.error());
    client.server_ = std::move(*answer);
    return client;
}

ControlClient::~ControlClient() {
    close();
}

ControlClient::ControlClient(ControlClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      last_id_(other.last_id_),
      decoder_(std::move(other.decoder_)),
      server_(std::move(other.server_)) {}

ControlClient& ControlClient::operator=(ControlClient&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(last_id_, other.last_id_);
    std::swap(decoder_, other.decoder_);
    std::swap(server_, other.server_);
    return *this;
}

void ControlClient::close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<json> ControlClient::call(const std::string& method, json params, milliseconds timeout, int fd) {
    return exchange(method, std::move(params), steady_clock::now() + timeout, fd);
}

Result<uint64_t> ControlClient::send_request(const std::string& method, json params, Deadline deadline, int fd) {
    if (fd_ < 0) return gone();
    const uint64_t id = ++last_id_;
    // A daemon that refuses the connection answers and closes before it reads: the answer says more than EPIPE.
    const auto sent = send(encode(RpcRequest{id, method, std::move(params)}), deadline, fd);
    if (!sent && sent.error().code != ErrorCode::not_found) {
        close();
        return tl::unexpected(sent.error());
    }
    return id;
}

Result<void> ControlClient::follow(std::optional<Deadline> until, int output,
                                   const std::function<bool(const json&)>& visit) {
    output_ = output;
    for (;;) {
        const auto message = receive(until.value_or(Deadline::max()));
        if (!message && (output_ended_ || (until && message.error().code == ErrorCode::deadline))) return {};
        if (!message) return tl::unexpected(message.error());
        if (const auto* refusal = std::get_if<RpcResponse>(&*message); refusal && refusal->id == 0 && refusal->error)
            return tl::unexpected(*refusal->error);
        const auto* notification = std::get_if<RpcNotification>(&*message);
        if (!notification || notification->params.size() != 1) continue;
        if (!visit(notification->params[0])) return {};
    }
}

Result<json> ControlClient::exchange(const std::string& method, json params, Deadline deadline, int fd) {
    const auto id = send_request(method, std::move(params), deadline, fd);
    if (!id) return tl::unexpected(id.error());
    return wait_for_response(*id, deadline);
}

Result<json> ControlClient::wait_for_response(uint64_t id, Deadline deadline) {
    for (;;) {
        auto message = receive(deadline);
        if (!message && fd_ < 0 && decoder_.pending_bytes() != 0 && message.error().code == ErrorCode::not_found)
            return broken_off();
        if (!message) return tl::unexpected(message.error());
        auto* response = std::get_if<RpcResponse>(&*message);
        if (!response || (response->id != id && response->id != 0)) continue;
        if (response->id == 0) close();  // the daemon gives up on the whole connection
        if (response->error) return tl::unexpected(std::move(*response->error));
        if (response->id == 0) return fail(ErrorCode::bad_request, "ingerod sent an answer that belongs to no request");
        return std::move(response->result);
    }
}

Result<void> ControlClient::wait(short events, Deadline deadline) {
    for (;;) {
        const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
        if (left <= 0)
            return fail(ErrorCode::deadline, "ingerod did not answer in time",
                        "ask for a shorter window or one pid; 'journalctl -u ingerod' may say why");
        pollfd fds[] = {{fd_, events, 0}, {output_, 0, 0}};
        const int ready = poll(fds, 2, static_cast<int>(std::min<int64_t>(left, 1'000'000)));
        if (ready > 0 && fds[0].revents != 0) return {};
        if (ready > 0 && (fds[1].revents & (POLLERR | POLLHUP)) == 0)
            output_ = -1;  // it is not open
        else if (ready > 0) {
            output_ended_ = true;
            return fail(ErrorCode::internal, "nobody reads the output any more");
        }
        if (ready < 0 && errno != EINTR) return fail(ErrorCode::internal, errno_message("poll", errno));
    }
}

Result<void> ControlClient::send(std::string_view bytes, Deadline deadline, int fd) {
    while (!bytes.empty()) {
        const ssize_t sent = send_with_fd(fd_, bytes, fd);
        if (sent >= 0) {
            fd = -1;  // it has gone with the first byte
            bytes.remove_prefix(static_cast<size_t>(sent));
        } else if (errno == EAGAIN) {
            if (auto ready = wait(POLLOUT, deadline); !ready) return ready;
        } else if (errno != EINTR) {
            return gone();
        }
    }
    return {};
}

Result<RpcMessage> ControlClient::receive(Deadline deadline) {
    std::array<std::byte, 32 << 10> buffer;
    for (;;) {
        if (fd_ < 0) return gone();
        auto message = decoder_.next();
        if (message && *message) return std::move(**message);
        if (!message) {
            close();
            const bool is_large = message.error().code == ErrorCode::limit;
            return fail(is_large ? ErrorCode::limit : ErrorCode::internal,
                        "the answer cannot be read: " + message.error().message,
                        is_large ? "ask for a shorter window or one pid"
                                 : "try again; where it happens again, report it with 'ingeroctl support-bundle'");
        }
        const ssize_t size = recv(fd_, buffer.data(), buffer.size(), 0);
        if (size > 0) {
            decoder_.feed(std::span(buffer).first(static_cast<size_t>(size)));
        } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
            close();
        } else if (auto ready = wait(POLLIN, deadline); !ready) {
            close();
            return tl::unexpected(ready.error());
        }
    }
}

}  // namespace ingero
