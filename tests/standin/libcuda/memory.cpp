// Allocation in all its forms.
#include "../engine/memory.h"

#include "../engine/options.h"
#include "variants.h"

namespace ingero::standin {
namespace {

template <typename Pointer>
int allocate(Call& call, Pointer* pointer, uint64_t bytes) {
    call.bytes = bytes;
    if (pointer == nullptr || bytes == 0) return invalid_value;
    *pointer = Pointer(Memory::instance().allocate_device(bytes, sizeof(Pointer) == 4));
    return *pointer == 0 ? out_of_memory : success;
}

int free_memory(Call& call, uint64_t pointer) {
    if (pointer == 0) return success;
    // The real free waits for all work of the device, which surprises many a program.
    if (options().free_sync) Devices::instance().synchronize(call.note);
    call.bytes = Memory::instance().free_device(pointer);
    return call.bytes == 0 ? invalid_value : success;
}

int allocate_async(Call& call, Stream& stream, CUdeviceptr* pointer, uint64_t bytes) {
    const int result = allocate(call, pointer, bytes);
    if (result == success) stream.enqueue(0, call.note);
    return result;
}

int free_async(Call& call, Stream& stream, CUdeviceptr pointer) {
    call.bytes = Memory::instance().free_device(pointer);
    if (call.bytes == 0) return invalid_value;
    stream.enqueue(0, call.note);
    return success;
}

int allocate_pitched(Call& call, CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height) {
    if (pitch == nullptr) return invalid_value;
    *pitch = (width + 511) / 512 * 512;
    return allocate(call, pointer, *pitch * height);
}

int allocate_managed(Call& call, CUdeviceptr* pointer, uint64_t bytes) {
    call.bytes = bytes;
    if (pointer == nullptr || bytes == 0) return invalid_value;
    *pointer = Memory::instance().allocate_managed(bytes);
    return *pointer == 0 ? out_of_memory : success;
}

int allocate_host(Call& call, void** pointer, uint64_t bytes) {
    call.bytes = bytes;
    if (pointer == nullptr || bytes == 0) return invalid_value;
    *pointer = Memory::instance().allocate_host(bytes);
    return *pointer == nullptr ? out_of_memory : success;
}

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

#pragma GCC diagnostic ignored "-Wunused-parameter"

STANDIN_FUNCTION(cuMemAlloc, (CUdeviceptr_v1 * pointer, unsigned bytes), return allocate(call, pointer, bytes);)

STANDIN_FUNCTION(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes), return allocate(call, pointer, bytes);)

STANDIN_FUNCTION(cuMemAllocPitch_v2,
                 (CUdeviceptr * pointer, size_t* pitch, size_t width, size_t height, unsigned element),
                 return allocate_pitched(call, pointer, pitch, width, height);)

STANDIN_FUNCTION(cuMemFree, (CUdeviceptr_v1 pointer), return free_memory(call, pointer);)

STANDIN_FUNCTION(cuMemFree_v2, (CUdeviceptr pointer), return free_memory(call, pointer);)

STANDIN_WITH_PTSZ(cuMemAllocAsync, (CUdeviceptr * pointer, size_t bytes, CUstream stream), stream,
                  return allocate_async(call, stream, pointer, bytes);)

STANDIN_WITH_PTSZ(cuMemAllocFromPoolAsync,
                  (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream), stream,
                  return allocate_async(call, stream, pointer, bytes);)

STANDIN_WITH_PTSZ(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream), stream,
                  return free_async(call, stream, pointer);)

STANDIN_FUNCTION(cuMemAllocManaged, (CUdeviceptr * pointer, size_t bytes, unsigned flags),
                 return allocate_managed(call, pointer, bytes);)

STANDIN_FUNCTION(cuMemAllocHost, (void** pointer, unsigned bytes), return allocate_host(call, pointer, bytes);)

STANDIN_FUNCTION(cuMemAllocHost_v2, (void** pointer, size_t bytes), return allocate_host(call, pointer, bytes);)

STANDIN_FUNCTION(cuMemHostAlloc, (void** pointer, size_t bytes, unsigned flags),
                 return allocate_host(call, pointer, bytes);)

STANDIN_FUNCTION(cuMemFreeHost, (void* pointer), if (pointer == nullptr) return success;
                 call.bytes = Memory::instance().free_host(pointer); return call.bytes == 0 ? invalid_value : success;)

STANDIN_FUNCTION(cuMemGetInfo_v2, (size_t * free_bytes, size_t* total_bytes),
                 if (free_bytes == nullptr || total_bytes == nullptr) return invalid_value;
                 *total_bytes = options().memory_bytes;
                 *free_bytes = *total_bytes - Memory::instance().live_bytes(thread_state.device); return success;)

STANDIN_FUNCTION(cuMemCreate,
                 (CUmemGenericAllocationHandle * handle, size_t bytes, const void* properties,
                  unsigned long long flags),
                 call.bytes = bytes;
                 if (handle == nullptr || bytes == 0) return invalid_value;
                 *handle = Memory::instance().create(bytes); return *handle == 0 ? out_of_memory : success;)

STANDIN_FUNCTION(cuMemRelease, (CUmemGenericAllocationHandle handle),
                 return Memory::instance().release(handle) ? success : invalid_value;)

// Mapping changes nothing that is simulated: the memory counts from creation to release.
STANDIN_FUNCTION(cuMemMap,
                 (CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags),
                 call.bytes = bytes;
                 return bytes == 0 ? invalid_value : success;)

STANDIN_FUNCTION(cuMemUnmap, (CUdeviceptr pointer, size_t bytes), call.bytes = bytes;
                 return bytes == 0 ? invalid_value : success;)

STANDIN_FUNCTION(cuMemAddressReserve,
                 (CUdeviceptr * pointer, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags),
                 call.bytes = bytes;
                 if (pointer == nullptr || bytes == 0) return invalid_value;
                 *pointer = Memory::instance().reserve(bytes); return success;)

STANDIN_FUNCTION(cuMemAddressFree, (CUdeviceptr pointer, size_t bytes), call.bytes = bytes; return success;)

STANDIN_FUNCTION(cuMemSetAccess, (CUdeviceptr pointer, size_t bytes, const void* access, size_t count),
                 call.bytes = bytes;
                 return success;)
