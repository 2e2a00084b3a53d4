// Allocation, copies and sets.
#include "runtime.h"

namespace ingero::standin::runtime {
namespace {

enum Direction : int { host_to_host, host_to_device, device_to_host, device_to_device, by_address };

CUdeviceptr address(const void* pointer) { return CUdeviceptr(from_pointer(pointer)); }

// The driver's function depends on the direction; the real runtime finds the direction out for the other two.
#define COPY_BY_DIRECTION(suffix, plain_suffix, ...)                                                               \
    switch (direction) {                                                                                           \
        case host_to_device: return driver.cuMemcpyHtoD##suffix(address(to), from, bytes __VA_ARGS__);             \
        case device_to_host: return driver.cuMemcpyDtoH##suffix(to, address(from), bytes __VA_ARGS__);             \
        case device_to_device: return driver.cuMemcpyDtoD##suffix(address(to), address(from), bytes __VA_ARGS__);  \
        case host_to_host:                                                                                         \
        case by_address: return driver.cuMemcpy##plain_suffix(address(to), address(from), bytes __VA_ARGS__);      \
        default: return 21; /* cudaErrorInvalidMemcpyDirection */                                                  \
    }

CUDA_MEMCPY2D shape(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = copy.dstMemoryType = 4;  // unified: told apart by address
    copy.srcDevice = address(from);
    copy.srcPitch = from_pitch;
    copy.dstDevice = address(to);
    copy.dstPitch = to_pitch;
    copy.WidthInBytes = width;
    copy.Height = height;
    return copy;
}

}  // namespace
}  // namespace ingero::standin::runtime

using namespace ingero::standin;
using namespace ingero::standin::runtime;

#pragma GCC diagnostic ignored "-Wunused-parameter"

// A form on a stream and the one that ends in _ptsz, for the body that calls `driver.TARGET`.
#define RUNTIME_WITH_PTSZ(name, target_name, parameters, size, ...)                                                    \
    STANDIN_RUNTIME(name, parameters, call.bytes = size; call.stream = from_pointer(stream);                           \
                    return driver.target_name(__VA_ARGS__);)                                                           \
    STANDIN_RUNTIME(name##_ptsz, parameters, call.bytes = size; call.stream = from_pointer(stream);                    \
                    return driver.target_name##_ptsz(__VA_ARGS__);)

#define RUNTIME_WITH_PTDS(name, target_name, parameters, size, ...)                                                    \
    STANDIN_RUNTIME(name, parameters, call.bytes = size; return driver.target_name(__VA_ARGS__);)                      \
    STANDIN_RUNTIME(name##_ptds, parameters, call.bytes = size; return driver.target_name##_ptds(__VA_ARGS__);)

STANDIN_RUNTIME(cudaMalloc, (void** pointer, size_t bytes), call.bytes = bytes;
                return driver.cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(pointer), bytes);)

STANDIN_RUNTIME(cudaMallocPitch, (void** pointer, size_t* pitch, size_t width, size_t height),
                const int result =
                    driver.cuMemAllocPitch_v2(reinterpret_cast<CUdeviceptr*>(pointer), pitch, width, height, 4);
                call.bytes = thread_state.nested_bytes; return result;)

// How much that was, only the driver knows.
STANDIN_RUNTIME(cudaFree, (void* pointer), const int result = driver.cuMemFree_v2(address(pointer));
                call.bytes = thread_state.nested_bytes; return result;)

RUNTIME_WITH_PTSZ(cudaMallocAsync, cuMemAllocAsync, (void** pointer, size_t bytes, CUstream stream), bytes,
                  reinterpret_cast<CUdeviceptr*>(pointer), bytes, stream)

RUNTIME_WITH_PTSZ(cudaMallocFromPoolAsync, cuMemAllocFromPoolAsync,
                  (void** pointer, size_t bytes, CUmemoryPool pool, CUstream stream), bytes,
                  reinterpret_cast<CUdeviceptr*>(pointer), bytes, pool, stream)

#define FREE_ASYNC_FORM(name, target)                                                                     \
    STANDIN_RUNTIME(name, (void* pointer, CUstream stream), call.stream = from_pointer(stream);           \
                    const int result = driver.target(address(pointer), stream);                           \
                    call.bytes = thread_state.nested_bytes; return result;)

FREE_ASYNC_FORM(cudaFreeAsync, cuMemFreeAsync)
FREE_ASYNC_FORM(cudaFreeAsync_ptsz, cuMemFreeAsync_ptsz)

STANDIN_RUNTIME(cudaMallocManaged, (void** pointer, size_t bytes, unsigned flags), call.bytes = bytes;
                return driver.cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(pointer), bytes, flags);)

STANDIN_RUNTIME(cudaMallocHost, (void** pointer, size_t bytes), call.bytes = bytes;
                return driver.cuMemHostAlloc(pointer, bytes, 0);)

STANDIN_RUNTIME(cudaHostAlloc, (void** pointer, size_t bytes, unsigned flags), call.bytes = bytes;
                return driver.cuMemHostAlloc(pointer, bytes, flags);)

STANDIN_RUNTIME(cudaFreeHost, (void* pointer), const int result = driver.cuMemFreeHost(pointer);
                call.bytes = thread_state.nested_bytes; return result;)

STANDIN_RUNTIME(cudaMemGetInfo, (size_t * free_bytes, size_t* total_bytes),
                return driver.cuMemGetInfo_v2(free_bytes, total_bytes);)

STANDIN_RUNTIME(cudaMemcpy, (void* to, const void* from, size_t bytes, int direction), call.bytes = bytes;
                COPY_BY_DIRECTION(_v2, , ))
STANDIN_RUNTIME(cudaMemcpy_ptds, (void* to, const void* from, size_t bytes, int direction), call.bytes = bytes;
                COPY_BY_DIRECTION(_v2_ptds, _ptds, ))
STANDIN_RUNTIME(cudaMemcpyAsync, (void* to, const void* from, size_t bytes, int direction, CUstream stream),
                call.bytes = bytes;
                call.stream = from_pointer(stream); COPY_BY_DIRECTION(Async_v2, Async, , stream))
STANDIN_RUNTIME(cudaMemcpyAsync_ptsz, (void* to, const void* from, size_t bytes, int direction, CUstream stream),
                call.bytes = bytes;
                call.stream = from_pointer(stream); COPY_BY_DIRECTION(Async_v2_ptsz, Async_ptsz, , stream))

#define COPY_2D_FORM(name, target)                                                                                     \
    STANDIN_RUNTIME(name, (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, \
                           int direction), call.bytes = uint64_t(width) * height;                                      \
                    const CUDA_MEMCPY2D copy = shape(to, to_pitch, from, from_pitch, width, height);                   \
                    return driver.target(&copy);)
COPY_2D_FORM(cudaMemcpy2D, cuMemcpy2D_v2)
COPY_2D_FORM(cudaMemcpy2D_ptds, cuMemcpy2D_v2_ptds)

#define COPY_2D_ASYNC_FORM(name, target)                                                                               \
    STANDIN_RUNTIME(name, (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, \
                           int direction, CUstream stream), call.bytes = uint64_t(width) * height;                     \
                    call.stream = from_pointer(stream);                                                                \
                    const CUDA_MEMCPY2D copy = shape(to, to_pitch, from, from_pitch, width, height);                   \
                    return driver.target(&copy, stream);)
COPY_2D_ASYNC_FORM(cudaMemcpy2DAsync, cuMemcpy2DAsync_v2)
COPY_2D_ASYNC_FORM(cudaMemcpy2DAsync_ptsz, cuMemcpy2DAsync_v2_ptsz)

STANDIN_RUNTIME(cudaMemcpyPeer, (void* to, int to_device, const void* from, int from_device, size_t bytes),
                call.bytes = bytes;
                return driver.cuMemcpyPeer(address(to), nullptr, address(from), nullptr, bytes);)

STANDIN_RUNTIME(cudaMemcpyPeerAsync,
                (void* to, int to_device, const void* from, int from_device, size_t bytes, CUstream stream),
                call.bytes = bytes;
                call.stream = from_pointer(stream);
                return driver.cuMemcpyPeerAsync(address(to), nullptr, address(from), nullptr, bytes, stream);)

RUNTIME_WITH_PTDS(cudaMemset, cuMemsetD8_v2, (void* to, int value, size_t bytes), bytes, address(to),
                  static_cast<unsigned char>(value), bytes)

RUNTIME_WITH_PTSZ(cudaMemsetAsync, cuMemsetD8Async, (void* to, int value, size_t bytes, CUstream stream), bytes,
                  address(to), static_cast<unsigned char>(value), bytes, stream)

RUNTIME_WITH_PTDS(cudaMemset2D, cuMemsetD2D8_v2, (void* to, size_t pitch, int value, size_t width, size_t height),
                  uint64_t(width) * height, address(to), pitch, static_cast<unsigned char>(value), width, height)

RUNTIME_WITH_PTSZ(cudaMemset2DAsync, cuMemsetD2D8Async,
                  (void* to, size_t pitch, int value, size_t width, size_t height, CUstream stream),
                  uint64_t(width) * height, address(to), pitch, static_cast<unsigned char>(value), width, height, stream)

// CUDA 13 gave the plain name to what had been _v2.
#if STANDIN_CUDART_MAJOR >= 13
RUNTIME_WITH_PTSZ(cudaMemPrefetchAsync, cuMemPrefetchAsync_v2,
                  (const void* to, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream), bytes,
                  address(to), bytes, place, flags, stream)
#else
RUNTIME_WITH_PTSZ(cudaMemPrefetchAsync, cuMemPrefetchAsync_v2,
                  (const void* to, size_t bytes, int device, CUstream stream), bytes, address(to), bytes,
                  (CUmemLocation{1, device}), 0u, stream)
RUNTIME_WITH_PTSZ(cudaMemPrefetchAsync_v2, cuMemPrefetchAsync_v2,
                  (const void* to, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream), bytes,
                  address(to), bytes, place, flags, stream)
#endif
