// Memory of the simulated devices: addresses that are never touched, from ranges of their own, and memory that the host
// may touch (pinned, managed), which is real. An address that was freed is given out again soon, as real allocators do.
// Any thread may call.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "heap.h"

namespace ingero::standin {

class Memory {
  public:
    Memory();
    static Memory& instance();

    /// On the device that is current to the thread. 0 when the device has no room left. `low`: an address below 4 GiB,
    /// for the functions from before addresses had 64 bits.
    uint64_t allocate_device(uint64_t bytes, bool low = false);
    /// Real memory that also counts as the device's.
    uint64_t allocate_managed(uint64_t bytes);
    /// Real memory that does not. Null when the system has none.
    void* allocate_host(uint64_t bytes);

    /// The bytes that were asked for, or 0 for an address that is none of ours.
    uint64_t free_device(uint64_t address);
    uint64_t free_host(void* address);

    /// Physical memory without an address, by handle, and addresses without memory.
    uint64_t create(uint64_t bytes);
    bool release(uint64_t handle);
    uint64_t reserve(uint64_t bytes);

    uint64_t live_bytes(int device);

    /// Memory of the program's that the device cannot reach: no device's, and neither pinned nor managed.
    bool is_pageable(uint64_t address);

  private:
    enum class Kind : uint8_t { device, managed, host };
    struct Block {
        uint64_t bytes;
        int device;
        Kind kind;
    };
    struct Physical {
        uint64_t bytes;
        int device;
    };

    bool take(uint64_t bytes, int device);
    uint64_t address_for(uint64_t bytes, bool low);
    void give_back(uint64_t address, const Block& block);
    uint64_t remove(uint64_t address, bool host);

    std::mutex lock_;
    std::unordered_map<uint64_t, Block> blocks_;
    std::unordered_map<uint64_t, Physical> physical_;
    std::map<uint64_t, uint64_t> real_;               ///< size by address of what the host may touch
    std::vector<Heap> heaps_;                         ///< a device; empty without the option `fragment`
    std::map<uint64_t, std::vector<uint64_t>> free_;  ///< by rounded size; low addresses keep to themselves
    std::map<uint64_t, std::vector<uint64_t>> free_low_;
    uint64_t next_ = first_address;
    uint64_t next_low_ = first_low_address;
    uint32_t next_physical_ = 0;
    uint64_t live_[16] = {};

    static constexpr uint64_t first_address = uint64_t(0x0100) << 32;  // 1 TiB: where Linux maps nothing of its own
    static constexpr uint64_t end_address = first_address * 64;
    static constexpr uint64_t first_low_address = 0x1000'0000;
    static constexpr uint64_t end_low_address = 0xf000'0000;
};

}  // namespace ingero::standin
