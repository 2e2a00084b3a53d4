// The bytes of one connection to the span socket, taken apart: MessagePack values back to back, or JSON lines where the
// first byte is '{' or white space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/spans/span.h"

namespace ingero {

inline constexpr size_t max_span_frame_bytes = 64 << 10;

/// One value of the stream: a span, or an array of them.
struct SpanFrame {
    std::vector<IncomingSpan> spans;
    std::map<SpanRefusal, uint32_t> refused;
    std::optional<uint64_t> ack;  ///< a reply is asked for
};

class SpanStream {
  public:
    SpanStream();
    ~SpanStream();
    SpanStream(SpanStream&&) noexcept;
    SpanStream& operator=(SpanStream&&) noexcept;

    void feed(std::span<const std::byte> bytes);
    /// nullopt: more bytes are needed. A refusal says why the stream cannot be read on: bad_frame, too_large, too_deep.
    SpanResult<std::optional<SpanFrame>> next();
    /// Fed and not yet part of a frame; never more than a frame may have and what was fed last.
    size_t pending_bytes() const;

    /// What goes back for a frame that asked: {ack, accepted, rejected, reasons}, in the form the stream has.
    std::string encode_reply(uint64_t ack, uint64_t accepted, const std::map<SpanRefusal, uint32_t>& refused) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
