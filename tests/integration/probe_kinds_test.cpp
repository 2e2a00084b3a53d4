// What is attached and how, as the kernel tells it of the links that the daemon holds. An exception that crosses a
// return probe ends the program, so those are on the C interfaces listed here, which none can cross, and nowhere else.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "core/symbols/elf_symbols.h"
#include "daemon/ingerod/probes/attach/targets.h"
#include "daemon/ingerod/probes/kernel/kernel_features.h"
#include "test_paths.h"
#include "tests/integration/attach_target.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

namespace fs = std::filesystem;

/// Their variants have the same name with _v2, _v3, _v4, _ptsz or _ptds behind it.
const std::set<std::string, std::less<>> c_interfaces = {
    // launch
    "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "__cudaLaunchKernel", "cuLaunchKernel",
    "cuLaunchKernelEx", "cuLaunchCooperativeKernel",
    // memory
    "cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaFreeAsync", "cudaMallocFromPoolAsync", "cudaMallocManaged",
    "cudaMallocHost", "cudaHostAlloc", "cudaFreeHost", "cudaMallocPitch", "cuMemAlloc", "cuMemFree", "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemAllocManaged", "cuMemAllocPitch", "cuMemAllocHost",
    "cuMemHostAlloc", "cuMemFreeHost", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease",
    // copy
    "cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpy2D", "cudaMemcpy2DAsync", "cudaMemcpyPeer", "cudaMemcpyPeerAsync",
    "cudaMemset", "cudaMemsetAsync", "cudaMemset2D", "cudaMemset2DAsync", "cudaMemPrefetchAsync", "cuMemcpy",
    "cuMemcpyAsync", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
    "cuMemcpyDtoDAsync", "cuMemcpy2D", "cuMemcpy2DAsync", "cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemsetD8",
    "cuMemsetD16", "cuMemsetD32", "cuMemsetD2D8", "cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async",
    "cuMemsetD2D8Async", "cuMemPrefetchAsync",
    // sync, and functions of the host's that a stream waits for: a thread of the driver runs those
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamWaitEvent",
    "cudaLaunchHostFunc", "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cuStreamWaitEvent",
    "cuLaunchHostFunc",
    // graph
    "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphInstantiateWithFlags",
    "cudaGraphInstantiateWithParams", "cudaGraphExecUpdate", "cudaGraphUpload", "cudaGraphLaunch", "cudaGraphDestroy",
    "cudaGraphExecDestroy", "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate",
    "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams", "cuGraphExecUpdate", "cuGraphUpload",
    "cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy",
    // names and devices
    "__cudaRegisterFunction", "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary",
    "cuModuleGetFunction", "cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryGetKernel", "cuKernelGetFunction",
    "cudaSetDevice", "cuCtxSetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxCreate", "cuCtxDestroy",
    "cuDevicePrimaryCtxRetain"};

bool is_c_interface(std::string_view name) {
    for (const std::string_view suffix : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"})
        if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
    return c_interfaces.contains(name);
}

/// struct bpf_link_info of kernels newer than the headers built with, as far as uprobe links go.
struct UprobeLinkInfo {
    uint32_t type, id, program, reserved;
    uint64_t path, offsets, reference_counters, cookies;
    uint32_t path_size, count, flags, pid;
};
constexpr uint32_t link_type_uprobe_multi = 12;
constexpr uint32_t flag_return = 1;

struct Link {
    std::string program, path;
    bool at_return = false;
    std::vector<uint64_t> offsets;
};

std::string program_name(uint32_t id) {
    const UniqueFd fd(bpf_prog_get_fd_by_id(id));
    bpf_prog_info info{};
    uint32_t size = sizeof(info);
    return fd && bpf_obj_get_info_by_fd(fd.get(), &info, &size) == 0 ? info.name : "";
}

std::optional<Link> uprobe_link(uint32_t id) {
    const UniqueFd fd(bpf_link_get_fd_by_id(id));
    std::vector<uint64_t> offsets(4096);
    char path[4096] = {};
    UprobeLinkInfo info{};
    info.path = reinterpret_cast<uintptr_t>(path);
    info.path_size = sizeof(path);
    info.offsets = reinterpret_cast<uintptr_t>(offsets.data());
    info.count = static_cast<uint32_t>(offsets.size());
    uint32_t size = sizeof(info);
    if (!fd || bpf_obj_get_info_by_fd(fd.get(), &info, &size) != 0) return std::nullopt;
    if (info.type != link_type_uprobe_multi) return std::nullopt;
    offsets.resize(info.count);
    return Link{program_name(info.program), path, (info.flags & flag_return) != 0, offsets};
}

/// Of a process's descriptors those that are links of uprobes.
std::vector<Link> uprobe_links_of(int pid) {
    std::vector<Link> links;
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fdinfo")) {
        std::ifstream lines(entry.path());
        std::string line, word;
        while (std::getline(lines, line)) {
            std::istringstream words(line);
            uint32_t id = 0;
            if (!(words >> word >> id) || word != "link_id:") continue;
            if (auto link = uprobe_link(id)) links.push_back(std::move(*link));
        }
    }
    return links;
}

struct Kinds {
    size_t entries = 0, returns = 0;
};

/// By offset in the file, all that is attached to it.
std::map<uint64_t, Kinds> kinds_in(const std::vector<Link>& links, const std::string& path) {
    std::map<uint64_t, Kinds> kinds;
    for (const Link& link : links) {
        if (link.path != path) continue;
        EXPECT_EQ(link.at_return, link.program == "call_return") << link.program;
        for (const uint64_t offset : link.offsets) {
            Kinds& one = kinds[offset];
            if (link.program == "call_session")
                one.entries++, one.returns++;
            else if (link.program == "call_entry")
                one.entries++;
            else if (link.program == "call_return")
                one.returns++;
            else
                ADD_FAILURE() << link.program << " is attached, and this test knows nothing of it";
        }
    }
    return kinds;
}

class ProbeKinds : public testing::TestWithParam<AttachWay> {};

TEST_P(ProbeKinds, are_entry_and_return_on_the_listed_c_interfaces_and_nothing_on_others) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    KernelFeatures features;
    if (!features.has(Feature::uprobe_multi)) GTEST_SKIP() << "this kernel lists no probes of a link";
    const TemporaryDirectory directory;
    struct Copy {
        Library library;
        std::string original, path;
    };
    // A daemon has the libraries of the whole host: another test's have other names.
    const std::string own = "-" + std::to_string(getpid());
    const Copy copies[] = {{Library::cuda_runtime, CUDART12_LIBRARY, directory / "libcudart" + own + ".so.12"},
                           {Library::cuda_runtime, CUDART13_LIBRARY, directory / "libcudart" + own + ".so.13"},
                           {Library::cuda_driver, CUDA_LIBRARY, directory / "libcuda" + own + ".so.1"}};
    Daemon daemon(directory / "run", GetParam().options);
    AttachTarget target;
    for (const Copy& copy : copies) {
        fs::copy_file(copy.original, copy.path);
        ASSERT_EQ(target.tell("map " + copy.path), "mapped");
    }
    ASSERT_TRUE(daemon.wait_traced(target.pid())) << daemon.process().output();
    const std::vector<Link> links = uprobe_links_of(daemon.process().pid());
    const nlohmann::json answer = daemon.call("probes");

    for (const Copy& copy : copies) {
        const std::map<uint64_t, Kinds> kinds = kinds_in(links, copy.path);
        const UniqueFd file(open(copy.path.c_str(), O_RDONLY | O_CLOEXEC));
        const auto symbols = read_function_symbols(file.get(), symbol_names(copy.library), false);
        ASSERT_TRUE(symbols) << symbols.error().message;
        std::map<uint64_t, std::set<std::string>> names;
        for (const FunctionSymbol& symbol : symbols->functions)
            names[symbol.jumps_to != 0 ? symbol.jumps_to : symbol.file_offset].insert(symbol.name);
        for (const auto& [offset, kind] : kinds) {
            ASSERT_TRUE(names.contains(offset)) << "probed, and no symbol of the table: " << std::hex << offset;
            std::string all;
            for (const std::string& name : names[offset]) {
                all += (all.empty() ? "" : " = ") + name;
                EXPECT_TRUE(kind.returns == 0 || is_c_interface(name)) << name << " has a return probe";
            }
            std::cout << fs::path(copy.path).filename().string() << ": " << all << (kind.entries ? ", entry" : "")
                      << (kind.returns ? ", return" : "") << "\n";
            EXPECT_EQ(kind.entries, 1u) << all;
            EXPECT_EQ(kind.returns, 1u) << all;
        }
        for (const auto& [offset, all] : names) EXPECT_TRUE(kinds.contains(offset)) << *all.begin() << " has no probe";

        const std::string name = fs::path(copy.path).filename();
        size_t told = 0;
        for (const auto& library : answer.at("libraries"))
            for (const auto& set : library.at("sets"))
                if (library.at("library") == name) told += set.at("functions").get<size_t>();
        EXPECT_EQ(told, kinds.size()) << "what `ingeroctl probes` says of " << name;
    }
}

INSTANTIATE_TEST_SUITE_P(by, ProbeKinds, testing::Values(AttachWay{"session", {}}, AttachWay{"multi", by_uprobe_multi}),
                         name_of_parameter<AttachWay>);

}  // namespace
