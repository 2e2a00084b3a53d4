#include "core/model/figures/quantile_sketch.h"

#include <algorithm>

#include "core/model/call_time.h"
#include "core/model/figures/log_buckets.h"

namespace ingero {

namespace {

void put_number(std::string& bytes, uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
}

/// Takes a number off the front; only its shortest form is one.
bool take_number(std::string_view& bytes, uint64_t& ret_value) {
    ret_value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
        const auto byte = static_cast<uint8_t>(bytes.front());
        bytes.remove_prefix(1);
        const uint64_t bits = byte & 0x7f;
        if (bits << shift >> shift != bits) return false;
        ret_value |= bits << shift;
        if (byte < 0x80) return byte != 0 || shift == 0;
    }
    return false;
}

}  // namespace

void QuantileSketch::add(uint64_t value, uint64_t times) {
    if (times == 0) return;
    const auto index = static_cast<uint16_t>(log_buckets::index_of(value));
    const auto at = std::lower_bound(buckets_.begin(), buckets_.end(), index,
                                     [](const Bucket& bucket, uint16_t wanted) { return bucket.index < wanted; });
    if (at == buckets_.end() || at->index != index)
        buckets_.insert(at, {index, times});
    else
        at->count = saturating_add(at->count, times);
}

void QuantileSketch::add(const QuantileSketch& other) {
    std::vector<Bucket> sum;
    sum.reserve(buckets_.size() + other.buckets_.size());
    auto ours = buckets_.begin();
    for (const Bucket& theirs : other.buckets_) {
        while (ours != buckets_.end() && ours->index < theirs.index) sum.push_back(*ours++);
        const bool both = ours != buckets_.end() && ours->index == theirs.index;
        sum.push_back({theirs.index, both ? saturating_add(ours++->count, theirs.count) : theirs.count});
    }
    sum.insert(sum.end(), ours, buckets_.end());
    buckets_ = std::move(sum);
}

uint64_t QuantileSketch::count() const {
    uint64_t sum = 0;
    for (const Bucket& bucket : buckets_) sum = saturating_add(sum, bucket.count);
    return sum;
}

uint64_t QuantileSketch::value_at_rank(uint64_t rank) const {
    uint64_t seen = 0;
    for (const Bucket& bucket : buckets_) {
        seen = saturating_add(seen, bucket.count);
        if (seen >= rank) return log_buckets::middle_of(bucket.index);
    }
    return 0;
}

uint64_t QuantileSketch::sum_above(uint64_t floor) const {
    uint64_t sum = 0;
    for (const Bucket& bucket : buckets_) {
        const uint64_t above = saturating_subtract(log_buckets::middle_of(bucket.index), floor);
        sum = saturating_add(sum, saturating_multiply(above, bucket.count));
    }
    return sum;
}

std::string QuantileSketch::encode() const {
    std::string bytes;
    uint64_t before = 0;
    for (const Bucket& bucket : buckets_) {
        put_number(bytes, bucket.index - before);
        put_number(bytes, bucket.count);
        before = bucket.index;
    }
    return bytes;
}

std::optional<QuantileSketch> QuantileSketch::decode(std::string_view bytes) {
    QuantileSketch sketch;
    uint64_t index = 0;
    while (!bytes.empty()) {
        uint64_t step = 0;
        uint64_t count = 0;
        if (!take_number(bytes, step) || !take_number(bytes, count)) return std::nullopt;
        if (count == 0 || step >= log_buckets::count || (step == 0 && !sketch.buckets_.empty())) return std::nullopt;
        index += step;
        if (index >= log_buckets::count) return std::nullopt;
        sketch.buckets_.push_back({static_cast<uint16_t>(index), count});
    }
    return sketch;
}

}  // namespace ingero
