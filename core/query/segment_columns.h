// The columns of one segment of a block that a query asks for, each decoded once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/store/block/block_view.h"
#include "core/store/block/event_columns.h"

namespace ingero {

class SegmentColumns {
  public:
    /// Forgets what was decoded. The view must stay open on the block.
    void open(BlockView& view, size_t segment) {
        view_ = &view;
        segment_ = segment;
        rows_ = view.ops()[segment].rows;
        known_ = 0;
    }

    /// A value a row. Errors: corrupt, naming the block.
    Result<void> decode(ColumnId id) {
        const uint64_t bit = 1ULL << static_cast<unsigned>(id);
        if (known_ & bit) return {};
        std::vector<uint64_t>& values = columns_[static_cast<size_t>(id)];
        if (values.size() < rows_) values.resize(rows_);
        if (auto decoded = view_->column(id, segment_, std::span(values).first(rows_)); !decoded) {
            const BlockHeader& header = view_->header();
            return fail(decoded.error().code,
                        "event block " + std::to_string(header.boot_index) + "/" +
                            std::to_string(header.first_start_ns) + "/" + std::to_string(header.min_sequence) + ": " +
                            decoded.error().message,
                        "restore the store from a copy, or ask for a window without this block");
        }
        known_ |= bit;
        return {};
    }
    template <class... Ids>
    Result<void> decode(ColumnId first, Ids... rest) {
        if (auto decoded = decode(first); !decoded) return decoded;
        return decode(rest...);
    }

    /// What was decoded.
    std::span<const uint64_t> operator[](ColumnId id) const {
        return std::span(columns_[static_cast<size_t>(id)]).first(rows_);
    }
    /// Whether all rows have Event's default: nothing needs decoding then.
    bool is_default(ColumnId id) const { return view_->is_default(id, segment_); }

  private:
    BlockView* view_ = nullptr;
    size_t segment_ = 0;
    size_t rows_ = 0;
    uint64_t known_ = 0;                                      ///< bit n: column n
    std::array<std::vector<uint64_t>, max_columns> columns_;  ///< each as long as the largest segment so far
};

}  // namespace ingero
