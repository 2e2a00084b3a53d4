// Rolls rows up as they leave the store. Blocks are rolled up in the transaction that deletes them: a call is in a
// block or in a rollup, whatever is cut off when.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/store/block/block_view.h"
#include "core/store/file/environment.h"
#include "core/store/file/tables.h"
#include "core/store/rows/rows.h"

namespace ingero {

/// Adds one row's figures to another's of the same key.
void add_rollup(RollupRow& row, const RollupRow& other);

/// Not to outlive its transaction. What was added is stored by flush() only.
class RollupWriter {
  public:
    RollupWriter(const Environment& environment, MDB_txn* transaction)
        : environment_(environment), transaction_(transaction) {}

    /// All rows of a block; of a damaged one nothing, since nothing can be read of it. Returns an LMDB code.
    int add_block(std::string_view block);
    /// Of the processes that made the calls of that block; UINT32_MAX among them where one has no row.
    std::set<uint32_t> uids_of_block();
    /// Counts the loss in the minute in which its interval began.
    void add_loss(uint32_t boot_index, const LossRow& loss);
    void add(uint32_t boot_index, const RollupRow& row);
    /// Returns an LMDB code.
    int flush();

  private:
    struct Hash {
        size_t operator()(const RollupKey& key) const;
    };
    RollupRow& row_of(const RollupKey& key);
    bool add_segment(BlockView& view, size_t segment);
    int flush_minute(const RollupKey& minute, const std::vector<RollupKey>& keys);
    int count_rows(const RollupKey& minute, size_t& ret_count);
    int put(const RollupKey& key, RollupRow& row, size_t* count, bool& ret_full);
    uint32_t uid_of(const ProcessKey& process);

    const Environment& environment_;
    MDB_txn* transaction_;
    std::unordered_map<RollupKey, RollupRow, Hash> rows_;
    BlockView view_;
    std::set<ProcessKey> processes_;  ///< of the last block
    std::array<std::vector<uint64_t>, 10> columns_;
};

}  // namespace ingero
