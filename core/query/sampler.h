// A bounded sample of a stream of values, chosen by a hash of each value's identity: the same rows give the same sample
// in whatever order they come, so that a live verdict and a replayed one agree.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ingero {

/// Keeps all values while there are fewer than `capacity`, or than limit() says; from there on, those whose hash ends
/// in k zero bits, k growing as needed: about half of `capacity` to all of it. The rank of a median taken from it is
/// off by about 2 % (capacity 512).
template <class Value, size_t capacity = 512>
class Sampler {
  public:
    struct Kept {
        Value value;
        uint32_t hash;
    };

    void add(uint32_t hash, const Value& value) {
        if (hash & mask_) return;
        kept_.push_back({value, hash});
        fit();
    }

    /// Keeps fewer from here on, as if it had from the start.
    void limit(uint32_t most) {
        most_ = most;
        fit();
        kept_.shrink_to_fit();
    }

    const std::vector<Kept>& kept() const { return kept_; }
    size_t size() const { return kept_.size(); }
    /// True while nothing was left out.
    bool whole() const { return mask_ == 0; }

  private:
    void fit() {
        while (kept_.size() >= most_ && mask_ != 0xffffffff) thin();
        // Identities that are not distinct (a damaged store) may leave nothing to thin by: then the newest go.
        while (kept_.size() >= most_) kept_.pop_back();
    }
    void thin() {
        mask_ = mask_ << 1 | 1;
        std::erase_if(kept_, [this](const Kept& kept) { return kept.hash & mask_; });
    }

    std::vector<Kept> kept_;
    uint32_t mask_ = 0;
    uint32_t most_ = capacity;
};

/// A value of a row that stands for so many calls.
template <class Number>
struct Weighted {
    Number value = 0;
    uint32_t calls = 1;
    bool operator<(const Weighted& other) const { return value < other.value; }
};

/// Nearest rank among the calls that the values stand for: 0.5 is the lower median. Reorders them; 0 where there are
/// none.
template <class Number>
Number quantile_of(std::vector<Weighted<Number>>& values, double quantile) {
    uint64_t calls = 0;
    bool alike = true;
    for (const auto& one : values) {
        calls += one.calls;
        alike &= one.calls == values.front().calls;
    }
    if (calls == 0) return 0;
    if (alike) {
        const double rank = std::ceil(quantile * static_cast<double>(values.size()));
        const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
        std::nth_element(values.begin(), place, values.end());
        return place->value;
    }
    std::sort(values.begin(), values.end());
    const auto rank = static_cast<uint64_t>(std::max(std::ceil(quantile * static_cast<double>(calls)), 1.0));
    uint64_t seen = 0;
    for (const auto& one : values)
        if ((seen += one.calls) >= rank) return one.value;
    return values.back().value;
}

}  // namespace ingero
