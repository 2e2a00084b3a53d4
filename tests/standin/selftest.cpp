// The stand-in libraries do what their README says.
#include <elf.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "selftest_support.h"

namespace ingero::standin {
namespace {

constexpr uint64_t ms = 1'000'000;
const char kernel = 0;

int launch(const Runtime& runtime, void* stream = nullptr) {
    return runtime.cudaLaunchKernel(&kernel, {1, 1, 1}, {32, 1, 1}, nullptr, 0, stream);
}

void* new_stream(const Runtime& runtime, unsigned flags) {
    void* stream = nullptr;
    runtime.cudaStreamCreateWithFlags(&stream, flags);
    return stream;
}

TEST(StandinLog, HoldsTheDriverCallsInsideTheRuntimeCallThatMadeThem) {
    Logged logged;
    in_child(logged, "kernel_us=0", [](const Runtime& runtime) {
        return launch(runtime) == 0 && runtime.cudaStreamSynchronize(nullptr) == 0;
    });
    ASSERT_EQ(logged.status, 0);
    const auto outer = logged.of("cudaLaunchKernel");
    const auto inner = logged.of("cuLaunchKernel");
    ASSERT_EQ(outer.size(), 1u);
    ASSERT_EQ(inner.size(), 1u);
    EXPECT_EQ(outer[0].depth, 0);
    EXPECT_EQ(inner[0].depth, 1);
    EXPECT_EQ(inner[0].tid, outer[0].tid);
    EXPECT_LE(outer[0].start_ns, inner[0].start_ns);
    EXPECT_GE(outer[0].end_ns, inner[0].end_ns);
    EXPECT_GE(on_cpu_ns(outer[0]), on_cpu_ns(inner[0]));
    EXPECT_EQ(logged.outermost(), 2u);
    EXPECT_EQ(logged.of("cuStreamSynchronize").size(), 1u);
}

TEST(StandinLog, HasTheClocksOfItsOpeningAndTheIdsOfItsProcess) {
    Logged logged;
    in_child(logged, "kernel_us=0", [](const Runtime& runtime) { return launch(runtime) == 0; });
    const auto& header = logged.log->header();
    const Record first = logged.of("cudaLaunchKernel").at(0);
    EXPECT_EQ(header.pid, first.pid);
    EXPECT_GT(first.start_ns, header.opened.monotonic_ns);
    EXPECT_GT(header.opened.realtime_ns, header.opened.boottime_ns);
}

TEST(StandinLog, CountsWhatDoesNotFit) {
    Logged logged;
    in_child(logged, "kernel_us=0,log_capacity=100", [](const Runtime& runtime) {
        for (int i = 0; i < 200; ++i) launch(runtime);
        return true;
    });
    EXPECT_EQ(logged.log->records().size(), 100u);
    EXPECT_GE(logged.log->overflow(), 300u);
}

TEST(StandinLog, IsSharedByAForkedChildUnderItsOwnIds) {
    Logged logged;
    in_child(logged, "kernel_us=0", [](const Runtime& runtime) {
        launch(runtime);
        const pid_t child = fork();
        if (child == 0) _exit(launch(runtime));
        return status_of(child) == 0;
    });
    EXPECT_EQ(logged.status, 0);
    const auto launches = logged.of("cudaLaunchKernel");
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_NE(launches[0].pid, launches[1].pid);
    EXPECT_EQ(launches[1].pid, launches[1].tid);
}

TEST(StandinLog, IsNotOpenedFromAFileThatIsNone) {
    LogPath path;
    EXPECT_FALSE(GroundTruth::open(path.text()).has_value());
    FILE* file = fopen(path.text().c_str(), "w");
    ASSERT_NE(file, nullptr);
    fputs(std::string(1000, 'x').c_str(), file);
    fclose(file);
    EXPECT_FALSE(GroundTruth::open(path.text()).has_value());
}

TEST(StandinDevice, RunsAStreamInOrderAndTakesTheTimeOfItsKernels) {
    Logged logged;
    in_child(logged, "kernel_us=2000", [](const Runtime& runtime) {
        void* stream = new_stream(runtime, 1);
        for (int i = 0; i < 10; ++i) launch(runtime, stream);
        return runtime.cudaStreamSynchronize(stream) == 0;
    });
    const auto launches = logged.of("cudaLaunchKernel");
    const Record sync = logged.of("cudaStreamSynchronize").at(0);
    EXPECT_GE(sync.end_ns - launches.at(0).start_ns, 20 * ms);
    EXPECT_TRUE(sync.flags & GROUND_TRUTH_WAITED_FOR_DEVICE);
    EXPECT_FALSE(sync.flags & GROUND_TRUTH_SLEPT);
    EXPECT_GT(sync.waited_ns, 0u);
    EXPECT_LE(sync.waited_ns, duration_ns(sync));
    EXPECT_EQ(sync.stream, launches.at(0).stream);
    EXPECT_FALSE(launches.at(9).flags & GROUND_TRUTH_WAITED_FOR_DEVICE);
}

TEST(StandinDevice, RunsStreamsBesideEachOtherButTheLegacyOneAfterTheBlockingOnes) {
    Logged logged;
    in_child(logged, "kernel_us=150000", [](const Runtime& runtime) {
        void* beside = new_stream(runtime, 1);
        void* blocking = new_stream(runtime, 0);
        void* events[3];
        for (void*& event : events) runtime.cudaEventCreateWithFlags(&event, 0);
        launch(runtime, beside);
        launch(runtime, blocking);
        launch(runtime, nullptr);
        runtime.cudaEventRecord(events[0], beside);
        runtime.cudaEventRecord(events[1], blocking);
        runtime.cudaEventRecord(events[2], nullptr);
        runtime.cudaDeviceSynchronize();
        auto* elapsed = function<int(float*, void*, void*)>("cudaEventElapsedTime");
        float apart = 0, after = 0;
        elapsed(&apart, events[0], events[1]);
        elapsed(&after, events[1], events[2]);
        return apart < 149 && after > 149;
    });
    EXPECT_EQ(logged.status, 0);
}

TEST(StandinDevice, MakesALaunchWaitWhileItsQueueIsFull) {
    Logged logged;
    in_child(logged, "kernel_us=50000,queue=4", [](const Runtime& runtime) {
        void* stream = new_stream(runtime, 1);
        for (int i = 0; i < 6; ++i) launch(runtime, stream);
        return true;
    });
    const auto launches = logged.of("cudaLaunchKernel");
    ASSERT_EQ(launches.size(), 6u);
    const auto is_full = [](const Record& record) { return (record.flags & GROUND_TRUTH_QUEUE_FULL) != 0; };
    EXPECT_EQ(std::ranges::count_if(std::span(launches).first(4), is_full), 0);
    EXPECT_GE(std::ranges::count_if(launches, is_full), 1);
    EXPECT_GE(launches[5].end_ns - launches[0].start_ns, 100 * ms);
    EXPECT_EQ(std::ranges::count_if(logged.of("cuLaunchKernel"), is_full), std::ranges::count_if(launches, is_full));
}

TEST(StandinDevice, TakesTheTimeThatACopyNeeds) {
    Logged logged;
    in_child(logged, "copy_gbps=1,copy_us=0", [](const Runtime& runtime) {
        constexpr size_t size = 20'000'000;
        void *device = nullptr, *host = nullptr;
        runtime.cudaMalloc(&device, size);
        runtime.cudaMallocHost(&host, size);
        return runtime.cudaMemcpy(device, host, size, host_to_device) == 0 &&
               runtime.cudaMemcpyAsync(device, host, size, host_to_device, nullptr) == 0 &&
               runtime.cudaStreamSynchronize(nullptr) == 0;
    });
    EXPECT_EQ(logged.status, 0);
    const Record copy = logged.of("cudaMemcpy").at(0);
    EXPECT_GE(duration_ns(copy), 20 * ms);
    EXPECT_EQ(copy.bytes, 20'000'000u);
    EXPECT_EQ(logged.of("cuMemcpyHtoD_v2").at(0).bytes, 20'000'000u);
    EXPECT_FALSE(logged.of("cudaMemcpyAsync").at(0).flags & GROUND_TRUTH_WAITED_FOR_DEVICE);
    EXPECT_TRUE(logged.of("cudaStreamSynchronize").at(0).flags & GROUND_TRUTH_WAITED_FOR_DEVICE);
}

Record sync_with(const std::string& how) {
    Logged logged;
    in_child(logged, "kernel_us=40000,sync=" + how, [](const Runtime& runtime) {
        return launch(runtime) == 0 && runtime.cudaStreamSynchronize(nullptr) == 0;
    });
    return logged.of("cudaStreamSynchronize").at(0);
}

TEST(StandinDevice, SpendsCpuTimeOnASpinningWaitAndNoneOnABlockingOne) {
    const Record spun = sync_with("spin");
    const Record blocked = sync_with("block");
    EXPECT_GE(duration_ns(spun), 39 * ms);
    EXPECT_GE(duration_ns(blocked), 39 * ms);
    EXPECT_GT(on_cpu_ns(spun), 4 * on_cpu_ns(blocked));
    EXPECT_TRUE(blocked.flags & GROUND_TRUTH_SLEPT);
    EXPECT_TRUE(sync_with("yield").flags & GROUND_TRUTH_WAITED_FOR_DEVICE);
}

TEST(StandinDevice, WaitsAsTheProgramSetsItsFlags) {
    Logged logged;
    in_child(logged, "kernel_us=5000", [](const Runtime& runtime) {
        function<int(unsigned)>("cudaSetDeviceFlags")(4);  // cudaDeviceScheduleBlockingSync
        return launch(runtime) == 0 && runtime.cudaDeviceSynchronize() == 0;
    });
    EXPECT_TRUE(logged.of("cudaDeviceSynchronize").at(0).flags & GROUND_TRUTH_SLEPT);
}

TEST(StandinDevice, LoadsAFunctionAtItsFirstLaunchWhenAsked) {
    Logged logged;
    in_child(logged, "kernel_us=0,lazy_ms=5",
             [](const Runtime& runtime) { return launch(runtime) == 0 && launch(runtime) == 0; });
    const auto launches = logged.of("cudaLaunchKernel");
    EXPECT_GE(duration_ns(launches.at(0)), 5 * ms);
    EXPECT_TRUE(launches.at(0).flags & GROUND_TRUTH_LAZY_LOAD);
    EXPECT_FALSE(launches.at(1).flags & GROUND_TRUTH_LAZY_LOAD);
}

TEST(StandinDevice, LaunchesAGraphInTheTimeOfWhatWasCaptured) {
    Logged logged;
    in_child(logged, "kernel_us=4000", [](const Runtime& runtime) {
        void* stream = new_stream(runtime, 1);
        void *graph = nullptr, *exec = nullptr;
        if (runtime.cudaStreamBeginCapture(stream, 0) != 0) return false;
        for (int i = 0; i < 5; ++i) launch(runtime, stream);
        return runtime.cudaStreamEndCapture(stream, &graph) == 0 &&
               runtime.cudaGraphInstantiate(&exec, graph, 0) == 0 && runtime.cudaGraphLaunch(exec, stream) == 0 &&
               runtime.cudaStreamSynchronize(stream) == 0 && runtime.cudaGraphExecDestroy(exec) == 0 &&
               runtime.cudaGraphLaunch(exec, stream) == 400;
    });
    EXPECT_EQ(logged.status, 0);
    EXPECT_TRUE(logged.of("cudaLaunchKernel").at(0).flags & GROUND_TRUTH_CAPTURED);
    const uint64_t start = logged.of("cudaGraphLaunch").at(0).start_ns;
    EXPECT_GE(logged.of("cudaStreamSynchronize").at(0).end_ns - start, 20 * ms);
}

TEST(StandinMemory, RefusesWhatIsOverItsCapacityAndGivesFreedAddressesOutAgain) {
    Logged logged;
    in_child(logged, "memory_mb=10", [](const Runtime& runtime) {
        void *first = nullptr, *second = nullptr, *third = nullptr;
        if (runtime.cudaMalloc(&first, 8 << 20) != 0 || runtime.cudaMalloc(&second, 4 << 20) != 2) return false;
        if (runtime.cudaGetLastError() != 2 || runtime.cudaGetLastError() != 0) return false;
        return runtime.cudaFree(first) == 0 && runtime.cudaMalloc(&third, 8 << 20) == 0 && third == first &&
               runtime.cudaFree(const_cast<char*>(&kernel)) == 1;
    });
    EXPECT_EQ(logged.status, 0);
    EXPECT_EQ(logged.of("cudaMalloc").at(1).result, 2);
    EXPECT_EQ(logged.of("cudaFree").at(0).bytes, uint64_t(8 << 20));
}

TEST(StandinMemory, GivesTheHostMemoryThatItCanTouch) {
    Logged logged;
    in_child(logged, "", [](const Runtime& runtime) {
        void* pinned = nullptr;
        void* managed = nullptr;
        if (runtime.cudaMallocHost(&pinned, 5000) != 0) return false;
        if (function<int(void**, size_t, unsigned)>("cudaMallocManaged")(&managed, 5000, 1) != 0) return false;
        std::memset(pinned, 1, 5000);
        std::memset(managed, 1, 5000);
        return runtime.cudaFreeHost(pinned) == 0 && runtime.cudaFree(managed) == 0;
    });
    EXPECT_EQ(logged.status, 0);
}

TEST(StandinScript, FailsACallWhenToldTo) {
    Logged logged;
    in_child(logged, "at=cudaMalloc:3:error=2,at=cudaFree:/2:error=700", [](const Runtime& runtime) {
        void* pointers[4] = {};
        int results[4], freed[4];
        for (int i = 0; i < 4; ++i) results[i] = runtime.cudaMalloc(&pointers[i], 1000);
        for (int i = 0; i < 4; ++i) freed[i] = runtime.cudaFree(pointers[i]);
        return results[1] == 0 && results[2] == 2 && results[3] == 0 && freed[0] == 0 && freed[1] == 700 &&
               freed[3] == 700 && runtime.cudaGetLastError() == 700;
    });
    EXPECT_EQ(logged.status, 0);
    EXPECT_TRUE(logged.of("cudaMalloc").at(2).flags & GROUND_TRUTH_SCRIPTED_ERROR);
    EXPECT_EQ(logged.of("cuMemAlloc_v2").size(), 3u);
}

TEST(StandinScript, DelaysEveryNthCall) {
    Logged logged;
    in_child(logged, "kernel_us=0,at=cudaLaunchKernel:/3:spin=3000:sleep=4000", [](const Runtime& runtime) {
        for (int i = 0; i < 9; ++i) launch(runtime);
        return true;
    });
    const auto launches = logged.of("cudaLaunchKernel");
    size_t delayed = 0;
    for (size_t i = 0; i < launches.size(); ++i) {
        const bool flagged = (launches[i].flags & GROUND_TRUTH_SCRIPTED_DELAY) != 0;
        EXPECT_EQ(flagged, i % 3 == 2) << i;
        EXPECT_TRUE(!flagged || duration_ns(launches[i]) >= 7 * ms) << i;
        delayed += flagged;
    }
    EXPECT_EQ(delayed, 3u);
}

TEST(StandinScript, BlocksForTheReasonThatIsAskedFor) {
    for (const char* reason : {"sleep", "timer", "poll", "pipe", "socket", "futex", "child"}) {
        Logged logged;
        in_child(logged, std::string("at=cudaStreamSynchronize:*:") + reason + "=30000", [](const Runtime& runtime) {
            runtime.prepare(0);
            return runtime.cudaStreamSynchronize(nullptr) == 0;
        });
        const Record call = logged.of("cudaStreamSynchronize").at(0);
        EXPECT_GE(duration_ns(call), 29 * ms) << reason;
        EXPECT_LT(on_cpu_ns(call), duration_ns(call) / 2) << reason;
        EXPECT_TRUE(call.flags & GROUND_TRUTH_SLEPT) << reason;
    }
}

TEST(StandinScript, ReadsItsOptionsFromAFileToo) {
    LogPath script;
    FILE* file = fopen(script.text().c_str(), "w");
    ASSERT_NE(file, nullptr);
    fputs("# a comment\nkernel_us=0\nat=cudaMalloc:1:error=2\n", file);
    fclose(file);
    Logged logged;
    setenv("INGERO_STANDIN_SCRIPT", script.text().c_str(), 1);
    in_child(logged, "", [](const Runtime& runtime) {
        void* pointer = nullptr;
        return runtime.cudaMalloc(&pointer, 1) == 2;
    });
    unsetenv("INGERO_STANDIN_SCRIPT");
    EXPECT_EQ(logged.status, 0);
}

TEST(StandinScript, EndsTheProcessOnAnOptionThatItDoesNotKnow) {
    for (const char* options : {"nonsense=1", "kernel_us=x", "at=nothing:1:spin=1", "at=cudaMalloc:1:dance=1"}) {
        const pid_t child = fork();
        if (child == 0) {
            setenv("INGERO_STANDIN", options, 1);
            close(STDERR_FILENO);
            std::string error;
            const auto runtime = Runtime::load(lib_dir + "libcudart.so.12", error);
            runtime->cudaGetLastError();
            _exit(0);
        }
        EXPECT_EQ(status_of(child), 2) << options;
    }
}

TEST(StandinVariants, OnStreamZeroUseTheThreadsOwnStreamWithPtsz) {
    Logged logged;
    in_child(logged, "kernel_us=20000", [](const Runtime& runtime) {
        using Launch = int(const void*, Dim3, Dim3, void**, size_t, void*);
        const Dim3 one;
        function<Launch>("cudaLaunchKernel_ptsz")(&kernel, one, one, nullptr, 0, nullptr);
        function<Launch>("__cudaLaunchKernel")(&kernel, one, one, nullptr, 0, nullptr);
        function<Launch>("__cudaLaunchKernel_ptsz")(&kernel, one, one, nullptr, 0, nullptr);
        return function<int(void*)>("cudaStreamSynchronize_ptsz")(nullptr) == 0 && runtime.cudaDeviceSynchronize() == 0;
    });
    EXPECT_EQ(logged.status, 0);
    EXPECT_EQ(logged.of("cuLaunchKernel_ptsz").size(), 2u);
    EXPECT_EQ(logged.of("cudaLaunchKernel_ptsz").size(), 2u);
    EXPECT_EQ(logged.of("cuLaunchKernel").at(0).depth, 2);
}

TEST(StandinVariants, ShareAnAddressWhereTheyAreAliasesAndElseDoNot) {
    using Any = void();
    const auto driver = [](const char* name) { return function<Any>(name, "libcuda.so.1"); };
    ASSERT_NE(driver("cuMemcpyPeer"), nullptr);
    EXPECT_EQ(driver("cuMemcpyPeer"), driver("cuMemcpyPeer_ptds"));
    EXPECT_EQ(driver("cuStreamDestroy"), driver("cuStreamDestroy_v2"));
    EXPECT_NE(driver("cuLaunchKernel"), driver("cuLaunchKernel_ptsz"));
    EXPECT_NE(function<Any>("cudaLaunchKernel"), function<Any>("cudaLaunchKernel_ptsz"));
}

TEST(StandinVariants, CarryTheVersionOfTheirLibrary) {
    for (const char* name : {"libcudart.so.12", "libcudart.so.13"}) {
        void* library = dlopen((lib_dir + name).c_str(), RTLD_NOW);
        ASSERT_NE(library, nullptr) << dlerror();
        EXPECT_NE(dlvsym(library, "cudaLaunchKernel", name), nullptr);
        EXPECT_EQ(dlvsym(library, "cudaLaunchKernel", "libcudart.so.11"), nullptr);
    }
    EXPECT_NE(function<void()>("cudaMemPrefetchAsync_v2", "libcudart.so.12"), nullptr);
    EXPECT_EQ(function<void()>("cudaMemPrefetchAsync_v2", "libcudart.so.13"), nullptr);
}

TEST(StandinVariants, AreFoundByNameThroughTheDriver) {
    Logged logged;
    in_child(logged, "", [](const Runtime&) {
        auto* find =
            function<int(const char*, void**, int, unsigned long long, int*)>("cuGetProcAddress_v2", "libcuda.so.1");
        const auto found = [find](const char* name, unsigned long long flags, int version = 12000) {
            void* address = nullptr;
            find(name, &address, version, flags, nullptr);
            return address;
        };
        const auto exported = [](const char* name) {
            return reinterpret_cast<void*>(function<void()>(name, "libcuda.so.1"));
        };
        return found("cuMemAlloc", 0) == exported("cuMemAlloc_v2") &&
               found("cuCtxSynchronize", 0) == exported("cuCtxSynchronize") &&
               found("cuCtxSynchronize", 0, 13000) == exported("cuCtxSynchronize_v2") &&
               found("cuLaunchKernel", 2) == exported("cuLaunchKernel_ptsz") && found("cuNothing", 0) == nullptr;
    });
    EXPECT_EQ(logged.status, 0);
}

#if defined(__x86_64__)
// An exported function of ours and the byte it starts with.
std::vector<std::pair<std::string, unsigned char>> exported_starts(const std::string& path) {
    std::vector<std::pair<std::string, unsigned char>> found;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) return found;
    // Shared: the kernel puts the breakpoints of a tracer that runs beside this into private mappings, even unused
    // ones.
    const auto* base = static_cast<const char*>(mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_SHARED, file, 0));
    close(file);
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(base);
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(base + header->e_shoff);
    for (int i = 0; i < header->e_shnum; ++i) {
        if (sections[i].sh_type != SHT_DYNSYM) continue;
        const char* names = base + sections[sections[i].sh_link].sh_offset;
        const auto* symbols = reinterpret_cast<const Elf64_Sym*>(base + sections[i].sh_offset);
        for (size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
            const Elf64_Sym& symbol = symbols[s];
            if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
            const Elf64_Shdr& text = sections[symbol.st_shndx];
            const char* start = base + text.sh_offset + (symbol.st_value - text.sh_addr);
            found.emplace_back(names + symbol.st_name, static_cast<unsigned char>(*start));
        }
    }
    munmap(const_cast<char*>(base), size_t(status.st_size));
    return found;
}

TEST(StandinExports, AllStartWithAPush) {
    for (const char* name : {"libcudart.so.12", "libcudart.so.13", "libcuda.so.1"}) {
        size_t checked = 0;
        for (const auto& [function, first] : exported_starts(lib_dir + name)) {
            if (!function.starts_with("cu") && !function.starts_with("__cuda")) continue;
            EXPECT_TRUE(first >= 0x50 && first <= 0x57) << name << " " << function << " starts with " << int(first);
            ++checked;
        }
        EXPECT_GT(checked, 90u) << name;
    }
}
#endif

}  // namespace
}  // namespace ingero::standin
