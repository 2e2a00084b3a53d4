// Counts of durations in buckets of constant relative width, for when there are too many to keep one by one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/query/call_time.h"

namespace ingero {

/// Exact below 128 ns; above, 64 buckets to a factor of two, so that a bucket's middle is within 0.8 % of all in it.
class LogHistogram {
  public:
    LogHistogram() : buckets_(bucket_count) {}

    void add(uint64_t value, uint64_t times = 1) {
        Bucket& bucket = buckets_[index_of(value)];
        bucket.count = saturating_add(bucket.count, times);
        bucket.sum = saturating_add(bucket.sum, saturating_multiply(value, times));
        count_ = saturating_add(count_, times);
    }

    uint64_t count() const { return count_; }

    /// The value of the given rank, from 1 to count(), within 0.8 %. 0 when empty.
    uint64_t value_at_rank(uint64_t rank) const {
        uint64_t seen = 0;
        for (size_t index = 0; index < buckets_.size(); ++index) {
            seen += buckets_[index].count;
            if (buckets_[index].count && seen >= rank) return middle_of(index);
        }
        return 0;
    }

    /// What the values above `floor` have over it, all together; buckets that straddle it count by their mean.
    uint64_t sum_above(uint64_t floor) const {
        uint64_t total = 0;
        for (const Bucket& bucket : buckets_) {
            if (!bucket.count) continue;
            const uint64_t mean = bucket.sum / bucket.count;
            if (mean > floor) total = saturating_add(total, bucket.sum - floor * bucket.count);
        }
        return total;
    }

  private:
    struct Bucket {
        uint64_t count = 0;
        uint64_t sum = 0;
    };
    static constexpr unsigned sub_bits = 6;
    static constexpr size_t bucket_count = (64 - sub_bits + 1) << sub_bits;

    static size_t index_of(uint64_t value) {
        const auto width = static_cast<unsigned>(std::bit_width(value));
        if (width <= sub_bits + 1) return static_cast<size_t>(value);
        const unsigned shift = width - sub_bits - 1;
        return (static_cast<size_t>(shift) << sub_bits) + static_cast<size_t>(value >> shift);
    }

    static uint64_t middle_of(size_t index) {
        if (index < (2u << sub_bits)) return index;
        const unsigned shift = static_cast<unsigned>(index >> sub_bits) - 1;
        const uint64_t low = ((index & ((1u << sub_bits) - 1)) | (1u << sub_bits));
        return (low << shift) + ((1ULL << shift) >> 1);
    }

    std::vector<Bucket> buckets_;
    uint64_t count_ = 0;
};

}  // namespace ingero
