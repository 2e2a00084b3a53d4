// Numbers keys 0, 1, 2... in order of arrival, up to a limit: the hash table behind everything that is kept a key. A
// query looks up a key for each of millions of rows, which is why this is not std::unordered_map (three times the
// time).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace ingero {

/// The finalizer of splitmix64: every input bit reaches every output bit.
constexpr uint64_t mix_bits(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

/// One hash of several words: a sum of odd multiples, mixed once, since mixing word by word costs as much as the
/// look-up.
constexpr uint64_t hash_words(uint64_t a, uint64_t b, uint64_t c = 0, uint64_t d = 0) {
    return mix_bits(a * 0x9e3779b97f4a7c15ULL + b * 0xc2b2ae3d27d4eb4fULL + c * 0xd6e8feb86659fd93ULL +
                    d * 0xff51afd7ed558ccdULL);
}

/// Key has operator== and uint64_t hash() const.
template <class Key>
class KeyIndex {
  public:
    static constexpr uint32_t none = std::numeric_limits<uint32_t>::max();

    explicit KeyIndex(size_t max_keys) : max_keys_(max_keys), slots_(64, none) {}

    uint32_t find(const Key& key) const { return slots_[slot_of(key)]; }

    /// `none` where the key is new and the limit is reached.
    uint32_t find_or_add(const Key& key) {
        const size_t slot = slot_of(key);
        if (slots_[slot] != none || keys_.size() >= max_keys_) return slots_[slot];
        const auto number = static_cast<uint32_t>(keys_.size());
        slots_[slot] = number;
        keys_.push_back(key);
        if (keys_.size() * 2 > slots_.size()) grow();
        return number;
    }

    const Key& key(uint32_t number) const { return keys_[number]; }
    size_t size() const { return keys_.size(); }

  private:
    size_t slot_of(const Key& key) const {
        const size_t mask = slots_.size() - 1;
        size_t slot = key.hash() & mask;
        while (slots_[slot] != none && !(keys_[slots_[slot]] == key)) slot = (slot + 1) & mask;
        return slot;
    }

    void grow() {
        slots_.assign(slots_.size() * 2, none);
        for (uint32_t number = 0; number < keys_.size(); ++number) slots_[slot_of(keys_[number])] = number;
    }

    size_t max_keys_;
    std::vector<uint32_t> slots_;  ///< a power of two of them, at most half in use
    std::vector<Key> keys_;
};

}  // namespace ingero
