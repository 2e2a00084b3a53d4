// One column of integers as bytes: constant, patched frame of reference, or dictionary, whichever is smallest. Knows
// nothing of events. Reader and writer stand side by side in column_codec.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/block/bit_packing.h"

namespace ingero {

inline constexpr size_t max_column_rows = 4096;

/// How a column lies in its bytes. With the number of rows it determines how many bytes those are.
struct ColumnShape {
    enum class Kind : uint8_t {
        constant = 0,    ///< base
        frame = 1,       ///< base, rows × width bits, then `count` patches: their rows, then their bits above `width`
        dictionary = 2,  ///< base, `count` entries × extra_width bits, then rows × width bits that number them
    };
    Kind kind = Kind::constant;
    uint8_t base_bytes = 0;   ///< 0 to 8; the base's bytes above these are 0
    uint8_t width = 0;        ///< bits, see bit_packing.h
    uint8_t extra_width = 0;  ///< bits of a patch or an entry
    uint16_t count = 0;       ///< of patches or entries, up to 4,095
    bool operator==(const ColumnShape&) const = default;
};

/// A shape is stored as a u32: kind 2 bits, base bytes 4, width 7, extra width 7, count 12, from the lowest up.
inline constexpr size_t shape_bytes = 4;
uint32_t to_stored(const ColumnShape& shape);
/// Anything that was read. What is no shape for a column of `rows` (1 to max_column_rows) gives false.
bool from_stored(uint32_t stored, size_t rows, ColumnShape& ret_shape);

/// Of a shape that fits `rows`.
size_t column_bytes(const ColumnShape& shape, size_t rows);

/// Keeps its working memory from column to column.
class ColumnEncoder {
  public:
    /// Appends the column's bytes. 1 to max_column_rows values.
    ColumnShape encode(std::span<const uint64_t> values, std::string& ret_data);

  private:
    struct Plan;
    bool try_dictionary(std::span<const uint64_t> values, uint64_t least, unsigned entry_width, Plan& plan);
    ColumnShape write_frame(std::span<const uint64_t> values, const Plan& plan, std::string& ret_data);
    ColumnShape write_dictionary(const Plan& plan, std::string& ret_data);

    std::vector<uint64_t> codes_;
    std::vector<uint64_t> entries_;
    std::vector<uint16_t> slots_;  ///< hash table over entries_
    std::vector<uint64_t> patch_rows_;
    std::vector<uint64_t> patch_bits_;
};

/// `shape` came from from_stored() for out.size() rows; `data` holds column_bytes() of it and packing_slack_bytes more.
/// False where a row names a dictionary entry or a patch a row that is not there.
bool decode_column(const ColumnShape& shape, std::string_view data, std::span<uint64_t> out);

}  // namespace ingero
