// What a process has allocated on devices and not freed, as far as its calls were seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>

#include "core/model/call_time.h"
#include "core/model/event.h"
#include "core/model/op.h"

namespace ingero {

struct Allocation {
    uint64_t bytes = 0;
    uint64_t at_ns = 0;  ///< when the call returned
    uint64_t sequence = 0;
    uint32_t stack = 0;
    OpId op = 0;
    uint16_t device = 0;
};

/// Of one process on one device, at least: what was allocated before it was looked at is not known.
struct DeviceMemory {
    uint64_t bytes = 0;
    uint64_t peak_bytes = 0;
    /// Some came from pools, was managed or mapped by the program: what is freed there is not simply free again.
    bool elastic = false;
};

/// Pinned memory of the host is not the device's.
inline bool is_device_memory(const Op& op) {
    return op.op_class == OpClass::alloc && op.name.find("Host") == std::string_view::npos;
}
inline bool frees_device_memory(const Op& op) {
    return op.op_class == OpClass::free && op.name.find("Host") == std::string_view::npos;
}

/// Of one process. Bounded: where there is no room for more, `overflowed` says that it no longer knows.
class LiveMemory {
  public:
    /// Of all processes that a detector looks at.
    static constexpr size_t max_allocations = 262'144;

    /// `taken`: of max_allocations, by all.
    /// An allocation that succeeded, or a free: the outermost call. Gives the allocation that a free ended, where it
    /// was seen.
    bool take(const Event& event, const Op& op, size_t& taken, Allocation& ret_freed) {
        if (event.depth != 0 || event.return_code != 0) return false;
        // Of thinned frees it is not known whose they were.
        overflowed = overflowed || event.weight != 1;
        if (is_device_memory(op)) {
            if (event.args[1] != 0) allocate(event, op, taken);
            return false;
        }
        if (!frees_device_memory(op)) return false;
        const auto known = live_.find(event.args[0]);
        if (known == live_.end()) {
            unknown_frees += event.args[0] != 0;
            return false;
        }
        ret_freed = known->second;
        devices_[ret_freed.device].bytes -= ret_freed.bytes;
        live_.erase(known);
        --taken;
        return true;
    }
    /// Its process is forgotten.
    void release(size_t& taken) const { taken -= live_.size(); }

    const std::unordered_map<uint64_t, Allocation>& live() const { return live_; }

    const std::map<uint16_t, DeviceMemory>& devices() const { return devices_; }
    DeviceMemory on(uint16_t device) const {
        const auto found = devices_.find(device);
        return found == devices_.end() ? DeviceMemory{} : found->second;
    }
    uint64_t bytes() const {
        uint64_t all = 0;
        for (const auto& [device, memory] : devices_) all = saturating_add(all, memory.bytes);
        return all;
    }

    uint64_t unknown_frees = 0;  ///< of what was not seen to be allocated
    bool overflowed = false;

  private:
    static constexpr size_t max_devices = 64;

    void allocate(const Event& event, const Op& op, size_t& taken) {
        const auto known = live_.find(event.args[1]);
        const bool room = known != live_.end() || taken < max_allocations;
        if (!room || (devices_.size() >= max_devices && !devices_.contains(event.device))) {
            overflowed = true;
            return;
        }
        taken += known == live_.end();
        Allocation& allocation = live_[event.args[1]];
        if (known != live_.end()) devices_[allocation.device].bytes -= allocation.bytes;  // its free was not seen
        DeviceMemory& memory = devices_[event.device];
        // Sums of what a hostile file has must not wrap.
        const uint64_t bytes = std::min(event.args[0], UINT64_MAX - memory.bytes);
        allocation = {bytes, saturating_end_ns(event), event.sequence, event.stack, event.op, event.device};
        memory.bytes += bytes;
        memory.peak_bytes = std::max(memory.peak_bytes, memory.bytes);
        for (const std::string_view part : {"Managed", "Async", "Create"})
            memory.elastic |= op.name.find(part) != std::string_view::npos;
    }

    std::unordered_map<uint64_t, Allocation> live_;  ///< by address or handle
    std::map<uint16_t, DeviceMemory> devices_;
};

}  // namespace ingero
