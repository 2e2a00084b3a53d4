// A block opened without decoding it: the header and a summary an op come from a few hundred bytes, and each column of
// each op is decoded when it is asked for. This is what SQL tables and native statistics read events with; what wants
// whole rows uses StoreSnapshot::scan.
//
// Rows are kept by op. A *segment* is all rows of one op in one block, in order of (start_ns, sequence); segments
// ascend by op. Row numbers of a block count through its segments: segment s has the rows first_row(s) to
// first_row(s) + ops()[s].rows. time_order() gives the order of start across segments.
//
// How to use it:
// - Look at header() and ops() first, they are free: time, tgid and tid ranges, op, longest duration. Skip the block,
//   or a segment, where they rule it out.
// - A block that lies_within() the window answers counts, sums, extremes and errors an op from ops() alone. For
//   weighted statistics take `calls` and `calls_duration_ns`, for what SQL's count() and sum() say `rows` and
//   `duration_ns`.
// - Otherwise decode the columns that predicates need, a segment at a time, then those that the answer needs. Each call
//   decodes anew (about half a nanosecond a value): keep what is needed twice. Only `start`, `sequence` and
//   time_order() are kept by the view, since they are of the block as a whole.
// - To go op by op through many blocks, keep the bytes() of the blocks that StoreSnapshot::scan_blocks visited: they
//   stay valid as long as the snapshot does. Open them again as each op comes to them; opening costs some 100 ns.
//
// One thread at a time. A view may be opened again and again, and keeps its memory; it may not outlive the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/block/block.h"
#include "core/store/block/event_columns.h"

namespace ingero {

class BlockView {
  public:
    BlockView();
    BlockView(BlockView&&) noexcept;
    BlockView& operator=(BlockView&&) noexcept;
    ~BlockView();

    /// Checks and reads the header; the body is not touched. (A block of version 1 is decoded whole here.) `data` must
    /// outlive what is asked of the view. On failure the view has no rows. Errors: corrupt, version.
    Result<void> open(std::string_view data) { return open(data, nullptr); }
    /// The same, but a block that cannot hold an event of the window is left at its header(), with no ops.
    Result<void> open(std::string_view data, Window window) { return open(data, &window); }

    std::string_view bytes() const { return data_; }
    const BlockHeader& header() const { return header_; }
    size_t rows() const { return header_.rows; }
    /// One a segment, ascending by op; never empty in an open block. What the header says: a file that lies in it with
    /// checksums that fit gives wrong figures, and is found out by decode_block.
    std::span<const OpSummary> ops() const { return ops_; }
    size_t first_row(size_t segment) const { return first_rows_[segment]; }
    /// Of all segments.
    uint64_t max_duration_ns() const;
    /// Whether reading a column will first decompress the body.
    bool is_compressed() const;

    /// Decodes a column of one segment; out.size() must be ops()[segment].rows. Values are zero-extended; return codes
    /// sign-extended; comms are numbers for comm(). Columns that the block does not have give Event's defaults. The
    /// first call after open() checks the body's checksum, about a microsecond. Errors: corrupt.
    Result<void> column(ColumnId id, size_t segment, std::span<uint64_t> out);
    /// Whether each row of the segment has the value that Event has by default: nothing is stored then.
    bool is_default(ColumnId id, size_t segment) const;
    /// In order of (start_ns, sequence), the row number of each row. Valid until the next open(). Errors: corrupt.
    Result<std::span<const uint16_t>> time_order();
    /// What a value of the columns preemptor_comm and waker_comm stands for; empty for 0. Those that column() gave are
    /// there.
    const Comm& comm(uint64_t number) const;

    /// Appends all rows in order of (start_ns, sequence); nothing on failure. Errors: corrupt.
    Result<void> events(std::vector<Event>& ret_events);

  private:
    struct Body;
    Result<void> open(std::string_view data, const Window* window);
    Result<void> open_ops();
    Result<void> open_version_1();
    Result<void> version_1_column(ColumnId wanted, size_t first, std::span<uint64_t> out);

    std::string_view data_;
    BlockHeader header_;
    std::vector<OpSummary> ops_;
    std::vector<uint32_t> first_rows_;
    std::unique_ptr<Body> body_;
};

}  // namespace ingero
