// Quantiles of many durations in little space, that can be added up: what rollups keep instead of the rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingero {

/// Counts in the buckets of log_buckets.h, those that are not empty: quantiles are exact below 128 ns and within 0.8 %
/// above. Adding sketches up gives the sketch of all their values, in whatever order. Counts are held at 2⁶⁴−1.
class QuantileSketch {
  public:
    struct Bucket {
        uint16_t index = 0;
        uint64_t count = 0;
        bool operator==(const Bucket&) const = default;
    };

    void add(uint64_t value, uint64_t times = 1);
    void add(const QuantileSketch& other);
    uint64_t count() const;
    /// Of the given rank, from 1 to count(). 0 when empty.
    uint64_t value_at_rank(uint64_t rank) const;
    /// What the values above `floor` have over it, all together: off by no more than 0.8 % of those values.
    uint64_t sum_above(uint64_t floor) const;
    const std::vector<Bucket>& buckets() const { return buckets_; }  ///< ascending, none of them empty
    bool operator==(const QuantileSketch&) const = default;

    /// For each bucket, as LEB128: its number less that of the one before, and its count.
    std::string encode() const;
    /// Nothing unless it is the encoding of a sketch.
    static std::optional<QuantileSketch> decode(std::string_view bytes);

  private:
    std::vector<Bucket> buckets_;
};

}  // namespace ingero
