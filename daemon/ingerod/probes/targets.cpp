#include "daemon/ingerod/probes/targets.h"

#include <algorithm>
#include <charconv>
#include <map>

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

constexpr OpId rt(uint8_t number) {
    return make_op(source_cuda, number);
}
constexpr OpId dr(uint8_t number) {
    return make_op(source_driver, number);
}
constexpr OpId graph(uint8_t number) {
    return make_op(source_graph, number);
}
constexpr OpId nc(uint8_t number) {
    return make_op(source_nccl, number);
}

constexpr Signature launch_runtime{INGERO_SHAPE_LAUNCH_RUNTIME, {}, 0};
constexpr Signature launch_runtime_ex{INGERO_SHAPE_LAUNCH_RUNTIME_EX, {}, 0};
constexpr Signature launch_driver{INGERO_SHAPE_LAUNCH_DRIVER, {}, 0};
constexpr Signature launch_driver_ex{INGERO_SHAPE_LAUNCH_DRIVER_EX, {}, 0};

// Parameter orders: CUDA runtime and driver API references. Class-specific meaning of the three: bpf/event.h.
constexpr Row runtime_rows[] = {
    {"cudaLaunchKernel", rt(3), launch_runtime, "_ptsz"},
    {"cudaLaunchKernelExC", rt(100), launch_runtime_ex, "_ptsz"},
    {"cudaLaunchCooperativeKernel", rt(101), launch_runtime, "_ptsz"},
    {"__cudaLaunchKernel", rt(102), launch_runtime, "_ptsz"},
    {"cudaMalloc", rt(1), plain(p(2), out(1)), ""},
    {"cudaFree", rt(2), plain(p(1)), ""},
    {"cudaMallocManaged", rt(8), plain(p(2), out(1)), ""},
    {"cudaMallocAsync", rt(110), plain(p(2), out(1), 0, p(3)), "_ptsz"},
    {"cudaFreeAsync", rt(111), plain(p(1), 0, 0, p(2)), "_ptsz"},
    {"cudaMallocFromPoolAsync", rt(112), plain(p(2), out(1), 0, p(4)), "_ptsz"},
    {"cudaMallocHost", rt(113), plain(p(2), out(1)), ""},
    {"cudaHostAlloc", rt(114), plain(p(2), out(1)), ""},
    {"cudaFreeHost", rt(115), plain(p(1)), ""},
    {"cudaMallocPitch", rt(116), product(p(3), out(1), p(4)), ""},
    {"cudaMemcpy", rt(4), plain(p(3), u32(4)), "_ptds"},
    {"cudaMemcpyAsync", rt(7), plain(p(3), u32(4), 0, p(5)), "_ptsz"},
    {"cudaMemcpy2D", rt(9), product(p(5), u32(7), p(6)), "_ptds"},
    {"cudaMemcpy2DAsync", rt(10), product(p(5), u32(7), p(6), p(8)), "_ptsz"},
    {"cudaMemcpyPeer", rt(11), plain(p(5)), ""},
    {"cudaMemcpyPeerAsync", rt(12), plain(p(5), 0, 0, p(6)), ""},
    {"cudaMemset", rt(120), plain(p(3)), "_ptds"},
    {"cudaMemsetAsync", rt(121), plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cudaMemset2D", rt(122), product(p(4), 0, p(5)), "_ptds"},
    {"cudaMemset2DAsync", rt(123), product(p(4), 0, p(5), p(6)), "_ptsz"},
    {"cudaMemPrefetchAsync", rt(124), plain(p(2), 0, 0, p(4)), "_ptsz", 13, plain(p(2), 0, 0, p(5))},
    {"cudaMemPrefetchAsync_v2", rt(124), plain(p(2), 0, 0, p(5)), "_ptsz"},
    {"cudaStreamSynchronize", rt(5), plain(0, 0, 0, p(1)), "_ptsz"},
    {"cudaDeviceSynchronize", rt(6), plain(), ""},
    {"cudaEventSynchronize", rt(130), plain(p(1)), ""},
    {"cudaStreamWaitEvent", rt(131), plain(p(2), 0, 0, p(1)), "_ptsz"},
    {"cudaLaunchHostFunc", rt(132), plain(p(2), 0, 0, p(1)), "_ptsz"},
    {"__cudaRegisterFunction", rt(140), shaped(INGERO_SHAPE_REGISTER, p(2), 0, p(4)), ""},
    {"cudaSetDevice", rt(141), shaped(INGERO_SHAPE_SET_DEVICE, u32(1)), ""},
    {"cudaStreamBeginCapture", graph(1), plain(0, 0, u32(2), p(1)), "_ptsz"},
    {"cudaStreamEndCapture", graph(2), plain(out(2), 0, 0, p(1)), "_ptsz"},
    {"cudaGraphInstantiate", graph(3), plain(p(2), out(1)), ""},
    {"cudaGraphInstantiateWithFlags", graph(104), plain(p(2), out(1), p(3)), ""},
    {"cudaGraphInstantiateWithParams", graph(105), plain(p(2), out(1), in(3)), "_ptsz"},
    {"cudaGraphExecUpdate", graph(100), plain(p(2), p(1)), ""},
    {"cudaGraphUpload", graph(101), plain(0, p(1), 0, p(2)), "_ptsz"},
    {"cudaGraphLaunch", graph(4), plain(0, p(1), 0, p(2)), "_ptsz"},
    {"cudaGraphDestroy", graph(102), plain(p(1)), ""},
    {"cudaGraphExecDestroy", graph(103), plain(0, p(1)), ""},
};

// Where a plain name and its _v2 both stand here, the plain one is of before 64-bit addresses.
constexpr Row driver_rows[] = {
    {"cuLaunchKernel", dr(1), launch_driver, "_ptsz"},
    {"cuLaunchKernelEx", dr(100), launch_driver_ex, "_ptsz"},
    {"cuLaunchCooperativeKernel", dr(101), launch_driver, "_ptsz"},
    {"cuMemAlloc", dr(5), plain(u32(2), out32(1)), ""},
    {"cuMemAlloc_v2", dr(5), plain(p(2), out(1)), ""},
    {"cuMemFree", dr(110), plain(u32(1)), ""},
    {"cuMemFree_v2", dr(110), plain(p(1)), ""},
    {"cuMemAllocPitch", dr(117), product(u32(3), out32(1), u32(4)), ""},
    {"cuMemAllocPitch_v2", dr(117), product(p(3), out(1), p(4)), ""},
    {"cuMemAllocManaged", dr(6), plain(p(2), out(1)), ""},
    {"cuMemAllocAsync", dr(111), plain(p(2), out(1), 0, p(3)), "_ptsz"},
    {"cuMemAllocFromPoolAsync", dr(118), plain(p(2), out(1), 0, p(4)), "_ptsz"},
    {"cuMemFreeAsync", dr(112), plain(p(1), 0, 0, p(2)), "_ptsz"},
    {"cuMemAllocHost", dr(136), plain(u32(2), out(1)), ""},
    {"cuMemAllocHost_v2", dr(136), plain(p(2), out(1)), ""},
    {"cuMemHostAlloc", dr(137), plain(p(2), out(1)), ""},
    {"cuMemFreeHost", dr(138), plain(p(1)), ""},
    {"cuMemCreate", dr(113), plain(p(2), out(1)), ""},
    {"cuMemMap", dr(114), plain(p(2), p(1), p(4)), ""},
    {"cuMemUnmap", dr(115), plain(p(2), p(1)), ""},
    {"cuMemRelease", dr(116), plain(p(1)), ""},
    {"cuMemcpy", dr(2), plain(p(3)), "_ptds"},
    {"cuMemcpyAsync", dr(3), plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemcpyHtoD", dr(120), plain(u32(3)), ""},
    {"cuMemcpyHtoD_v2", dr(120), plain(p(3)), "_ptds"},
    {"cuMemcpyDtoH", dr(121), plain(u32(3)), ""},
    {"cuMemcpyDtoH_v2", dr(121), plain(p(3)), "_ptds"},
    {"cuMemcpyDtoD", dr(122), plain(u32(3)), ""},
    {"cuMemcpyDtoD_v2", dr(122), plain(p(3)), "_ptds"},
    {"cuMemcpyHtoDAsync", dr(123), plain(u32(3), 0, 0, p(4)), ""},
    {"cuMemcpyHtoDAsync_v2", dr(123), plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemcpyDtoHAsync", dr(124), plain(u32(3), 0, 0, p(4)), ""},
    {"cuMemcpyDtoHAsync_v2", dr(124), plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemcpyDtoDAsync", dr(125), plain(u32(3), 0, 0, p(4)), ""},
    {"cuMemcpyDtoDAsync_v2", dr(125), plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemcpy2D", dr(127), shaped(INGERO_SHAPE_COPY_2D_STRUCT_OLD, p(1)), ""},
    {"cuMemcpy2D_v2", dr(127), shaped(INGERO_SHAPE_COPY_2D_STRUCT, p(1)), "_ptds"},
    {"cuMemcpy2DAsync", dr(128), shaped(INGERO_SHAPE_COPY_2D_STRUCT_OLD, p(1), 0, 0, p(2)), ""},
    {"cuMemcpy2DAsync_v2", dr(128), shaped(INGERO_SHAPE_COPY_2D_STRUCT, p(1), 0, 0, p(2)), "_ptsz"},
    {"cuMemcpyPeer", dr(134), plain(p(5)), "_ptds"},
    {"cuMemcpyPeerAsync", dr(135), plain(p(5), 0, 0, p(6)), "_ptsz"},
    {"cuMemsetD8", dr(160), plain(u32(3)), ""},
    {"cuMemsetD8_v2", dr(160), plain(p(3)), "_ptds"},
    {"cuMemsetD16", dr(161), shaped(INGERO_SHAPE_ELEMENTS_2, u32(3)), ""},
    {"cuMemsetD16_v2", dr(161), shaped(INGERO_SHAPE_ELEMENTS_2, p(3)), "_ptds"},
    {"cuMemsetD32", dr(162), shaped(INGERO_SHAPE_ELEMENTS_4, u32(3)), ""},
    {"cuMemsetD32_v2", dr(162), shaped(INGERO_SHAPE_ELEMENTS_4, p(3)), "_ptds"},
    {"cuMemsetD2D8", dr(163), product(u32(4), 0, u32(5)), ""},
    {"cuMemsetD2D8_v2", dr(163), product(p(4), 0, p(5)), "_ptds"},
    {"cuMemsetD8Async", dr(164), plain(p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemsetD16Async", dr(165), shaped(INGERO_SHAPE_ELEMENTS_2, p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemsetD32Async", dr(166), shaped(INGERO_SHAPE_ELEMENTS_4, p(3), 0, 0, p(4)), "_ptsz"},
    {"cuMemsetD2D8Async", dr(167), product(p(4), 0, p(5), p(6)), "_ptsz"},
    {"cuMemPrefetchAsync", dr(126), plain(p(2), 0, 0, p(4)), "_ptsz"},
    {"cuMemPrefetchAsync_v2", dr(126), plain(p(2), 0, 0, p(5)), "_ptsz"},
    {"cuCtxSynchronize", dr(4), plain(), "_v2"},
    {"cuStreamSynchronize", dr(130), plain(0, 0, 0, p(1)), "_ptsz"},
    {"cuEventSynchronize", dr(131), plain(p(1)), ""},
    {"cuStreamWaitEvent", dr(133), plain(p(2), 0, 0, p(1)), "_ptsz"},
    {"cuLaunchHostFunc", dr(132), plain(p(2), 0, 0, p(1)), "_ptsz"},
    {"cuStreamBeginCapture", graph(201), plain(0, 0, 0, p(1)), "_ptsz"},
    {"cuStreamBeginCapture_v2", graph(201), plain(0, 0, u32(2), p(1)), "_ptsz"},
    {"cuStreamEndCapture", graph(202), plain(out(2), 0, 0, p(1)), "_ptsz"},
    {"cuGraphInstantiate", graph(203), plain(p(2), out(1)), "_v2"},
    {"cuGraphInstantiateWithFlags", graph(209), plain(p(2), out(1), p(3)), ""},
    {"cuGraphInstantiateWithParams", graph(210), plain(p(2), out(1), in(3)), "_ptsz"},
    {"cuGraphExecUpdate", graph(205), plain(p(2), p(1)), "_v2"},
    {"cuGraphUpload", graph(206), plain(0, p(1), 0, p(2)), "_ptsz"},
    {"cuGraphLaunch", graph(204), plain(0, p(1), 0, p(2)), "_ptsz"},
    {"cuGraphDestroy", graph(207), plain(p(1)), ""},
    {"cuGraphExecDestroy", graph(208), plain(0, p(1)), ""},
    {"cuModuleLoad", dr(140), plain(out(1)), ""},
    {"cuModuleLoadData", dr(141), plain(out(1)), ""},
    {"cuModuleLoadDataEx", dr(142), plain(out(1)), ""},
    {"cuModuleLoadFatBinary", dr(143), plain(out(1)), ""},
    {"cuModuleGetFunction", dr(144), shaped(INGERO_SHAPE_NAME, out(1), p(2), p(3)), ""},
    {"cuLibraryLoadData", dr(145), plain(out(1)), ""},
    {"cuLibraryLoadFromFile", dr(146), plain(out(1)), ""},
    {"cuLibraryGetKernel", dr(147), shaped(INGERO_SHAPE_NAME, out(1), p(2), p(3)), ""},
    {"cuKernelGetFunction", dr(148), plain(out(1), p(2)), ""},
    {"cuCtxSetCurrent", dr(150), shaped(INGERO_SHAPE_SET_CONTEXT, p(1)), ""},
    {"cuCtxPushCurrent", dr(151), shaped(INGERO_SHAPE_PUSH_CONTEXT, p(1)), "_v2"},
    {"cuCtxPopCurrent", dr(152), shaped(INGERO_SHAPE_POP_CONTEXT, out(1)), "_v2"},
    {"cuCtxCreate", dr(153), shaped(INGERO_SHAPE_NEW_CONTEXT, out(1), u32(3)), "_v2"},
    {"cuCtxCreate_v3", dr(153), shaped(INGERO_SHAPE_NEW_CONTEXT, out(1), u32(5)), ""},
    {"cuCtxCreate_v4", dr(153), shaped(INGERO_SHAPE_NEW_CONTEXT, out(1), u32(4)), ""},
    {"cuCtxDestroy", dr(154), shaped(INGERO_SHAPE_END_CONTEXT, p(1)), "_v2"},
    {"cuDevicePrimaryCtxRetain", dr(155), shaped(INGERO_SHAPE_RETAIN_CONTEXT, out(1), u32(2)), ""},
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
    {"ncclCommInitRank", nc(1), shaped(INGERO_SHAPE_COMMUNICATOR_INIT, p(1), p(2), p(rank_parameter)), ""},
    {"ncclCommInitRankConfig", nc(100), shaped(INGERO_SHAPE_COMMUNICATOR_INIT, p(1), p(2), p(rank_parameter)), ""},
    {"ncclCommInitAll", nc(9), shaped(INGERO_SHAPE_COMMUNICATOR_INIT_ALL, p(1), p(2)), ""},
    {"ncclCommSplit", nc(101), shaped(INGERO_SHAPE_COMMUNICATOR_SPLIT, p(4), p(1)), ""},
    {"ncclCommFinalize", nc(103), shaped(INGERO_SHAPE_COMMUNICATOR, 0, p(1)), ""},
    {"ncclCommDestroy", nc(2), shaped(INGERO_SHAPE_COMMUNICATOR_END, 0, p(1)), ""},
    {"ncclCommAbort", nc(102), shaped(INGERO_SHAPE_COMMUNICATOR_END, 0, p(1)), ""},
    {"ncclAllReduce", nc(3), collective(3, 6, 0, 5), ""},
    {"ncclAllGather", nc(4), collective(3, 5), ""},
    {"ncclReduceScatter", nc(5), collective(3, 6, 0, 5), ""},
    {"ncclBroadcast", nc(104), collective(3, 6, 5), ""},
    {"ncclBcast", nc(6), collective(2, 5, 4), ""},
    {"ncclReduce", nc(105), collective(3, 7, 6, 5), ""},
    {"ncclSend", nc(7), collective(2, 5, 4), ""},
    {"ncclRecv", nc(8), collective(2, 5, 4), ""},
    {"ncclGroupStart", nc(106), shaped(INGERO_SHAPE_GROUP_START, 0), ""},
    {"ncclGroupEnd", nc(107), shaped(INGERO_SHAPE_GROUP_END, 0), ""},
};

uint64_t cookie_of(OpId op, const Signature& signature) {
    return uint64_t{op} | uint64_t{op_index(op)} << 16 | uint64_t{signature.shape} << 24 |
           uint64_t{signature.args[0]} << 32 | uint64_t{signature.args[1]} << 40 | uint64_t{signature.args[2]} << 48 |
           uint64_t{signature.stream} << 56;
}

// Names live as long as the program: Target holds views.
struct TargetTable {
    std::vector<std::string> names;
    std::vector<Target> targets;

    explicit TargetTable(std::span<const Row> rows) {
        names.reserve(rows.size() * 4);
        for (const Row& row : rows) {
            add(row, {});
            std::string_view rest = row.variants;
            while (!rest.empty()) {
                const size_t end = std::min(rest.find(' '), rest.size());
                add(row, rest.substr(0, end));
                rest.remove_prefix(std::min(end + 1, rest.size()));
            }
        }
    }

    void add(const Row& row, std::string_view suffix) {
        names.push_back(std::string(row.base) + std::string(suffix));
        targets.push_back({names.back(), row.op, cookie_of(row.op, row.signature), row.changed_in,
                           row.changed_in ? cookie_of(row.op, row.later) : 0});
    }
};

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

std::span<const Target> targets_of(Library library) {
    static const TargetTable runtime{runtime_rows};
    static const TargetTable driver{driver_rows};
    static const TargetTable nccl{nccl_rows};
    if (library == Library::nccl) return nccl.targets;
    return library == Library::cuda_runtime ? runtime.targets : driver.targets;
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

uint8_t op_index(OpId op) {
    const auto ops = all_ops();
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const Op& known) { return known.id == op; });
    return static_cast<uint8_t>(found - ops.begin());
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
    for (const FunctionSymbol& symbol : symbols) {
        const auto found = by_name.find(symbol.name);
        if (found == by_name.end()) continue;
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
