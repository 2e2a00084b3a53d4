// Rows of events put into groups: how many there are, and sums over them, from the columns of the blocks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/query/key_index.h"
#include "core/sql/events/event_cursor.h"
#include "core/sql/groups/grouping.h"

namespace ingero {

struct GroupSum {
    __int128 sum = 0;
    int64_t least = INT64_MAX, most = INT64_MIN;
    uint64_t count = 0;  ///< that were not null

    void add(int64_t value) {
        sum += value;
        least = std::min(least, value);
        most = std::max(most, value);
        ++count;
    }
};

class GroupedRows {
  public:
    GroupedRows(const EventIndex& index, const Grouping& grouping);

    /// False where groups are no way to answer: there are too many, SQLite's sums would be rounded or overflow, or what
    /// is to follow from a pid does not. SQLite may read several times for one statement, and add all that.
    /// Errors: corrupt, deadline.
    Result<bool> read(EventSelection selection, EventCursor::Clock::time_point deadline);

    const EventIndex& index() const { return index_; }
    size_t groups() const { return index_of_groups_.size(); }
    uint64_t rows(size_t group) const { return rows_[group]; }
    const EventIndex::OpEntry& op(size_t group) const { return index_.ops()[key(group)[0] >> 32]; }
    const EventIndex::Boot& boot(size_t group) const { return index_.boots()[static_cast<uint32_t>(key(group)[0])]; }
    /// nullptr where the groups do not come from that column.
    const uint64_t* stored(size_t group, ColumnId id) const;
    int64_t bucket(size_t group, size_t number) const {
        return static_cast<int64_t>(key(group)[1 + stored_.size() + number]);
    }
    const GroupSum& sum(size_t group, size_t number) const { return sums_[group * grouping_.sums.size() + number]; }

  private:
    static constexpr size_t most_keys = 1 + Grouping::most_stored + Grouping::most_buckets;
    static constexpr size_t most_groups = 65'536;
    static constexpr size_t most_bytes = 32 << 20;  ///< of sums
    /// Operation and boot, then what is stored, then buckets; what there is not is 0.
    struct Key {
        std::array<uint64_t, most_keys> parts{};
        bool operator==(const Key&) const = default;
        uint64_t hash() const;
    };

    /// Of the rows of a segment, a column as SQL shows it.
    struct Values {
        std::span<const int64_t> all;
        std::vector<int64_t> own;    ///< where they are not stored so
        std::vector<uint8_t> given;  ///< 0: null; empty: none is
    };

    const std::array<uint64_t, most_keys>& key(size_t group) const {
        return index_of_groups_.key(static_cast<uint32_t>(group)).parts;
    }
    Result<bool> add_segment(EventCursor& cursor);
    /// Fills group_of_; false where there are too many groups.
    Result<bool> find_groups(EventCursor& cursor, const SegmentRows& rows);
    /// Adds one where there is none yet; nothing where there are too many.
    std::optional<uint32_t> group_of(const Key& key);
    Result<std::span<const uint64_t>> column(EventCursor& cursor, const SegmentRows& rows, ColumnId id, size_t place);
    Result<void> fill(EventCursor& cursor, const SegmentRows& rows, EventColumn column, Values& ret_values);
    Result<bool> add_sums(EventCursor& cursor, const SegmentRows& rows);
    bool is_exact();
    bool has_one_process_each() const;

    const EventIndex& index_;
    const Grouping& grouping_;
    std::vector<ColumnId> stored_;
    size_t width_;  ///< of keys
    KeyIndex<Key> index_of_groups_{most_groups};
    std::vector<uint64_t> rows_;
    std::vector<GroupSum> sums_;
    std::vector<__int128> most_;  ///< of each sum, how far it may be from 0, over all that was read
    // Of the segment at hand.
    std::optional<uint32_t> only_group_;
    std::vector<uint32_t> group_of_;
    std::array<std::vector<uint64_t>, most_keys> picked_;
    std::array<Values, 2> values_;
};

}  // namespace ingero
