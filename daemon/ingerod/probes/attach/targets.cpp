#include "daemon/ingerod/probes/attach/targets.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <set>

#include "bpf/event.h"
#include "core/model/op.h"

namespace ingero {

namespace {

// A parameter by number, from 1; 0 is none.
constexpr uint8_t p(uint8_t number) {
    return number;
}
constexpr uint8_t u32(uint8_t number) {
    return number | INGERO_ARG_U32;
}
constexpr uint8_t out(uint8_t number) {
    return number | INGERO_ARG_OUT;
}
constexpr uint8_t out32(uint8_t number) {
    return number | INGERO_ARG_OUT | INGERO_ARG_U32;
}
/// The word that the parameter points to, at entry.
constexpr uint8_t in(uint8_t number) {
    return number | INGERO_ARG_IN;
}

struct Signature {
    uint8_t shape;
    uint8_t args[3];
    uint8_t stream;
};

constexpr Signature plain(uint8_t first = 0, uint8_t second = 0, uint8_t third = 0, uint8_t stream = 0) {
    return {INGERO_SHAPE_PLAIN, {first, second, third}, stream};
}
constexpr Signature shaped(ingero_shape shape, uint8_t first, uint8_t second = 0, uint8_t third = 0,
                           uint8_t stream = 0) {
    return {static_cast<uint8_t>(shape), {first, second, third}, stream};
}
/// Width times height.
constexpr Signature product(uint8_t width, uint8_t second, uint8_t height, uint8_t stream = 0) {
    return shaped(INGERO_SHAPE_PRODUCT, width, second, height, stream);
}

struct Row {
    std::string_view base;
    OpId op;
    Signature signature;
    /// Suffixes of further exported variants with the same parameters.
    std::string_view variants;
    /// The major version of the library from which the name means another signature.
    unsigned changed_in = 0;
    Signature later = {};
};

constexpr Signature launch_runtime{INGERO_SHAPE_LAUNCH_RUNTIME, {}, 0};
constexpr Signature launch_runtime_ex{INGERO_SHAPE_LAUNCH_RUNTIME_EX, {}, 0};
constexpr Signature launch_driver{INGERO_SHAPE_LAUNCH_DRIVER, {}, 0};
constexpr Signature launch_driver_ex{INGERO_SHAPE_LAUNCH_DRIVER_EX, {}, 0};

// Parameter orders: CUDA runtime and driver API references. Class-specific meaning of the three: bpf/event.h.
constexpr Row runtime_rows[] = {
    {"cudaLaunchKernel", op::cudaLaunchKernel, launch_runtime, "_ptsz"},
    {"cudaLaunchKernelExC", op::cudaLaunchKernelExC, launch_runtime_ex, "_ptsz"},
    {"cudaLaunchCooperativeKernel", op::cudaLaunchCooperativeKernel, launch_runtime, "_ptsz"},
    {"__cudaLaunchKernel", op::__cudaLaunchKernel, launch_runtime, "_ptsz"},
    {"cudaMalloc", op::cudaMalloc, plain(p(2), out(1)), ""},
    {"cudaFree", op::cudaFree, plain(p(1)), ""},
    {"cudaMallocManaged", op::cudaMallocManaged, plain(p(2), out(1)), ""},
    {"cudaMallocAsync", op::cudaMallocAsync, plain(p(2), out(1), 0, p(3)), "_ptsz"},
    {"cudaFreeAsync", op::cudaFreeAsync, plain(p(1), 0, 0, p(2)), "_ptsz"},
    {"cudaMallocFromPoolAsync", op::cudaMallocFromPoolAsync, plain(p(2), out(1), 0, p(4)), "_ptsz"},
    {"cudaMallocHost", op::cudaMallocHost, plain(p(2), out(1)), ""},
    {"cudaHostAlloc", op::cudaHostAlloc, plain(p(2), out(1)), ""},
    {"cudaFreeHost", op::cudaFreeHost, plain(p(1)), ""},
    {"cudaMallocPitch", op::cudaMallocPitch, product(p(3), out(1), p(4)), ""},
    {"cudaMemcpy", op::cudaMemcpy, plain(p(3), u32(4)), "_ptds"},
    {"cudaMemcpyAsync", op::cudaMemcpyAsync, plain(p(3), u32(4), 0, p(5)), "_ptsz"},
    {"cudaMemcpy2D", op::cudaMemcpy2D, product(p(5), u32(7), p(6)), "_ptds"},
    {"cudaMemcpy2DAsync", op::cudaMemcpy2DAsync, product(p(5), u32(7), p(6), p(8)), "_ptsz"},
    {"cudaMemcpyPeer", op::cudaMemcpyPeer, plain(p(5)), ""},
    {"cudaMemcpyPeerAsync", op::cudaMemcpyPeerAsync, plain(p(5), 0, 0, p(6)), ""},
    {"cudaMemset", op::cudaMemset, plain(p(3)), "_ptds"},
    {"cudaMemsetAsync", op::cudaMemsetAsync, plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cudaMemset2D", op::cudaMemset2D, product(p(4), 0, p(5)), "_ptds"},
    {"cudaMemset2DAsync", op::cudaMemset2DAsync, product(p(4), 0, p(5), p(6)), "_ptsz"},
    {"cudaMemPrefetchAsync", op::cudaMemPrefetchAsync, plain(p(2), 0, 0, p(4)), "_ptsz", 13, plain(p(2), 0, 0, p(5))},
    {"cudaMemPrefetchAsync_v2", op::cudaMemPrefetchAsync, plain(p(2), 0, 0, p(5)), "_ptsz"},
    {"cudaStreamSynchronize", op::cudaStreamSync, plain(0, 0, 0, p(1)), "_ptsz"},
    {"cudaDeviceSynchronize", op::cudaDeviceSync, plain(), ""},
    {"cudaEventSynchronize", op::cudaEventSynchronize, plain(p(1)), ""},
    {"cudaStreamWaitEvent", op::cudaStreamWaitEvent, plain(p(2), 0, 0, p(1)), "_ptsz"},
    {"cudaLaunchHostFunc", op::cudaLaunchHostFunc, plain(p(2), 0, 0, p(1)), "_ptsz"},
    {"__cudaRegisterFunction", op::__cudaRegisterFunction, shaped(INGERO_SHAPE_REGISTER, p(2), 0, p(4)), ""},
    {"cudaSetDevice", op::cudaSetDevice, shaped(INGERO_SHAPE_SET_DEVICE, u32(1)), ""},
    {"cudaStreamBeginCapture", op::cudaStreamBeginCapture, plain(0, 0, u32(2), p(1)), "_ptsz"},
    {"cudaStreamEndCapture", op::cudaStreamEndCapture, plain(out(2), 0, 0, p(1)), "_ptsz"},
    {"cudaGraphInstantiate", op::cudaGraphInstantiate, plain(p(2), out(1)), ""},
    {"cudaGraphInstantiateWithFlags", op::cudaGraphInstantiateWithFlags, plain(p(2), out(1), p(3)), ""},
    {"cudaGraphInstantiateWithParams", op::cudaGraphInstantiateWithParams, plain(p(2), out(1), in(3)), "_ptsz"},
    {"cudaGraphExecUpdate", op::cudaGraphExecUpdate, plain(p(2), p(1)), ""},
    {"cudaGraphUpload", op::cudaGraphUpload, plain(0, p(1), 0, p(2)), "_ptsz"},
    {"cudaGraphLaunch", op::cudaGraphLaunch, plain(0, p(1), 0, p(2)), "_ptsz"},
    {"cudaGraphDestroy", op::cudaGraphDestroy, plain(p(1)), ""},
    {"cudaGraphExecDestroy", op::cudaGraphExecDestroy, plain(0, p(1)), ""},
};

// Where a plain name and its _v2 both stand here, the plain one is of before 64-bit addresses.
constexpr Row driver_rows[] = {
    {"cuLaunchKernel", op::cuLaunchKernel, launch_driver, "_ptsz"},
    {"cuLaunchKernelEx", op::cuLaunchKernelEx, launch_driver_ex, "_ptsz"},
    {"cuLaunchCooperativeKernel", op::cuLaunchCooperativeKernel, launch_driver, "_ptsz"},
    {"cuMemAlloc", op::cuMemAlloc, plain(u32(2), out32(1)), ""},
    {"cuMemAlloc_v2", op::cuMemAlloc, plain(p(2), out(1)), ""},
    {"cuMemFree", op::cuMemFree, plain(u32(1)), ""},
    {"cuMemFree_v2", op::cuMemFree, plain(p(1)), ""},
    {"cuMemAllocPitch", op::cuMemAllocPitch, product(u32(3), out32(1), u32(4)), ""},
    {"cuMemAllocPitch_v2", op::cuMemAllocPitch, product(p(3), out(1), p(4)), ""},
    {"cuMemAllocManaged", op::cuMemAllocManaged, plain(p(2), out(1)), ""},
    {"cuMemAllocAsync", op::cuMemAllocAsync, plain(p(2), out(1), 0, p(3)), "_ptsz"},
    {"cuMemAllocFromPoolAsync", op::cuMemAllocFromPoolAsync, plain(p(2), out(1), 0, p(4)), "_ptsz"},
    {"cuMemFreeAsync", op::cuMemFreeAsync, plain(p(1), 0, 0, p(2)), "_ptsz"},
    {"cuMemAllocHost", op::cuMemAllocHost, plain(u32(2), out(1)), ""},
    {"cuMemAllocHost_v2", op::cuMemAllocHost, plain(p(2), out(1)), ""},
    {"cuMemHostAlloc", op::cuMemHostAlloc, plain(p(2), out(1)), ""},
    {"cuMemFreeHost", op::cuMemFreeHost, plain(p(1)), ""},
    {"cuMemCreate", op::cuMemCreate, plain(p(2), out(1)), ""},
    {"cuMemMap", op::cuMemMap, plain(p(2), p(1), p(4)), ""},
    {"cuMemUnmap", op::cuMemUnmap, plain(p(2), p(1)), ""},
    {"cuMemRelease", op::cuMemRelease, plain(p(1)), ""},
    {"cuMemcpy", op::cuMemcpy, plain(p(3)), "_ptds"},
    {"cuMemcpyAsync", op::cuMemcpyAsync, plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemcpyHtoD", op::cuMemcpyHtoD, plain(u32(3)), ""},
    {"cuMemcpyHtoD_v2", op::cuMemcpyHtoD, plain(p(3)), "_ptds"},
    {"cuMemcpyDtoH", op::cuMemcpyDtoH, plain(u32(3)), ""},
    {"cuMemcpyDtoH_v2", op::cuMemcpyDtoH, plain(p(3)), "_ptds"},
    {"cuMemcpyDtoD", op::cuMemcpyDtoD, plain(u32(3)), ""},
    {"cuMemcpyDtoD_v2", op::cuMemcpyDtoD, plain(p(3)), "_ptds"},
    {"cuMemcpyHtoDAsync", op::cuMemcpyHtoDAsync, plain(u32(3), 0, 0, p(4)), ""},
    {"cuMemcpyHtoDAsync_v2", op::cuMemcpyHtoDAsync, plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemcpyDtoHAsync", op::cuMemcpyDtoHAsync, plain(u32(3), 0, 0, p(4)), ""},
    {"cuMemcpyDtoHAsync_v2", op::cuMemcpyDtoHAsync, plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemcpyDtoDAsync", op::cuMemcpyDtoDAsync, plain(u32(3), 0, 0, p(4)), ""},
    {"cuMemcpyDtoDAsync_v2", op::cuMemcpyDtoDAsync, plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemcpy2D", op::cuMemcpy2D, shaped(INGERO_SHAPE_COPY_2D_STRUCT_OLD, p(1)), ""},
    {"cuMemcpy2D_v2", op::cuMemcpy2D, shaped(INGERO_SHAPE_COPY_2D_STRUCT, p(1)), "_ptds"},
    {"cuMemcpy2DAsync", op::cuMemcpy2DAsync, shaped(INGERO_SHAPE_COPY_2D_STRUCT_OLD, p(1), 0, 0, p(2)), ""},
    {"cuMemcpy2DAsync_v2", op::cuMemcpy2DAsync, shaped(INGERO_SHAPE_COPY_2D_STRUCT, p(1), 0, 0, p(2)), "_ptsz"},
    {"cuMemcpyPeer", op::cuMemcpyPeer, plain(p(5)), "_ptds"},
    {"cuMemcpyPeerAsync", op::cuMemcpyPeerAsync, plain(p(5), 0, 0, p(6)), "_ptsz"},
    {"cuMemsetD8", op::cuMemsetD8, plain(u32(3)), ""},
    {"cuMemsetD8_v2", op::cuMemsetD8, plain(p(3)), "_ptds"},
    {"cuMemsetD16", op::cuMemsetD16, shaped(INGERO_SHAPE_ELEMENTS_2, u32(3)), ""},
    {"cuMemsetD16_v2", op::cuMemsetD16, shaped(INGERO_SHAPE_ELEMENTS_2, p(3)), "_ptds"},
    {"cuMemsetD32", op::cuMemsetD32, shaped(INGERO_SHAPE_ELEMENTS_4, u32(3)), ""},
    {"cuMemsetD32_v2", op::cuMemsetD32, shaped(INGERO_SHAPE_ELEMENTS_4, p(3)), "_ptds"},
    {"cuMemsetD2D8", op::cuMemsetD2D8, product(u32(4), 0, u32(5)), ""},
    {"cuMemsetD2D8_v2", op::cuMemsetD2D8, product(p(4), 0, p(5)), "_ptds"},
    {"cuMemsetD8Async", op::cuMemsetD8Async, plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemsetD16Async", op::cuMemsetD16Async, shaped(INGERO_SHAPE_ELEMENTS_2, p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemsetD32Async", op::cuMemsetD32Async, shaped(INGERO_SHAPE_ELEMENTS_4, p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemsetD2D8Async", op::cuMemsetD2D8Async, product(p(4), 0, p(5), p(6)), "_ptsz"},
    {"cuMemPrefetchAsync", op::cuMemPrefetchAsync, plain(p(2), 0, 0, p(4)), "_ptsz"},
    {"cuMemPrefetchAsync_v2", op::cuMemPrefetchAsync, plain(p(2), 0, 0, p(5)), "_ptsz"},
    {"cuCtxSynchronize", op::cuCtxSynchronize, plain(), "_v2"},
    {"cuStreamSynchronize", op::cuStreamSynchronize, plain(0, 0, 0, p(1)), "_ptsz"},
    {"cuEventSynchronize", op::cuEventSynchronize, plain(p(1)), ""},
    {"cuStreamWaitEvent", op::cuStreamWaitEvent, plain(p(2), 0, 0, p(1)), "_ptsz"},
    {"cuLaunchHostFunc", op::cuLaunchHostFunc, plain(p(2), 0, 0, p(1)), "_ptsz"},
    {"cuStreamBeginCapture", op::cuStreamBeginCapture, plain(0, 0, 0, p(1)), "_ptsz"},
    {"cuStreamBeginCapture_v2", op::cuStreamBeginCapture, plain(0, 0, u32(2), p(1)), "_ptsz"},
    {"cuStreamEndCapture", op::cuStreamEndCapture, plain(out(2), 0, 0, p(1)), "_ptsz"},
    {"cuGraphInstantiate", op::cuGraphInstantiate, plain(p(2), out(1)), "_v2"},
    {"cuGraphInstantiateWithFlags", op::cuGraphInstantiateWithFlags, plain(p(2), out(1), p(3)), ""},
    {"cuGraphInstantiateWithParams", op::cuGraphInstantiateWithParams, plain(p(2), out(1), in(3)), "_ptsz"},
    {"cuGraphExecUpdate", op::cuGraphExecUpdate, plain(p(2), p(1)), "_v2"},
    {"cuGraphUpload", op::cuGraphUpload, plain(0, p(1), 0, p(2)), "_ptsz"},
    {"cuGraphLaunch", op::cuGraphLaunch, plain(0, p(1), 0, p(2)), "_ptsz"},
    {"cuGraphDestroy", op::cuGraphDestroy, plain(p(1)), ""},
    {"cuGraphExecDestroy", op::cuGraphExecDestroy, plain(0, p(1)), ""},
    {"cuModuleLoad", op::cuModuleLoad, plain(out(1)), ""},
    {"cuModuleLoadData", op::cuModuleLoadData, plain(out(1)), ""},
    {"cuModuleLoadDataEx", op::cuModuleLoadDataEx, plain(out(1)), ""},
    {"cuModuleLoadFatBinary", op::cuModuleLoadFatBinary, plain(out(1)), ""},
    {"cuModuleGetFunction", op::cuModuleGetFunction, shaped(INGERO_SHAPE_NAME, out(1), p(2), p(3)), ""},
    {"cuLibraryLoadData", op::cuLibraryLoadData, plain(out(1)), ""},
    {"cuLibraryLoadFromFile", op::cuLibraryLoadFromFile, plain(out(1)), ""},
    {"cuLibraryGetKernel", op::cuLibraryGetKernel, shaped(INGERO_SHAPE_NAME, out(1), p(2), p(3)), ""},
    {"cuKernelGetFunction", op::cuKernelGetFunction, plain(out(1), p(2)), ""},
    {"cuCtxSetCurrent", op::cuCtxSetCurrent, shaped(INGERO_SHAPE_SET_CONTEXT, p(1)), ""},
    {"cuCtxPushCurrent", op::cuCtxPushCurrent, shaped(INGERO_SHAPE_PUSH_CONTEXT, p(1)), "_v2"},
    {"cuCtxPopCurrent", op::cuCtxPopCurrent, shaped(INGERO_SHAPE_POP_CONTEXT, out(1)), "_v2"},
    {"cuCtxCreate", op::cuCtxCreate, shaped(INGERO_SHAPE_NEW_CONTEXT, out(1), u32(3)), "_v2"},
    {"cuCtxCreate_v3", op::cuCtxCreate, shaped(INGERO_SHAPE_NEW_CONTEXT, out(1), u32(5)), ""},
    {"cuCtxCreate_v4", op::cuCtxCreate, shaped(INGERO_SHAPE_NEW_CONTEXT, out(1), u32(4)), ""},
    {"cuCtxDestroy", op::cuCtxDestroy, shaped(INGERO_SHAPE_END_CONTEXT, p(1)), "_v2"},
    {"cuDevicePrimaryCtxRetain", op::cuDevicePrimaryCtxRetain, shaped(INGERO_SHAPE_RETAIN_CONTEXT, out(1), u32(2)), ""},
};

// The unique id before the rank takes 128 bytes. On x86-64 it is in memory and no register is used up; on arm64 it is a
// pointer to a copy (AAPCS64, rule B.4), and so one parameter.
#if defined(__aarch64__)
constexpr uint8_t rank_parameter = 4;
#else
constexpr uint8_t rank_parameter = 3;
#endif

/// By parameter: the count, before the datatype; the communicator, before the stream; peer or root; the reduction.
constexpr Signature collective(uint8_t count, uint8_t communicator, uint8_t peer = 0, uint8_t reduction = 0) {
    return {INGERO_SHAPE_COLLECTIVE, {p(count), p(communicator), p(peer)}, p(reduction)};
}

// Parameter orders: nccl.h of NCCL 2.
constexpr Row nccl_rows[] = {
    {"ncclCommInitRank", op::ncclCommInitRank, shaped(INGERO_SHAPE_COMMUNICATOR_INIT, p(1), p(2), p(rank_parameter)),
     ""},
    {"ncclCommInitRankConfig", op::ncclCommInitRankConfig,
     shaped(INGERO_SHAPE_COMMUNICATOR_INIT, p(1), p(2), p(rank_parameter)), ""},
    {"ncclCommInitAll", op::ncclCommInitAll, shaped(INGERO_SHAPE_COMMUNICATOR_INIT_ALL, p(1), p(2)), ""},
    {"ncclCommSplit", op::ncclCommSplit, shaped(INGERO_SHAPE_COMMUNICATOR_SPLIT, p(4), p(1)), ""},
    {"ncclCommFinalize", op::ncclCommFinalize, shaped(INGERO_SHAPE_COMMUNICATOR, 0, p(1)), ""},
    {"ncclCommDestroy", op::ncclCommDestroy, shaped(INGERO_SHAPE_COMMUNICATOR_END, 0, p(1)), ""},
    {"ncclCommAbort", op::ncclCommAbort, shaped(INGERO_SHAPE_COMMUNICATOR_END, 0, p(1)), ""},
    {"ncclAllReduce", op::ncclAllReduce, collective(3, 6, 0, 5), ""},
    {"ncclAllGather", op::ncclAllGather, collective(3, 5), ""},
    {"ncclReduceScatter", op::ncclReduceScatter, collective(3, 6, 0, 5), ""},
    {"ncclBroadcast", op::ncclBroadcast, collective(3, 6, 5), ""},
    {"ncclBcast", op::ncclBcast, collective(2, 5, 4), ""},
    {"ncclReduce", op::ncclReduce, collective(3, 7, 6, 5), ""},
    {"ncclSend", op::ncclSend, collective(2, 5, 4), ""},
    {"ncclRecv", op::ncclRecv, collective(2, 5, 4), ""},
    {"ncclGroupStart", op::ncclGroupStart, shaped(INGERO_SHAPE_GROUP_START, 0), ""},
    {"ncclGroupEnd", op::ncclGroupEnd, shaped(INGERO_SHAPE_GROUP_END, 0), ""},
};

uint64_t cookie_of(OpId op, size_t index, const Signature& signature) {
    return uint64_t{op} | uint64_t{index} << 16 | uint64_t{signature.shape} << 24 | uint64_t{signature.args[0]} << 32 |
           uint64_t{signature.args[1]} << 40 | uint64_t{signature.args[2]} << 48 | uint64_t{signature.stream} << 56;
}

// Names live as long as the program: Target holds views.
struct TargetTable {
    std::deque<std::string> names;
    std::vector<Target> targets;
    std::vector<size_t> begins;  ///< of each library; and the end

    TargetTable() {
        for (const std::span<const Row> rows :
             {std::span<const Row>(runtime_rows), std::span<const Row>(driver_rows), std::span<const Row>(nccl_rows)}) {
            begins.push_back(targets.size());
            for (const Row& row : rows) add(row);
        }
        begins.push_back(targets.size());
    }

    void add(const Row& row) {
        add(row, {});
        std::string_view rest = row.variants;
        while (!rest.empty()) {
            const size_t end = std::min(rest.find(' '), rest.size());
            add(row, rest.substr(0, end));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
    }

    void add(const Row& row, std::string_view suffix) {
        names.push_back(std::string(row.base) + std::string(suffix));
        const size_t index = targets.size();
        targets.push_back({names.back(), row.op, cookie_of(row.op, index, row.signature), row.changed_in,
                           row.changed_in ? cookie_of(row.op, index, row.later) : 0});
    }
};

const TargetTable& table() {
    static const TargetTable targets;
    return targets;
}

bool matches_library(std::string_view name, std::string_view stem) {
    if (!name.starts_with(stem)) return false;
    name.remove_prefix(stem.size());
    if (name.starts_with(".so")) return true;
    // Wheels carry a hash: libcudart-d0da41ae.so.11.0.
    return name.starts_with("-") && name.find(".so") != std::string_view::npos;
}

/// Of NCCL's own plugins, whose names begin alike: libnccl-net.so, libnccl-tuner-x.so.
bool is_plugin(std::string_view name) {
    const size_t from = name.find('-') + 1, end = name.find(".so");
    return from != 0 && name.find_first_not_of("0123456789abcdef", from) < end;
}

}  // namespace

std::string_view to_string(Library library) {
    switch (library) {
        case Library::cuda_runtime:
            return "libcudart";
        case Library::cuda_driver:
            return "libcuda";
        case Library::nccl:
            break;
    }
    return "libnccl";
}

std::optional<Library> library_of_path(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (matches_library(name, "libcudart")) return Library::cuda_runtime;
    if (matches_library(name, "libcuda")) return Library::cuda_driver;
    if (matches_library(name, "libnccl") && !is_plugin(name)) return Library::nccl;
    return std::nullopt;
}

std::span<const Target> all_targets() {
    return table().targets;
}

std::span<const Target> targets_of(Library library) {
    const size_t begin = table().begins[static_cast<size_t>(library)];
    return all_targets().subspan(begin, table().begins[static_cast<size_t>(library) + 1] - begin);
}

std::vector<std::string> symbol_names(Library library) {
    std::vector<std::string> names;
    for (const Target& target : targets_of(library)) names.emplace_back(target.symbol);
    std::sort(names.begin(), names.end());
    return names;
}

std::string_view probe_set_of(OpId id) {
    const Op* op = find_op(id);
    switch (op ? op->op_class : OpClass::other) {
        case OpClass::launch:
            return "launch";
        case OpClass::alloc:
        case OpClass::free:
            return "memory";
        case OpClass::copy:
            return "copy";
        case OpClass::sync:
            return "sync";
        case OpClass::graph:
            return "graph";
        case OpClass::collective:
        case OpClass::communicator:
            return "nccl";
        case OpClass::name:
        case OpClass::device:
        case OpClass::other:
            break;
    }
    return "other";
}

std::span<const std::string_view> all_probe_sets() {
    static constexpr std::string_view sets[] = {"launch", "memory", "copy", "sync", "graph", "nccl", "other"};
    return sets;
}

bool is_hot(OpId op) {
    const Op* known = find_op(op);
    return known && known->may_be_thinned && known->op_class != OpClass::device;
}

const std::vector<OpId>& ops_by_thin_slot() {
    static const std::vector<OpId> slots = [] {
        std::vector<OpId> ops{0};
        for (const Op& op : all_ops())
            if (op.may_be_thinned) ops.push_back(op.id);
        return ops;
    }();
    return slots;
}

unsigned library_major(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    const size_t at = name.find(".so.");
    unsigned major = 0;
    if (at != std::string_view::npos) std::from_chars(name.data() + at + 4, name.data() + name.size(), major);
    return major;
}

std::vector<ProbeSite> probe_sites(Library library, unsigned major, const std::vector<FunctionSymbol>& symbols) {
    std::map<std::string_view, const Target*> by_name;
    for (const Target& target : targets_of(library)) by_name.emplace(target.symbol, &target);
    // A name may stand for several functions, one a symbol version; a function may have several names.
    std::map<uint64_t, std::pair<const Target*, const FunctionSymbol*>> by_offset;
    std::set<uint64_t> offsets;
    for (const FunctionSymbol& symbol : symbols)
        if (symbol.jumps_to == 0) offsets.insert(symbol.file_offset);
    for (const FunctionSymbol& symbol : symbols) {
        const auto found = by_name.find(symbol.name);
        if (found == by_name.end() || (symbol.jumps_to != 0 && offsets.contains(symbol.jumps_to))) continue;
        auto [at, added] = by_offset.try_emplace(symbol.file_offset, found->second, &symbol);
        if (!added && found->second < at->second.first) at->second = {found->second, &symbol};
    }
    std::vector<ProbeSite> sites;
    for (const auto& [offset, site] : by_offset)
        sites.push_back({offset, site.first->cookie_in(major), site.second->name, site.second->emulated, site.first->op,
                         site.second->code});
    return sites;
}

}  // namespace ingero
