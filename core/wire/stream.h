// Results too long for one message: sent in chunks, a window at a time (docs/control-protocol.md, "Long results").
//
// The sender and the assembler know nothing of sockets: whoever owns the connection moves their messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/model/result.h"
#include "core/wire/rpc.h"

namespace ingero {

inline constexpr size_t stream_threshold_bytes = 256 << 10;  ///< an encoded result up to this goes in the response
inline constexpr size_t stream_chunk_bytes = 256 << 10;      ///< at most, a chunk's payload
inline constexpr uint64_t stream_window = 8;                 ///< chunks sent and not acknowledged

/// What a reader of streams accepts: of the payloads together, and of the value they make.
inline constexpr RpcLimits stream_limits{
    .message_bytes = 64 << 20, .depth = 8, .string_bytes = 64 << 10, .elements = 1'000'000};

/// How far a stream's reader is.
class StreamWindow {
  public:
    /// Another chunk may be sent.
    bool is_open() const { return sent_ - acknowledged_ < stream_window; }
    /// The number of the chunk that is now sent.
    uint64_t send() { return sent_++; }
    uint64_t sent() const { return sent_; }
    /// Chunks up to and including `seq` have arrived. Errors: bad_request where that chunk was not sent yet.
    Result<void> acknowledge(uint64_t seq);
    /// Chunks are out that the reader has not acknowledged.
    bool waits_for_reader() const { return acknowledged_ < sent_; }

  private:
    uint64_t sent_ = 0;          ///< chunks
    uint64_t acknowledged_ = 0;  ///< chunks
};

/// The server's side of a stream without an end: each chunk is a whole value.
class LiveSender {
  public:
    explicit LiveSender(uint64_t stream) : stream_(stream) {}

    bool has_room() const { return window_.is_open(); }
    /// `value` encoded is at most stream_chunk_bytes long.
    RpcNotification chunk(const nlohmann::json& value);
    Result<void> acknowledge(uint64_t seq) { return window_.acknowledge(seq); }
    bool waits_for_reader() const { return window_.waits_for_reader(); }

  private:
    uint64_t stream_;
    StreamWindow window_;
};

/// The server's side of one stream.
class StreamSender {
  public:
    /// `payload` is the MessagePack of the result.
    StreamSender(uint64_t stream, std::string payload);

    uint64_t stream() const { return stream_; }
    /// The message to send now; nullopt while the window is closed, and for ever once the end was given out.
    std::optional<RpcNotification> next();
    Result<void> acknowledge(uint64_t seq) { return window_.acknowledge(seq); }
    bool ended() const { return ended_; }
    bool waits_for_reader() const { return window_.waits_for_reader() && !ended_; }
    size_t payload_bytes() const { return payload_.size(); }

  private:
    uint64_t stream_;
    std::string payload_;
    StreamWindow window_;
    bool ended_ = false;
};

/// The client's side of a stream without an end.
struct LiveReader {
    nlohmann::json value;
    RpcNotification acknowledgement;  ///< to be sent when the value was taken

    /// A notification of the stream. Errors: bad_request (not a chunk), limit, or the sender's where it ends the
    /// stream.
    static Result<LiveReader> on_chunk(const RpcNotification& notification);
};

/// The client's side of one stream.
class StreamAssembler {
  public:
    explicit StreamAssembler(uint64_t stream, const RpcLimits& limits = stream_limits);

    uint64_t stream() const { return stream_; }
    /// Takes ["chunk", [n, seq, payload]]; what comes back is to be sent: ["ack", [n, seq]]. Errors: bad_request (out
    /// of order, not a chunk), limit.
    Result<RpcNotification> on_chunk(const nlohmann::json& params);
    /// Takes ["end", [n, summary or error]]: the whole result. Errors: the sender's, or bad_request where the summary
    /// does not match what came, or limit.
    Result<nlohmann::json> on_end(const nlohmann::json& params);

  private:
    uint64_t stream_;
    RpcLimits limits_;
    std::string payload_;
    uint64_t chunks_ = 0;
};

/// The stream's number in the parameters of "chunk", "end" and "ack"; nullopt where there is none.
std::optional<uint64_t> stream_number(const nlohmann::json& params);

/// The stream's number in a response that announces one: {"stream": n} and nothing else.
std::optional<uint64_t> announced_stream(const nlohmann::json& result);

}  // namespace ingero
