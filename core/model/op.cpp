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

constexpr OpId graph(uint8_t number) {
    return make_op(source_graph, number);
}
constexpr OpId nccl(uint8_t number) {
    return make_op(source_nccl, number);
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
    {cuda(116), "cudaMallocPitch", OpClass::alloc, false},
    {cuda(120), "cudaMemset", OpClass::copy, false},
    {cuda(121), "cudaMemsetAsync", OpClass::copy, false},
    {cuda(122), "cudaMemset2D", OpClass::copy, false},
    {cuda(123), "cudaMemset2DAsync", OpClass::copy, false},
    {cuda(124), "cudaMemPrefetchAsync", OpClass::copy, false},
    {cuda(130), "cudaEventSynchronize", OpClass::sync, true},
    {cuda(131), "cudaStreamWaitEvent", OpClass::other, false},
    {cuda(132), "cudaLaunchHostFunc", OpClass::other, false},
    {cuda(140), "__cudaRegisterFunction", OpClass::name, false},
    {cuda(141), "cudaSetDevice", OpClass::device, false},
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
    {driver(117), "cuMemAllocPitch", OpClass::alloc, false},
    {driver(118), "cuMemAllocFromPoolAsync", OpClass::alloc, false},
    {driver(120), "cuMemcpyHtoD", OpClass::copy, true},
    {driver(121), "cuMemcpyDtoH", OpClass::copy, true},
    {driver(122), "cuMemcpyDtoD", OpClass::copy, true},
    {driver(123), "cuMemcpyHtoDAsync", OpClass::copy, false},
    {driver(124), "cuMemcpyDtoHAsync", OpClass::copy, false},
    {driver(125), "cuMemcpyDtoDAsync", OpClass::copy, false},
    {driver(126), "cuMemPrefetchAsync", OpClass::copy, false},
    {driver(127), "cuMemcpy2D", OpClass::copy, true},
    {driver(128), "cuMemcpy2DAsync", OpClass::copy, false},
    {driver(130), "cuStreamSynchronize", OpClass::sync, true},
    {driver(131), "cuEventSynchronize", OpClass::sync, true},
    {driver(132), "cuLaunchHostFunc", OpClass::other, false},
    {driver(133), "cuStreamWaitEvent", OpClass::other, false},
    {driver(134), "cuMemcpyPeer", OpClass::copy, true},
    {driver(135), "cuMemcpyPeerAsync", OpClass::copy, false},
    {driver(136), "cuMemAllocHost", OpClass::alloc, false},
    {driver(137), "cuMemHostAlloc", OpClass::alloc, false},
    {driver(138), "cuMemFreeHost", OpClass::free, true},
    {driver(140), "cuModuleLoad", OpClass::name, false},
    {driver(141), "cuModuleLoadData", OpClass::name, false},
    {driver(142), "cuModuleLoadDataEx", OpClass::name, false},
    {driver(143), "cuModuleLoadFatBinary", OpClass::name, false},
    {driver(144), "cuModuleGetFunction", OpClass::name, false},
    {driver(145), "cuLibraryLoadData", OpClass::name, false},
    {driver(146), "cuLibraryLoadFromFile", OpClass::name, false},
    {driver(147), "cuLibraryGetKernel", OpClass::name, false},
    {driver(148), "cuKernelGetFunction", OpClass::name, false},
    {driver(150), "cuCtxSetCurrent", OpClass::device, false},
    {driver(151), "cuCtxPushCurrent", OpClass::device, false},
    {driver(152), "cuCtxPopCurrent", OpClass::device, false},
    {driver(153), "cuCtxCreate", OpClass::device, false},
    {driver(154), "cuCtxDestroy", OpClass::device, true},
    {driver(155), "cuDevicePrimaryCtxRetain", OpClass::device, false},
    {driver(160), "cuMemsetD8", OpClass::copy, false},
    {driver(161), "cuMemsetD16", OpClass::copy, false},
    {driver(162), "cuMemsetD32", OpClass::copy, false},
    {driver(163), "cuMemsetD2D8", OpClass::copy, false},
    {driver(164), "cuMemsetD8Async", OpClass::copy, false},
    {driver(165), "cuMemsetD16Async", OpClass::copy, false},
    {driver(166), "cuMemsetD32Async", OpClass::copy, false},
    {driver(167), "cuMemsetD2D8Async", OpClass::copy, false},
    {graph(1), "cudaStreamBeginCapture", OpClass::graph, false},
    {graph(2), "cudaStreamEndCapture", OpClass::graph, false},
    {graph(3), "cudaGraphInstantiate", OpClass::graph, false},
    {graph(4), "cudaGraphLaunch", OpClass::graph, false},
    {graph(100), "cudaGraphExecUpdate", OpClass::graph, false},
    {graph(101), "cudaGraphUpload", OpClass::graph, false},
    {graph(102), "cudaGraphDestroy", OpClass::graph, false},
    {graph(103), "cudaGraphExecDestroy", OpClass::graph, false},
    {graph(104), "cudaGraphInstantiateWithFlags", OpClass::graph, false},
    {graph(105), "cudaGraphInstantiateWithParams", OpClass::graph, false},
    {graph(201), "cuStreamBeginCapture", OpClass::graph, false},
    {graph(202), "cuStreamEndCapture", OpClass::graph, false},
    {graph(203), "cuGraphInstantiate", OpClass::graph, false},
    {graph(204), "cuGraphLaunch", OpClass::graph, false},
    {graph(205), "cuGraphExecUpdate", OpClass::graph, false},
    {graph(206), "cuGraphUpload", OpClass::graph, false},
    {graph(207), "cuGraphDestroy", OpClass::graph, false},
    {graph(208), "cuGraphExecDestroy", OpClass::graph, false},
    {graph(209), "cuGraphInstantiateWithFlags", OpClass::graph, false},
    {graph(210), "cuGraphInstantiateWithParams", OpClass::graph, false},
    {nccl(1), "ncclCommInitRank", OpClass::communicator, false},
    {nccl(2), "ncclCommDestroy", OpClass::communicator, false},
    {nccl(3), "ncclAllReduce", OpClass::collective, false},
    {nccl(4), "ncclAllGather", OpClass::collective, false},
    {nccl(5), "ncclReduceScatter", OpClass::collective, false},
    {nccl(6), "ncclBcast", OpClass::collective, false},
    {nccl(7), "ncclSend", OpClass::collective, false},
    {nccl(8), "ncclRecv", OpClass::collective, false},
    {nccl(9), "ncclCommInitAll", OpClass::communicator, false},
    {nccl(100), "ncclCommInitRankConfig", OpClass::communicator, false},
    {nccl(101), "ncclCommSplit", OpClass::communicator, false},
    {nccl(102), "ncclCommAbort", OpClass::communicator, false},
    {nccl(103), "ncclCommFinalize", OpClass::communicator, false},
    {nccl(104), "ncclBroadcast", OpClass::collective, false},
    {nccl(105), "ncclReduce", OpClass::collective, false},
    {nccl(106), "ncclGroupStart", OpClass::communicator, false},
    {nccl(107), "ncclGroupEnd", OpClass::communicator, false},
});

/// Where an op is among them, from 1, by its id: looked up for every row that is read.
constexpr size_t sources_with_ops = 10;
constexpr auto places = [] {
    std::array<uint8_t, sources_with_ops * 256> table{};
    static_assert(ops.size() < 255);
    for (size_t i = 0; i < ops.size(); ++i) table[ops[i].id] = static_cast<uint8_t>(i + 1);
    return table;
}();

static_assert(std::is_sorted(ops.begin(), ops.end(), [](const Op& a, const Op& b) { return a.id < b.id; }));

struct KernelOp {
    OpId id;
    std::string_view name;
};

// What only imported traces have. Not among all_ops(), for which counters are kept and probes may be attached.
constexpr std::array kernel_ops = std::to_array<KernelOp>({
    {make_op(source_host, 1), "sched_switch"},
    {make_op(source_host, 2), "sched_wakeup"},
    {make_op(source_host, 3), "mm_page_alloc"},
    {make_op(source_host, 4), "oom_kill"},
    {make_op(source_host, 5), "process_exec"},
    {make_op(source_host, 6), "process_exit"},
    {make_op(source_host, 7), "process_fork"},
    {make_op(source_host, 10), "pod_restart"},
    {make_op(source_host, 11), "pod_eviction"},
    {make_op(source_host, 12), "pod_oom_kill"},
    {make_op(source_host, 20), "mm_page_alloc_summary"},
    {make_op(source_host, 21), "sched_switch_summary"},
    {make_op(source_host, 30), "direct_reclaim"},
    {make_op(source_host, 31), "interrupt"},
    {make_op(source_host, 32), "soft_interrupt"},
    {make_op(source_io, 1), "block_read"},
    {make_op(source_io, 2), "block_write"},
    {make_op(source_io, 3), "block_discard"},
    {make_op(source_io, 4), "block_flush"},
    {make_op(source_tcp, 1), "tcp_retransmit"},
    {make_op(source_tcp, 2), "socket_error"},
    {make_op(source_net, 1), "net_send"},
    {make_op(source_net, 2), "net_recv"},
});

}  // namespace

bool is_driver_op(OpId op) {
    constexpr uint8_t first_driver_graph = 200;
    return op_source(op) == source_driver || (op_source(op) == source_graph && (op & 0xff) >= first_driver_graph);
}

bool may_be_thinned(const Op& op) {
    switch (op.op_class) {
        case OpClass::launch:
            return true;
        case OpClass::copy:
            return op.name.ends_with("Async");
        case OpClass::device:
            return op.id == cuda(141) || op.id == driver(150) || op.id == driver(151) || op.id == driver(152);
        case OpClass::other:
            return op.id == cuda(131) || op.id == driver(133);  // a stream waits for an event
        default:
            return false;
    }
}

std::span<const Op> all_ops() {
    return ops;
}

const Op* find_op(OpId id) {
    const size_t place = id < places.size() ? places[id] : 0;
    return place != 0 ? &ops[place - 1] : nullptr;
}

std::string op_name(OpId id) {
    if (const Op* op = find_op(id)) return std::string(op->name);
    for (const KernelOp& op : kernel_ops)
        if (op.id == id) return std::string(op.name);
    return "op-" + std::to_string(op_source(id)) + "-" + std::to_string(id & 0xff);
}

std::optional<OpId> op_of_name(std::string_view name) {
    for (const Op& op : ops)
        if (op.name == name) return op.id;
    for (const KernelOp& op : kernel_ops)
        if (op.name == name) return op.id;
    return std::nullopt;
}

std::string_view source_name(uint8_t source) {
    switch (source) {
        case source_cuda:
            return "CUDA";
        case source_nvidia:
            return "NVIDIA";
        case source_host:
            return "HOST";
        case source_driver:
            return "DRIVER";
        case source_io:
            return "IO";
        case source_tcp:
            return "TCP";
        case source_net:
            return "NET";
        case source_graph:
            return "GRAPH";
        case source_nccl:
            return "NCCL";
        default:
            return "unknown";
    }
}

}  // namespace ingero
