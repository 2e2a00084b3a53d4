#include "core/wire/stream.h"

#include <algorithm>
#include <utility>

#include "core/wire/value.h"

namespace ingero {

using nlohmann::json;

StreamSender::StreamSender(uint64_t stream, std::string payload) : stream_(stream), payload_(std::move(payload)) {}

std::optional<RpcNotification> StreamSender::next() {
    if (ended_) return std::nullopt;
    const size_t offset = sent_ * stream_chunk_bytes;
    if (offset >= payload_.size()) {
        ended_ = true;
        return RpcNotification{"end", json::array({stream_, {{"bytes", payload_.size()}, {"chunks", sent_}}})};
    }
    if (sent_ - acknowledged_ >= stream_window) return std::nullopt;
    const size_t size = std::min(stream_chunk_bytes, payload_.size() - offset);
    const auto begin = payload_.begin() + static_cast<std::ptrdiff_t>(offset);
    json::binary_t::container_type bytes(begin, begin + static_cast<std::ptrdiff_t>(size));
    return RpcNotification{"chunk", json::array({stream_, sent_++, json::binary(std::move(bytes))})};
}

Result<void> StreamSender::acknowledge(uint64_t seq) {
    if (seq >= sent_) return fail(ErrorCode::bad_request, "a chunk was acknowledged before it was sent");
    // A repeated or late acknowledgement says nothing new.
    acknowledged_ = std::max(acknowledged_, seq + 1);
    return {};
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
    const auto text = [&](const char* key) { return summary.contains(key) && summary[key].is_string(); };
    if (text("code"))
        return fail(error_code_from_string(summary["code"].get<std::string>()),
                    text("message") ? summary["message"].get<std::string>() : "the result could not be sent",
                    text("hint") ? summary["hint"].get<std::string>() : "");
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
