// Handles that the stand-in gives out: numbers that point at no memory, so that a wrong one is an error code and not a
// crash. The low half alone tells handles of a kind apart; the log keeps that half of a stream's.
#pragma once

#include <cstdint>

#include "results.h"

namespace ingero::standin {

enum class HandleKind : uint64_t {
    context = 0x5d01,
    stream = 0x5d02,
    event = 0x5d03,
    function = 0x5d04,
    module = 0x5d05,
    graph = 0x5d06,
    graph_exec = 0x5d07,
    memory = 0x5d08,
};

// 0, 1 and 2 are streams with a meaning of their own, so the first index is 1 and a handle steps by 16.
inline uint64_t make_handle(HandleKind kind, uint32_t index) {
    return uint64_t(kind) << 32 | uint64_t(index) << 4;
}

/// The index, or 0 for what is no handle of that kind.
inline uint32_t handle_index(HandleKind kind, uint64_t handle) {
    return handle >> 32 == uint64_t(kind) && (handle & 15) == 0 ? uint32_t(handle) >> 4 : 0;
}

/// For the C interface, where handles are pointers.
inline uint64_t from_pointer(const void* handle) {
    return reinterpret_cast<uintptr_t>(handle);
}
template <typename Pointer>
Pointer to_pointer(uint64_t handle) {
    return reinterpret_cast<Pointer>(uintptr_t(handle));
}

/// Hands out a handle, of which 0 means that there was no room for another.
template <typename Pointer>
int give_handle(Pointer* to, uint64_t handle) {
    if (to == nullptr) return invalid_value;
    *to = to_pointer<Pointer>(handle);
    return handle == 0 ? out_of_memory : success;
}

}  // namespace ingero::standin
