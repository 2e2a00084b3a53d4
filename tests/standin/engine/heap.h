// A range of addresses that is given out in parts: an allocation takes the first gap that it fits in, and nothing is
// ever moved. Free room in pieces is no room for what is larger than the largest piece. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>

namespace ingero::standin {

class Heap {
  public:
    Heap(uint64_t first_address, uint64_t size) : gaps_{{first_address, size}} {}

    /// The address, or 0 when there is no gap of that size.
    uint64_t allocate(uint64_t size);

    /// Takes back what allocate() gave out, with the same size.
    void free(uint64_t address, uint64_t size);

  private:
    std::map<uint64_t, uint64_t> gaps_;  ///< size by address; none is empty, no two touch
};

}  // namespace ingero::standin
