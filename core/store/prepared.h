// What a commit will write, made of its batch before the transaction begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/store/file/environment.h"
#include "core/store/rows/rows.h"
#include "core/store/store.h"
#include "core/store/upkeep.h"

namespace ingero {

struct Prepared {
    std::vector<std::string> replaced;  ///< keys of blocks that go first
    std::vector<BlockRow> blocks;
    struct Row {
        MDB_dbi Tables::*table;
        std::string key;
        std::string value;
    };
    std::vector<Row> rows;  ///< each replaces the one of its key
    std::vector<LossRow> losses;
    std::vector<RollupRow> rollups;

    template <class Key, class Content>
    void add_row(MDB_dbi Tables::*table, const Key& key, const Content& content) {
        const std::string encoded = encode_key(key);
        rows.push_back({table, encoded, seal(encoded, encode_row(content))});
    }

    /// At most, of what the map loses by it.
    uint64_t bytes() const;
};

/// `repeats`: which spans of the batch the store has already, ascending. `last_row`: the highest number of a row of
/// history so far.
Prepared prepare(const Batch& batch, const std::vector<size_t>& repeats, uint32_t boot_index, uint64_t last_row,
                 BlockEncoder& encoder, const UserOf& user_of);
/// The batch's clocks become the session's own.
void prepare_clocks(const Batch& batch, uint32_t boot_index, uint32_t session, Prepared& prepared);

}  // namespace ingero
