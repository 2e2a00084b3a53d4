// The blocks of a window in the order in which they were recorded: one with a long wait or call in it begins far before
// its neighbours, and whatever follows a thread or a stream from call to call would lose its way.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/store/store.h"

namespace ingero {

struct RecordedBlock {
    uint64_t recorded_ns = 0;  ///< CLOCK_MONOTONIC, as the next but one
    uint64_t min_sequence = 0;
    uint64_t first_start_ns = 0;
    bool is_inside = false;  ///< all of it
    std::string_view bytes;  ///< as long as the snapshot
    bool operator<(const RecordedBlock& other) const {
        return std::pair(recorded_ns, min_sequence) < std::pair(other.recorded_ns, other.min_sequence);
    }
};

/// Calls are recorded as they end; `imported` traces have them in order of start. Errors: corrupt.
Result<std::vector<RecordedBlock>> recorded_blocks(const StoreSnapshot& snapshot, uint32_t boot_index,
                                                   const Window& window, bool imported);
/// The rows within the window of a block that is not all inside. Errors: corrupt.
Result<void> decode_within(const RecordedBlock& block, const Window& window, std::vector<Event>& ret_rows);

}  // namespace ingero
