// Counts of durations in buckets of constant relative width, for when there are too many to keep one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/model/call_time.h"
#include "core/model/log_buckets.h"

namespace ingero {

/// As exact as log_buckets.
class LogHistogram {
  public:
    LogHistogram() : buckets_(log_buckets::count) {}

    void add(uint64_t value, uint64_t times = 1) {
        Bucket& bucket = buckets_[log_buckets::index_of(value)];
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
            if (buckets_[index].count && seen >= rank) return log_buckets::middle_of(index);
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
    std::vector<Bucket> buckets_;
    uint64_t count_ = 0;
};

}  // namespace ingero
