// Keeps a store under its cap and its ages: what the file may use, and evicting the oldest. Calls go first, rolled up,
// those of the user who has most, and with them the rows about the time that they leave; then rollups; then incidents.
// Spans and states over their share go before any call: who reports many cannot push out what was observed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "core/store/file/environment.h"
#include "core/store/retention/holders.h"

namespace ingero {

/// Where the store's memory of something begins: nothing of an earlier boot, and of this boot nothing complete before
/// from_ns (CLOCK_MONOTONIC).
struct Horizon {
    uint32_t boot_index = 0;
    uint64_t from_ns = 0;
};

/// A boot's times before which something is too old. Boots that are not in it have nothing too old.
using AgeLimits = std::map<uint32_t, uint64_t>;

/// What has to go in one transaction.
struct Demand {
    uint64_t bytes = 0;       ///< at least
    uint64_t most_bytes = 0;  ///< by age no more than this at once
    AgeLimits calls;
    AgeLimits rollups;
    uint64_t most_rollup_bytes = UINT64_MAX;  ///< that may be left
    uint64_t most_span_bytes = UINT64_MAX;    ///< that may be left where bytes have to go
    uint64_t most_state_bytes = UINT64_MAX;   ///< as of spans
    bool roll_up = true;                      ///< false: where there is no room even for that
};

struct Evicted {
    uint64_t events = 0;             ///< for space
    uint64_t spans = 0;              ///< for space, before the calls of their time
    uint64_t states = 0;             ///< as of spans
    uint64_t bytes = 0;              ///< of all that went
    bool more_by_age = false;        ///< most_bytes was reached before all that is too old had gone
    std::optional<Horizon> horizon;  ///< of calls; absent: none went
    bool gave_way = false;           ///< calls of a user went and left older ones of others
    std::optional<Horizon> rollups;  ///< of rollups; absent: none went
};

/// Deletes blocks, of the user who has most the first written first, and adds what they held to the rollups. Where it
/// leaves older ones of others, a gap records whose went; else the rows about the time go too. Where no block is left,
/// spans and state, rollups and incidents go, the oldest first. Returns an LMDB code.
int let_go(const Environment& environment, MDB_txn* transaction, const Demand& demand, Holders& holders,
           Evicted& ret_evicted);

/// Deletes the processes that ended before the horizon, or before the last call of their user's that gave way. Walks
/// all process rows. Returns an LMDB code.
int forget_processes(const Environment& environment, MDB_txn* transaction, const std::optional<Horizon>& horizon,
                     const Holders& holders, const UserOfUid& user_of);

/// Whether some reader that is alive holds a snapshot older than the last two commits: then deleting frees nothing it
/// could reuse. What a dead one held is free afterwards.
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
