#include "core/spans/span_stream.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/wire/utf8.h"
#include "core/wire/value.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t max_depth = 4;
// A span has five at least, with names and times: what has more for its bytes is no frame of spans.
constexpr size_t max_elements = max_span_frame_bytes / 4;

constexpr RpcLimits limits{.message_bytes = max_span_frame_bytes,
                           .depth = max_depth,
                           .string_bytes = max_span_frame_bytes,
                           .elements = max_elements,
                           .keep_invalid_text = true};

void add(SpanFrame& frame, SpanResult<IncomingSpan> span) {
    if (!span) {
        ++frame.refused[span.error()];
        return;
    }
    if (span->ack) frame.ack = span->ack;
    frame.spans.push_back(std::move(*span));
}

/// A refused span may have asked for the frame's reply.
void note_ack(SpanFrame& frame, const json& fields) {
    if (!fields.is_object()) return;
    const auto ack = fields.find("ack");
    if (ack != fields.end() && ack->is_number_unsigned()) frame.ack = ack->get<uint64_t>();
}

SpanFrame to_frame(const json& value) {
    SpanFrame frame;
    const auto take = [&](const json& fields) {
        note_ack(frame, fields);
        add(frame, to_span(fields));
    };
    if (value.is_array())
        for (const json& fields : value) take(fields);
    else
        take(value);
    return frame;
}

/// Nesting is counted before a parser sees the line.
SpanResult<void> check_depth(std::string_view line) {
    size_t depth = 0;
    bool in_text = false;
    for (size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (in_text) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                in_text = false;
        } else if (c == '"') {
            in_text = true;
        } else if (c == '{' || c == '[') {
            if (++depth > max_depth) return tl::unexpected(SpanRefusal::too_deep);
        } else if ((c == '}' || c == ']') && depth > 0) {
            --depth;
        }
    }
    return {};
}

}  // namespace

struct SpanStream::Impl {
    enum class Form { unknown, messagepack, lines };

    Form form = Form::unknown;
    ValueDecoder values{limits};
    std::string line;  ///< what of lines is not taken yet, from `line_start` on
    size_t line_start = 0;
    std::optional<SpanRefusal> broken;

    tl::unexpected<SpanRefusal> fail_with(SpanRefusal why) {
        broken = why;
        return tl::unexpected(why);
    }
    SpanResult<std::optional<SpanFrame>> next_value();
    SpanResult<std::optional<SpanFrame>> next_line();
};

SpanStream::SpanStream() : impl_(std::make_unique<Impl>()) {}
SpanStream::~SpanStream() = default;
SpanStream::SpanStream(SpanStream&&) noexcept = default;
SpanStream& SpanStream::operator=(SpanStream&&) noexcept = default;

void SpanStream::feed(std::span<const std::byte> bytes) {
    if (bytes.empty() || impl_->broken) return;
    if (impl_->form == Impl::Form::unknown)
        impl_->form = std::string_view("{ \t\r\n").find(static_cast<char>(bytes[0])) != std::string_view::npos
                          ? Impl::Form::lines
                          : Impl::Form::messagepack;
    if (impl_->form == Impl::Form::messagepack) return impl_->values.feed(bytes);
    impl_->line.erase(0, std::exchange(impl_->line_start, 0));
    impl_->line.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

SpanResult<std::optional<SpanFrame>> SpanStream::Impl::next_value() {
    // A span is a map, a frame an array or a map: most garbage could else pass for a number and be skipped.
    if (const auto byte = values.first_byte()) {
        const auto first = static_cast<uint8_t>(*byte);
        if (!((first >= 0x80 && first <= 0x9f) || (first >= 0xdc && first <= 0xdf)))
            return fail_with(SpanRefusal::bad_frame);
    }
    auto value = values.next();
    if (!value) {
        if (values.too_deep()) return fail_with(SpanRefusal::too_deep);
        return fail_with(value.error().code == ErrorCode::limit ? SpanRefusal::too_large : SpanRefusal::bad_frame);
    }
    if (!*value) return std::nullopt;
    return to_frame(**value);
}

SpanResult<std::optional<SpanFrame>> SpanStream::Impl::next_line() {
    for (;;) {
        const size_t end = line.find('\n', line_start);
        const size_t length = (end == std::string::npos ? line.size() : end) - line_start;
        if (length > max_span_frame_bytes) return fail_with(SpanRefusal::too_large);
        if (end == std::string::npos) return std::nullopt;
        const std::string_view text(line.data() + line_start, length);
        line_start = end + 1;
        if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        SpanFrame frame;
        if (!is_utf8(text)) {
            ++frame.refused[SpanRefusal::not_utf8];
            return frame;
        }
        if (const auto shallow = check_depth(text); !shallow) {
            ++frame.refused[shallow.error()];
            return frame;
        }
        const json fields = json::parse(text, nullptr, false);
        if (fields.is_discarded()) {
            ++frame.refused[SpanRefusal::bad_frame];
            return frame;
        }
        note_ack(frame, fields);
        add(frame, to_annotation(fields));
        return frame;
    }
}

SpanResult<std::optional<SpanFrame>> SpanStream::next() {
    if (impl_->broken) return tl::unexpected(*impl_->broken);
    return impl_->form == Impl::Form::lines ? impl_->next_line() : impl_->next_value();
}

size_t SpanStream::pending_bytes() const {
    return impl_->form == Impl::Form::lines ? impl_->line.size() - impl_->line_start : impl_->values.pending_bytes();
}

std::string SpanStream::encode_reply(uint64_t ack, uint64_t accepted,
                                     const std::map<SpanRefusal, uint32_t>& refused) const {
    json reasons = json::object();
    uint64_t rejected = 0;
    for (const auto& [why, count] : refused) {
        reasons[std::string(to_string(why))] = count;
        rejected += count;
    }
    const json reply{{"ack", ack}, {"accepted", accepted}, {"rejected", rejected}, {"reasons", std::move(reasons)}};
    return impl_->form == Impl::Form::lines ? reply.dump() + "\n" : encode_value(reply);
}

}  // namespace ingero
