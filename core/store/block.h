// A block: up to 4,096 events of one boot as columns, with enough in the header to know whether a window needs it.
// Reader and writer stand side by side in block.cpp; docs/store-format.md has the layout byte by byte.
//
// When to raise block_version: when a reader of this version would misread the bytes. A new column alone does not
// need it, since readers skip columns they do not know.
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

inline constexpr uint16_t block_version = 1;
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
    bool operator==(const BlockHeader&) const = default;
};

/// When a call ends; held at the top rather than wrapped where a damaged duration would overflow.
uint64_t saturated_end_ns(const Event& event);
/// [start, end) against [from, to); a call of no length matches where its start is in the window.
bool overlaps(const Event& event, Window window);
/// Whether a block can hold a matching event.
bool overlaps(const BlockHeader& header, Window window);

/// The bytes of a block. `events`: 1 to max_block_rows of them, ascending by (start_ns, sequence).
std::string encode_block(uint32_t boot_index, std::span<const Event> events);

/// Checks and reads the header only. Errors: corrupt, version (made by a newer ingero).
Result<BlockHeader> read_block_header(std::string_view data);

/// Appends the block's rows to `ret_events`, in order of start; nothing is appended on failure. Checks both checksums,
/// every length, the order, and that the header tells the truth. Errors: corrupt, version.
Result<void> decode_block(std::string_view data, std::vector<Event>& ret_events);

/// Recomputes both checksums in place. The encoder's last step; tests and fuzzing use it to get past the checksums.
void seal_block(std::span<char> data);

}  // namespace ingero
