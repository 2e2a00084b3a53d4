// The fixed parts of a block as they lie in its bytes, and what the files that write and read blocks share. See
// docs/store-format.md.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/block/block.h"
#include "core/store/block/column_codec.h"
#include "core/store/block/event_columns.h"

namespace ingero::layout {

// Fields are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t block_magic = 0x4b42'4749;  // "IGBK"

/// What blocks of every version begin with.
struct Header {
    uint32_t magic;
    uint16_t version;
    uint16_t entries;          // of the table after the header: columns in version 1, ops since version 2
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
static_assert(sizeof(Header) == 80);
inline constexpr size_t checked_from = 16;

enum class Compression : uint8_t { none = 0, zstd = 1 };
/// The order in which sequences go up by one, as far as they do.
enum class SequenceOrder : uint8_t { by_start = 0, by_end = 1 };

/// Follows Header since version 2.
struct MoreHeader {
    uint32_t min_tgid;
    uint32_t max_tgid;
    uint32_t min_tid;
    uint32_t max_tid;
    uint32_t unpacked_bytes;  // of the body before compression
    uint16_t comms;
    uint8_t compression;
    uint8_t sequence_order;
};
static_assert(sizeof(MoreHeader) == 24);

struct Op {
    uint16_t op;
    uint16_t rows;
    uint32_t errors;
    uint64_t columns;  // bit n: the segment has column n
    uint64_t calls;
    uint64_t duration_ns;
    uint64_t calls_duration_ns;
    uint64_t max_ns;
    uint64_t min_ns;
    uint32_t offset;  // of the segment in the unpacked body
    uint32_t reserved;
};
static_assert(sizeof(Op) == 64);

/// The shapes of start, rank of op and sequence, with which the body begins.
inline constexpr size_t block_columns = 3;
/// More than any 4,096 rows can need.
inline constexpr size_t max_body_bytes = 4 << 20;

constexpr size_t header_bytes(uint16_t version) {
    return version == 1 ? sizeof(Header) : sizeof(Header) + sizeof(MoreHeader);
}
constexpr size_t entry_bytes(uint16_t version) {
    return version == 1 ? 8 : sizeof(Op);
}

Error corrupt(std::string why);
/// The fixed part, checked as far as that can be without the table's entries.
Result<Header> read_header(std::string_view data);
/// Of a block that read_header() took.
std::string_view body_of(std::string_view data, const Header& header);
bool body_checksum_fits(std::string_view data, const Header& header);
/// What header and rows have in common in each version; the ranges of ids are left at their widest.
BlockHeader to_block_header(const Header& header);
/// What the header must say of these rows, ranges of ids too.
BlockHeader summarise(uint32_t boot_index, std::span<const Event> events);

void add_to(OpSummary& summary, const Event& event);
/// Whether rows are what a header and its ops say of them. Errors: corrupt.
Result<void> check_truth(const BlockHeader& header, std::span<const OpSummary> ops, std::span<const Event> events);

inline bool in_order(const Event& a, const Event& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.sequence < b.sequence;
}

constexpr uint64_t held_add(uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}
constexpr uint64_t held_multiply(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

/// Row numbers in order of end, equal ends in order of row.
void order_by_end(std::span<const uint64_t> ends, std::vector<uint16_t>& ret_order);

/// The segments' numbers with the most rows first, equal ones in order of op: op columns hold these ranks.
void order_by_rows(std::span<const OpSummary> ops, std::vector<uint16_t>& ret_segments);

/// A difference of sequences, made small where it is small either way.
constexpr uint64_t zigzag(uint64_t difference) {
    return difference << 1 ^ (uint64_t{0} - (difference >> 63));
}
constexpr uint64_t unzigzag(uint64_t value) {
    return value >> 1 ^ (uint64_t{0} - (value & 1));
}

/// Appends the rows of a version 1 block. Errors: corrupt.
Result<void> decode_version_1(std::string_view data, const Header& header, std::vector<Event>& ret_events);

}  // namespace ingero::layout
