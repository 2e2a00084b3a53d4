// A block: up to 4,096 events of one boot as columns, with enough in the header to know whether a window needs it, and
// to answer for it as a whole. docs/store-format.md has the layout byte by byte; block_layout.h has it as structs,
// block_encoder.cpp and block_view.cpp write and read it.
//
// When to raise block_version: when a reader of this version would misread the bytes. A new column alone does not
// need it, since readers skip columns they do not know. Blocks of every earlier version stay readable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/event.h"
#include "core/model/result.h"
#include "core/model/time.h"

namespace ingero {

inline constexpr uint16_t block_version = 2;
inline constexpr size_t max_block_rows = 4096;

/// Times are CLOCK_MONOTONIC of the boot, in ns.
struct BlockHeader {
    uint32_t boot_index = 0;
    uint32_t rows = 0;
    uint64_t first_start_ns = 0;
    uint64_t last_start_ns = 0;
    uint64_t max_end_ns = 0;  ///< calls are stored at their end: this is what finds those that began before a window
    uint64_t min_sequence = 0;
    uint64_t max_sequence = 0;
    // The widest there are in blocks of version 1, which do not say.
    uint32_t min_tgid = 0;
    uint32_t max_tgid = UINT32_MAX;
    uint32_t min_tid = 0;
    uint32_t max_tid = UINT32_MAX;
    bool operator==(const BlockHeader&) const = default;
};

/// What a block has of one op. Sums that would overflow are held at 2⁶⁴−1.
struct OpSummary {
    OpId op = 0;
    uint32_t rows = 0;
    uint32_t errors = 0;             ///< rows with a return code other than 0
    uint64_t calls = 0;              ///< sum of weights: what the rows stand for
    uint64_t duration_ns = 0;        ///< sum over rows
    uint64_t calls_duration_ns = 0;  ///< sum of duration × how often it counts
    uint64_t max_ns = 0;
    uint64_t min_ns = 0;
    bool operator==(const OpSummary&) const = default;
};

/// When a call ends; held at the top rather than wrapped where a damaged duration would overflow.
uint64_t saturated_end_ns(const Event& event);
/// [start, end) against [from, to); a call of no length matches where its start is in the window.
bool overlaps(const Event& event, Window window);
/// Whether a block can hold a matching event.
bool overlaps(const BlockHeader& header, Window window);
/// Whether each event of a block matches, so that its summaries are those of the window.
bool lies_within(const BlockHeader& header, Window window);

/// The bytes of a block. `events`: 1 to max_block_rows of them, ascending by (start_ns, sequence).
std::string encode_block(uint32_t boot_index, std::span<const Event> events);

/// The same block with a compressed body: about 15 % smaller, and several times slower to read, so for old ones only.
/// As it is where it is compressed already, is of version 1, or would not shrink. Errors: corrupt, version.
Result<std::string> compress_block(std::string_view data);

/// Checks and reads the header only. Errors: corrupt, version (made by a newer ingero).
Result<BlockHeader> read_block_header(std::string_view data);

/// Appends the block's rows to `ret_events`, in order of (start_ns, sequence); nothing is appended on failure. Checks
/// both checksums, every length, the order, and that the header is true. Errors: corrupt, version.
Result<void> decode_block(std::string_view data, std::vector<Event>& ret_events);

/// Recomputes both checksums in place. The encoder's last step; tests and fuzzing use it to get past the checksums.
void seal_block(std::span<char> data);

}  // namespace ingero
