// A program that tells of spans, over the real socket.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/model/unique_fd.h"
#include "core/wire/value.h"

namespace ingero::test {

class SpanClient {
  public:
    /// Fails the test where nobody listens.
    explicit SpanClient(const std::string& socket);

    /// False where the other end has closed.
    bool send_bytes(std::string_view bytes);
    bool send(const nlohmann::json& frame);  ///< as MessagePack
    /// The next reply; nothing where the connection ended, or after the time.
    std::optional<nlohmann::json> reply(std::chrono::milliseconds timeout = std::chrono::milliseconds(20'000));
    std::optional<std::string> reply_line(std::chrono::milliseconds timeout = std::chrono::milliseconds(20'000));
    /// Sends and waits for the reply.
    nlohmann::json ask(const nlohmann::json& frame);
    int fd() const { return fd_.get(); }

  private:
    bool receive(std::chrono::steady_clock::time_point until, std::string& bytes);

    UniqueFd fd_;
    ValueDecoder decoder_;
    std::string line_;
};

}  // namespace ingero::test
