// What the log says of a call's arguments, as the library itself sees them: three words, by class of function, and the
// stream. ../README.md lists the words. Made, if there is a log, before the call does anything, from its parameters;
// what the call gives out is read when it has succeeded.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ingero::standin {

struct Arguments {
    uint64_t bytes = 0;
    uint64_t stream = 0;  ///< the handle as the caller passed it
    uint64_t args[3] = {};
    const char* kernel_name = nullptr;
    const void* result = nullptr;  ///< where the call will put what it gives out
    uint8_t result_size = 0;
    uint8_t result_index = 0;  ///< the word that it is

    [[gnu::always_inline]] Arguments on(const void* handle) const {
        Arguments changed = *this;
        changed.stream = reinterpret_cast<uintptr_t>(handle);
        return changed;
    }
    [[gnu::always_inline]] Arguments sized(uint64_t size) const {
        Arguments changed = *this;
        changed.bytes = size;
        return changed;
    }
    [[gnu::always_inline]] Arguments named(const char* name) const {
        Arguments changed = *this;
        changed.kernel_name = name;
        return changed;
    }
    /// Word `index` is what the call puts at `place`, of 32 or 64 bits.
    template <typename Value>
    [[gnu::always_inline]] Arguments gives(uint8_t index, const Value* place) const {
        static_assert(sizeof(Value) == 4 || sizeof(Value) == 8);
        Arguments changed = *this;
        changed.result = place;
        changed.result_size = sizeof(Value);
        changed.result_index = index;
        return changed;
    }
};

/// A parameter as a word: pointers and handles as they are, numbers without their sign spread out.
template <typename Value>
uint64_t word(Value value) {
    if constexpr (std::is_pointer_v<Value>)
        return reinterpret_cast<uintptr_t>(value);
    else
        return static_cast<std::make_unsigned_t<Value>>(value);
}

[[gnu::always_inline]] inline Arguments told() {
    return {};
}
template <typename First>
[[gnu::always_inline]] inline Arguments told(First first) {
    Arguments made;
    made.args[0] = word(first);
    return made;
}
template <typename First, typename Second>
[[gnu::always_inline]] inline Arguments told(First first, Second second) {
    Arguments made = told(first);
    made.args[1] = word(second);
    return made;
}
template <typename First, typename Second, typename Third>
[[gnu::always_inline]] inline Arguments told(First first, Second second, Third third) {
    Arguments made = told(first, second);
    made.args[2] = word(third);
    return made;
}

template <typename Pointer>
[[gnu::always_inline]] inline Arguments told_allocation(uint64_t bytes, const Pointer* pointer) {
    return told(bytes).gives(1, pointer).sized(bytes);
}

/// As cudaMemcpyKind, and one more.
enum Direction : int { host_to_host, host_to_device, device_to_host, device_to_device, by_address, unknown_direction };

[[gnu::always_inline]] inline Arguments told_copy(uint64_t bytes, int direction) {
    return told(bytes, direction < host_to_host || direction > by_address ? int(unknown_direction) : direction)
        .sized(bytes);
}

struct Extent {
    unsigned x, y, z;
};

[[gnu::always_inline]] inline Arguments told_launch(const void* function, Extent grid, Extent block,
                                                    uint64_t shared_bytes) {
    return told(
        function, grid.x | uint64_t(grid.y) << 32 | uint64_t(grid.z) << 48,
        (block.x & 0x7ff) | uint64_t(block.y & 0x7ff) << 11 | uint64_t(block.z & 0x3ff) << 22 | shared_bytes << 32);
}

}  // namespace ingero::standin
