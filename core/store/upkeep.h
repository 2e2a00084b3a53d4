// Which blocks of a store are worth rewriting: those of small batches, to be merged into full ones, and old ones, to be
// compressed. Only plans: the writer applies a plan in one transaction, so that each row is stored exactly once
// whatever happens meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/store/block/block_encoder.h"
#include "core/store/file/environment.h"
#include "core/store/retention/holders.h"
#include "core/store/rows/rows.h"

namespace ingero {

struct BlockRow {
    std::string key;
    std::string bytes;
    uint32_t user = 0;
};

/// Whose calls a process makes.
using UserOf = std::function<uint32_t(const ProcessKey& process)>;

/// Blocks of these rows of one boot, in any order; they are sorted, so that blocks of a user overlap as little as they
/// can.
std::vector<BlockRow> make_blocks(BlockEncoder& encoder, uint32_t boot_index, std::span<const Event> events,
                                  const UserOf& user_of);

struct Rewrite {
    std::vector<std::string> replaced;  ///< keys of blocks that go
    std::vector<BlockRow> blocks;       ///< that come in their place, with the same rows
    bool is_empty() const { return replaced.empty(); }
};

class Upkeep {
  public:
    /// Looks for small blocks among the newest of a store that was just opened. Returns an LMDB code.
    int load(const Environment& environment, MDB_txn* transaction, const Holders& holders);
    /// Blocks that were committed, in order.
    void note(const std::vector<BlockRow>& blocks);

    /// The next piece of work, empty where there is none. Reads at most max_rows rows, or looks at some hundred
    /// headers. `now`: blocks of this boot that end `compress_after_ns` before now_ns are old, as are all of earlier
    /// boots.
    struct Now {
        uint32_t boot_index = 0;
        uint64_t now_ns = 0;
        uint64_t compress_after_ns = 0;
        uint64_t max_bytes = 0;  ///< of blocks to merge at once
    };
    Rewrite plan(const Environment& environment, MDB_txn* transaction, const Holders& holders, BlockEncoder& encoder,
                 const Now& now);
    /// The last plan's transaction was committed, or there was nothing in it. Without this the same is planned again.
    void done();
    /// Whether there may be more to do right now.
    bool has_more() const { return more_; }

    static constexpr size_t max_rows = 4 * max_block_rows;

  private:
    struct Known {
        std::string key;
        uint32_t boot_index = 0;
        uint32_t rows = 0;
        uint64_t bytes = 0;
    };
    /// How many of the first known blocks of a user to merge; 0 where it is too early.
    static size_t take_run(const std::deque<Known>& known, uint64_t max_bytes);
    Rewrite plan_merge(const Environment& environment, MDB_txn* transaction, BlockEncoder& encoder, uint64_t max_bytes);
    Rewrite plan_compression(const Environment& environment, MDB_txn* transaction, const Holders& holders,
                             const Now& now);

    std::map<uint32_t, std::deque<Known>> known_;  ///< of each user: committed, not yet merged, in order of sequence
    uint32_t taken_of_ = 0;                        ///< whose were taken by the last plan
    size_t taken_ = 0;                             ///< how many of these
    std::optional<Known> rest_;  ///< that takes their place: the last block of the last plan, where it is not full
    std::string compressed_up_to_;
    std::string compressing_up_to_;
    bool more_ = false;
};

}  // namespace ingero
