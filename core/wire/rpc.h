// MessagePack-RPC as the control socket and the workers speak it (docs/control-protocol.md). Values are nlohmann::json;
// bytes from a peer are decoded by msgpack-c within limits and never trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/model/result.h"

namespace ingero {

inline constexpr uint32_t control_protocol_version = 1;

struct RpcRequest {
    uint64_t id = 0;
    std::string method;
    nlohmann::json params;  ///< a map
};

struct RpcResponse {
    uint64_t id = 0;
    std::optional<Error> error;
    nlohmann::json result;
};

struct RpcNotification {
    std::string method;
    nlohmann::json params;  ///< an array
};

using RpcMessage = std::variant<RpcRequest, RpcResponse, RpcNotification>;

struct RpcLimits {
    size_t message_bytes = 1 << 20;
    size_t depth = 8;
    size_t string_bytes = 64 << 10;
    size_t elements = 4096;
    bool keep_invalid_text = false;  ///< a value's text that is not UTF-8 arrives as a binary, not with U+FFFD in it
};

/// What a client of the control socket accepts of an answer.
inline constexpr RpcLimits answer_limits{
    .message_bytes = 64 << 20, .depth = 8, .string_bytes = 64 << 10, .elements = 1'000'000};

/// The notification in which a trace's calls come: [rows], a value of its own.
inline constexpr const char* trace_calls = "calls";
/// The same of what a monitor is sent.
inline constexpr const char* monitor_notices = "notices";

std::string encode(const RpcRequest& request);
std::string encode(const RpcResponse& response);
std::string encode(const RpcNotification& notification);

/// Turns a byte stream into messages. After an error the stream is out of step and must be closed.
class RpcDecoder {
  public:
    explicit RpcDecoder(RpcLimits limits = {});
    ~RpcDecoder();
    RpcDecoder(RpcDecoder&&) noexcept;
    RpcDecoder& operator=(RpcDecoder&&) noexcept;

    void feed(std::span<const std::byte> bytes);
    /// nullopt: more bytes are needed. Errors: bad_request (not MessagePack-RPC), limit.
    Result<std::optional<RpcMessage>> next();
    /// Bytes fed and not yet part of a message that next() returned.
    size_t pending_bytes() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
