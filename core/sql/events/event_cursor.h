// Goes over the rows of an EventIndex that pass a selection, in the order that a plan wants, and decodes of each block
// what is asked for. Knows nothing of SQLite.
//
// All comparisons are of signed 64-bit values, as SQLite's are: what a row shows in SQL is what is compared here.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/sql/events/event_index.h"
#include "core/store/block/event_columns.h"

namespace ingero {

struct ValueRange {
    int64_t least = std::numeric_limits<int64_t>::min();
    int64_t most = std::numeric_limits<int64_t>::max();
    bool is_all() const { return *this == ValueRange{}; }
    bool is_empty() const { return least > most; }
    bool contains(int64_t value) const { return value >= least && value <= most; }
    void keep(const ValueRange& other) {
        least = std::max(least, other.least);
        most = std::min(most, other.most);
    }
    bool operator==(const ValueRange&) const = default;
};

struct EventSelection {
    ValueRange start_ns;  ///< CLOCK_REALTIME
    ValueRange duration_ns;
    ValueRange pid;
    ValueRange tid;
    ValueRange id;
    std::vector<bool> ops;     ///< by number of EventIndex::ops(): wanted; empty: all
    bool errors_only = false;  ///< segments without a failed call are left out, other rows are not looked at
};

/// By duration it is the first rows alone, of all that pass.
enum class EventOrder : uint8_t { any, grouped, by_start, by_start_descending, by_duration, by_duration_descending };

/// What is the same in all rows of a group.
enum class GroupField : uint8_t { source, op, source_num, op_num, pid, constant };
struct GroupTerm {
    GroupField field = GroupField::op;
    bool descending = false;
};

/// Rows of one segment that passed a selection.
struct SegmentRows {
    size_t first = 0;  ///< in the block
    size_t count = 0;
    const uint32_t* picked = nullptr;  ///< in the block; nullptr: those from `first` on
};

class EventCursor {
  public:
    using Clock = std::chrono::steady_clock;

    explicit EventCursor(const EventIndex& index) : index_(index) {}

    /// `terms`: with EventOrder::grouped; `most_rows`: by duration. Stands on the first row then, or at the end. Past
    /// `deadline` it fails. Errors: corrupt, deadline.
    Result<void> start(EventSelection selection, EventOrder order, const std::vector<GroupTerm>& terms,
                       Clock::time_point deadline, size_t most_rows = 0);
    bool at_end() const { return at_end_; }
    Result<void> next() {
        if (step()) return {};
        return next_segment_or_row();
    }
    /// To the next row where it is of the same segment; else false, and next() goes on.
    bool step() {
        if (order_ >= EventOrder::by_start || position_ + 1 >= end_) return false;
        ++position_;
        row_ = picked_all_ ? row_ + 1 : picked_[position_];
        return true;
    }

    // Segment by segment, where the order is any: from start() on it stands on the first one with rows.
    SegmentRows segment_rows() const { return {picked_first_, end_, picked_all_ ? nullptr : picked_.data()}; }
    /// By the row's number in the block; decoded are those of the segment. Errors: corrupt.
    Result<const uint64_t*> block_column(ColumnId id) {
        if (auto decoded = column(*reader_, *segment_, id); !decoded) return tl::unexpected(decoded.error());
        return reader_->values[static_cast<size_t>(id)].data();
    }
    uint16_t op_number() const { return segment_->op; }
    uint32_t boot_number() const { return block_->boot; }
    Result<void> next_segment();

    // Of the row it stands on.
    const EventIndex::OpEntry& op() const { return index_.ops()[segment_->op]; }
    const EventIndex::Boot& boot() const { return index_.boots()[block_->boot]; }
    /// As BlockView::column has it. Errors: corrupt.
    Result<uint64_t> value(ColumnId id) {
        const size_t column = static_cast<size_t>(id);
        if ((reader_->have[segment_->number] >> column & 1) == 0) {
            if (auto decoded = decode(*reader_, *segment_, id); !decoded) return tl::unexpected(decoded.error());
        }
        return reader_->values[column][row_];
    }
    /// The same where the column is decoded already, else nullptr.
    const uint64_t* decoded(ColumnId id) const {
        const size_t column = static_cast<size_t>(id);
        return reader_->have[segment_->number] >> column & 1 ? &reader_->values[column][row_] : nullptr;
    }
    const Comm& comm(uint64_t number) const { return reader_->view.comm(number); }

  private:
    /// An open block, and its columns as far as they are decoded, by row number.
    struct Reader {
        BlockView view;
        const EventIndex::Block* block = nullptr;
        std::array<std::vector<uint64_t>, max_columns> values;
        std::vector<uint64_t> have;  ///< by segment: a bit a column
        // In order of start only: the rows that were picked, and which of them is next.
        std::vector<uint16_t> rows;
        std::vector<uint16_t> segments;  ///< by row number
        size_t position = 0;
    };
    struct Work {
        uint32_t segment = 0;
        uint32_t pid = 0;
        bool only_pid = false;
    };

    bool wants(const EventIndex::Block& block) const;
    bool wants(const EventIndex::Segment& segment) const;
    ValueRange starts_of(const EventIndex::Block& block) const;
    Result<void> plan_groups(const std::vector<GroupTerm>& terms);
    Result<void> open(Reader& reader, const EventIndex::Block& block);
    Result<void> decode(Reader& reader, const EventIndex::Segment& segment, ColumnId id);
    Result<std::span<const uint64_t>> column(Reader& reader, const EventIndex::Segment& segment, ColumnId id);
    /// Fills picked_, or sets picked_all_.
    Result<void> pick(Reader& reader, const EventIndex::Segment& segment, const Work& work);
    template <class Passes>
    Result<void> keep_rows(Reader& reader, const EventIndex::Segment& segment, ColumnId id, Passes passes);
    Result<void> keep_window(Reader& reader, const EventIndex::Segment& segment);
    Result<void> keep_shown(Reader& reader, const EventIndex::Segment& segment);
    Result<void> check_deadline() const;

    Result<void> next_segment_or_row();
    Result<void> start_by_time();
    Result<void> next_by_time();
    Result<void> start_by_duration(size_t most_rows);
    Result<void> next_by_duration();
    Result<void> open_by_time(const EventIndex::Block& block);
    int64_t start_of(const Reader& reader) const;
    void stand_on(Reader& reader, const EventIndex::Segment& segment, uint32_t row);

    const EventIndex& index_;
    EventSelection selection_;
    EventOrder order_ = EventOrder::any;
    Clock::time_point deadline_;
    bool at_end_ = true;

    // The row it stands on.
    Reader* reader_ = nullptr;
    const EventIndex::Block* block_ = nullptr;
    const EventIndex::Segment* segment_ = nullptr;
    uint32_t row_ = 0;  ///< in the block

    // Segment by segment.
    Reader only_reader_;
    std::vector<Work> work_;
    size_t next_work_ = 0;
    size_t position_ = 0;
    size_t end_ = 0;
    bool picked_all_ = false;
    uint32_t picked_first_ = 0;
    std::vector<uint32_t> picked_;

    // By duration: the rows, in order.
    struct Ranked {
        int64_t duration_ns = 0;
        uint32_t segment = 0;
        uint32_t row = 0;  ///< in the block
    };
    std::vector<Ranked> ranked_;
    size_t next_ranked_ = 0;

    // In order of start: blocks not yet open in the order they will be, and those open, as a heap.
    std::vector<const EventIndex::Block*> to_open_;
    size_t next_to_open_ = 0;
    std::vector<std::unique_ptr<Reader>> open_;
    std::vector<std::unique_ptr<Reader>> spare_;
};

}  // namespace ingero
