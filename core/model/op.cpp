#include "core/model/op.h"

#include <algorithm>
#include <array>

namespace ingero {

namespace {

constexpr OpId cuda(uint8_t number) {
    return make_op(source_cuda, number);
}
constexpr OpId driver(uint8_t number) {
    return make_op(source_driver, number);
}

// Numbers below 100 are those of published traces, with their names; new ones start at 100.
constexpr std::array ops = std::to_array<Op>({
    {cuda(1), "cudaMalloc", OpClass::alloc, false},
    {cuda(2), "cudaFree", OpClass::free, true},
    {cuda(3), "cudaLaunchKernel", OpClass::launch, false},
    {cuda(4), "cudaMemcpy", OpClass::copy, true},
    {cuda(5), "cudaStreamSync", OpClass::sync, true},
    {cuda(6), "cudaDeviceSync", OpClass::sync, true},
    {cuda(7), "cudaMemcpyAsync", OpClass::copy, false},
    {cuda(8), "cudaMallocManaged", OpClass::alloc, false},
    {cuda(9), "cudaMemcpy2D", OpClass::copy, true},
    {cuda(10), "cudaMemcpy2DAsync", OpClass::copy, false},
    {cuda(11), "cudaMemcpyPeer", OpClass::copy, true},
    {cuda(12), "cudaMemcpyPeerAsync", OpClass::copy, false},
    {cuda(100), "cudaLaunchKernelExC", OpClass::launch, false},
    {cuda(101), "cudaLaunchCooperativeKernel", OpClass::launch, false},
    {cuda(102), "__cudaLaunchKernel", OpClass::launch, false},
    {cuda(110), "cudaMallocAsync", OpClass::alloc, false},
    {cuda(111), "cudaFreeAsync", OpClass::free, false},
    {cuda(112), "cudaMallocFromPoolAsync", OpClass::alloc, false},
    {cuda(113), "cudaMallocHost", OpClass::alloc, false},
    {cuda(114), "cudaHostAlloc", OpClass::alloc, false},
    {cuda(115), "cudaFreeHost", OpClass::free, true},
    {cuda(120), "cudaMemset", OpClass::copy, false},
    {cuda(121), "cudaMemsetAsync", OpClass::copy, false},
    {cuda(130), "cudaEventSynchronize", OpClass::sync, true},
    {cuda(131), "cudaStreamWaitEvent", OpClass::other, false},
    {cuda(132), "cudaLaunchHostFunc", OpClass::other, false},
    {driver(1), "cuLaunchKernel", OpClass::launch, false},
    {driver(2), "cuMemcpy", OpClass::copy, true},
    {driver(3), "cuMemcpyAsync", OpClass::copy, false},
    {driver(4), "cuCtxSynchronize", OpClass::sync, true},
    {driver(5), "cuMemAlloc", OpClass::alloc, false},
    {driver(6), "cuMemAllocManaged", OpClass::alloc, false},
    {driver(100), "cuLaunchKernelEx", OpClass::launch, false},
    {driver(101), "cuLaunchCooperativeKernel", OpClass::launch, false},
    {driver(110), "cuMemFree", OpClass::free, true},
    {driver(111), "cuMemAllocAsync", OpClass::alloc, false},
    {driver(112), "cuMemFreeAsync", OpClass::free, false},
    {driver(113), "cuMemCreate", OpClass::alloc, false},
    {driver(114), "cuMemMap", OpClass::other, false},
    {driver(115), "cuMemUnmap", OpClass::other, false},
    {driver(116), "cuMemRelease", OpClass::free, false},
    {driver(120), "cuMemcpyHtoD", OpClass::copy, true},
    {driver(121), "cuMemcpyDtoH", OpClass::copy, true},
    {driver(122), "cuMemcpyDtoD", OpClass::copy, true},
    {driver(123), "cuMemcpyHtoDAsync", OpClass::copy, false},
    {driver(124), "cuMemcpyDtoHAsync", OpClass::copy, false},
    {driver(125), "cuMemcpyDtoDAsync", OpClass::copy, false},
    {driver(126), "cuMemPrefetchAsync", OpClass::copy, false},
    {driver(130), "cuStreamSynchronize", OpClass::sync, true},
    {driver(131), "cuEventSynchronize", OpClass::sync, true},
    {driver(132), "cuLaunchHostFunc", OpClass::other, false},
});

static_assert(std::is_sorted(ops.begin(), ops.end(), [](const Op& a, const Op& b) { return a.id < b.id; }));

}  // namespace

std::span<const Op> all_ops() {
    return ops;
}

const Op* find_op(OpId id) {
    const auto found = std::lower_bound(ops.begin(), ops.end(), id, [](const Op& op, OpId key) { return op.id < key; });
    return found != ops.end() && found->id == id ? &*found : nullptr;
}

std::string op_name(OpId id) {
    if (const Op* op = find_op(id)) return std::string(op->name);
    return "op-" + std::to_string(op_source(id)) + "-" + std::to_string(id & 0xff);
}

std::string_view source_name(uint8_t source) {
    switch (source) {
        case source_cuda:
            return "CUDA";
        case source_driver:
            return "DRIVER";
        default:
            return "unknown";
    }
}

}  // namespace ingero
