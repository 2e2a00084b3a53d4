// Allocation in all its forms.
#include "../engine/memory.h"

#include "../engine/options.h"
#include "variants.h"

namespace ingero::standin {
namespace {

template <typename Pointer>
int allocate(Call& call, Pointer* pointer, uint64_t bytes) {
    if (pointer == nullptr || bytes == 0) return invalid_value;
    if (const int fault = Devices::instance().fault(thread_state.device, call.note)) return fault;
    *pointer = Pointer(Memory::instance().allocate_device(bytes, sizeof(Pointer) == 4));
    return *pointer == 0 ? out_of_memory : success;
}

int free_memory(Call& call, uint64_t pointer) {
    if (pointer == 0) return success;
    if (const int fault = Devices::instance().fault(thread_state.device, call.note)) return fault;
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

template <typename Pointer, typename Size>
int allocate_pitched(Call& call, Pointer* pointer, Size* pitch, uint64_t width, uint64_t height) {
    if (pitch == nullptr) return invalid_value;
    *pitch = Size((width + 511) / 512 * 512);
    call.bytes = *pitch * height;
    return allocate(call, pointer, call.bytes);
}

int allocate_managed(CUdeviceptr* pointer, uint64_t bytes) {
    if (pointer == nullptr || bytes == 0) return invalid_value;
    *pointer = Memory::instance().allocate_managed(bytes);
    return *pointer == 0 ? out_of_memory : success;
}

int allocate_host(void** pointer, uint64_t bytes) {
    if (pointer == nullptr || bytes == 0) return invalid_value;
    *pointer = Memory::instance().allocate_host(bytes);
    return *pointer == nullptr ? out_of_memory : success;
}

int free_host(Call& call, void* pointer) {
    if (pointer == nullptr) return success;
    call.bytes = Memory::instance().free_host(pointer);
    return call.bytes == 0 ? invalid_value : success;
}

template <typename Size>
int memory_info(Size* free_bytes, Size* total_bytes) {
    const uint64_t total = options().memory_bytes;
    if (give(total_bytes, total) != success) return invalid_value;
    return give(free_bytes, total - Memory::instance().live_bytes(thread_state.device));
}

int create(CUmemGenericAllocationHandle* handle, uint64_t bytes) {
    if (handle == nullptr || bytes == 0) return invalid_value;
    *handle = Memory::instance().create(bytes);
    return *handle == 0 ? out_of_memory : success;
}

int reserve(CUdeviceptr* pointer, uint64_t bytes) {
    return bytes == 0 ? int(invalid_value) : give(pointer, Memory::instance().reserve(bytes));
}

// Mapping changes nothing that is simulated: the memory counts from creation to release.
int map(uint64_t bytes) {
    return bytes == 0 ? invalid_value : success;
}

}  // namespace
}  // namespace ingero::standin

using namespace ingero::standin;

#pragma GCC diagnostic ignored "-Wunused-parameter"

STANDIN_FUNCTION(cuMemAlloc, (CUdeviceptr_v1 * pointer, unsigned bytes), told_allocation(bytes, pointer),
                 allocate(call, pointer, bytes))
STANDIN_FUNCTION(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes), told_allocation(bytes, pointer),
                 allocate(call, pointer, bytes))
STANDIN_FUNCTION(cuMemAllocPitch,
                 (CUdeviceptr_v1 * pointer, unsigned* pitch, unsigned width, unsigned height, unsigned element),
                 told_allocation(uint64_t(width) * height, pointer),
                 allocate_pitched(call, pointer, pitch, width, height))
STANDIN_FUNCTION(cuMemAllocPitch_v2,
                 (CUdeviceptr * pointer, size_t* pitch, size_t width, size_t height, unsigned element),
                 told_allocation(width* height, pointer), allocate_pitched(call, pointer, pitch, width, height))
STANDIN_FUNCTION(cuMemFree, (CUdeviceptr_v1 pointer), told(pointer), free_memory(call, pointer))
STANDIN_FUNCTION(cuMemFree_v2, (CUdeviceptr pointer), told(pointer), free_memory(call, pointer))

STANDIN_WITH_PTSZ(cuMemAllocAsync, (CUdeviceptr * pointer, size_t bytes, CUstream stream), stream,
                  told_allocation(bytes, pointer), allocate_async(call, stream, pointer, bytes))
STANDIN_WITH_PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
                  stream, told_allocation(bytes, pointer), allocate_async(call, stream, pointer, bytes))
STANDIN_WITH_PTSZ(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream), stream, told(pointer),
                  free_async(call, stream, pointer))

STANDIN_FUNCTION(cuMemAllocManaged, (CUdeviceptr * pointer, size_t bytes, unsigned flags),
                 told_allocation(bytes, pointer), allocate_managed(pointer, bytes))
STANDIN_FUNCTION(cuMemAllocHost, (void** pointer, unsigned bytes), told_allocation(bytes, pointer),
                 allocate_host(pointer, bytes))
STANDIN_FUNCTION(cuMemAllocHost_v2, (void** pointer, size_t bytes), told_allocation(bytes, pointer),
                 allocate_host(pointer, bytes))
STANDIN_FUNCTION(cuMemHostAlloc, (void** pointer, size_t bytes, unsigned flags), told_allocation(bytes, pointer),
                 allocate_host(pointer, bytes))
STANDIN_FUNCTION(cuMemFreeHost, (void* pointer), told(pointer), free_host(call, pointer))
STANDIN_FUNCTION(cuMemGetInfo, (unsigned* free_bytes, unsigned* total_bytes), told(),
                 memory_info(free_bytes, total_bytes))
STANDIN_FUNCTION(cuMemGetInfo_v2, (size_t * free_bytes, size_t* total_bytes), told(),
                 memory_info(free_bytes, total_bytes))

STANDIN_FUNCTION(cuMemCreate,
                 (CUmemGenericAllocationHandle * handle, size_t bytes, const void* properties,
                  unsigned long long flags),
                 told_allocation(bytes, handle), create(handle, bytes))
STANDIN_FUNCTION(cuMemRelease, (CUmemGenericAllocationHandle handle), told(handle),
                 Memory::instance().release(handle) ? success : invalid_value)
STANDIN_FUNCTION(cuMemMap,
                 (CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags),
                 told(bytes, pointer, handle).sized(bytes), map(bytes))
STANDIN_FUNCTION(cuMemUnmap, (CUdeviceptr pointer, size_t bytes), told(bytes, pointer).sized(bytes), map(bytes))
STANDIN_FUNCTION(cuMemAddressReserve,
                 (CUdeviceptr * pointer, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags),
                 told().sized(bytes), reserve(pointer, bytes))
STANDIN_FUNCTION(cuMemAddressFree, (CUdeviceptr pointer, size_t bytes), told().sized(bytes), map(bytes))
STANDIN_FUNCTION(cuMemSetAccess, (CUdeviceptr pointer, size_t bytes, const void* access, size_t count),
                 told().sized(bytes), map(bytes))
