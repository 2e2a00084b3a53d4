// Keys and the small rows of a store: reader and writer of each are one function (rows.cpp;
// keys.cpp for keys). Every value but an event
// block is sealed: a checksum of key and content stands before it.
//
// A row begins with its version. A newer version may only append fields: a reader takes what it knows and leaves the
// rest. Anything else needs a new store_layout_version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/model/process/process.h"
#include "core/model/result.h"
#include "core/store/store.h"

namespace ingero {

/// Names in the table "meta".
inline constexpr std::string_view application_key = "application";
inline constexpr std::string_view application_name = "ingero-store";
inline constexpr std::string_view layout_key = "layout_version";
inline constexpr std::string_view last_sequence_key = "last_sequence";
/// The highest ids that any row has named, kept after the rows are let go. Absent: none.
inline constexpr std::string_view last_stack_key = "last_stack";
inline constexpr std::string_view last_file_key = "last_file";
/// The highest number of a span, an incident's row or a state. Absent: none.
inline constexpr std::string_view last_row_key = "last_row";

/// XXH3-64 of key and content, then the content.
std::string seal(std::string_view key, std::string_view content);
/// The content; empty where the seal does not fit.
std::optional<std::string_view> unseal(std::string_view key, std::string_view value);

std::string encode_number(uint64_t value);
std::optional<uint64_t> decode_number(std::string_view content);

/// Keys sort by their fields in order: all big-endian.
struct EventKey {
    uint32_t boot_index = 0;
    uint64_t first_start_ns = 0;
    uint64_t first_sequence = 0;  ///< the smallest of the block
};
struct LossKey {
    uint32_t boot_index = 0;
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;
    OpId op = 0;
};
struct GapKey {
    uint32_t boot_index = 0;
    uint64_t from_ns = 0;
    ProcessKey process;
    GapReason reason = GapReason::late_attach;
};
struct FunctionKey {
    ProcessKey process;
    uint64_t handle = 0;
};
struct CommunicatorKey {
    ProcessKey process;
    uint64_t id = 0;
};
/// Of spans, incidents, states and clocks.
struct HistoryKey {
    uint32_t boot_index = 0;
    uint64_t time_ns = 0;  ///< a span's start, else when it was
    uint64_t number = 0;   ///< distinguishes rows of one time; of a clock: its session
};
/// Finds spans by their id.
struct SpanIdKey {
    std::string id;
    HistoryKey span;
};
struct RollupKey {
    uint32_t boot_index = 0;
    uint64_t minute_ns = 0;
    OpId op = 0;
    ProcessKey process;
    auto operator<=>(const RollupKey&) const = default;
};
/// Whose a block is.
struct HeldKey {
    uint32_t user = 0;
    EventKey block;
};
std::string encode_key(const EventKey& key);
std::string encode_key(const LossKey& key);
std::string encode_key(const ProcessKey& key);
std::string encode_key(const GapKey& key);
std::string encode_key(const FunctionKey& key);
std::string encode_key(const CommunicatorKey& key);
std::string encode_key(const StackFrame& place);  ///< of a symbol
std::string encode_key(const HistoryKey& key);
std::string encode_key(const SpanIdKey& key);
std::string encode_key(const RollupKey& key);
std::string encode_key(const HeldKey& key);
/// What the keys of all spans of this id begin with.
std::string span_id_prefix(std::string_view id);
std::string encode_key(uint32_t number);  ///< of a session: its number in the store, from 0
std::optional<EventKey> decode_event_key(std::string_view key);
std::optional<LossKey> decode_loss_key(std::string_view key);
std::optional<GapKey> decode_gap_key(std::string_view key);
std::optional<HistoryKey> decode_history_key(std::string_view key);
std::optional<SpanIdKey> decode_span_id_key(std::string_view key);
std::optional<RollupKey> decode_rollup_key(std::string_view key);
std::optional<HeldKey> decode_held_key(std::string_view key);
std::optional<uint32_t> decode_number_key(std::string_view key);

/// A process row knows its boot, so that it can be let go with it.
struct StoredProcess {
    Process process;
    uint32_t boot_index = 0;
};

/// A function row knows its boot for the same reason.
struct StoredFunction {
    FunctionRow function;
    uint32_t boot_index = 0;
};
struct StoredCommunicator {
    CommunicatorRow communicator;
    uint32_t boot_index = 0;
};
struct StoredStack {
    StackRow stack;
    uint32_t boot_index = 0;
};
struct StoredFile {
    FileRow file;
    uint32_t boot_index = 0;
};
struct StoredSymbol {
    SymbolRow symbol;
    uint32_t boot_index = 0;
};

std::string encode_row(const StoredProcess& row);
std::string encode_row(const StoredFunction& row);
std::string encode_row(const StoredCommunicator& row);
std::string encode_row(const GapRow& row);
std::string encode_row(const StoredStack& row);
std::string encode_row(const StoredFile& row);
std::string encode_row(const StoredSymbol& row);
std::string encode_row(const LossRow& row);
std::string encode_row(const Session& row);
std::string encode_row(const SpanRow& row);
std::string encode_row(const IncidentRow& row);
std::string encode_row(const StateRow& row);
std::string encode_row(const ClockRow& row);
std::string encode_row(const RollupRow& row);
/// Empty where the bytes are no such row.
std::optional<StoredProcess> decode_process(std::string_view content);
std::optional<StoredFunction> decode_function(std::string_view content);
std::optional<StoredCommunicator> decode_communicator(std::string_view content);
std::optional<GapRow> decode_gap(std::string_view content);
std::optional<StoredStack> decode_stack(std::string_view content);
std::optional<StoredFile> decode_file(std::string_view content);
std::optional<StoredSymbol> decode_symbol(std::string_view content);
std::optional<LossRow> decode_loss(std::string_view content);
std::optional<Session> decode_session(std::string_view content);
std::optional<SpanRow> decode_span(std::string_view content);
std::optional<IncidentRow> decode_incident(std::string_view content);
std::optional<StateRow> decode_state(std::string_view content);
/// Of a state its beginning; its number is in the key.
std::optional<StateHead> decode_state_head(std::string_view content);
std::optional<ClockRow> decode_clock(std::string_view content);
std::optional<RollupRow> decode_rollup(std::string_view content);

}  // namespace ingero
