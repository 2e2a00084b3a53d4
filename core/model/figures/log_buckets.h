// The buckets that durations are counted in where there are too many to keep one by one. Stored: their numbers never
// come to mean other values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ingero::log_buckets {

/// Exact below 128; above, 64 buckets to a factor of two, so that a bucket's middle is within 0.8 % of all in it.
inline constexpr unsigned sub_bits = 6;
inline constexpr size_t count = (64 - sub_bits + 1) << sub_bits;

constexpr size_t index_of(uint64_t value) {
    const auto width = static_cast<unsigned>(std::bit_width(value));
    if (width <= sub_bits + 1) return static_cast<size_t>(value);
    const unsigned shift = width - sub_bits - 1;
    return (static_cast<size_t>(shift) << sub_bits) + static_cast<size_t>(value >> shift);
}

constexpr uint64_t middle_of(size_t index) {
    if (index < (2u << sub_bits)) return index;
    const unsigned shift = static_cast<unsigned>(index >> sub_bits) - 1;
    const uint64_t low = ((index & ((1u << sub_bits) - 1)) | (1u << sub_bits));
    return (low << shift) + ((1ULL << shift) >> 1);
}

}  // namespace ingero::log_buckets
