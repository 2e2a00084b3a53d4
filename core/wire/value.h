// One MessagePack value to JSON and back, within limits: what rpc.h builds messages of.
//
// Strings from a peer need not be UTF-8, JSON strings must be: invalid sequences arrive as U+FFFD. Map keys must be
// strings and differ. Binaries stay binaries (nlohmann::json::binary_t); extension types are refused.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/model/result.h"
#include "core/wire/rpc.h"

namespace ingero {

/// MessagePack bytes of a value. Integers take their shortest form, so equal values give equal bytes.
std::string encode_value(const nlohmann::json& value);

/// Whether a response message that carries `value` stays within the limits of its reader; the encoded size is the
/// caller's to check.
bool fits_in_message(const nlohmann::json& value, const RpcLimits& limits = {});

/// Values out of a byte stream. After an error the stream is out of step.
class ValueDecoder {
  public:
    explicit ValueDecoder(const RpcLimits& limits);
    ~ValueDecoder();

    void feed(std::span<const std::byte> bytes);
    /// nullopt: more bytes are needed. Errors: bad_request, limit.
    Result<std::optional<nlohmann::json>> next();
    /// Bytes fed and not yet part of a value that next() returned.
    size_t pending_bytes() const;
    /// The error is that a value is nested beyond the limit.
    bool too_deep() const;
    /// The first byte of the value to come, where none of it has been looked at yet.
    std::optional<std::byte> first_byte() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
