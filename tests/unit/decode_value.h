// One MessagePack value as JSON, for tests of what was encoded.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "core/wire/value.h"

namespace ingero {

/// Exactly one value and nothing after it. Errors: bad_request (not that), limit.
inline Result<nlohmann::json> decode_value(std::string_view bytes, const RpcLimits& limits) {
    ValueDecoder decoder(limits);
    decoder.feed(std::as_bytes(std::span(bytes)));
    auto value = decoder.next();
    if (!value) return tl::unexpected(value.error());
    if (!*value) return fail(ErrorCode::bad_request, "a MessagePack value is cut short");
    if (decoder.pending_bytes() != 0) return fail(ErrorCode::bad_request, "bytes follow the MessagePack value");
    return std::move(**value);
}

}  // namespace ingero
