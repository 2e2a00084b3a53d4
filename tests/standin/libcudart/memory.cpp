// Allocation, copies and sets.
#include "runtime.h"

namespace ingero::standin::runtime {
namespace {

CUdeviceptr address(const void* pointer) {
    return CUdeviceptr(from_pointer(pointer));
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

CUdeviceptr* address_of(void** pointer) {
    return reinterpret_cast<CUdeviceptr*>(pointer);
}

// The driver's function depends on the direction; in the last two it finds the direction out by the addresses.
#define COPY_BY_DIRECTION(name, sized_suffix, plain_suffix, extra_parameter, ...)                             \
    int name(const Driver& driver, void* to, const void* from, size_t bytes, int direction extra_parameter) { \
        switch (direction) {                                                                                  \
            case host_to_device:                                                                              \
                return driver.cuMemcpyHtoD##sized_suffix(address(to), from, bytes __VA_ARGS__);               \
            case device_to_host:                                                                              \
                return driver.cuMemcpyDtoH##sized_suffix(to, address(from), bytes __VA_ARGS__);               \
            case device_to_device:                                                                            \
                return driver.cuMemcpyDtoD##sized_suffix(address(to), address(from), bytes __VA_ARGS__);      \
            case host_to_host:                                                                                \
            case by_address:                                                                                  \
                return driver.cuMemcpy##plain_suffix(address(to), address(from), bytes __VA_ARGS__);          \
            default:                                                                                          \
                return 21; /* cudaErrorInvalidMemcpyDirection */                                              \
        }                                                                                                     \
    }
#define STREAM_PARAMETER , CUstream stream

COPY_BY_DIRECTION(copy, _v2, , )
COPY_BY_DIRECTION(copy_ptds, _v2_ptds, _ptds, )
COPY_BY_DIRECTION(copy_async, Async_v2, Async, STREAM_PARAMETER, , stream)
COPY_BY_DIRECTION(copy_async_ptsz, Async_v2_ptsz, Async_ptsz, STREAM_PARAMETER, , stream)

int copy(decltype(Driver::cuMemcpy2D_v2) entry, const CUDA_MEMCPY2D& shape) {
    return entry(&shape);
}

int copy(decltype(Driver::cuMemcpy2DAsync_v2) entry, const CUDA_MEMCPY2D& shape, CUstream stream) {
    return entry(&shape, stream);
}

}  // namespace
}  // namespace ingero::standin::runtime

using namespace ingero::standin;
using namespace ingero::standin::runtime;

#pragma GCC diagnostic ignored "-Wunused-parameter"

STANDIN_RUNTIME(cudaMalloc, (void** pointer, size_t bytes), told_allocation(bytes, pointer),
                driver.cuMemAlloc_v2(address_of(pointer), bytes))
STANDIN_RUNTIME(cudaMallocPitch, (void** pointer, size_t* pitch, size_t width, size_t height),
                told_allocation(width* height, pointer),
                with_nested_bytes(call, driver.cuMemAllocPitch_v2(address_of(pointer), pitch, width, height, 4)))
STANDIN_RUNTIME(cudaFree, (void* pointer), told(pointer),
                with_nested_bytes(call, driver.cuMemFree_v2(address(pointer))))

STANDIN_RUNTIME_PTSZ(cudaMallocAsync, cuMemAllocAsync, (void** pointer, size_t bytes, CUstream stream),
                     told_allocation(bytes, pointer).on(stream), address_of(pointer), bytes, stream)
STANDIN_RUNTIME_PTSZ(cudaMallocFromPoolAsync, cuMemAllocFromPoolAsync,
                     (void** pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
                     told_allocation(bytes, pointer).on(stream), address_of(pointer), bytes, pool, stream)
STANDIN_RUNTIME(cudaFreeAsync, (void* pointer, CUstream stream), told(pointer).on(stream),
                with_nested_bytes(call, driver.cuMemFreeAsync(address(pointer), stream)))
STANDIN_RUNTIME(cudaFreeAsync_ptsz, (void* pointer, CUstream stream), told(pointer).on(stream),
                with_nested_bytes(call, driver.cuMemFreeAsync_ptsz(address(pointer), stream)))

STANDIN_RUNTIME(cudaMallocManaged, (void** pointer, size_t bytes, unsigned flags), told_allocation(bytes, pointer),
                driver.cuMemAllocManaged(address_of(pointer), bytes, flags))
STANDIN_RUNTIME(cudaMallocHost, (void** pointer, size_t bytes), told_allocation(bytes, pointer),
                driver.cuMemHostAlloc(pointer, bytes, 0))
STANDIN_RUNTIME(cudaHostAlloc, (void** pointer, size_t bytes, unsigned flags), told_allocation(bytes, pointer),
                driver.cuMemHostAlloc(pointer, bytes, flags))
STANDIN_RUNTIME(cudaFreeHost, (void* pointer), told(pointer), with_nested_bytes(call, driver.cuMemFreeHost(pointer)))
STANDIN_RUNTIME(cudaMemGetInfo, (size_t * free_bytes, size_t* total_bytes), told(),
                driver.cuMemGetInfo_v2(free_bytes, total_bytes))

#define COPY_PARAMETERS (void* to, const void* from, size_t bytes, int direction)
#define COPY_ASYNC_PARAMETERS (void* to, const void* from, size_t bytes, int direction, CUstream stream)
STANDIN_RUNTIME(cudaMemcpy, COPY_PARAMETERS, told_copy(bytes, direction), copy(driver, to, from, bytes, direction))
STANDIN_RUNTIME(cudaMemcpy_ptds, COPY_PARAMETERS, told_copy(bytes, direction),
                copy_ptds(driver, to, from, bytes, direction))
STANDIN_RUNTIME(cudaMemcpyAsync, COPY_ASYNC_PARAMETERS, told_copy(bytes, direction).on(stream),
                copy_async(driver, to, from, bytes, direction, stream))
STANDIN_RUNTIME(cudaMemcpyAsync_ptsz, COPY_ASYNC_PARAMETERS, told_copy(bytes, direction).on(stream),
                copy_async_ptsz(driver, to, from, bytes, direction, stream))

#define COPY_2D_FORM(name, target)                                                                                    \
    STANDIN_RUNTIME(                                                                                                  \
        name,                                                                                                         \
        (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int direction), \
        told_copy(width* height, direction),                                                                          \
        copy(driver.target, shape(to, to_pitch, from, from_pitch, width, height)))
COPY_2D_FORM(cudaMemcpy2D, cuMemcpy2D_v2)
COPY_2D_FORM(cudaMemcpy2D_ptds, cuMemcpy2D_v2_ptds)

#define COPY_2D_ASYNC_FORM(name, target)                                                                          \
    STANDIN_RUNTIME(name,                                                                                         \
                    (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, \
                     int direction, CUstream stream),                                                             \
                    told_copy(width* height, direction).on(stream),                                               \
                    copy(driver.target, shape(to, to_pitch, from, from_pitch, width, height), stream))
COPY_2D_ASYNC_FORM(cudaMemcpy2DAsync, cuMemcpy2DAsync_v2)
COPY_2D_ASYNC_FORM(cudaMemcpy2DAsync_ptsz, cuMemcpy2DAsync_v2_ptsz)

STANDIN_RUNTIME(cudaMemcpyPeer, (void* to, int to_device, const void* from, int from_device, size_t bytes),
                told_copy(bytes, device_to_device),
                driver.cuMemcpyPeer(address(to), nullptr, address(from), nullptr, bytes))
STANDIN_RUNTIME(cudaMemcpyPeerAsync,
                (void* to, int to_device, const void* from, int from_device, size_t bytes, CUstream stream),
                told_copy(bytes, device_to_device).on(stream),
                driver.cuMemcpyPeerAsync(address(to), nullptr, address(from), nullptr, bytes, stream))

#define TOLD_SET(bytes) told_copy(bytes, device_to_device)
STANDIN_RUNTIME_PTDS(cudaMemset, cuMemsetD8_v2, (void* to, int value, size_t bytes), TOLD_SET(bytes), address(to),
                     static_cast<unsigned char>(value), bytes)
STANDIN_RUNTIME_PTSZ(cudaMemsetAsync, cuMemsetD8Async, (void* to, int value, size_t bytes, CUstream stream),
                     TOLD_SET(bytes).on(stream), address(to), static_cast<unsigned char>(value), bytes, stream)
STANDIN_RUNTIME_PTDS(cudaMemset2D, cuMemsetD2D8_v2, (void* to, size_t pitch, int value, size_t width, size_t height),
                     TOLD_SET(width* height), address(to), pitch, static_cast<unsigned char>(value), width, height)
STANDIN_RUNTIME_PTSZ(cudaMemset2DAsync, cuMemsetD2D8Async,
                     (void* to, size_t pitch, int value, size_t width, size_t height, CUstream stream),
                     TOLD_SET(width* height).on(stream), address(to), pitch, static_cast<unsigned char>(value), width,
                     height, stream)

// CUDA 13 gave the plain name to what had been _v2.
#define PREFETCH_PARAMETERS (const void* to, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream)
#define TOLD_PREFETCH told_copy(bytes, by_address).on(stream)
#if STANDIN_CUDART_MAJOR >= 13
STANDIN_RUNTIME_PTSZ(cudaMemPrefetchAsync, cuMemPrefetchAsync_v2, PREFETCH_PARAMETERS, TOLD_PREFETCH, address(to),
                     bytes, place, flags, stream)
#else
STANDIN_RUNTIME_PTSZ(cudaMemPrefetchAsync, cuMemPrefetchAsync_v2,
                     (const void* to, size_t bytes, int device, CUstream stream), TOLD_PREFETCH, address(to), bytes,
                     (CUmemLocation{1, device}), 0u, stream)
STANDIN_RUNTIME_PTSZ(cudaMemPrefetchAsync_v2, cuMemPrefetchAsync_v2, PREFETCH_PARAMETERS, TOLD_PREFETCH, address(to),
                     bytes, place, flags, stream)
#endif
