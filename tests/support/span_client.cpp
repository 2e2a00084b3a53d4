#include "tests/support/span_client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <span>

#include "tests/support/daemon.h"

namespace ingero::test {

using std::chrono::steady_clock;

SpanClient::SpanClient(const std::string& socket) : fd_(connect_to(socket)), decoder_({}) {}

bool SpanClient::send_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
}

bool SpanClient::send(const nlohmann::json& frame) {
    const std::vector<uint8_t> bytes = nlohmann::json::to_msgpack(frame);
    return send_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool SpanClient::receive(steady_clock::time_point until, std::string& bytes) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now()).count();
    pollfd asked{fd_.get(), POLLIN, 0};
    if (left <= 0 || poll(&asked, 1, static_cast<int>(left)) <= 0) return false;
    std::array<char, 4096> buffer;
    const ssize_t size = recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (size > 0) bytes.append(buffer.data(), static_cast<size_t>(size));
    return size > 0;
}

std::optional<nlohmann::json> SpanClient::reply(std::chrono::milliseconds timeout) {
    const auto until = steady_clock::now() + timeout;
    for (;;) {
        auto value = decoder_.next();
        if (!value) return std::nullopt;
        if (*value) return std::move(**value);
        std::string bytes;
        if (!receive(until, bytes)) return std::nullopt;
        decoder_.feed(std::as_bytes(std::span(bytes)));
    }
}

std::optional<std::string> SpanClient::reply_line(std::chrono::milliseconds timeout) {
    const auto until = steady_clock::now() + timeout;
    for (;;) {
        if (const size_t end = line_.find('\n'); end != std::string::npos) {
            std::string line = line_.substr(0, end);
            line_.erase(0, end + 1);
            return line;
        }
        if (!receive(until, line_)) return std::nullopt;
    }
}

nlohmann::json SpanClient::ask(const nlohmann::json& frame) {
    EXPECT_TRUE(send(frame));
    auto answer = reply();
    EXPECT_TRUE(answer) << "no reply";
    return answer ? *answer : nlohmann::json();
}

}  // namespace ingero::test
