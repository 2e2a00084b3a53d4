#include "core/store/block/column_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>

namespace ingero {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t max_entries = 1024;
/// A frame this narrow is hardly beaten by a dictionary, and costs less to read.
constexpr unsigned narrow_bits = 2;
constexpr uint16_t no_entry = 0xffff;
/// Where so many of the first rows all differ, so do the others.
constexpr size_t sample_rows = 256;
constexpr size_t sample_entries = sample_rows * 15 / 16;

unsigned width_of(uint64_t value) {
    return static_cast<unsigned>(std::bit_width(value));
}

/// Bits that number the rows of a column.
unsigned row_width(size_t rows) {
    return width_of(rows - 1);
}

void append_base(uint64_t base, unsigned bytes, std::string& ret_data) {
    ret_data.append(reinterpret_cast<const char*>(&base), bytes);
}

uint8_t base_bytes(uint64_t base) {
    return static_cast<uint8_t>((width_of(base) + 7) / 8);
}

}  // namespace

struct ColumnEncoder::Plan {
    uint64_t least = 0;
    unsigned width = 0;
    unsigned extra_width = 0;
    size_t patches = 0;
    size_t bits = 0;
};

uint32_t to_stored(const ColumnShape& shape) {
    return static_cast<uint32_t>(shape.kind) | uint32_t{shape.base_bytes} << 2 | uint32_t{shape.width} << 6 |
           uint32_t{shape.extra_width} << 13 | uint32_t{shape.count} << 20;
}

bool from_stored(uint32_t stored, size_t rows, ColumnShape& ret_shape) {
    const uint32_t kind = stored & 3;
    ret_shape = {.kind = static_cast<ColumnShape::Kind>(kind),
                 .base_bytes = static_cast<uint8_t>(stored >> 2 & 0xf),
                 .width = static_cast<uint8_t>(stored >> 6 & 0x7f),
                 .extra_width = static_cast<uint8_t>(stored >> 13 & 0x7f),
                 .count = static_cast<uint16_t>(stored >> 20)};
    if (ret_shape.base_bytes > 8 || !is_packed_width(ret_shape.width) || !is_packed_width(ret_shape.extra_width))
        return false;
    switch (ret_shape.kind) {
        case ColumnShape::Kind::constant:
            return ret_shape.width == 0 && ret_shape.extra_width == 0 && ret_shape.count == 0;
        case ColumnShape::Kind::frame:
            return ret_shape.count == 0 ? ret_shape.extra_width == 0 : ret_shape.count <= rows && ret_shape.width < 64;
        case ColumnShape::Kind::dictionary:
            return ret_shape.count != 0 && ret_shape.count <= rows && ret_shape.width <= 12;
    }
    return false;
}

size_t column_bytes(const ColumnShape& shape, size_t rows) {
    switch (shape.kind) {
        case ColumnShape::Kind::constant:
            return shape.base_bytes;
        case ColumnShape::Kind::frame:
            return shape.base_bytes + packed_bytes(rows, shape.width) +
                   (shape.count == 0
                        ? 0
                        : packed_bytes(shape.count, row_width(rows)) + packed_bytes(shape.count, shape.extra_width));
        case ColumnShape::Kind::dictionary:
            return shape.base_bytes + packed_bytes(shape.count, shape.extra_width) + packed_bytes(rows, shape.width);
    }
    return 0;
}

namespace {

/// How wide the frame is best: what is wider becomes a patch. `counts[w]`: how many offsets have exactly w bits.
void plan_frame(const std::array<uint32_t, 65>& counts, size_t rows, unsigned widest, unsigned& ret_width,
                size_t& ret_patches, size_t& ret_bits) {
    ret_width = packed_width(widest);
    ret_patches = 0;
    ret_bits = rows * ret_width;
    size_t wider = 0;
    for (unsigned width = widest; width-- > 0;) {
        wider += counts[width + 1];
        if (!is_packed_width(width)) continue;
        if (wider > 4095 || wider > rows / 2) break;
        const size_t bits = rows * width + wider * (row_width(rows) + packed_width(widest - width)) + 16;
        if (bits >= ret_bits) continue;
        ret_width = width;
        ret_patches = wider;
        ret_bits = bits;
    }
}

}  // namespace

bool ColumnEncoder::try_dictionary(std::span<const uint64_t> values, uint64_t least, unsigned entry_width, Plan& plan) {
    // Beyond so many entries the frame is smaller whatever the codes cost.
    const size_t most = std::min({max_entries, values.size() / 2, plan.bits / std::max(entry_width, 1u)});
    entries_.clear();
    codes_.resize(values.size());
    // A table no larger than the values need: to clear it is most of the work where they are few.
    const size_t slot_count = std::bit_ceil(4 * std::max<size_t>(most, 1));
    const int shift = 64 - std::countr_zero(slot_count);
    slots_.assign(slot_count, no_entry);
    uint64_t last = ~values[0];
    uint64_t last_code = 0;
    for (size_t row = 0; row < values.size(); ++row) {
        const uint64_t value = values[row];
        if (value != last) {
            size_t slot = (value * 0x9e37'79b9'7f4a'7c15) >> shift;
            while (slots_[slot] != no_entry && entries_[slots_[slot]] != value - least)
                slot = (slot + 1) & (slot_count - 1);
            if (slots_[slot] == no_entry) {
                if (entries_.size() == most) return false;
                slots_[slot] = static_cast<uint16_t>(entries_.size());
                entries_.push_back(value - least);
            }
            last = value;
            last_code = slots_[slot];
        }
        codes_[row] = last_code;
        if (row == sample_rows && entries_.size() > sample_entries) return false;
    }
    const unsigned code_width = width_of(entries_.size() - 1);
    const size_t bits = values.size() * code_width + entries_.size() * entry_width + 16;
    if (bits >= plan.bits) return false;
    plan.width = code_width;
    plan.extra_width = entry_width;
    plan.bits = bits;
    return true;
}

ColumnShape ColumnEncoder::write_frame(std::span<const uint64_t> values, const Plan& plan, std::string& ret_data) {
    ColumnShape shape{.kind = ColumnShape::Kind::frame,
                      .base_bytes = base_bytes(plan.least),
                      .width = static_cast<uint8_t>(plan.width),
                      .extra_width = 0,
                      .count = static_cast<uint16_t>(plan.patches)};
    append_base(plan.least, shape.base_bytes, ret_data);
    pack(values, plan.width, plan.least, ret_data);
    if (plan.patches == 0) return shape;
    shape.extra_width = static_cast<uint8_t>(plan.extra_width);
    patch_rows_.clear();
    patch_bits_.clear();
    for (size_t row = 0; row < values.size(); ++row) {
        const uint64_t above = (values[row] - plan.least) >> plan.width;
        if (above == 0) continue;
        patch_rows_.push_back(row);
        patch_bits_.push_back(above);
    }
    assert(patch_rows_.size() == plan.patches);
    pack(patch_rows_, row_width(values.size()), 0, ret_data);
    pack(patch_bits_, plan.extra_width, 0, ret_data);
    return shape;
}

ColumnShape ColumnEncoder::write_dictionary(const Plan& plan, std::string& ret_data) {
    const ColumnShape shape{.kind = ColumnShape::Kind::dictionary,
                            .base_bytes = base_bytes(plan.least),
                            .width = static_cast<uint8_t>(plan.width),
                            .extra_width = static_cast<uint8_t>(plan.extra_width),
                            .count = static_cast<uint16_t>(entries_.size())};
    append_base(plan.least, shape.base_bytes, ret_data);
    pack(entries_, plan.extra_width, 0, ret_data);
    pack(codes_, plan.width, 0, ret_data);
    return shape;
}

ColumnShape ColumnEncoder::encode(std::span<const uint64_t> values, std::string& ret_data) {
    assert(!values.empty() && values.size() <= max_column_rows);
    uint64_t least = values[0];
    uint64_t most = values[0];
    for (const uint64_t value : values) {
        least = std::min(least, value);
        most = std::max(most, value);
    }
    if (least == most) {
        const ColumnShape shape{.kind = ColumnShape::Kind::constant, .base_bytes = base_bytes(least)};
        append_base(least, shape.base_bytes, ret_data);
        return shape;
    }
    std::array<uint32_t, 65> counts{};
    // Two tables: neighbours are often of one width, and adding to one place over and over waits for itself.
    std::array<uint32_t, 65> more_counts{};
    for (size_t row = 0; row + 1 < values.size(); row += 2) {
        ++counts[width_of(values[row] - least)];
        ++more_counts[width_of(values[row + 1] - least)];
    }
    if (values.size() % 2 != 0) ++counts[width_of(values.back() - least)];
    for (size_t width = 0; width < counts.size(); ++width) counts[width] += more_counts[width];
    const unsigned widest = width_of(most - least);
    Plan plan{.least = least};
    plan_frame(counts, values.size(), widest, plan.width, plan.patches, plan.bits);
    if (plan.patches != 0) plan.extra_width = packed_width(widest - plan.width);
    if (plan.bits > narrow_bits * values.size() && try_dictionary(values, least, packed_width(widest), plan))
        return write_dictionary(plan, ret_data);
    return write_frame(values, plan, ret_data);
}

bool decode_column(const ColumnShape& shape, std::string_view data, std::span<uint64_t> out) {
    uint64_t base = 0;
    std::memcpy(&base, data.data(), shape.base_bytes);
    data.remove_prefix(shape.base_bytes);
    if (shape.kind == ColumnShape::Kind::constant) {
        std::fill(out.begin(), out.end(), base);
        return true;
    }
    std::array<uint64_t, max_column_rows> extra;
    if (shape.kind == ColumnShape::Kind::dictionary) {
        unpack(data, shape.extra_width, base, std::span(extra).first(shape.count));
        unpack(data.substr(packed_bytes(shape.count, shape.extra_width)), shape.width, 0, out);
        uint64_t highest = 0;
        for (const uint64_t code : out) highest = std::max(highest, code);
        if (highest >= shape.count) return false;
        for (uint64_t& value : out) value = extra[value];
        return true;
    }
    unpack(data, shape.width, base, out);
    if (shape.count == 0) return true;
    data.remove_prefix(packed_bytes(out.size(), shape.width));
    const unsigned width = row_width(out.size());
    std::array<uint64_t, max_column_rows> rows;
    unpack(data, width, 0, std::span(rows).first(shape.count));
    unpack(data.substr(packed_bytes(shape.count, width)), shape.extra_width, 0, std::span(extra).first(shape.count));
    for (size_t i = 0; i < shape.count; ++i) {
        if (rows[i] >= out.size()) return false;
        out[rows[i]] += extra[i] << shape.width;
    }
    return true;
}

}  // namespace ingero
