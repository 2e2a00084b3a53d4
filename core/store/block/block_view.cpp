#include "core/store/block/block_view.h"

#include <zstd.h>

#include <array>
#include <cassert>
#include <cstring>

#include "core/store/block/block_layout.h"
#include "core/store/block/block_rows.h"

namespace ingero {

namespace {

/// What a column's values may be, and what they are where nothing is stored.
struct ColumnType {
    uint64_t default_value = 0;
    uint8_t bits = 64;
    bool is_signed = false;
    bool is_comm = false;
};

constexpr std::array<ColumnType, max_columns> column_types() {
    std::array<ColumnType, max_columns> types{};
    constexpr Event defaults;
    for_each_column([&]<class Get>(ColumnId id, Get get) {
        using Field = column_field<Get>;
        ColumnType& type = types[static_cast<size_t>(id)];
        if constexpr (std::is_same_v<Field, Comm>)
            type.is_comm = true;
        else
            type = {static_cast<uint64_t>(get(defaults)), sizeof(Field) * 8, std::is_signed_v<Field>, false};
    });
    return types;
}

constexpr auto types = column_types();

/// Whether values, all of them, are ones of the type.
bool fit(std::span<const uint64_t> values, const ColumnType& type, size_t comms) {
    if (type.is_comm) return std::all_of(values.begin(), values.end(), [&](uint64_t value) { return value <= comms; });
    if (type.bits == 64) return true;
    // A signed value has all bits above its sign's equal to that one.
    const uint64_t shifted = type.is_signed ? uint64_t{1} << (type.bits - 1) : 0;
    uint64_t above = 0;
    for (const uint64_t value : values) above |= (value + shifted) >> type.bits;
    return above == 0;
}

}  // namespace

struct BlockView::Body {
    using Failure = std::optional<Error>;

    Failure load(std::string_view data);
    Failure unpack_body(std::string_view data);
    Failure load_order(const BlockView& view);
    Failure load_sequences(BlockView& view);
    Failure block_column(size_t number, std::span<uint64_t> out) const;
    Failure segment_column(ColumnId id, size_t segment, std::span<uint64_t> out);

    layout::Header header{};
    layout::MoreHeader more{};
    std::vector<layout::Op> ops;
    bool loaded = false;
    bool has_order = false;
    bool has_sequences = false;
    std::string_view bytes;  ///< of the body, uncompressed
    std::string unpacked;
    std::vector<Comm> comms;
    std::vector<uint64_t> starts;  ///< by row number, as the sequences
    std::vector<uint64_t> sequences;
    std::vector<uint16_t> order;  ///< the row number of each row in order of time
    std::vector<uint64_t> values, durations, ends;
    std::vector<uint16_t> by_end;
    std::vector<Event> version_1;  ///< by row number; empty for other versions
};

namespace {

Result<void> to_result(std::optional<Error> error) {
    if (error) return tl::unexpected(std::move(*error));
    return {};
}

}  // namespace

BlockView::BlockView() : body_(std::make_unique<Body>()) {}
BlockView::BlockView(BlockView&&) noexcept = default;
BlockView& BlockView::operator=(BlockView&&) noexcept = default;
BlockView::~BlockView() = default;

Result<void> BlockView::open(std::string_view data, const Window* window) {
    data_ = data;
    header_ = {};
    ops_.clear();
    first_rows_.clear();
    Body& body = *body_;
    body.loaded = body.has_order = body.has_sequences = false;
    body.version_1.clear();
    const auto raw = layout::read_header(data);
    if (!raw) return tl::unexpected(raw.error());
    body.header = *raw;
    header_ = layout::to_block_header(*raw);
    if (window != nullptr && !overlaps(header_, *window)) return {};
    auto opened = raw->version == 1 ? open_version_1() : open_ops();
    if (!opened) {
        header_ = {};
        ops_.clear();
    }
    return opened;
}

Result<void> BlockView::open_ops() {
    Body& body = *body_;
    const layout::Header* raw = &body.header;
    std::memcpy(&body.more, data_.data() + sizeof *raw, sizeof body.more);
    if (raw->entries == 0) return tl::unexpected(layout::corrupt("no ops"));
    body.ops.resize(raw->entries);
    std::memcpy(body.ops.data(), data_.data() + sizeof *raw + sizeof body.more, raw->entries * sizeof(layout::Op));
    uint64_t rows = 0;
    int last_op = -1;
    for (const layout::Op& op : body.ops) {
        if (op.op <= last_op || op.rows == 0 || rows + op.rows > raw->rows)
            return tl::unexpected(layout::corrupt("impossible ops"));
        last_op = op.op;
        first_rows_.push_back(static_cast<uint32_t>(rows));
        rows += op.rows;
        ops_.push_back({.op = op.op,
                        .rows = op.rows,
                        .errors = op.errors,
                        .calls = op.calls,
                        .duration_ns = op.duration_ns,
                        .calls_duration_ns = op.calls_duration_ns,
                        .max_ns = op.max_ns,
                        .min_ns = op.min_ns});
    }
    if (rows != raw->rows) return tl::unexpected(layout::corrupt("rows of no op"));
    header_.min_tgid = body.more.min_tgid;
    header_.max_tgid = body.more.max_tgid;
    header_.min_tid = body.more.min_tid;
    header_.max_tid = body.more.max_tid;
    return {};
}

Result<void> BlockView::open_version_1() {
    Body& body = *body_;
    std::vector<Event> events;
    if (auto decoded = layout::decode_version_1(data_, body.header, events); !decoded) return decoded;
    if (!std::is_sorted(events.begin(), events.end(), layout::in_order))
        return tl::unexpected(layout::corrupt("rows out of order"));
    body.order.resize(events.size());
    for (size_t row = 0; row < events.size(); ++row) body.order[row] = static_cast<uint16_t>(row);
    std::stable_sort(body.order.begin(), body.order.end(),
                     [&](uint16_t a, uint16_t b) { return events[a].op < events[b].op; });
    for (const uint16_t row : body.order) {
        if (ops_.empty() || ops_.back().op != events[row].op) {
            ops_.emplace_back();
            first_rows_.push_back(static_cast<uint32_t>(body.version_1.size()));
        }
        layout::add_to(ops_.back(), events[row]);
        body.version_1.push_back(events[row]);
    }
    // So far the row in time of each row number; from here on the other way round.
    const std::vector<uint16_t> times = body.order;
    for (size_t row = 0; row < times.size(); ++row) body.order[times[row]] = static_cast<uint16_t>(row);
    body.comms.clear();
    body.loaded = body.has_order = true;
    return {};
}

uint64_t BlockView::max_duration_ns() const {
    uint64_t most = 0;
    for (const OpSummary& op : ops_) most = std::max(most, op.max_ns);
    return most;
}

bool BlockView::is_compressed() const {
    return body_->header.version > 1 && body_->more.compression != static_cast<uint8_t>(layout::Compression::none);
}

bool BlockView::is_default(ColumnId id, size_t segment) const {
    if (!body_->version_1.empty() || id == ColumnId::sequence || id == ColumnId::start || id == ColumnId::op)
        return false;
    return (body_->ops[segment].columns >> static_cast<unsigned>(id) & 1) == 0;
}

BlockView::Body::Failure BlockView::Body::unpack_body(std::string_view data) {
    const std::string_view stored = layout::body_of(data, header);
    if (!layout::body_checksum_fits(data, header)) return layout::corrupt("body checksum");
    if (more.unpacked_bytes > layout::max_body_bytes) return layout::corrupt("impossible length of the body");
    switch (static_cast<layout::Compression>(more.compression)) {
        case layout::Compression::none:
            if (stored.size() != more.unpacked_bytes) return layout::corrupt("wrong length of the body");
            bytes = stored;
            return std::nullopt;
        case layout::Compression::zstd: {
            unpacked.resize(more.unpacked_bytes);
            const size_t got = ZSTD_decompress(unpacked.data(), unpacked.size(), stored.data(), stored.size());
            if (ZSTD_isError(got) || got != unpacked.size()) return layout::corrupt("the body does not decompress");
            bytes = unpacked;
            return std::nullopt;
        }
    }
    return layout::corrupt("unknown compression");
}

BlockView::Body::Failure BlockView::Body::load(std::string_view data) {
    if (loaded) return std::nullopt;
    if (auto failure = unpack_body(data)) return failure;
    const size_t comms_at = layout::block_columns * shape_bytes;
    if (bytes.size() < comms_at + more.comms * sizeof(Comm) + packing_slack_bytes)
        return layout::corrupt("the body is too short");
    comms.resize(more.comms);
    for (size_t i = 0; i < comms.size(); ++i)
        std::memcpy(comms[i].data(), bytes.data() + comms_at + i * sizeof(Comm), sizeof(Comm));
    loaded = true;
    return std::nullopt;
}

/// Decodes the column whose bytes begin at `at`, if it ends before `end`.
static bool decode_at(std::string_view bytes, const ColumnShape& shape, size_t at, std::span<uint64_t> out) {
    const size_t needed = column_bytes(shape, out.size()) + packing_slack_bytes;
    return at <= bytes.size() && bytes.size() - at >= needed && decode_column(shape, bytes.substr(at), out);
}

/// One of the columns that the block has as a whole.
BlockView::Body::Failure BlockView::Body::block_column(size_t number, std::span<uint64_t> out) const {
    size_t at = layout::block_columns * shape_bytes + comms.size() * sizeof(Comm);
    for (size_t i = 0;; ++i) {
        uint32_t stored = 0;
        std::memcpy(&stored, bytes.data() + i * shape_bytes, sizeof stored);
        ColumnShape shape;
        if (!from_stored(stored, out.size(), shape)) return layout::corrupt("impossible shape of a column");
        if (i < number) {
            at += column_bytes(shape, out.size());
            continue;
        }
        if (!decode_at(bytes, shape, at, out)) return layout::corrupt("misplaced column of the block");
        return std::nullopt;
    }
}

BlockView::Body::Failure BlockView::Body::segment_column(ColumnId id, size_t segment, std::span<uint64_t> out) {
    const layout::Op& op = ops[segment];
    const auto number = static_cast<unsigned>(id);
    const size_t columns = static_cast<size_t>(std::popcount(op.columns));
    const size_t before = static_cast<size_t>(std::popcount(op.columns & ((uint64_t{1} << number) - 1)));
    size_t at = size_t{op.offset} + columns * shape_bytes;
    if (at > bytes.size()) return layout::corrupt("misplaced segment");
    ColumnShape shape;
    for (size_t i = 0; i <= before; ++i) {
        uint32_t stored = 0;
        std::memcpy(&stored, bytes.data() + op.offset + i * shape_bytes, sizeof stored);
        if (!from_stored(stored, out.size(), shape)) return layout::corrupt("impossible shape of a column");
        if (i < before) at += column_bytes(shape, out.size());
    }
    if (!decode_at(bytes, shape, at, out) || !fit(out, types[number], comms.size()))
        return layout::corrupt("column " + std::to_string(number) + " of op " + std::to_string(op.op));
    return std::nullopt;
}

BlockView::Body::Failure BlockView::Body::load_order(const BlockView& view) {
    if (has_order) return std::nullopt;
    if (auto failure = load(view.data_)) return failure;
    const size_t rows = header.rows;
    std::vector<uint16_t> segments;
    layout::order_by_rows(view.ops_, segments);
    values.resize(rows);
    if (auto failure = block_column(1, values)) return failure;
    std::vector<uint32_t> next = view.first_rows_;
    order.resize(rows);
    for (size_t i = 0; i < rows; ++i) {
        if (values[i] >= segments.size()) return layout::corrupt("a row of no op");
        const uint16_t segment = segments[values[i]];
        const uint32_t row = next[segment]++;
        if (row >= view.first_rows_[segment] + view.ops_[segment].rows)
            return layout::corrupt("more rows of an op than there are");
        order[i] = static_cast<uint16_t>(row);
    }
    if (auto failure = block_column(0, values)) return failure;
    starts.resize(rows);
    uint64_t start = header.first_start_ns;
    bool wrapped = values[0] != 0;
    for (size_t i = 0; i < rows; ++i) {
        wrapped |= __builtin_add_overflow(start, values[i], &start);
        starts[order[i]] = start;
    }
    if (wrapped || start != header.last_start_ns) return layout::corrupt("starts that do not fit the header");
    has_order = true;
    return std::nullopt;
}

BlockView::Body::Failure BlockView::Body::load_sequences(BlockView& view) {
    if (has_sequences) return std::nullopt;
    if (auto failure = load_order(view)) return failure;
    const size_t rows = header.rows;
    const std::vector<uint16_t>* numbered = &order;
    if (more.sequence_order == static_cast<uint8_t>(layout::SequenceOrder::by_end)) {
        durations.resize(rows);
        for (size_t segment = 0; segment < view.ops_.size(); ++segment)
            if (auto decoded =
                    view.column(ColumnId::duration, segment,
                                std::span(durations).subspan(view.first_rows_[segment], view.ops_[segment].rows));
                !decoded)
                return decoded.error();
        ends.resize(rows);
        for (size_t i = 0; i < rows; ++i) ends[i] = layout::held_add(starts[order[i]], durations[order[i]]);
        layout::order_by_end(ends, by_end);
        for (uint16_t& row : by_end) row = order[row];
        numbered = &by_end;
    } else if (more.sequence_order != static_cast<uint8_t>(layout::SequenceOrder::by_start)) {
        return layout::corrupt("unknown order of sequences");
    }
    values.resize(rows);
    if (auto failure = block_column(2, values)) return failure;
    sequences.resize(rows);
    uint64_t expected = header.min_sequence;
    for (size_t i = 0; i < rows; ++i) {
        const uint64_t sequence = expected + layout::unzigzag(values[i]);
        sequences[(*numbered)[i]] = sequence;
        expected = sequence + 1;
    }
    has_sequences = true;
    return std::nullopt;
}

Result<void> BlockView::column(ColumnId id, size_t segment, std::span<uint64_t> out) {
    assert(segment < ops_.size() && out.size() == ops_[segment].rows);
    Body& body = *body_;
    const size_t first = first_rows_[segment];
    if (id == ColumnId::op) {
        std::fill(out.begin(), out.end(), ops_[segment].op);
        return {};
    }
    if (!body.version_1.empty()) return version_1_column(id, first, out);
    if (id == ColumnId::start || id == ColumnId::sequence) {
        const bool is_start = id == ColumnId::start;
        if (auto failure = is_start ? body.load_order(*this) : body.load_sequences(*this))
            return tl::unexpected(std::move(*failure));
        const auto from = (is_start ? body.starts : body.sequences).begin() + static_cast<std::ptrdiff_t>(first);
        std::copy_n(from, out.size(), out.begin());
        return {};
    }
    if (is_default(id, segment)) {
        std::fill(out.begin(), out.end(), types[static_cast<size_t>(id)].default_value);
        return {};
    }
    if (auto failure = body.load(data_)) return tl::unexpected(std::move(*failure));
    return to_result(body.segment_column(id, segment, out));
}

Result<void> BlockView::version_1_column(ColumnId wanted, size_t first, std::span<uint64_t> out) {
    Body& body = *body_;
    for_each_column([&]<class Get>(ColumnId id, Get get) {
        if (id != wanted) return;
        for (size_t i = 0; i < out.size(); ++i) {
            const auto& field = get(body.version_1[first + i]);
            if constexpr (std::is_same_v<column_field<Get>, Comm>) {
                // Numbered as they come: an old block is too rare to look for those already there, but the last.
                if (field != Comm{} && (body.comms.empty() || body.comms.back() != field)) body.comms.push_back(field);
                out[i] = field == Comm{} ? 0 : body.comms.size();
            } else {
                out[i] = static_cast<uint64_t>(field);
            }
        }
    });
    return {};
}

Result<std::span<const uint16_t>> BlockView::time_order() {
    if (auto failure = body_->load_order(*this)) return tl::unexpected(std::move(*failure));
    return std::span<const uint16_t>(body_->order);
}

const Comm& BlockView::comm(uint64_t number) const {
    static constexpr Comm none{};
    return number == 0 || number > body_->comms.size() ? none : body_->comms[number - 1];
}

Result<void> BlockView::events(std::vector<Event>& ret_events) {
    Body& body = *body_;
    if (auto failure = body.load_order(*this)) return tl::unexpected(std::move(*failure));
    if (!body.version_1.empty()) {
        for (const uint16_t row : body.order) ret_events.push_back(body.version_1[row]);
        return {};
    }
    return decode_rows(
        *this, [](const OpSummary&) { return true; }, ret_events);
}

}  // namespace ingero
