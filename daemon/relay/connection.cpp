#include "daemon/relay/connection.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "core/model/result.h"

namespace ingero {

using nlohmann::json;
using std::chrono::steady_clock;

namespace {

constexpr RpcLimits daemon_limits{
    .message_bytes = 4096, .depth = 2, .string_bytes = 64, .elements = 16, .keep_invalid_text = false};
constexpr std::chrono::milliseconds connect_pause{1'000};

}  // namespace

short Connection::events() const {
    return static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT);
}

bool Connection::try_connect() {
    if (fd_ || steady_clock::now() < next_attempt_) return false;
    next_attempt_ = steady_clock::now() + connect_pause;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path_.size() >= sizeof(address.sun_path)) return false;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        if (!std::exchange(logged_wait_, true)) spdlog::info("{}: waiting for ingerod", errno_message(path_, errno));
        return false;
    }
    logged_wait_ = false;
    spdlog::info("connected to ingerod at {}", path_);
    fd_ = std::move(fd);
    decoder_.emplace(daemon_limits);
    return true;
}

void Connection::send(const json& message) {
    if (fd_) put({.state = {}, .bytes = encode_value(message)});
}

void Connection::send_state(const std::string& name, const json& message) {
    if (!fd_) return;
    // The first may be half on its way.
    const auto first = unsent_.begin() + (sent_of_first_ != 0 ? 1 : 0);
    const auto same = std::find_if(first, unsent_.end(), [&](const Unsent& one) { return one.state == name; });
    if (same != unsent_.end()) {
        unsent_bytes_ -= same->bytes.size();
        unsent_.erase(same);
    }
    put({.state = name, .bytes = encode_value(message)});
}

void Connection::put(Unsent message) {
    unsent_bytes_ += message.bytes.size();
    unsent_.push_back(std::move(message));
    flush();
    while (unsent_bytes_ > max_unsent_bytes) {
        const auto first = unsent_.begin() + (sent_of_first_ != 0 ? 1 : 0);
        const auto oldest = std::find_if(first, unsent_.end(), [](const Unsent& one) { return one.state.empty(); });
        if (oldest == unsent_.end()) break;
        unsent_bytes_ -= oldest->bytes.size();
        unsent_.erase(oldest);
    }
}

void Connection::flush() {
    while (fd_ && !unsent_.empty()) {
        const std::string_view rest = std::string_view(unsent_.front().bytes).substr(sent_of_first_);
        const ssize_t sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) return close();
        sent_of_first_ += static_cast<size_t>(sent);
        if (sent_of_first_ < unsent_.front().bytes.size()) continue;
        unsent_bytes_ -= unsent_.front().bytes.size();
        unsent_.pop_front();
        sent_of_first_ = 0;
    }
}

std::optional<json> Connection::next() {
    while (fd_) {
        auto message = decoder_->next();
        if (!message) {
            close();
            break;
        }
        if (*message) return std::move(**message);
        std::array<std::byte, 4096> buffer;
        const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (got <= 0) {
            close();
            break;
        }
        decoder_->feed(std::span(buffer).first(static_cast<size_t>(got)));
    }
    return std::nullopt;
}

void Connection::close() {
    if (fd_) spdlog::info("ingerod closed the connection");
    fd_.reset();
    unsent_.clear();
    unsent_bytes_ = sent_of_first_ = 0;
}

}  // namespace ingero
