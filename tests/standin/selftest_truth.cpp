// The log says what the calls were made with, and the workload `every` makes all calls that are traced.
#include <algorithm>
#include <regex>
#include <set>
#include <tuple>

#include "selftest_support.h"

namespace ingero::standin {
namespace {

const char kernel = 0;

std::tuple<uint64_t, uint64_t, uint64_t> arguments(const Record& record) {
    return {record.args[0], record.args[1], record.args[2]};
}

using Words = std::tuple<uint64_t, uint64_t, uint64_t>;

TEST(StandinTruth, HasTheHandleTheGridAndTheBlockOfALaunch) {
    Logged logged;
    in_child(logged, "kernel_us=0", [](const Runtime& runtime) {
        void* stream = nullptr;
        runtime.cudaStreamCreateWithFlags(&stream, 1);
        return runtime.cudaLaunchKernel(&kernel, {70'001, 3, 5}, {1023, 7, 63}, nullptr, 4096, stream) == 0;
    });
    ASSERT_EQ(logged.status, 0);
    const Record outer = logged.of("cudaLaunchKernel").at(0);
    const Record inner = logged.of("cuLaunchKernel").at(0);
    const uint64_t grid = 70'001 | uint64_t(3) << 32 | uint64_t(5) << 48;
    const uint64_t block = 1023 | 7 << 11 | 63 << 22 | uint64_t(4096) << 32;
    EXPECT_EQ(arguments(outer), Words(reinterpret_cast<uintptr_t>(&kernel), grid, block));
    EXPECT_EQ(arguments(inner), Words(inner.args[0], grid, block));
    EXPECT_EQ(inner.args[0] >> 32, 0x5d04u);
    EXPECT_EQ(outer.stream, 0x5d02'0000'0010u);
    EXPECT_EQ(inner.stream, outer.stream);
}

TEST(StandinTruth, HasTheAddressOfAnAllocationThatSucceededOnly) {
    Logged logged;
    in_child(logged, "memory_mb=1,at=cudaMalloc:3:error=46", [](const Runtime& runtime) {
        void* pointers[3] = {&pointers, &pointers, &pointers};
        return runtime.cudaMalloc(&pointers[0], 5000) == 0 && runtime.cudaMalloc(&pointers[1], 2 << 20) == 2 &&
               runtime.cudaMalloc(&pointers[2], 7000) == 46 && runtime.cudaFree(pointers[0]) == 0;
    });
    ASSERT_EQ(logged.status, 0);
    const auto allocations = logged.of("cudaMalloc");
    const Record freed = logged.of("cudaFree").at(0);
    ASSERT_EQ(allocations.size(), 3u);
    EXPECT_NE(allocations[0].args[1], 0u);
    EXPECT_EQ(arguments(allocations[0]), Words(5000, freed.args[0], 0));
    EXPECT_EQ(arguments(allocations[1]), Words(2 << 20, 0, 0));
    EXPECT_EQ(arguments(allocations[2]), Words(7000, 0, 0));
    EXPECT_EQ(arguments(logged.of("cuMemFree_v2").at(0)), arguments(freed));
}

TEST(StandinTruth, HasBytesAndDirectionOfCopiesAndSets) {
    Logged logged;
    in_child(logged, "", [](const Runtime& runtime) {
        char host[8];
        void* device = nullptr;
        runtime.cudaMalloc(&device, 1 << 20);
        auto* copy_2d = function<int(void*, size_t, const void*, size_t, size_t, size_t, int)>("cudaMemcpy2D");
        auto* set_16 = function<int(void*, unsigned short, size_t)>("cuMemsetD16_v2", "libcuda.so.1");
        return runtime.cudaMemcpy(device, host, 8, host_to_device) == 0 &&
               runtime.cudaMemcpy(host, device, 6, 4) == 0 && runtime.cudaMemcpy(host, device, 4, 77) == 21 &&
               copy_2d(device, 64, host, 32, 30, 10, 2) == 0 && set_16(device, 1, 1000) == 0;
    });
    ASSERT_EQ(logged.status, 0);
    const auto copies = logged.of("cudaMemcpy");
    EXPECT_EQ(arguments(copies.at(0)), Words(8, 1, 0));
    EXPECT_EQ(arguments(copies.at(1)), Words(6, 4, 0));
    EXPECT_EQ(arguments(copies.at(2)), Words(4, 5, 0));
    EXPECT_EQ(arguments(logged.of("cudaMemcpy2D").at(0)), Words(300, 2, 0));
    EXPECT_EQ(arguments(logged.of("cuMemcpy2D_v2").at(0)), Words(300, 4, 0));
    EXPECT_EQ(arguments(logged.of("cuMemsetD16_v2").at(0)), Words(2000, 3, 0));
}

TEST(StandinTruth, FollowsAGraphByItsHandles) {
    Logged logged;
    in_child(logged, "kernel_us=0", [](const Runtime& runtime) {
        void *stream = nullptr, *graph = nullptr, *exec = nullptr;
        runtime.cudaStreamCreateWithFlags(&stream, 1);
        return runtime.cudaStreamEndCapture(stream, &graph) == 401 && runtime.cudaStreamBeginCapture(stream, 2) == 0 &&
               runtime.cudaStreamEndCapture(stream, &graph) == 0 &&
               function<int(void**, void*, unsigned long long)>("cudaGraphInstantiateWithFlags")(&exec, graph, 9) ==
                   0 &&
               runtime.cudaGraphLaunch(exec, stream) == 0 && runtime.cudaGraphDestroy(graph) == 0 &&
               runtime.cudaGraphExecDestroy(exec) == 0;
    });
    ASSERT_EQ(logged.status, 0);
    const uint64_t graph = logged.of("cudaGraphDestroy").at(0).args[0];
    const uint64_t exec = logged.of("cudaGraphExecDestroy").at(0).args[1];
    EXPECT_EQ(graph >> 32, 0x5d06u);
    EXPECT_EQ(exec >> 32, 0x5d07u);
    EXPECT_EQ(arguments(logged.of("cudaStreamBeginCapture").at(0)), Words(0, 0, 2));
    EXPECT_EQ(arguments(logged.of("cudaStreamEndCapture").at(0)), Words(0, 0, 0));
    EXPECT_EQ(arguments(logged.of("cudaStreamEndCapture").at(1)), Words(graph, 0, 0));
    EXPECT_EQ(arguments(logged.of("cudaGraphInstantiateWithFlags").at(0)), Words(graph, exec, 9));
    EXPECT_EQ(arguments(logged.of("cudaGraphLaunch").at(0)), Words(0, exec, 0));
    EXPECT_NE(logged.of("cudaGraphLaunch").at(0).stream, 0u);
}

TEST(StandinTruth, HasTheNamesOfKernelsByTheirHandles) {
    const std::string long_name(600, 'k');
    Logged logged;
    in_child(logged, "", [&long_name](const Runtime& runtime) {
        auto* load = function<int(void**, const void*)>("cuModuleLoadData", "libcuda.so.1");
        auto* get = function<int(void**, void*, const char*)>("cuModuleGetFunction", "libcuda.so.1");
        void *module = nullptr, *first = nullptr, *second = nullptr;
        runtime.register_function(runtime.register_fat_binary(nullptr), &kernel, nullptr, "registered", -1, nullptr,
                                  nullptr, nullptr, nullptr, nullptr);
        return load(&module, "") == 0 && get(&first, module, "gemm") == 0 &&
               get(&second, module, long_name.c_str()) == 0 && get(&second, nullptr, "none") == 400;
    });
    ASSERT_EQ(logged.status, 0);
    const auto gets = logged.of("cuModuleGetFunction");
    ASSERT_EQ(gets.size(), 3u);
    const uint64_t module = logged.of("cuModuleLoadData").at(0).args[0];
    EXPECT_EQ(arguments(gets[0]), Words(gets[0].args[0], module, 0));
    EXPECT_EQ(logged.log->kernel_name(gets[0]), "gemm");
    EXPECT_EQ(logged.log->kernel_name(gets[1]), long_name.substr(0, 507));
    EXPECT_EQ(logged.log->kernel_name(gets[2]), "none");
    EXPECT_EQ(logged.log->kernel_name(gets[0].pid, gets[0].args[0]), "gemm");
    EXPECT_EQ(logged.log->kernel_name(gets[0].pid, reinterpret_cast<uintptr_t>(&kernel)), "registered");
    EXPECT_EQ(logged.log->kernel_name(gets[0].pid, 1), "");
    EXPECT_EQ(logged.log->kernel_name(logged.of("cuModuleLoadData").at(0)), "");
}

TEST(StandinTruth, HasTheDeviceThatIsCurrentWhenACallReturns) {
    Logged logged;
    in_child(logged, "devices=2", [](const Runtime& runtime) {
        auto* set = function<int(int)>("cudaSetDevice");
        auto* push = function<int(void*)>("cuCtxPushCurrent_v2", "libcuda.so.1");
        auto* pop = function<int(void**)>("cuCtxPopCurrent_v2", "libcuda.so.1");
        auto* create = function<int(void**, unsigned, int)>("cuCtxCreate_v2", "libcuda.so.1");
        auto* destroy = function<int(void*)>("cuCtxDestroy_v2", "libcuda.so.1");
        auto* primary = function<int(void**, int)>("cuDevicePrimaryCtxRetain", "libcuda.so.1");
        void *first = nullptr, *made = nullptr, *popped = nullptr;
        if (runtime.cudaGetLastError() != 0 || set(1) != 0 || set(2) != 101) return false;
        if (primary(&first, 0) != 0 || push(first) != 0) return false;  // 1, 0
        if (create(&made, 0, 1) != 0 || made == first) return false;    // 1, 0, 1
        if (destroy(made) != 0 || destroy(made) != 201) return false;   // 1, 0
        if (pop(&popped) != 0 || popped != first) return false;         // 1
        return pop(nullptr) == 0 && pop(nullptr) == 201 && runtime.cudaDeviceSynchronize() == 0;
    });
    ASSERT_EQ(logged.status, 0);
    const auto devices = [&logged](const char* name) {
        std::vector<int> found;
        for (const Record& record : logged.of(name)) found.push_back(record.device);
        return found;
    };
    using Devices = std::vector<int>;
    EXPECT_EQ(devices("cudaGetLastError"), Devices({0}));
    EXPECT_EQ(devices("cudaSetDevice"), Devices({1, 1}));
    EXPECT_EQ(devices("cuCtxPushCurrent_v2"), Devices({0}));
    EXPECT_EQ(devices("cuCtxCreate_v2"), Devices({1}));
    EXPECT_EQ(devices("cuCtxDestroy_v2"), Devices({0, 0}));
    EXPECT_EQ(devices("cuCtxPopCurrent_v2"), Devices({1, GROUND_TRUTH_NO_DEVICE, GROUND_TRUTH_NO_DEVICE}));
    EXPECT_EQ(devices("cudaDeviceSynchronize"), Devices({1}));  // the runtime takes its own context again
    EXPECT_EQ(arguments(logged.of("cuCtxCreate_v2").at(0)), Words(logged.of("cuCtxDestroy_v2").at(0).args[0], 1, 0));
}

TEST(StandinTruth, KeepsTheArgumentsOfACallThatIsNotReturnedFrom) {
    Logged logged;
    run_workload(logged, {"jump", "--how", "longjmp", "--count", "1"});
    const Record left = logged.of("cudaLaunchHostFunc").at(0);
    EXPECT_FALSE(finished(left));
    EXPECT_NE(left.args[0], 0u);
}

// What `every` need not call: it is not traced, or it is not a function that returns a result.
const std::set<std::string_view> untraced{"__cudaPushCallConfiguration",
                                          "__cudaPopCallConfiguration",
                                          "cudaMemGetInfo",
                                          "cudaStreamQuery",
                                          "cudaStreamQuery_ptsz",
                                          "cudaEventQuery",
                                          "cudaEventCreate",
                                          "cudaEventCreateWithFlags",
                                          "cudaEventRecord",
                                          "cudaEventRecord_ptsz",
                                          "cudaEventRecordWithFlags",
                                          "cudaEventRecordWithFlags_ptsz",
                                          "cudaEventElapsedTime",
                                          "cudaEventDestroy",
                                          "cudaStreamCreate",
                                          "cudaStreamCreateWithFlags",
                                          "cudaStreamCreateWithPriority",
                                          "cudaStreamDestroy",
                                          "cudaStreamIsCapturing",
                                          "cudaStreamIsCapturing_ptsz",
                                          "cudaGraphCreate",
                                          "__cudaRegisterFatBinary",
                                          "__cudaRegisterFatBinaryEnd",
                                          "__cudaUnregisterFatBinary",
                                          "cudaGetDevice",
                                          "cudaGetDeviceCount",
                                          "cudaSetDeviceFlags",
                                          "cudaGetDeviceFlags",
                                          "cudaDeviceGetAttribute",
                                          "cudaDeviceReset",
                                          "cudaFuncGetName",
                                          "cudaDriverGetVersion",
                                          "cudaRuntimeGetVersion",
                                          "cudaGetLastError",
                                          "cudaPeekAtLastError",
                                          "cudaGetErrorName",
                                          "cudaGetErrorString",
                                          "cuMemGetInfo",
                                          "cuMemGetInfo_v2",
                                          "cuMemAddressReserve",
                                          "cuMemAddressFree",
                                          "cuMemSetAccess",
                                          "cuStreamQuery",
                                          "cuStreamQuery_ptsz",
                                          "cuEventQuery",
                                          "cuEventCreate",
                                          "cuEventRecord",
                                          "cuEventRecord_ptsz",
                                          "cuEventRecordWithFlags",
                                          "cuEventRecordWithFlags_ptsz",
                                          "cuEventElapsedTime",
                                          "cuEventElapsedTime_v2",
                                          "cuEventDestroy_v2",
                                          "cuStreamCreate",
                                          "cuStreamCreateWithPriority",
                                          "cuStreamDestroy_v2",
                                          "cuStreamIsCapturing",
                                          "cuStreamIsCapturing_ptsz",
                                          "cuGraphCreate",
                                          "cuInit",
                                          "cuDriverGetVersion",
                                          "cuGetProcAddress",
                                          "cuGetProcAddress_v2",
                                          "cuDeviceGet",
                                          "cuDeviceGetCount",
                                          "cuDeviceGetName",
                                          "cuDeviceGetAttribute",
                                          "cuDeviceGetPCIBusId",
                                          "cuDeviceTotalMem_v2",
                                          "cuDevicePrimaryCtxRelease_v2",
                                          "cuDevicePrimaryCtxSetFlags_v2",
                                          "cuCtxGetCurrent",
                                          "cuCtxGetDevice",
                                          "cuModuleUnload",
                                          "cuLibraryUnload",
                                          "cuFuncGetName",
                                          "cuGetErrorName",
                                          "cuGetErrorString"};

const std::vector<std::string_view> all_functions{
#define FN(name) #name,
#include "functions.def"
#undef FN
};

void expect_all_called(const Logged& logged, const std::set<std::string_view>& absent) {
    std::set<std::string_view> succeeded, failed;
    for (const Record& record : logged.log->records()) {
        if (record.depth == 0) (record.result == 0 ? succeeded : failed).insert(logged.log->name(record));
    }
    for (const std::string_view name : all_functions) {
        if (untraced.contains(name) || absent.contains(name) || name.starts_with("nccl")) continue;
        EXPECT_TRUE(succeeded.contains(name)) << name;
        EXPECT_TRUE(failed.contains(name) || name == "__cudaRegisterFunction") << name;
    }
}

TEST(StandinEvery, CallsEveryTracedFunctionWithSuccessAndWithAnError) {
    for (const char* library : {"libcudart.so.12", "libcudart.so.13"}) {
        Logged logged;
        const std::string line = run_workload(logged, {"--cudart", lib_dir + library, "every"});
        ASSERT_EQ(logged.status, 0) << library;
        ASSERT_TRUE(logged.log.has_value());
        const bool is_12 = std::string_view(library).ends_with("12");
        expect_all_called(
            logged, is_12 ? std::set<std::string_view>{}
                          : std::set<std::string_view>{"cudaMemPrefetchAsync_v2", "cudaMemPrefetchAsync_v2_ptsz"});
        EXPECT_EQ(number_in(line, "missing"), 0) << line;
        EXPECT_EQ(logged.outermost(), size_t(number_in(line, "calls")));
        const auto failures = std::ranges::count_if(
            logged.log->records(), [](const Record& record) { return record.depth == 0 && record.result != 0; });
        EXPECT_EQ(size_t(failures), size_t(number_in(line, "errors")));
    }
}

// What a word of a call that succeeded is: a handle of a kind, a number, nothing.
bool is_a(char what, uint64_t value) {
    const uint64_t kind = value >> 32;
    switch (what) {
        case 'C':
            return kind == 0x5d01;
        case 'E':
            return kind == 0x5d03;
        case 'F':
            return kind == 0x5d04;
        case 'M':
            return kind == 0x5d05;
        case 'G':
            return kind == 0x5d06;
        case 'X':
            return kind == 0x5d07;
        case 'H':
            return kind == 0x5d08;
        case 'P':  // any, but something
            return value != 0;
        case 'A':  // of 32 bits
            return value != 0 && kind == 0;
        case 'N':
            return true;
        case 'c':  // a context or none
            return value == 0 || kind == 0x5d01;
        case 'd':
            return value <= 1;
        case 'k':
            return value <= 4;
        case 'f':  // flags that `every` gives
            return value == 8;
        case 'p':
            return value == 10;
        default:
            return value == uint64_t(what - '0');
    }
}

struct Expected {
    const char* functions;  ///< a pattern
    const char* words;      ///< one letter or digit each
};

constexpr Expected expected_words[] = {
    {"cuLaunch(Cooperative)?Kernel(Ex)?(_ptsz)?", "FPP"},
    {"(__)?cudaLaunch(Cooperative)?Kernel(ExC)?(_ptsz)?", "PPP"},
    {"cu(da)?LaunchHostFunc(_ptsz)?", "P00"},
    {"cu(da)?M(em)?(allocPitch|AllocPitch_v2)", "PP0"},
    {"cuMemAlloc|cuMemAllocPitch", "PA0"},
    {"cudaMalloc(Host|Managed)?|cudaHostAlloc|cuMemAlloc(_v2|Managed|Host|Host_v2)|cuMemHostAlloc", "PP0"},
    {"cu(daM|MemA)(alloc|lloc)(FromPool)?Async(_ptsz)?", "PP0"},
    {"cudaFree", "N00"},
    {"cudaFree(Host|Async|Async_ptsz)|cuMemFree(_v2|Host|Async|Async_ptsz)?", "P00"},
    {"cuMemCreate", "PH0"},
    {"cuMemRelease", "H00"},
    {"cuMemMap", "PPH"},
    {"cuMemUnmap", "PP0"},
    {"cudaMemcpy(2D)?(Async)?(_pt[sd][sz])?", "Pk0"},
    {"cuMemcpy(2D)?(Async)?(_v2)?(_pt[sd][sz])?", "P40"},
    {"cuMemcpyHtoD(Async)?(_v2)?(_pt[sd][sz])?", "P10"},
    {"cuMemcpyDtoH(Async)?(_v2)?(_pt[sd][sz])?", "P20"},
    {"cuMemcpyDtoD(Async)?(_v2)?(_pt[sd][sz])?|cu(da)?Memcpy(Peer)(Async)?(_ptsz)?", "P30"},
    {"cu(da)?Memset.*", "P30"},
    {"cu(da)?MemPrefetchAsync.*", "P40"},
    {"cu(da)?(Stream|Device|Ctx)Synchronize(_v2|_ptsz)?", "000"},
    {"cu(da)?(EventSynchronize|StreamWaitEvent(_ptsz)?)", "E00"},
    {"cudaStreamBeginCapture(_ptsz)?|cuStreamBeginCapture_v2(_ptsz)?", "00k"},
    {"cuStreamBeginCapture(_ptsz)?", "000"},
    {"cu(da)?StreamEndCapture(_ptsz)?", "G00"},
    {"cu(da)?GraphInstantiate(_v2)?", "GX0"},
    {"cu(da)?GraphInstantiateWithFlags", "GXf"},
    {"cu(da)?GraphInstantiateWithParams(_ptsz)?", "GXp"},
    {"cu(da)?GraphExecUpdate(_v2)?", "GX0"},
    {"cu(da)?Graph(Upload|Launch)(_ptsz)?|cu(da)?GraphExecDestroy", "0X0"},
    {"cu(da)?GraphDestroy", "G00"},
    {"__cudaRegisterFunction", "P00"},
    {"cuModuleLoad.*|cuLibraryLoad.*", "M00"},
    {"cuModuleGetFunction|cuLibraryGetKernel", "FM0"},
    {"cuKernelGetFunction", "FF0"},
    {"cudaSetDevice", "d00"},
    {"cuCtx(SetCurrent|PopCurrent_v2)", "c00"},
    {"cuCtx(PushCurrent_v2|Destroy_v2)", "C00"},
    {"cuCtxCreate_v.|cuDevicePrimaryCtxRetain", "Cd0"},
};

TEST(StandinEvery, LogsForEachFunctionTheWordsThatTheReadmeSays) {
    Logged logged;
    run_workload(logged, {"every"});
    ASSERT_EQ(logged.status, 0);
    std::vector<std::pair<std::regex, const char*>> patterns;
    for (const Expected& expected : expected_words) patterns.emplace_back(expected.functions, expected.words);
    size_t checked = 0;
    for (const Record& record : logged.log->records()) {
        const std::string name(logged.log->name(record));
        if (record.depth != 0 || record.result != 0 || untraced.contains(name)) continue;
        const auto matches = [&name](const auto& pattern) { return std::regex_match(name, pattern.first); };
        const auto found = std::ranges::find_if(patterns, matches);
        ASSERT_NE(found, patterns.end()) << name;
        EXPECT_EQ(std::ranges::count_if(patterns, matches), 1) << name;
        for (size_t i = 0; i < 3; ++i)
            EXPECT_TRUE(is_a(found->second[i], record.args[i])) << name << " word " << i << ": " << record.args[i];
        ++checked;
    }
    EXPECT_GT(checked, 250u);
}

// A test that pairs records must not be able to pair the wrong ones without noticing.
TEST(StandinEvery, SharesNoSizesBetweenCallsAndUsesBothDevicesAndAllStreams) {
    Logged logged;
    run_workload(logged, {"--threads", "3", "every"});
    ASSERT_EQ(logged.status, 0);
    std::set<std::pair<uint32_t, uint64_t>> sizes;
    std::set<uint16_t> devices;
    std::set<uint64_t> streams;
    size_t wide = 0;
    for (const Record& record : logged.log->records()) {
        devices.insert(record.device);
        streams.insert(record.stream);
        const std::string_view name = logged.log->name(record);
        if (record.depth != 0 || record.result != 0 || name.find("emcpy") == std::string_view::npos) continue;
        EXPECT_TRUE(sizes.emplace(record.tid, record.args[0]).second) << name << " " << record.args[0];
        wide += record.args[0] >> 32 != 0;
    }
    EXPECT_GT(sizes.size(), 100u);
    EXPECT_GT(wide, 50u);
    EXPECT_TRUE(devices.contains(0) && devices.contains(1) && devices.contains(GROUND_TRUTH_NO_DEVICE));
    EXPECT_GE(streams.size(), 7u);
}

}  // namespace
}  // namespace ingero::standin
