// What the kernel side walks stacks by: mapping lists of processes and unwind tables of files, in BPF maps. Loop thread
// only. The programs read while this writes: a place in the maps is used again only once none can still read its old
// content.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bpf/stack_event.h"
#include "core/model/event.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/probes/call_probes.h"

namespace ingero {

class WalkTables {
  public:
    /// `row_bytes`: what all tables together may take of kernel memory. The probes must outlive it.
    WalkTables(const StackMaps& maps, uint64_t row_bytes) : maps_(maps), bytes_(row_bytes) {}

    /// From now on calls take stacks, or do not.
    void enable(bool on);
    /// New stacks get ids from here on, so many at most; before the first probe is attached. Of these and of those that
    /// allow_stacks() allows a user who is not root gets no more than are left to others.
    void set_next_stack(uint32_t id, uint32_t most);
    /// New stacks of the uid's processes count as the user's, see UidOwners.
    void set_owner(uint32_t uid, uint32_t user);
    /// How many more new stacks there may be until the next call of this.
    void allow_stacks(uint32_t count);
    uint64_t lost_stacks() const;
    /// Of these, those for which the ring had no room.
    uint64_t stacks_lost_in_ring() const;

    /// The value for ingero_mapping::table, with the rows given in packed form: struct ingero_unwind_row one after the
    /// other, sorted; `user`: whose share it is. Errors: limit (all tables together), busy (the user has their share),
    /// internal.
    Result<uint32_t> add_table(std::span<const std::span<const uint8_t>> packed_rows, uint32_t user);
    void remove_table(uint32_t table);

    /// Sorted by address; `user`: whose share they are, see UidOwners. Errors: limit, busy (the user has their share),
    /// internal: the process then has no list.
    Result<void> set_mappings(const ProcessKey& process, uint32_t user, uint32_t generation,
                              std::span<const ingero_mapping> mappings);
    void forget(const ProcessKey& process);
    /// When the process of this pid last began another program, CLOCK_MONOTONIC ns; 0: not that is known.
    uint64_t exec_time(uint32_t pid) const;

  private:
    struct Region {
        uint32_t first = 0;
        uint32_t count = 0;
        uint32_t user = 0;
    };

    std::optional<uint32_t> allocate(uint32_t count);
    void release(Region region);
    void reuse_released();
    void bump_epoch();

    StackMaps maps_;
    struct Table {
        uint32_t user = 0;
        uint64_t bytes = 0;
    };
    Shares bytes_;
    Shares tables_{INGERO_MAX_UNWIND_TABLES};
    std::map<uint32_t, Table> slots_;
    /// Of mappings of all processes: a list that was replaced counts until its places can be used again.
    Shares places_{INGERO_MAX_MAPPINGS};
    std::map<ProcessKey, Region> lists_;
    std::map<uint32_t, uint32_t> free_{{0, INGERO_MAX_MAPPINGS}};  ///< first to count
    struct Released {
        Region region;
        uint64_t at_ns = 0;
    };
    std::deque<Released> released_;  ///< in order of time
};

}  // namespace ingero
