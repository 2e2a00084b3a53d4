// Keeping a store under its cap: what the file may use, and letting the oldest go.
#pragma once

#include <cstdint>
#include <optional>

#include "core/store/environment.h"

namespace ingero {

/// Where the store's memory begins after an eviction: nothing of an earlier boot, and of this boot nothing complete
/// before covered_from_ns (CLOCK_MONOTONIC).
struct Horizon {
    uint32_t boot_index = 0;
    uint64_t covered_from_ns = 0;
};

struct Evicted {
    uint64_t events = 0;
    uint64_t bytes = 0;
    std::optional<Horizon> horizon;  ///< absent: nothing went
};

/// Deletes blocks until at least `bytes` have gone or none is left, the first written first, and the loss rows of the
/// time that went. Returns an LMDB code.
int evict_oldest(const Environment& environment, MDB_txn* transaction, uint64_t bytes, Evicted& ret_evicted);

/// Deletes the processes that ended before the horizon. Walks all process rows. Returns an LMDB code.
int forget_processes(const Environment& environment, MDB_txn* transaction, const Horizon& horizon);

/// Whether some reader holds a snapshot older than the last two commits: then deleting frees nothing it could reuse.
bool is_pinned_by_reader(const Environment& environment);

/// Extends the data file ahead of need and really allocates it, so that a disk that fills up meets a store that can
/// still turn over what it has.
class FileRoom {
  public:
    /// Makes sure of `wanted_bytes` past what is used, the file staying within `cap_bytes`. Returns how many bytes the
    /// store can count on: the cap, or the file's size where it cannot grow; error() then says why.
    uint64_t reserve(const Environment& environment, uint64_t wanted_bytes, uint64_t cap_bytes);
    /// errno of the last failed growth, 0 while the file can grow.
    int error() const { return error_; }

  private:
    int error_ = 0;
};

/// A file shorter than its last page would be taken for a damaged one: LMDB may leave an unused last page unwritten.
void cover_last_page(const Environment& environment);

}  // namespace ingero
