// Bytes of a peer: whatever the decoder takes can be printed, encoded and read again, and cut anywhere it decodes
// alike.

#include <cstdlib>
#include <span>
#include <string>

#include "core/render/render.h"
#include "core/wire/rpc.h"
#include "core/wire/value.h"

namespace {

using namespace ingero;
using nlohmann::json;

void require(bool condition) {
    if (!condition) std::abort();
}

std::string encode_any(const RpcMessage& message) {
    return std::visit([](const auto& known) { return encode(known); }, message);
}

void try_readers(const json& value) {
    require(!value.dump().empty());
    for (const auto render : {text_status, text_processes, text_stats, text_explain})
        for (const unsigned width : {0u, 40u}) require(!render(value, {width, false}).empty());
}

void check(const RpcMessage& message) {
    const std::string bytes = encode_any(message);
    // Replacement characters are longer than what they replace: give the second reading room.
    RpcLimits limits;
    limits.message_bytes *= 4;
    limits.string_bytes *= 4;
    RpcDecoder decoder(limits);
    decoder.feed(std::as_bytes(std::span(bytes)));
    const auto again = decoder.next();
    require(again && *again && encode_any(**again) == bytes && decoder.pending_bytes() == 0);
    if (const auto* request = std::get_if<RpcRequest>(&message)) try_readers(request->params);
    if (const auto* response = std::get_if<RpcResponse>(&message)) try_readers(response->result);
    if (const auto* notification = std::get_if<RpcNotification>(&message)) try_readers(notification->params);
}

struct Outcome {
    std::string messages;
    bool failed = false;
    bool operator==(const Outcome&) const = default;
};

Outcome decode(std::span<const std::byte> bytes, size_t piece, bool checked) {
    RpcDecoder decoder;
    Outcome outcome;
    while (!bytes.empty() && !outcome.failed) {
        const size_t size = std::min(piece, bytes.size());
        decoder.feed(bytes.first(size));
        bytes = bytes.subspan(size);
        for (;;) {
            const auto message = decoder.next();
            outcome.failed = !message;
            if (!message || !*message) break;
            outcome.messages += encode_any(**message);
            if (checked) check(**message);
        }
    }
    return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const auto bytes = std::as_bytes(std::span(data, size));
    const Outcome whole = decode(bytes, size, true);
    const Outcome pieces = decode(bytes, 1 + data[size - 1] % 7, false);
    require(whole == pieces);
    return 0;
}
