// What ingerod itself costs on a host with many traced processes that do nothing, many copies of the libraries, and a
// program that maps files without end that are nobody's concern: its own CPU time and memory, with the real ingerod.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "bench/tracing.h"

using namespace ingero;
using namespace ingero::bench;
namespace fs = std::filesystem;

namespace {

constexpr int processes = 500;
constexpr int copies = 200;
constexpr uint64_t second = 1'000'000'000;
constexpr uint64_t measured_ns = 20 * second;
constexpr int mappings_per_s = 5'000;

int fail_with(const std::string& what) {
    fprintf(stderr, "host_scale: %s\n", what.c_str());
    return 1;
}

void sleep_until(uint64_t ns) {
    const timespec until{static_cast<time_t>(ns / second), static_cast<long>(ns % second)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
}

/// Ended with their parent at the latest.
class Children {
  public:
    ~Children() {
        for (const pid_t pid : pids_) kill(pid, SIGKILL);
        for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    }
    template <class Run>
    void start(const Run& run) {
        const pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run();
            for (;;) pause();
        }
        if (pid > 0) pids_.push_back(pid);
    }
    size_t count() const { return pids_.size(); }

  private:
    std::vector<pid_t> pids_;
};

void call_once(const std::string& library) {
    dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    void* runtime = dlopen(library.c_str(), RTLD_NOW);
    const auto set_device = runtime ? reinterpret_cast<int (*)(int)>(dlsym(runtime, "cudaSetDevice")) : nullptr;
    if (!set_device || set_device(0) != 0) _exit(1);
}

void map_without_end() {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (uint64_t next = monotonic_now_ns();; next += second / 100) {
        for (int i = 0; i < mappings_per_s / 100; ++i) {
            void* memory = mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
            if (memory != MAP_FAILED) munmap(memory, page);
        }
        sleep_until(next + second / 100);
    }
}

struct Cost {
    double cpu = 0;  ///< of a core
    double memory_bytes = 0;
};

Cost measure(Tracer& tracer) {
    const double before = tracer.cpu_seconds();
    sleep_until(monotonic_now_ns() + measured_ns);
    const double cpu = (tracer.cpu_seconds() - before) * second / measured_ns;
    return {cpu, tracer.ask("status").value("memory_bytes", 0.0)};
}

}  // namespace

int main(int argc, char** argv) {
    const bool as_json = argc == 2 && std::string_view(argv[1]) == "--json";
    if (argc > 1 && !as_json) return fail_with("usage: host_scale [--json]");
    const Folder scratch("ingero-host-scale");
    const std::string& directory = scratch.path();
    if (directory.empty()) return fail_with(strerror(errno));
    std::vector<std::string> libraries;
    for (int i = 0; i < copies; ++i) {
        const fs::path folder = fs::path(directory) / std::to_string(i);
        fs::create_directory(folder);
        fs::copy_file(CUDART_LIBRARY, folder / "libcudart.so.12");
        libraries.push_back(folder / "libcudart.so.12");
    }

    call_once(libraries[0]);  // traced itself, which is how the tracer is seen to be ready
    Tracer tracer(directory, "");
    const Cost alone = measure(tracer);
    Children children;
    const double cpu_before = tracer.cpu_seconds();
    for (int i = 1; i < processes; ++i) children.start([&] { call_once(libraries[static_cast<size_t>(i % copies)]); });
    const auto are_traced = [&] {
        size_t traced = 0;
        for (const auto& process : tracer.ask("processes").value("processes", nlohmann::json::array()))
            traced += process.at("state") == "tracing";
        return traced >= processes;
    };
    const uint64_t until_ns = monotonic_now_ns() + 300 * second;
    while (!are_traced()) {
        if (monotonic_now_ns() > until_ns) return fail_with("not all processes are traced");
        sleep_until(monotonic_now_ns() + second / 10);
    }
    // For some seconds more, what they map is being read.
    const uint64_t at_rest_until_ns = monotonic_now_ns() + 60 * second;
    for (double before = -1, now = tracer.cpu_seconds(); now - before > 0.01; now = tracer.cpu_seconds()) {
        if (monotonic_now_ns() > at_rest_until_ns) break;  // measured as it is
        before = now;
        sleep_until(monotonic_now_ns() + 2 * second);
    }
    const double found_s = tracer.cpu_seconds() - cpu_before;
    const Cost idle = measure(tracer);
    Children mapper;
    mapper.start(map_without_end);
    const Cost mapping = measure(tracer);
    tracer.stop();

    std::vector<Row> rows;
    rows.push_back({"ingerod with one traced process: CPU", "alone_cpu", alone.cpu, "", "of a core"});
    rows.push_back({"to find and attach to all: CPU time", "found_s", found_s, "s",
                    std::to_string(processes) + " processes, " + std::to_string(copies) + " copies"});
    rows.push_back({"with all of them, idle: CPU", "idle_cpu", idle.cpu, "", "of a core; at most 0.005"});
    rows.push_back(
        {"the same: anonymous memory", "idle_memory_mib", idle.memory_bytes / (1 << 20), "MiB", "at most 96"});
    rows.push_back({"beside a program that maps files: CPU", "mapping_cpu", mapping.cpu, "",
                    std::to_string(mappings_per_s) + " executable mappings a second"});
    bench::print("host_scale", rows, as_json);
    return 0;
}
