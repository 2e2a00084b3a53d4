#include "heap.h"

#include <algorithm>
#include <iterator>

namespace ingero::standin {

uint64_t Heap::allocate(uint64_t size) {
    const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [size](const auto& g) { return g.second >= size; });
    if (gap == gaps_.end()) return 0;
    const auto [address, room] = *gap;
    gaps_.erase(gap);
    if (room > size) gaps_.emplace(address + size, room - size);
    return address;
}

void Heap::free(uint64_t address, uint64_t size) {
    auto gap = gaps_.emplace(address, size).first;
    if (const auto next = std::next(gap); next != gaps_.end() && next->first == address + size) {
        gap->second += next->second;
        gaps_.erase(next);
    }
    if (gap == gaps_.begin()) return;
    if (const auto before = std::prev(gap); before->first + before->second == address) {
        before->second += gap->second;
        gaps_.erase(gap);
    }
}

}  // namespace ingero::standin
