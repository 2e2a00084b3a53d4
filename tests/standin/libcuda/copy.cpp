// Copies and sets. No data moves: they take the device the time that their size needs, and the synchronous ones wait.
#include <algorithm>

#include "../engine/memory.h"
#include "../engine/options.h"
#include "variants.h"

namespace ingero::standin {
namespace {

int enqueue_copy(Call& call, Stream& stream, uint64_t bytes) {
    stream.enqueue(copy_time_ns(bytes), call.note);
    return success;
}

int copy(Call& call, Stream& stream, uint64_t bytes) {
    if (bytes == 0) return success;
    if (stream.capturing()) return capture_unsupported;
    wait_until(stream.enqueue(copy_time_ns(bytes), call.note), Devices::instance().wait_mode(), call.note);
    return success;
}

// Memory of the program's that is not pinned has to be copied by the CPU into memory that is, piece by piece.
int copy_staged(Call& call, Stream& stream, uint64_t bytes) {
    constexpr uint64_t piece = 4 << 20;
    wait_until(stream.done_at(), Devices::instance().wait_mode(), call.note);
    for (uint64_t left = bytes; left > 0; left -= std::min(left, piece)) copy(call, stream, std::min(left, piece));
    return success;
}

template <typename To, typename From>
int copy_async(Call& call, Stream& stream, To to, From from, uint64_t bytes) {
    constexpr uint64_t staged_at_once = 64 << 10;
    Memory& memory = Memory::instance();
    if (options().staging && bytes > staged_at_once && !stream.capturing() &&
        (memory.is_pageable(word(to)) || memory.is_pageable(word(from))))
        return copy_staged(call, stream, bytes);
    return enqueue_copy(call, stream, bytes);
}

template <typename Shape>
uint64_t bytes_of(const Shape* shape) {
    return shape == nullptr ? 0 : uint64_t(shape->WidthInBytes) * shape->Height;
}

template <typename Shape>
Arguments told_shape(const Shape* shape) {
    return told_copy(bytes_of(shape), by_address);
}

template <typename Shape>
int copy_shape_async(Call& call, Stream& stream, const Shape* shape) {
    return shape == nullptr ? int(invalid_value) : enqueue_copy(call, stream, bytes_of(shape));
}

template <typename Shape>
int copy_shape(Call& call, Stream& stream, const Shape* shape) {
    return shape == nullptr ? int(invalid_value) : copy(call, stream, bytes_of(shape));
}

Arguments told_set(uint64_t count, uint64_t size) {
    return told_copy(count * size, device_to_device);
}

// Setting is asynchronous for device memory, in its synchronous form too.
int set(Call& call, Stream& stream, uint64_t count, uint64_t size) {
    return enqueue_copy(call, stream, count * size);
}

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

#pragma GCC diagnostic ignored "-Wunused-parameter"

// The forms of before 64-bit addresses are exported still, and differ in the width of their arguments.
#define COPY_FORMS(name, direction, to_type, from_type, to_type_v1, from_type_v1)                                      \
    STANDIN_ON_STREAM(name, (to_type_v1 to, from_type_v1 from, unsigned bytes), nullptr, false,                        \
                      told_copy(bytes, direction), copy(call, stream, bytes))                                          \
    STANDIN_WITH_PTDS(name##_v2, (to_type to, from_type from, size_t bytes), told_copy(bytes, direction),              \
                      copy(call, stream, bytes))                                                                       \
    STANDIN_ON_STREAM(name##Async, (to_type_v1 to, from_type_v1 from, unsigned bytes, CUstream stream), stream, false, \
                      told_copy(bytes, direction), copy_async(call, stream, to, from, bytes))                          \
    STANDIN_WITH_PTSZ(name##Async_v2, (to_type to, from_type from, size_t bytes, CUstream stream), stream,             \
                      told_copy(bytes, direction), copy_async(call, stream, to, from, bytes))

COPY_FORMS(cuMemcpyHtoD, host_to_device, CUdeviceptr, const void*, CUdeviceptr_v1, const void*)
COPY_FORMS(cuMemcpyDtoH, device_to_host, void*, CUdeviceptr, void*, CUdeviceptr_v1)
COPY_FORMS(cuMemcpyDtoD, device_to_device, CUdeviceptr, CUdeviceptr, CUdeviceptr_v1, CUdeviceptr_v1)

STANDIN_WITH_PTDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), told_copy(bytes, by_address),
                  copy(call, stream, bytes))
STANDIN_WITH_PTSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), stream,
                  told_copy(bytes, by_address), copy_async(call, stream, to, from, bytes))
STANDIN_ON_STREAM(cuMemcpy2D, (const CUDA_MEMCPY2D_v1* shape), nullptr, false, told_shape(shape),
                  copy_shape(call, stream, shape))
STANDIN_ON_STREAM(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1* shape, CUstream stream), stream, false, told_shape(shape),
                  copy_shape_async(call, stream, shape))
STANDIN_WITH_PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* shape), told_shape(shape), copy_shape(call, stream, shape))
STANDIN_WITH_PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* shape, CUstream stream), stream, told_shape(shape),
                  copy_shape_async(call, stream, shape))

STANDIN_ON_STREAM(cuMemcpyPeer,
                  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
                  nullptr, false, told_copy(bytes, device_to_device), copy(call, stream, bytes))
// An alias in a family that is traced: one address under two names.
STANDIN_EXPORT int cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                     size_t bytes) __attribute__((alias("cuMemcpyPeer")));
STANDIN_WITH_PTSZ(cuMemcpyPeerAsync,
                  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                   CUstream stream),
                  stream, told_copy(bytes, device_to_device), enqueue_copy(call, stream, bytes))

#define SET_FORMS(name, element)                                                                                  \
    STANDIN_ON_STREAM(name, (CUdeviceptr_v1 to, element value, unsigned count), nullptr, false,                   \
                      told_set(count, sizeof(element)), set(call, stream, count, sizeof(element)))                \
    STANDIN_WITH_PTDS(name##_v2, (CUdeviceptr to, element value, size_t count), told_set(count, sizeof(element)), \
                      set(call, stream, count, sizeof(element)))                                                  \
    STANDIN_WITH_PTSZ(name##Async, (CUdeviceptr to, element value, size_t count, CUstream stream), stream,        \
                      told_set(count, sizeof(element)), set(call, stream, count, sizeof(element)))

SET_FORMS(cuMemsetD8, unsigned char)
SET_FORMS(cuMemsetD16, unsigned short)
SET_FORMS(cuMemsetD32, unsigned)

STANDIN_ON_STREAM(cuMemsetD2D8,
                  (CUdeviceptr_v1 to, unsigned pitch, unsigned char value, unsigned width, unsigned height), nullptr,
                  false, told_set(width, height), set(call, stream, width, height))
STANDIN_WITH_PTDS(cuMemsetD2D8_v2, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
                  told_set(width, height), set(call, stream, width, height))
STANDIN_WITH_PTSZ(cuMemsetD2D8Async,
                  (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream),
                  stream, told_set(width, height), set(call, stream, width, height))

STANDIN_WITH_PTSZ(cuMemPrefetchAsync, (CUdeviceptr to, size_t bytes, CUdevice device, CUstream stream), stream,
                  told_copy(bytes, by_address), enqueue_copy(call, stream, bytes))
STANDIN_WITH_PTSZ(cuMemPrefetchAsync_v2,
                  (CUdeviceptr to, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream), stream,
                  told_copy(bytes, by_address), enqueue_copy(call, stream, bytes))
