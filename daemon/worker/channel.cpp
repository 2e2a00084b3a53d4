#include "daemon/worker/channel.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace ingero {

namespace {
constexpr size_t read_bytes = 64 << 10;
constexpr size_t max_fds = 4;  // in one message: one is used, the others are closed

/// Takes over the descriptors that the kernel has installed for a message.
void collect_fds(msghdr& message, std::vector<UniqueFd>& fds) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            fds.emplace_back(fd);
        }
    }
}
}  // namespace

Result<std::optional<Channel::Request>> Channel::receive() {
    for (;;) {
        auto message = decoder_.next();
        if (!message) return tl::unexpected(message.error());
        if (*message) {
            auto* request = std::get_if<RpcRequest>(&**message);
            if (!request) return fail(ErrorCode::bad_request, "a worker takes requests only");
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
    alignas(cmsghdr) std::array<char, CMSG_SPACE(max_fds * sizeof(int))> control;
    iovec part{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ssize_t n = 0;
    do {
        n = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == ECONNRESET) return false;
    if (n < 0) return fail(ErrorCode::internal, errno_message("recvmsg", errno));
    collect_fds(message, fds_);
    decoder_.feed({buffer.data(), static_cast<size_t>(n)});
    return n > 0;
}

Result<void> Channel::send(const std::string& text) {
    for (size_t done = 0; done < text.size();) {
        iovec part{const_cast<char*>(text.data()) + done, text.size() - done};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        const ssize_t n = sendmsg(socket_, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(ErrorCode::internal, errno_message("sendmsg", errno));
        done += static_cast<size_t>(n);
    }
    return {};
}

}  // namespace ingero
