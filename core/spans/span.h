// A span as a program sends it, checked field by field, and why one is refused (docs/spans.md). Bytes and texts are a
// stranger's; whose span it is, the daemon finds out.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "core/model/result.h"
#include "core/model/time.h"
#include "core/store/rows/history.h"

namespace ingero {

/// The codes that acknowledgements and `status` name.
enum class SpanRefusal : uint8_t {
    bad_frame,
    too_large,
    too_deep,
    bad_field,
    not_utf8,
    bad_id,
    end_before_start,
    too_long,
    in_future,
    too_old,
    no_such_process,
    not_yours,
    rate_limit,
    connection_limit,
    store_full,
};
inline constexpr size_t span_refusal_count = 15;
/// "bad-frame", "end-before-start" and so on.
std::string_view to_string(SpanRefusal refusal);

struct IncomingSpan {
    /// What the sender said. Not of the sender: process, uid, scope, received_ns. Times are of the clock it names.
    SpanRow row;
    bool realtime = false;
    bool has_interval = true;  ///< false: a moment without a time of its own is when it arrives
    std::optional<uint32_t> pid;
    std::optional<uint64_t> start_ticks;  ///< of that process: clock ticks since boot
    std::optional<uint64_t> ack;          ///< asks for a reply
};

template <class T>
using SpanResult = tl::expected<T, SpanRefusal>;

/// One map of a frame, by the field names of docs/spans.md. Fields that are not known are left alone.
SpanResult<IncomingSpan> to_span(const nlohmann::json& fields);
/// One line of the earlier agent's annotation protocol.
SpanResult<IncomingSpan> to_annotation(const nlohmann::json& fields);

/// Under which id the processes of a scope group are registered: rows of kind `scope`.
std::string registration_id(std::string_view scope);

/// "request" and so on, as spans are sent; "other" for one that this version does not know.
std::string_view span_kind_name(SpanKind kind);

struct SpanRules {
    ClockTriple now;         ///< at receipt
    uint64_t oldest_ns = 0;  ///< CLOCK_MONOTONIC of the oldest event kept; 0: none
    uint64_t longest_ns = max_span_ns;
};
inline constexpr uint64_t span_future_ns = 1'000'000'000;

/// Turns times of the wall clock into those of the monotonic one and holds them against the rules.
SpanResult<void> place_in_time(IncomingSpan& span, const SpanRules& rules);

}  // namespace ingero
