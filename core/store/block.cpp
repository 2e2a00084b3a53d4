#include "core/store/block.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace ingero {

namespace {

// Fields are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little);

constexpr uint32_t block_magic = 0x4b42'4749;  // "IGBK"

struct RawHeader {
    uint32_t magic;
    uint16_t version;
    uint16_t columns;
    uint64_t header_checksum;  // of everything between here and the body, seeded with the eight bytes before
    uint64_t body_checksum;
    uint32_t boot_index;
    uint32_t rows;
    uint64_t first_start_ns;
    uint64_t last_start_ns;
    uint64_t max_end_ns;
    uint64_t min_sequence;
    uint64_t max_sequence;
    uint32_t body_bytes;
    uint32_t reserved;
};
static_assert(sizeof(RawHeader) == 80);

constexpr size_t checked_from = 16;

enum class Encoding : uint8_t { plain = 0 };

struct RawColumn {
    uint16_t id;
    uint8_t encoding;
    uint8_t width;    // bytes a row
    uint32_t offset;  // in the body, a multiple of eight
};
static_assert(sizeof(RawColumn) == 8);

/// Blocks of the first layout lack the columns from this one on: their rows keep Event's defaults.
constexpr uint16_t first_optional_column = 29;

/// Every field of Event with its column id. Ids are never reused.
template <class Visit>
void for_each_column(Visit&& visit) {
    visit(
        1, [](auto& event) -> auto& { return event.sequence; });
    visit(
        2, [](auto& event) -> auto& { return event.start_ns; });
    visit(
        3, [](auto& event) -> auto& { return event.duration_ns; });
    visit(
        4, [](auto& event) -> auto& { return event.runnable_ns; });
    visit(
        5, [](auto& event) -> auto& { return event.preempted_ns; });
    visit(
        6, [](auto& event) -> auto& { return event.blocked_ns; });
    visit(
        7, [](auto& event) -> auto& { return event.longest_sleep_ns; });
    visit(
        8, [](auto& event) -> auto& { return event.preemptor_ns; });
    visit(
        9, [](auto& event) -> auto& { return event.args[0]; });
    visit(
        10, [](auto& event) -> auto& { return event.args[1]; });
    visit(
        11, [](auto& event) -> auto& { return event.args[2]; });
    visit(
        12, [](auto& event) -> auto& { return event.stream; });
    visit(
        13, [](auto& event) -> auto& { return event.process_start_ns; });
    visit(
        14, [](auto& event) -> auto& { return event.tgid; });
    visit(
        15, [](auto& event) -> auto& { return event.tid; });
    visit(
        16, [](auto& event) -> auto& { return event.cpu; });
    visit(
        17, [](auto& event) -> auto& { return event.waits; });
    visit(
        18, [](auto& event) -> auto& { return event.return_code; });
    visit(
        19, [](auto& event) -> auto& { return event.preemptor_tgid; });
    visit(
        20, [](auto& event) -> auto& { return event.waker_tgid; });
    visit(
        21, [](auto& event) -> auto& { return event.op; });
    visit(
        22, [](auto& event) -> auto& { return event.blocked_syscall; });
    visit(
        23, [](auto& event) -> auto& { return event.depth; });
    visit(
        24, [](auto& event) -> auto& { return event.flags; });
    visit(
        25, [](auto& event) -> auto& { return event.blocked_reason; });
    visit(
        26, [](auto& event) -> auto& { return event.waker_kind; });
    visit(
        27, [](auto& event) -> auto& { return event.preemptor_comm; });
    visit(
        28, [](auto& event) -> auto& { return event.waker_comm; });
    visit(
        29, [](auto& event) -> auto& { return event.device; });
    visit(
        30, [](auto& event) -> auto& { return event.weight; });
    visit(
        31, [](auto& event) -> auto& { return event.stack; });
}

template <class Get>
using field_type = std::remove_cvref_t<std::invoke_result_t<Get, Event&>>;

size_t padded(size_t bytes) {
    return (bytes + 7) & ~size_t{7};
}

/// What the header must say of these rows.
BlockHeader summarise(uint32_t boot_index, std::span<const Event> events) {
    BlockHeader header{.boot_index = boot_index,
                       .rows = static_cast<uint32_t>(events.size()),
                       .first_start_ns = events.front().start_ns,
                       .last_start_ns = events.back().start_ns,
                       .max_end_ns = 0,
                       .min_sequence = std::numeric_limits<uint64_t>::max(),
                       .max_sequence = 0};
    for (const Event& event : events) {
        header.max_end_ns = std::max(header.max_end_ns, saturated_end_ns(event));
        header.min_sequence = std::min(header.min_sequence, event.sequence);
        header.max_sequence = std::max(header.max_sequence, event.sequence);
    }
    return header;
}

auto corrupt(std::string why) {
    return fail(ErrorCode::corrupt, "damaged event block: " + std::move(why));
}

/// The fixed part, checked as far as that can be without the columns.
Result<RawHeader> read_raw_header(std::string_view data) {
    RawHeader raw{};
    if (data.size() < sizeof raw) return corrupt("shorter than a header");
    std::memcpy(&raw, data.data(), sizeof raw);
    if (raw.magic != block_magic) return corrupt("wrong magic");
    if (raw.version > block_version)
        return fail(ErrorCode::version,
                    "the event block has format " + std::to_string(raw.version) + ", newer than the " +
                        std::to_string(block_version) + " this ingero knows",
                    "read it with the ingero that wrote it, or a newer one");
    const size_t body_at = sizeof raw + size_t{raw.columns} * sizeof(RawColumn);
    if (data.size() < body_at || data.size() - body_at != raw.body_bytes) return corrupt("wrong length");
    uint64_t seed = 0;
    std::memcpy(&seed, data.data(), sizeof seed);
    if (XXH3_64bits_withSeed(data.data() + checked_from, body_at - checked_from, seed) != raw.header_checksum)
        return corrupt("header checksum");
    if (raw.version == 0 || raw.rows == 0 || raw.rows > max_block_rows) return corrupt("impossible row count");
    return raw;
}

BlockHeader to_header(const RawHeader& raw) {
    return {.boot_index = raw.boot_index,
            .rows = raw.rows,
            .first_start_ns = raw.first_start_ns,
            .last_start_ns = raw.last_start_ns,
            .max_end_ns = raw.max_end_ns,
            .min_sequence = raw.min_sequence,
            .max_sequence = raw.max_sequence};
}

/// The bytes of column `id`, empty where the block has no such column of that width inside its body.
std::string_view find_column(std::string_view data, const RawHeader& raw, uint16_t id, size_t width) {
    const std::string_view body = data.substr(data.size() - raw.body_bytes);
    for (size_t i = 0; i < raw.columns; ++i) {
        RawColumn column{};
        std::memcpy(&column, data.data() + sizeof raw + i * sizeof column, sizeof column);
        if (column.id != id) continue;
        const size_t bytes = width * raw.rows;
        if (column.encoding != static_cast<uint8_t>(Encoding::plain) || column.width != width) return {};
        if (column.offset > body.size() || body.size() - column.offset < bytes) return {};
        return body.substr(column.offset, bytes);
    }
    return {};
}

bool before(const Event& a, const Event& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.sequence < b.sequence;
}

}  // namespace

uint64_t saturated_end_ns(const Event& event) {
    uint64_t end = 0;
    return __builtin_add_overflow(event.start_ns, event.duration_ns, &end) ? std::numeric_limits<uint64_t>::max() : end;
}

bool overlaps(const Event& event, Window window) {
    return event.start_ns < window.to_ns &&
           (saturated_end_ns(event) > window.from_ns || event.start_ns >= window.from_ns);
}

bool overlaps(const BlockHeader& header, Window window) {
    return header.first_start_ns < window.to_ns &&
           (header.max_end_ns > window.from_ns || header.last_start_ns >= window.from_ns);
}

std::string encode_block(uint32_t boot_index, std::span<const Event> events) {
    if (events.empty() || events.size() > max_block_rows) throw std::logic_error("a block holds 1 to 4,096 events");
    size_t columns = 0;
    size_t body_bytes = 0;
    for_each_column([&]<class Get>(uint16_t, Get) {
        ++columns;
        body_bytes += padded(sizeof(field_type<Get>) * events.size());
    });
    const BlockHeader header = summarise(boot_index, events);
    const RawHeader raw{.magic = block_magic,
                        .version = block_version,
                        .columns = static_cast<uint16_t>(columns),
                        .header_checksum = 0,
                        .body_checksum = 0,
                        .boot_index = header.boot_index,
                        .rows = header.rows,
                        .first_start_ns = header.first_start_ns,
                        .last_start_ns = header.last_start_ns,
                        .max_end_ns = header.max_end_ns,
                        .min_sequence = header.min_sequence,
                        .max_sequence = header.max_sequence,
                        .body_bytes = static_cast<uint32_t>(body_bytes),
                        .reserved = 0};
    std::string data(sizeof raw + columns * sizeof(RawColumn) + body_bytes, '\0');
    std::memcpy(data.data(), &raw, sizeof raw);
    char* entry = data.data() + sizeof raw;
    char* const body = entry + columns * sizeof(RawColumn);
    size_t offset = 0;
    for_each_column([&]<class Get>(uint16_t id, Get get) {
        constexpr size_t width = sizeof(field_type<Get>);
        const RawColumn column{id, static_cast<uint8_t>(Encoding::plain), width, static_cast<uint32_t>(offset)};
        std::memcpy(entry, &column, sizeof column);
        entry += sizeof column;
        char* at = body + offset;
        for (const Event& event : events) {
            std::memcpy(at, &get(event), width);
            at += width;
        }
        offset += padded(width * events.size());
    });
    seal_block(data);
    return data;
}

Result<BlockHeader> read_block_header(std::string_view data) {
    auto raw = read_raw_header(data);
    if (!raw) return tl::unexpected(raw.error());
    return to_header(*raw);
}

Result<void> decode_block(std::string_view data, std::vector<Event>& ret_events) {
    const auto raw = read_raw_header(data);
    if (!raw) return tl::unexpected(raw.error());
    if (XXH3_64bits(data.data() + data.size() - raw->body_bytes, raw->body_bytes) != raw->body_checksum)
        return corrupt("body checksum");
    std::vector<Event> rows(raw->rows);
    uint16_t missing = 0;
    for_each_column([&]<class Get>(uint16_t id, Get get) {
        constexpr size_t width = sizeof(field_type<Get>);
        const std::string_view column = find_column(data, *raw, id, width);
        if (column.empty()) {
            if (id < first_optional_column) missing = id;
            return;
        }
        const char* at = column.data();
        for (Event& event : rows) {
            std::memcpy(&get(event), at, width);
            at += width;
        }
    });
    if (missing != 0) return corrupt("column " + std::to_string(missing) + " is missing or misplaced");
    // A file may come from anywhere, with checksums that fit: what the header promises is what scans rely on.
    if (!std::is_sorted(rows.begin(), rows.end(), before)) return corrupt("rows out of order");
    if (summarise(raw->boot_index, rows) != to_header(*raw)) return corrupt("the header does not describe the rows");
    ret_events.insert(ret_events.end(), rows.begin(), rows.end());
    return {};
}

void seal_block(std::span<char> data) {
    RawHeader raw{};
    if (data.size() < sizeof raw) return;
    std::memcpy(&raw, data.data(), sizeof raw);
    const size_t body_at = sizeof raw + size_t{raw.columns} * sizeof(RawColumn);
    if (data.size() < body_at) return;
    raw.body_checksum = XXH3_64bits(data.data() + body_at, data.size() - body_at);
    std::memcpy(data.data(), &raw, sizeof raw);
    uint64_t seed = 0;
    std::memcpy(&seed, data.data(), sizeof seed);
    raw.header_checksum = XXH3_64bits_withSeed(data.data() + checked_from, body_at - checked_from, seed);
    std::memcpy(data.data(), &raw, sizeof raw);
}

}  // namespace ingero
