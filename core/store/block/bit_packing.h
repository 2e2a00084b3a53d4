// Integers of a fixed number of bits, one after the other without gaps, the lowest bits of a byte first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingero {

/// What unpacking may read past the last packed byte.
inline constexpr size_t packing_slack_bytes = 8;

/// The widths there are: 0 to 56, and 64. One above 56 becomes 64, since a value then lies in one load of 8 bytes.
constexpr unsigned packed_width(unsigned bits) {
    return bits > 56 ? 64 : bits;
}
constexpr bool is_packed_width(unsigned bits) {
    return bits <= 56 || bits == 64;
}
constexpr size_t packed_bytes(size_t count, unsigned width) {
    return (count * width + 7) / 8;
}

/// Appends packed_bytes(values.size(), width) with each value less `base`, wrapping. Bits above `width` are left out.
void pack(std::span<const uint64_t> values, unsigned width, uint64_t base, std::string& ret_data);

/// out[i] = base + value i, wrapping. `data` must hold packed_bytes(out.size(), width) and the slack after them, and
/// `width` be one there is.
void unpack(std::string_view data, unsigned width, uint64_t base, std::span<uint64_t> out);

}  // namespace ingero
