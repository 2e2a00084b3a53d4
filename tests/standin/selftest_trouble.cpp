// What goes wrong on purpose: faults of the device, memory in pieces, copies that wait, processes and threads that end
// inside calls.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "selftest_support.h"

namespace ingero::standin {
namespace {

const char kernel = 0;

int launch(const Runtime& runtime, void* stream) {
    return runtime.cudaLaunchKernel(&kernel, {1, 1, 1}, {32, 1, 1}, nullptr, 0, stream);
}

TEST(StandinFault, IsToldByTheSynchronisationThatWaitsForItAndByAllCallsAfter) {
    Logged logged;
    in_child(logged, "kernel_us=1000,at=cudaLaunchKernel:2:sticky=700", [](const Runtime& runtime) {
        void *stream = nullptr, *memory = nullptr;
        runtime.cudaStreamCreateWithFlags(&stream, 1);
        if (launch(runtime, stream) != 0 || launch(runtime, stream) != 0) return false;
        if (runtime.cudaStreamSynchronize(stream) != 700) return false;
        if (launch(runtime, stream) != 700 || runtime.cudaMalloc(&memory, 100) != 700) return false;
        if (runtime.cudaMemcpyAsync(stream, stream, 8, 3, nullptr) != 700) return false;
        if (runtime.cudaDeviceSynchronize() != 700 || runtime.cudaGetLastError() != 700) return false;
        auto* reset = function<int()>("cudaDeviceReset");
        return reset() == 0 && launch(runtime, stream) == 0 && runtime.cudaStreamSynchronize(stream) == 0;
    });
    EXPECT_EQ(logged.status, 0);
    EXPECT_FALSE(logged.of("cudaLaunchKernel").at(1).flags & GROUND_TRUTH_STICKY_ERROR);
    EXPECT_TRUE(logged.of("cudaStreamSynchronize").at(0).flags & GROUND_TRUTH_STICKY_ERROR);
    EXPECT_TRUE(logged.of("cuMemAlloc_v2").at(0).flags & GROUND_TRUTH_STICKY_ERROR);
}

TEST(StandinFault, IsOneOfItsDeviceOnly) {
    Logged logged;
    in_child(logged, "devices=2,kernel_us=0,at=cudaLaunchKernel:1:sticky=719", [](const Runtime& runtime) {
        auto* set = function<int(int)>("cudaSetDevice");
        if (launch(runtime, nullptr) != 0 || runtime.cudaDeviceSynchronize() != 719) return false;
        return set(1) == 0 && launch(runtime, nullptr) == 0 && runtime.cudaDeviceSynchronize() == 0 && set(0) == 0 &&
               runtime.cudaDeviceSynchronize() == 719;
    });
    EXPECT_EQ(logged.status, 0);
}

TEST(StandinFault, OfWhatIsCapturedComesWithTheLaunchOfItsGraph) {
    Logged logged;
    in_child(logged, "kernel_us=0,at=cudaLaunchKernel:1:sticky=710", [](const Runtime& runtime) {
        void *stream = nullptr, *graph = nullptr, *exec = nullptr;
        runtime.cudaStreamCreateWithFlags(&stream, 1);
        if (runtime.cudaStreamBeginCapture(stream, 0) != 0 || launch(runtime, stream) != 0) return false;
        if (runtime.cudaStreamEndCapture(stream, &graph) != 0) return false;
        if (runtime.cudaGraphInstantiate(&exec, graph, 0) != 0 || runtime.cudaDeviceSynchronize() != 0) return false;
        return runtime.cudaGraphLaunch(exec, stream) == 0 && runtime.cudaStreamSynchronize(stream) == 710;
    });
    EXPECT_EQ(logged.status, 0);
}

TEST(StandinScript, FailsACallThatIsCapturedToo) {
    Logged logged;
    in_child(logged, "kernel_us=0,at=cuLaunchKernel:2:error=701", [](const Runtime& runtime) {
        void *stream = nullptr, *graph = nullptr;
        runtime.cudaStreamCreateWithFlags(&stream, 1);
        return runtime.cudaStreamBeginCapture(stream, 0) == 0 && launch(runtime, stream) == 0 &&
               launch(runtime, stream) == 701 && runtime.cudaStreamEndCapture(stream, &graph) == 0;
    });
    EXPECT_EQ(logged.status, 0);
}

TEST(StandinScript, FailsTheNextCallOfAThreadWhenToldTo) {
    Logged logged;
    in_child(logged, "", [](const Runtime& runtime) {
        reinterpret_cast<void (*)(int)>(dlsym(runtime.library, "standin_fail_next"))(46);
        return runtime.cudaDeviceSynchronize() == 46 && runtime.cudaDeviceSynchronize() == 0;
    });
    EXPECT_EQ(logged.status, 0);
    EXPECT_TRUE(logged.of("cudaDeviceSynchronize").at(0).flags & GROUND_TRUTH_SCRIPTED_ERROR);
}

// 40 ms of kernel before the copy: who waits for it is told apart from who does not.
void copy_after_kernel(Logged& logged, const std::string& options, bool pinned, size_t bytes) {
    in_child(logged, "kernel_us=40000,copy_us=0," + options, [=](const Runtime& runtime) {
        void *stream = nullptr, *host = nullptr, *device = nullptr;
        runtime.cudaStreamCreateWithFlags(&stream, 1);
        runtime.cudaMalloc(&device, bytes);
        std::vector<char> pageable(bytes);
        if (pinned && runtime.cudaMallocHost(&host, bytes) != 0) return false;
        if (launch(runtime, stream) != 0) return false;
        // From the middle: memory is pinned as a whole.
        const void* from = pinned ? static_cast<char*>(host) + 64 : pageable.data();
        return runtime.cudaMemcpyAsync(device, from, bytes - 64, host_to_device, stream) == 0;
    });
    ASSERT_EQ(logged.status, 0);
}

bool copy_waited(const std::string& options, bool pinned, size_t bytes) {
    Logged logged;
    copy_after_kernel(logged, options, pinned, bytes);
    const Record copy = logged.of("cudaMemcpyAsync").at(0);
    EXPECT_EQ(logged.of("cuMemcpyHtoDAsync_v2").size(), 1u);
    return (copy.flags & GROUND_TRUTH_WAITED_FOR_DEVICE) != 0;
}

TEST(StandinStaging, MakesALargeAsynchronousCopyOfPageableMemoryWait) {
    EXPECT_TRUE(copy_waited("", false, 10 << 20));
    EXPECT_FALSE(copy_waited("", false, 60 << 10));
    EXPECT_FALSE(copy_waited("", true, 10 << 20));
    EXPECT_FALSE(copy_waited("staging=0", false, 10 << 20));
}

TEST(StandinFragment, HasNoRoomForWhatIsLargerThanItsLargestGap) {
    Logged logged;
    const std::string line = run_workload(logged, {"fragment", "--piece-mib", "32"});
    EXPECT_EQ(number_in(line, "result"), 2) << line;
    EXPECT_EQ(number_in(line, "free_bytes"), 512 << 20) << line;
    EXPECT_EQ(logged.of("cuMemGetInfo_v2").size(), 2u);

    Logged whole;
    EXPECT_EQ(number_in(run_workload(whole, {"--standin", "fragment=0", "fragment"}), "result"), 0);
}

TEST(StandinFragment, HasRoomAgainWhenNeighboursAreFreed) {
    Logged logged;
    in_child(logged, "fragment=1,memory_mb=8", [](const Runtime& runtime) {
        void* pieces[4] = {};
        for (void*& piece : pieces) {
            if (runtime.cudaMalloc(&piece, 2 << 20) != 0) return false;
        }
        void* large = nullptr;
        runtime.cudaFree(pieces[0]);
        runtime.cudaFree(pieces[2]);
        if (runtime.cudaMalloc(&large, 4 << 20) != 2) return false;
        runtime.cudaFree(pieces[1]);
        return runtime.cudaMalloc(&large, 6 << 20) == 0 && large == pieces[0];
    });
    EXPECT_EQ(logged.status, 0);
}

TEST(StandinProcesses, MakeTheCallsInForkedChildrenWithIdsOfTheirOwn) {
    Logged logged;
    const std::string line = run_workload(logged, {"--fork", "200", "calls", "--count", "5"});
    ASSERT_EQ(logged.status, 0) << line;
    EXPECT_EQ(number_in(line, "calls"), 1000) << line;
    EXPECT_EQ(number_in(line, "forks"), 200) << line;
    std::set<uint32_t> pids;
    for (const Record& record : logged.of("cudaLaunchKernel")) {
        EXPECT_EQ(record.pid, record.tid);
        EXPECT_NE(record.pid, logged.log->header().pid);
        pids.insert(record.pid);
    }
    EXPECT_EQ(logged.outermost(), 1000u);
    // Ids may be used again, though hardly within so short a time.
    EXPECT_GE(pids.size(), 190u);
}

TEST(StandinProcesses, EndInOrderWhenTheirParentIsTerminated) {
    Logged logged;
    Program program("standin-workload", {"--log", logged.path.text(), "--fork", "3", "--duration", "60", "sync-loop"});
    ASSERT_TRUE(eventually([&] {
        logged.log = GroundTruth::open(logged.path.text());
        return logged.log.has_value() && logged.log->records().size() > 100;
    }));
    kill(program.pid(), SIGTERM);
    const std::string line = program.read_line();
    EXPECT_EQ(program.finish(), 0);
    EXPECT_EQ(logged.outermost(), size_t(number_in(line, "calls"))) << line;
}

TEST(StandinProcesses, MakeCallsFrom500Threads) {
    Logged logged;
    const std::string line = run_workload(logged, {"--threads", "500", "calls", "--count", "1000"});
    ASSERT_EQ(logged.status, 0) << line;
    std::set<uint32_t> threads;
    for (const Record& record : logged.of("cudaLaunchKernel")) threads.insert(record.tid);
    EXPECT_EQ(threads.size(), 500u);
    EXPECT_EQ(logged.outermost(), 1000u);
}

TEST(StandinProcesses, ReplaceThemselvesInTheMiddleOfACall) {
    for (const char* how : {"exec", "exec-inside"}) {
        Logged logged;
        const std::string line = run_workload(logged, {"jump", "--how", how, "--count", "7"});
        ASSERT_EQ(logged.status, 0) << how;
        EXPECT_EQ(number_in(line, "calls"), 7) << line;
        const auto left = logged.of("cudaLaunchHostFunc");
        ASSERT_EQ(left.size(), 1u);
        EXPECT_FALSE(finished(left[0])) << how;
        const std::string second = logged.path.text() + ".exec";
        const auto after = GroundTruth::open(second);
        unlink(second.c_str());
        ASSERT_TRUE(after.has_value());
        EXPECT_EQ(after->header().pid, logged.log->header().pid);
        EXPECT_EQ(std::ranges::count_if(after->records(), [](const Record& r) { return r.depth == 0; }), 7);
    }
}

TEST(StandinProcesses, LoseThreadsInsideCallsAndGoOn) {
    Logged logged;
    const std::string line = run_workload(logged, {"jump", "--how", "thread-exit", "--count", "4"});
    ASSERT_EQ(logged.status, 0);
    EXPECT_EQ(number_in(line, "left"), 4) << line;
    const auto left = logged.of("cudaLaunchHostFunc");
    ASSERT_EQ(left.size(), 4u);
    for (const Record& record : left) {
        EXPECT_FALSE(finished(record));
        EXPECT_NE(record.tid, record.pid);
    }
    EXPECT_EQ(logged.of("cudaStreamSynchronize").size(), 4u);
}

TEST(StandinProcesses, LoadBetweenTwoGatesWhenAsked) {
    Program program("standin-workload", {"--gate", "--late-load", "--second-gate", "calls", "--count", "3"});
    const auto maps = [&program] {
        std::ifstream file("/proc/" + std::to_string(program.pid()) + "/maps");
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    EXPECT_EQ(program.read_line(), "ready " + std::to_string(program.pid()));
    EXPECT_EQ(maps().find("libcudart"), std::string::npos);
    program.send_line();
    EXPECT_EQ(program.read_line(), "loaded " + std::to_string(program.pid()));
    EXPECT_NE(maps().find("libcudart"), std::string::npos);
    program.send_line();
    EXPECT_EQ(number_in(program.read_line(), "calls"), 3);
    EXPECT_EQ(program.finish(), 0);
}

TEST(StandinProcesses, LoadAfterATimeWhenAsked) {
    Logged logged;
    const std::string line = run_workload(logged, {"--late-load-after", "0.01", "calls", "--count", "3"});
    EXPECT_EQ(number_in(line, "calls"), 3);
}

std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> found;
    const std::string id = std::to_string(parent);
    std::ifstream file("/proc/" + id + "/task/" + id + "/children");
    for (pid_t child; file >> child;) found.push_back(child);
    return found;
}

TEST(StandinLoader, MakesItsBatchesInProcessesOfItsOwn) {
    Logged logged;
    Program program("standin-workload", {"--log", logged.path.text(), "train", "--loader", "workers:3", "--loader-us",
                                         "100", "--loader-kib", "64", "--steps", "1000000"});
    ASSERT_TRUE(eventually([&] {
        logged.log = GroundTruth::open(logged.path.text());
        return logged.log.has_value() && logged.of("cudaMemcpyAsync").size() > 20;
    }));
    const std::vector<pid_t> workers = children_of(program.pid());
    EXPECT_EQ(workers.size(), 3u);
    for (const pid_t worker : workers) {
        std::ifstream file("/proc/" + std::to_string(worker) + "/comm");
        std::string comm;
        std::getline(file, comm);
        EXPECT_EQ(comm, "loader-worker");
    }
    kill(program.pid(), SIGTERM);
    const std::string line = program.read_line();
    EXPECT_EQ(program.finish(), 0) << line;
    EXPECT_GT(number_in(line, "steps"), 20) << line;
    for (const pid_t worker : workers) EXPECT_NE(kill(worker, 0), 0);
    for (const Record& record : logged.log->records()) EXPECT_EQ(record.pid, logged.log->header().pid);
}

TEST(StandinLoader, IsWaitedForWhenItIsSlow) {
    Logged logged;
    const std::string line = run_workload(logged, {"--kernel-us", "0", "train", "--loader", "workers:1", "--loader-us",
                                                   "5000", "--loader-kib", "4", "--steps", "10", "--launches", "1"});
    EXPECT_GE(number_in(line, "loader_wait_s"), 0.03) << line;
}

TEST(StandinLoader, IsGivenUpOnWhenAWorkerHasEnded) {
    Program program("standin-workload", {"train", "--loader", "workers:2", "--steps", "1000000"});
    ASSERT_TRUE(eventually([&] { return children_of(program.pid()).size() == 2; }));
    kill(children_of(program.pid()).at(0), SIGKILL);
    EXPECT_EQ(program.finish(), 1);
}

struct Frame {
    int number = 0;
    std::string name, file;
    uint64_t address = 0, offset = 0;
};

std::vector<Frame> frames_of(Program& program) {
    std::vector<Frame> frames;
    for (std::string line = program.read_line(); line.starts_with("frame "); line = program.read_line()) {
        std::istringstream words(line.substr(6));
        Frame frame;
        words >> frame.number >> frame.name >> std::hex >> frame.address >> frame.offset >> frame.file;
        frames.push_back(frame);
    }
    return frames;
}

std::vector<char> contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Names by address, from the section of that type.
std::set<std::pair<std::string, uint64_t>> symbols_of(const std::vector<char>& bytes, uint32_t type) {
    std::set<std::pair<std::string, uint64_t>> found;
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
    for (int i = 0; i < header->e_shnum; ++i) {
        if (sections[i].sh_type != type) continue;
        const char* names = bytes.data() + sections[sections[i].sh_link].sh_offset;
        const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[i].sh_offset);
        for (size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s)
            found.emplace(names + symbols[s].st_name, symbols[s].st_value);
    }
    return found;
}

TEST(StandinChain, SaysWhereItsFunctionsAreAndKeepsTheLastTwoFromTheDynamicSymbols) {
    for (const char* which : {"omit", "keep", "stripped"}) {
        Program program("standin-workload", {"chain", "--library", which, "--count", "2"});
        const std::vector<Frame> frames = frames_of(program);
        EXPECT_EQ(program.finish(), 0);
        ASSERT_EQ(frames.size(), 8u) << which;
        const std::vector<char> bytes = contents(frames[0].file);
        ASSERT_GT(bytes.size(), sizeof(Elf64_Ehdr)) << frames[0].file;
        const auto exported = symbols_of(bytes, SHT_DYNSYM);
        const auto all = symbols_of(bytes, SHT_SYMTAB);
        for (const Frame& frame : frames) {
            const std::pair symbol(frame.name, frame.offset);
            EXPECT_EQ(exported.contains(symbol), frame.number <= 6) << which << " " << frame.name;
            EXPECT_EQ(all.contains(symbol), std::string_view(which) != "stripped") << which << " " << frame.name;
        }
    }
}

TEST(StandinChain, EndsInTheCallThatIsAskedFor) {
    for (const char* op : {"sync", "launch"}) {
        Logged logged;
        Program program("standin-workload",
                        {"--log", logged.path.text(), "chain", "--op", op, "--count", "3", "--library", "keep"});
        frames_of(program);
        EXPECT_EQ(program.finish(), 0);
        logged.log = GroundTruth::open(logged.path.text());
        ASSERT_TRUE(logged.log.has_value());
        const bool is_sync = std::string_view(op) == "sync";
        EXPECT_EQ(logged.of("cudaStreamSynchronize").size(), is_sync ? 3u : 0u);
        EXPECT_EQ(logged.of("cudaLaunchKernel").size(), is_sync ? 0u : 3u);
    }
}

#if defined(__x86_64__)
// A function that keeps a frame pointer begins with `push %rbp`.
TEST(StandinChain, HasFramePointersInOneLibraryAndNoneInTheOther) {
    for (const char* which : {"omit", "keep"}) {
        Program program("standin-workload", {"chain", "--library", which});
        const std::vector<Frame> frames = frames_of(program);
        ASSERT_EQ(frames.size(), 8u);
        const std::vector<char> bytes = contents(frames[0].file);
        size_t with = 0;
        for (const Frame& frame : frames) {
            // The text of so small a library lies in the file where it lies in memory.
            ASSERT_LT(frame.offset, bytes.size());
            with += bytes[frame.offset] == 0x55;
        }
        // One function sizes its frame as it runs, which takes a frame pointer in any case; and a compiler may save the
        // register as it saves any other.
        if (std::string_view(which) == "keep") {
            EXPECT_EQ(with, 8u);
        } else {
            EXPECT_LE(with, 2u);
        }
    }
}
#endif

}  // namespace
}  // namespace ingero::standin
