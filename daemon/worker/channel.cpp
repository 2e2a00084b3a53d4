#include "daemon/worker/channel.h"

#include <array>
#include <cerrno>

#include "core/wire/fd_passing.h"

namespace ingero {

namespace {
constexpr size_t read_bytes = 64 << 10;
}  // namespace

Result<std::optional<Channel::Request>> Channel::receive() {
    for (;;) {
        auto message = decoder_.next();
        if (!message) return tl::unexpected(message.error());
        if (*message) {
            auto* request = std::get_if<RpcRequest>(&**message);
            if (!request) return fail(ErrorCode::bad_request, "a worker accepts requests only");
            Request result{std::move(*request), fds_.empty() ? UniqueFd() : std::move(fds_.front())};
            fds_.clear();
            return result;
        }
        auto more = receive_some();
        if (!more) return tl::unexpected(more.error());
        if (!*more) return std::nullopt;
    }
}

Result<bool> Channel::receive_some() {
    std::array<std::byte, read_bytes> buffer;
    const ssize_t n = receive_with_fds(socket_, buffer, fds_);
    if (n < 0 && errno == ECONNRESET) return false;
    if (n < 0) return fail(ErrorCode::internal, errno_message("recvmsg", errno));
    decoder_.feed({buffer.data(), static_cast<size_t>(n)});
    return n > 0;
}

Result<void> Channel::send(const std::string& text) {
    for (size_t done = 0; done < text.size();) {
        const ssize_t n = send_with_fd(socket_, std::string_view(text).substr(done), -1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(ErrorCode::internal, errno_message("sendmsg", errno));
        done += static_cast<size_t>(n);
    }
    return {};
}

}  // namespace ingero
