#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "call.h"
#include "handles.h"
#include "options.h"

namespace ingero::standin {

namespace {

uint64_t round_up(uint64_t bytes) {
    constexpr uint64_t step = 512;  // the alignment that CUDA gives
    return (std::max<uint64_t>(bytes, 1) + step - 1) / step * step;
}

void* map_memory(uint64_t bytes) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? nullptr : base;
}

}  // namespace

Memory::Memory() {
    if (!options().fragment) return;
    const uint64_t size = options().memory_bytes / (1 << 21) * (1 << 21);
    for (uint32_t i = 0; i < options().devices; ++i) {
        heaps_.emplace_back(next_, size);
        next_ += size + (uint64_t(1) << 30);
    }
}

Memory& Memory::instance() {
    static Memory& made = *std::make_unique<Memory>().release();
    return made;
}

bool Memory::take(uint64_t bytes, int device) {
    uint64_t& live = live_[device];
    if (bytes > options().memory_bytes - live) return false;
    live += bytes;
    return true;
}

uint64_t Memory::address_for(uint64_t bytes, bool low) {
    const uint64_t size = round_up(bytes);
    auto& free = low ? free_low_ : free_;
    if (const auto found = free.find(size); found != free.end() && !found->second.empty()) {
        const uint64_t address = found->second.back();
        found->second.pop_back();
        return address;
    }
    uint64_t& next = low ? next_low_ : next_;
    if (low && size > end_low_address - next) return 0;
    const uint64_t address = next;
    next += size;
    return address;
}

uint64_t Memory::allocate_device(uint64_t bytes, bool low) {
    const std::lock_guard guard(lock_);
    if (!take(bytes, thread_state.device)) return 0;
    const bool in_heap = !low && !heaps_.empty();
    const uint64_t address =
        in_heap ? heaps_[size_t(thread_state.device)].allocate(round_up(bytes)) : address_for(bytes, low);
    if (address == 0) {
        live_[thread_state.device] -= bytes;
        return 0;
    }
    blocks_[address] = {bytes, thread_state.device, Kind::device};
    return address;
}

void Memory::give_back(uint64_t address, const Block& block) {
    const uint64_t size = round_up(block.bytes);
    if (block.kind != Kind::device) {
        real_.erase(address);
        munmap(to_pointer<void*>(address), size);
    } else if (address < end_low_address) {
        free_low_[size].push_back(address);
    } else if (!heaps_.empty()) {
        heaps_[size_t(block.device)].free(address, size);
    } else {
        free_[size].push_back(address);
    }
}

uint64_t Memory::allocate_managed(uint64_t bytes) {
    const std::lock_guard guard(lock_);
    if (!take(bytes, thread_state.device)) return 0;
    const uint64_t address = from_pointer(map_memory(round_up(bytes)));
    if (address == 0) {
        live_[thread_state.device] -= bytes;
        return 0;
    }
    blocks_[address] = {bytes, thread_state.device, Kind::managed};
    real_[address] = bytes;
    return address;
}

void* Memory::allocate_host(uint64_t bytes) {
    void* memory = map_memory(round_up(bytes));
    if (memory == nullptr) return nullptr;
    const std::lock_guard guard(lock_);
    blocks_[from_pointer(memory)] = {bytes, thread_state.device, Kind::host};
    real_[from_pointer(memory)] = bytes;
    return memory;
}

uint64_t Memory::remove(uint64_t address, bool host) {
    const std::lock_guard guard(lock_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end() || (found->second.kind == Kind::host) != host) return 0;
    const Block block = found->second;
    blocks_.erase(found);
    if (block.kind != Kind::host) live_[block.device] -= block.bytes;
    give_back(address, block);
    return std::max<uint64_t>(block.bytes, 1);
}

uint64_t Memory::free_device(uint64_t address) {
    return remove(address, false);
}

uint64_t Memory::free_host(void* address) {
    return remove(from_pointer(address), true);
}

uint64_t Memory::create(uint64_t bytes) {
    const std::lock_guard guard(lock_);
    if (!take(bytes, thread_state.device)) return 0;
    const uint64_t handle = make_handle(HandleKind::memory, ++next_physical_);
    physical_[handle] = {bytes, thread_state.device};
    return handle;
}

bool Memory::release(uint64_t handle) {
    const std::lock_guard guard(lock_);
    const auto found = physical_.find(handle);
    if (found == physical_.end()) return false;
    live_[found->second.device] -= found->second.bytes;
    physical_.erase(found);
    return true;
}

uint64_t Memory::reserve(uint64_t bytes) {
    const std::lock_guard guard(lock_);
    return address_for(bytes, false);
}

bool Memory::is_pageable(uint64_t address) {
    if (address < uint64_t(1) << 32 || (address >= first_address && address < end_address)) return false;
    const std::lock_guard guard(lock_);
    const auto after = real_.upper_bound(address);
    if (after == real_.begin()) return true;
    const auto& [start, size] = *std::prev(after);
    return address - start >= size;
}

uint64_t Memory::live_bytes(int device) {
    const std::lock_guard guard(lock_);
    return live_[device];
}

}  // namespace ingero::standin
