// Copies and sets. No data moves: they take the device the time that their size needs, and the synchronous ones wait.
#include "variants.h"

namespace ingero::standin {
namespace {

int copy_async(Call& call, Stream& stream, uint64_t bytes) {
    call.bytes = bytes;
    stream.enqueue(copy_time_ns(bytes), call.note);
    return success;
}

int copy(Call& call, Stream& stream, uint64_t bytes) {
    call.bytes = bytes;
    if (bytes == 0) return success;
    if (stream.capturing()) return capture_unsupported;
    wait_until(stream.enqueue(copy_time_ns(bytes), call.note), Devices::instance().wait_mode(), call.note);
    return success;
}

template <typename Shape>
int copy_shape_async(Call& call, Stream& stream, const Shape* shape) {
    if (shape == nullptr) return invalid_value;
    return copy_async(call, stream, uint64_t(shape->WidthInBytes) * shape->Height);
}

template <typename Shape>
int copy_shape(Call& call, Stream& stream, const Shape* shape) {
    if (shape == nullptr) return invalid_value;
    return copy(call, stream, uint64_t(shape->WidthInBytes) * shape->Height);
}

// Setting is asynchronous for device memory, in its synchronous form too.
int set(Call& call, Stream& stream, uint64_t count, uint64_t size) {
    return copy_async(call, stream, count * size);
}

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

#pragma GCC diagnostic ignored "-Wunused-parameter"

// The forms of before 64-bit addresses are exported still, and differ in the width of their arguments.
#define COPY_FORMS(name, to_type, from_type, to_type_v1, from_type_v1)                                                 \
    STANDIN_ON_STREAM(name, (to_type_v1 to, from_type_v1 from, unsigned bytes), nullptr, false,                        \
                      copy(call, stream, bytes))                                                                       \
    STANDIN_WITH_PTDS(name##_v2, (to_type to, from_type from, size_t bytes), copy(call, stream, bytes))                \
    STANDIN_ON_STREAM(name##Async, (to_type_v1 to, from_type_v1 from, unsigned bytes, CUstream stream), stream, false, \
                      copy_async(call, stream, bytes))                                                                 \
    STANDIN_WITH_PTSZ(name##Async_v2, (to_type to, from_type from, size_t bytes, CUstream stream), stream,             \
                      copy_async(call, stream, bytes))

COPY_FORMS(cuMemcpyHtoD, CUdeviceptr, const void*, CUdeviceptr_v1, const void*)
COPY_FORMS(cuMemcpyDtoH, void*, CUdeviceptr, void*, CUdeviceptr_v1)
COPY_FORMS(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr, CUdeviceptr_v1, CUdeviceptr_v1)

STANDIN_WITH_PTDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), copy(call, stream, bytes))
STANDIN_WITH_PTSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), stream,
                  copy_async(call, stream, bytes))
STANDIN_ON_STREAM(cuMemcpy2D, (const CUDA_MEMCPY2D_v1* shape), nullptr, false, copy_shape(call, stream, shape))
STANDIN_ON_STREAM(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1* shape, CUstream stream), stream, false,
                  copy_shape_async(call, stream, shape))
STANDIN_WITH_PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* shape), copy_shape(call, stream, shape))
STANDIN_WITH_PTSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* shape, CUstream stream), stream,
                  copy_shape_async(call, stream, shape))

STANDIN_ON_STREAM(cuMemcpyPeer,
                  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes),
                  nullptr, false, copy(call, stream, bytes))
// An alias in a family that is traced: one address under two names.
STANDIN_EXPORT int cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                     size_t bytes) __attribute__((alias("cuMemcpyPeer")));
STANDIN_WITH_PTSZ(cuMemcpyPeerAsync,
                  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                   CUstream stream),
                  stream, copy_async(call, stream, bytes))

#define SET_FORMS(name, element)                                                                           \
    STANDIN_ON_STREAM(name, (CUdeviceptr_v1 to, element value, unsigned count), nullptr, false,            \
                      set(call, stream, count, sizeof(element)))                                           \
    STANDIN_WITH_PTDS(name##_v2, (CUdeviceptr to, element value, size_t count),                            \
                      set(call, stream, count, sizeof(element)))                                           \
    STANDIN_WITH_PTSZ(name##Async, (CUdeviceptr to, element value, size_t count, CUstream stream), stream, \
                      set(call, stream, count, sizeof(element)))

SET_FORMS(cuMemsetD8, unsigned char)
SET_FORMS(cuMemsetD16, unsigned short)
SET_FORMS(cuMemsetD32, unsigned)

STANDIN_ON_STREAM(cuMemsetD2D8,
                  (CUdeviceptr_v1 to, unsigned pitch, unsigned char value, unsigned width, unsigned height), nullptr,
                  false, set(call, stream, width, height))
STANDIN_WITH_PTDS(cuMemsetD2D8_v2, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
                  set(call, stream, width, height))
STANDIN_WITH_PTSZ(cuMemsetD2D8Async,
                  (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream),
                  stream, set(call, stream, width, height))

STANDIN_WITH_PTSZ(cuMemPrefetchAsync, (CUdeviceptr to, size_t bytes, CUdevice device, CUstream stream), stream,
                  copy_async(call, stream, bytes))
STANDIN_WITH_PTSZ(cuMemPrefetchAsync_v2,
                  (CUdeviceptr to, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream), stream,
                  copy_async(call, stream, bytes))
