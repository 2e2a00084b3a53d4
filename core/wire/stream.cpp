#include "core/wire/stream.h"

#include <algorithm>
#include <utility>

#include "core/wire/value.h"

namespace ingero {

using nlohmann::json;

namespace {

RpcNotification chunk_of(uint64_t stream, uint64_t seq, std::string_view payload) {
    json::binary_t::container_type bytes(payload.begin(), payload.end());
    return {"chunk", json::array({stream, seq, json::binary(std::move(bytes))})};
}

}  // namespace

StreamSender::StreamSender(uint64_t stream, std::string payload) : stream_(stream), payload_(std::move(payload)) {}

std::optional<RpcNotification> StreamSender::next() {
    if (ended_) return std::nullopt;
    const size_t offset = window_.sent() * stream_chunk_bytes;
    if (offset >= payload_.size()) {
        ended_ = true;
        return RpcNotification{"end", json::array({stream_, {{"bytes", payload_.size()}, {"chunks", window_.sent()}}})};
    }
    if (!window_.is_open()) return std::nullopt;
    const size_t size = std::min(stream_chunk_bytes, payload_.size() - offset);
    return chunk_of(stream_, window_.send(), std::string_view(payload_).substr(offset, size));
}

RpcNotification LiveSender::chunk(const json& value) {
    return chunk_of(stream_, window_.send(), encode_value(value));
}

Result<void> StreamWindow::acknowledge(uint64_t seq) {
    if (seq >= sent_) return fail(ErrorCode::bad_request, "a chunk was acknowledged before it was sent");
    // A repeated or late acknowledgement says nothing new.
    acknowledged_ = std::max(acknowledged_, seq + 1);
    return {};
}

namespace {

/// What a stream's end says went wrong; nothing where it is a summary.
std::optional<Error> error_of(const json& summary) {
    const auto text = [&](const char* key) { return summary.contains(key) && summary[key].is_string(); };
    if (!text("code")) return std::nullopt;
    return Error{error_code_from_string(summary["code"].get<std::string>()),
                 text("message") ? summary["message"].get<std::string>() : "the result could not be sent",
                 text("hint") ? summary["hint"].get<std::string>() : ""};
}

}  // namespace

Result<LiveReader> LiveReader::on_chunk(const RpcNotification& notification) {
    const json& params = notification.params;
    if (notification.method == "end" && params.is_array() && params.size() == 2 && params[1].is_object())
        return tl::unexpected(
            error_of(params[1]).value_or(Error{ErrorCode::not_found, "ingerod ended the stream", ""}));
    if (notification.method != "chunk" || !params.is_array() || params.size() != 3 || !params[0].is_number_unsigned() ||
        !params[1].is_number_unsigned() || !params[2].is_binary())
        return fail(ErrorCode::bad_request, "a chunk is not [stream, sequence, bytes]");
    const json::binary_t& bytes = params[2].get_binary();
    auto value = decode_value({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, stream_limits);
    if (!value) return tl::unexpected(value.error());
    return LiveReader{std::move(*value), {"ack", json::array({params[0], params[1]})}};
}

StreamAssembler::StreamAssembler(uint64_t stream, const RpcLimits& limits) : stream_(stream), limits_(limits) {}

Result<RpcNotification> StreamAssembler::on_chunk(const json& params) {
    if (stream_number(params) != stream_ || params.size() != 3 || !params[1].is_number_unsigned() ||
        !params[2].is_binary())
        return fail(ErrorCode::bad_request, "a chunk is not [stream, sequence, bytes]");
    const uint64_t seq = params[1].get<uint64_t>();
    if (seq != chunks_) return fail(ErrorCode::bad_request, "a chunk arrived out of order");
    const json::binary_t& bytes = params[2].get_binary();
    if (bytes.size() > limits_.message_bytes - payload_.size())
        return fail(ErrorCode::limit, "the result is too long", "ask for a shorter window or for one process (--pid)");
    payload_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    ++chunks_;
    return RpcNotification{"ack", json::array({stream_, seq})};
}

Result<json> StreamAssembler::on_end(const json& params) {
    if (stream_number(params) != stream_ || params.size() != 2 || !params[1].is_object())
        return fail(ErrorCode::bad_request, "a stream's end is not [stream, summary or error]");
    const json& summary = params[1];
    if (auto error = error_of(summary)) return tl::unexpected(std::move(*error));
    if (summary.value("bytes", json()) != payload_.size() || summary.value("chunks", json()) != chunks_)
        return fail(ErrorCode::bad_request, "a stream ended with pieces missing");
    return decode_value(payload_, limits_);
}

std::optional<uint64_t> stream_number(const json& params) {
    if (!params.is_array() || params.empty() || !params[0].is_number_unsigned()) return std::nullopt;
    return params[0].get<uint64_t>();
}

std::optional<uint64_t> announced_stream(const json& result) {
    if (!result.is_object() || result.size() != 1) return std::nullopt;
    const auto found = result.find("stream");
    if (found == result.end() || !found->is_number_unsigned()) return std::nullopt;
    return found->get<uint64_t>();
}

}  // namespace ingero
