// Bytes on the span socket: what is taken keeps the rules, and the same bytes in other pieces give the same frames.

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "core/spans/span_stream.h"
#include "core/wire/utf8.h"

namespace {

using namespace ingero;

void require(bool condition) {
    if (!condition) std::abort();
}

void check(IncomingSpan span) {
    const SpanRow& row = span.row;
    require(row.end_ns >= row.start_ns && row.id.size() <= max_span_id_bytes);
    require(row.kind != SpanKind::request || !row.id.empty());
    require(row.labels.size() <= max_span_labels && row.values.size() <= max_span_values && is_utf8(row.model));
    for (const auto& [key, value] : row.labels) require(!key.empty() && value.size() <= 256 && is_utf8(value));
    const SpanRules rules{.now = {.monotonic_ns = 1ULL << 50, .boottime_ns = 1ULL << 50, .realtime_ns = 1ULL << 60}};
    if (!place_in_time(span, rules)) return;
    require(row.end_ns >= row.start_ns && row.end_ns <= rules.now.monotonic_ns + span_future_ns);
}

/// One line a frame.
std::string read_all(std::span<const std::byte> bytes, size_t step) {
    SpanStream stream;
    std::string seen;
    for (size_t at = 0; at < bytes.size(); at += step) {
        stream.feed(bytes.subspan(at, std::min(step, bytes.size() - at)));
        for (;;) {
            auto frame = stream.next();
            if (!frame) return seen + std::string(to_string(frame.error()));
            if (!*frame) break;
            for (const IncomingSpan& span : (*frame)->spans) check(span);
            for (const auto& [why, count] : (*frame)->refused)
                seen += std::string(to_string(why)) + "=" + std::to_string(count) + " ";
            seen += std::to_string((*frame)->spans.size()) + "\n";
            if ((*frame)->ack) require(!stream.encode_reply(*(*frame)->ack, 1, (*frame)->refused).empty());
        }
    }
    return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size > 8'192) return 0;
    const auto bytes = std::as_bytes(std::span(data, size));
    require(read_all(bytes, size + 1) == read_all(bytes, 7));
    return 0;
}
