// Keys, seals and numbers: what all rows have in common.
#include <xxhash.h>

#include <bit>
#include <concepts>
#include <cstring>

#include "core/store/rows/rows.h"

namespace ingero {

namespace {

static_assert(std::endian::native == std::endian::little);

template <std::integral... T>
std::string big_endian(T... values) {
    std::string key;
    const auto append = [&](auto value) {
        for (size_t shift = sizeof value * 8; shift > 0; shift -= 8)
            key.push_back(static_cast<char>(value >> (shift - 8) & 0xff));
    };
    (append(values), ...);
    return key;
}

/// False unless the key is of exactly these fields.
template <std::integral... T>
bool from_big_endian(std::string_view key, T&... values) {
    if (key.size() != (sizeof(T) + ...)) return false;
    size_t at = 0;
    const auto take = [&](auto& value) {
        value = 0;
        for (size_t i = 0; i < sizeof value; ++i)
            value = static_cast<std::remove_reference_t<decltype(value)>>(uint64_t{value} << 8 |
                                                                          static_cast<uint8_t>(key[at++]));
    };
    (take(values), ...);
    return true;
}

uint64_t checksum(std::string_view key, std::string_view content) {
    return XXH3_64bits_withSeed(content.data(), content.size(), XXH3_64bits(key.data(), key.size()));
}

}  // namespace

std::string seal(std::string_view key, std::string_view content) {
    const uint64_t sum = checksum(key, content);
    std::string value(reinterpret_cast<const char*>(&sum), sizeof sum);
    value.append(content);
    return value;
}

std::optional<std::string_view> unseal(std::string_view key, std::string_view value) {
    uint64_t sum = 0;
    if (value.size() < sizeof sum) return std::nullopt;
    std::memcpy(&sum, value.data(), sizeof sum);
    value.remove_prefix(sizeof sum);
    if (sum != checksum(key, value)) return std::nullopt;
    return value;
}

std::string encode_number(uint64_t value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::optional<uint64_t> decode_number(std::string_view content) {
    uint64_t value = 0;
    if (content.size() != sizeof value) return std::nullopt;
    std::memcpy(&value, content.data(), sizeof value);
    return value;
}

std::string encode_key(const EventKey& key) {
    return big_endian(key.boot_index, key.first_start_ns, key.first_sequence);
}
std::string encode_key(const LossKey& key) {
    return big_endian(key.boot_index, key.from_ns, key.to_ns, key.op);
}
std::string encode_key(const ProcessKey& key) {
    return big_endian(key.pid, key.start_ns);
}
std::string encode_key(const GapKey& key) {
    return big_endian(key.boot_index, key.from_ns, key.process.pid, key.process.start_ns,
                      static_cast<uint16_t>(key.reason));
}
std::string encode_key(const FunctionKey& key) {
    return big_endian(key.process.pid, key.process.start_ns, key.handle);
}
std::string encode_key(const CommunicatorKey& key) {
    return big_endian(key.process.pid, key.process.start_ns, key.id);
}
std::string encode_key(const StackFrame& place) {
    return big_endian(place.file, place.offset);
}
std::string encode_key(const HistoryKey& key) {
    return big_endian(key.boot_index, key.time_ns, key.number);
}
std::string encode_key(const SpanIdKey& key) {
    return span_id_prefix(key.id) + encode_key(key.span);
}
std::string encode_key(const RollupKey& key) {
    return big_endian(key.boot_index, key.minute_ns, key.op, key.process.pid, key.process.start_ns);
}
std::string encode_key(const HeldKey& key) {
    return encode_key(key.user) + encode_key(key.block);
}
// With its length first: else an id would find those that begin with it.
std::string span_id_prefix(std::string_view id) {
    id = id.substr(0, max_span_id_bytes);
    return big_endian(static_cast<uint8_t>(id.size())).append(id);
}
std::string encode_key(uint32_t number) {
    return big_endian(number);
}

std::optional<EventKey> decode_event_key(std::string_view key) {
    EventKey out;
    if (!from_big_endian(key, out.boot_index, out.first_start_ns, out.first_sequence)) return std::nullopt;
    return out;
}

std::optional<LossKey> decode_loss_key(std::string_view key) {
    LossKey out;
    if (!from_big_endian(key, out.boot_index, out.from_ns, out.to_ns, out.op)) return std::nullopt;
    return out;
}

std::optional<GapKey> decode_gap_key(std::string_view key) {
    GapKey out;
    uint16_t reason = 0;
    if (!from_big_endian(key, out.boot_index, out.from_ns, out.process.pid, out.process.start_ns, reason))
        return std::nullopt;
    out.reason = static_cast<GapReason>(reason);
    return out;
}

std::optional<HistoryKey> decode_history_key(std::string_view key) {
    HistoryKey out;
    if (!from_big_endian(key, out.boot_index, out.time_ns, out.number)) return std::nullopt;
    return out;
}

std::optional<SpanIdKey> decode_span_id_key(std::string_view key) {
    if (key.empty() || key.size() <= static_cast<uint8_t>(key.front())) return std::nullopt;
    const size_t length = static_cast<uint8_t>(key.front());
    const auto span = decode_history_key(key.substr(1 + length));
    if (!span) return std::nullopt;
    return SpanIdKey{std::string(key.substr(1, length)), *span};
}

std::optional<RollupKey> decode_rollup_key(std::string_view key) {
    RollupKey out;
    if (!from_big_endian(key, out.boot_index, out.minute_ns, out.op, out.process.pid, out.process.start_ns))
        return std::nullopt;
    return out;
}

std::optional<HeldKey> decode_held_key(std::string_view key) {
    HeldKey out;
    if (!from_big_endian(key, out.user, out.block.boot_index, out.block.first_start_ns, out.block.first_sequence))
        return std::nullopt;
    return out;
}

std::optional<uint32_t> decode_number_key(std::string_view key) {
    uint32_t out = 0;
    if (!from_big_endian(key, out)) return std::nullopt;
    return out;
}

}  // namespace ingero
