// What a store has of one process, or of all processes of a systemd unit, a page at a time: for `ingeroctl record`,
// which asks again and again while the store grows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/store/rows/batch_stream.h"
#include "core/store/store.h"

namespace ingero {

inline constexpr size_t most_recorded_rows = 8'192;
inline constexpr size_t most_recorded_stacks = 1'024;

struct RecordQuery {
    std::optional<uint32_t> uid;  ///< only processes of this user
    uint32_t pid = 0;             ///< the latest process of that number; 0: those of `unit`
    std::string unit;             ///< as systemd names it
    uint64_t start_ns = 0;        ///< CLOCK_REALTIME: calls that had not ended by then
    uint64_t after = 0;           ///< only events of a higher sequence
    uint64_t after_ns = 0;        ///< CLOCK_MONOTONIC: losses from a minute before on
    size_t limit = most_recorded_rows;
    std::vector<uint32_t> stacks;  ///< these of their stacks, in place of all else
    bool rest = false;             ///< names of functions and spans, in place of all else
};

struct RecordPage {
    SessionBatch rows;       ///< of the latest session; losses and gaps are all there are
    uint64_t after = 0;      ///< of the next page's query: all up to here has been returned
    uint64_t start_ns = 0;   ///< CLOCK_MONOTONIC: from when on, not before the session is covered
    bool more = false;       ///< than the limit
    bool has_ended = false;  ///< the process has, and all of it has been returned
};

/// Errors: not_found (no such process), and those of the store.
Result<RecordPage> record_page(const StoreSnapshot& snapshot, const RecordQuery& query);

}  // namespace ingero
