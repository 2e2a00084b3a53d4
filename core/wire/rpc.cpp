#include "core/wire/rpc.h"

#include <utility>

#include "core/wire/value.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr uint64_t type_request = 0;
constexpr uint64_t type_response = 1;
constexpr uint64_t type_notification = 2;

json to_json(const Error& error) {
    return {{"code", std::string(to_string(error.code))}, {"message", error.message}, {"hint", error.hint}};
}

Result<Error> to_error(const json& value) {
    const auto text = [&](const char* key) -> const json* {
        const auto found = value.find(key);
        return found != value.end() && found->is_string() ? &*found : nullptr;
    };
    if (!value.is_object() || !text("code") || !text("message"))
        return fail(ErrorCode::bad_request, "an error is not a map of code and message");
    Error error;
    error.code = error_code_from_string(text("code")->get_ref<const std::string&>());
    error.message = text("message")->get<std::string>();
    if (const json* hint = text("hint")) error.hint = hint->get<std::string>();
    return error;
}

tl::unexpected<Error> bad(std::string why) {
    return fail(ErrorCode::bad_request, "not MessagePack-RPC: " + std::move(why));
}

Result<RpcMessage> to_request(json& parts) {
    if (!parts[1].is_number_unsigned()) return bad("a request's id is not an unsigned integer");
    if (!parts[2].is_string()) return bad("a request's method is not a string");
    if (!parts[3].is_object()) return bad("a request's parameters are not a map");
    return RpcRequest{parts[1].get<uint64_t>(), parts[2].get<std::string>(), std::move(parts[3])};
}

Result<RpcMessage> to_response(json& parts) {
    if (!parts[1].is_number_unsigned()) return bad("a response's id is not an unsigned integer");
    RpcResponse response;
    response.id = parts[1].get<uint64_t>();
    if (!parts[2].is_null()) {
        auto error = to_error(parts[2]);
        if (!error) return tl::unexpected(error.error());
        response.error = std::move(*error);
    }
    response.result = std::move(parts[3]);
    return response;
}

Result<RpcMessage> to_notification(json& parts) {
    if (!parts[1].is_string()) return bad("a notification's method is not a string");
    if (!parts[2].is_array()) return bad("a notification's parameters are not an array");
    return RpcNotification{parts[1].get<std::string>(), std::move(parts[2])};
}

Result<RpcMessage> to_message(json parts) {
    if (!parts.is_array() || parts.empty() || !parts[0].is_number_unsigned()) return bad("no message type");
    const uint64_t type = parts[0].get<uint64_t>();
    if (type == type_request && parts.size() == 4) return to_request(parts);
    if (type == type_response && parts.size() == 4) return to_response(parts);
    if (type == type_notification && parts.size() == 3) return to_notification(parts);
    return bad("an unknown message type or length");
}

/// A message is an array of three or four, in the short form or a long one. Looking at the first byte refuses most
/// garbage at once, which could else pass for the start of something long.
bool may_start_message(std::byte byte) {
    return byte == std::byte{0x93} || byte == std::byte{0x94} || byte == std::byte{0xdc} || byte == std::byte{0xdd};
}

}  // namespace

std::string encode(const RpcRequest& request) {
    return encode_value(json::array({type_request, request.id, request.method, request.params}));
}

std::string encode(const RpcResponse& response) {
    json error = response.error ? to_json(*response.error) : json(nullptr);
    json result = response.error ? json(nullptr) : response.result;
    return encode_value(json::array({type_response, response.id, std::move(error), std::move(result)}));
}

std::string encode(const RpcNotification& notification) {
    return encode_value(json::array({type_notification, notification.method, notification.params}));
}

struct RpcDecoder::Impl {
    explicit Impl(const RpcLimits& limits) : values(limits) {}

    ValueDecoder values;
    std::optional<Error> error;

    tl::unexpected<Error> fail_with(const Error& reason) {
        error = reason;
        return tl::unexpected(reason);
    }
};

RpcDecoder::RpcDecoder(RpcLimits limits) : impl_(std::make_unique<Impl>(limits)) {}
RpcDecoder::~RpcDecoder() = default;
RpcDecoder::RpcDecoder(RpcDecoder&&) noexcept = default;
RpcDecoder& RpcDecoder::operator=(RpcDecoder&&) noexcept = default;

void RpcDecoder::feed(std::span<const std::byte> bytes) {
    impl_->values.feed(bytes);
}

size_t RpcDecoder::pending_bytes() const {
    return impl_->values.pending_bytes();
}

Result<std::optional<RpcMessage>> RpcDecoder::next() {
    if (impl_->error) return tl::unexpected(*impl_->error);
    if (const auto byte = impl_->values.first_byte(); byte && !may_start_message(*byte))
        return impl_->fail_with(bad("a message is an array").value());
    auto value = impl_->values.next();
    if (!value) return impl_->fail_with(value.error());
    if (!*value) return std::nullopt;
    auto message = to_message(std::move(**value));
    if (!message) return impl_->fail_with(message.error());
    return std::optional<RpcMessage>(std::move(*message));
}

}  // namespace ingero
