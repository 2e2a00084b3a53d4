// What the workloads share: settings, a counter of calls, pacing and the wish to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime_api.h"

namespace ingero::standin {

enum class Pace { spin, sleep };

struct Settings {
    // all
    std::string log, cudart, load = "dlopen", options, scratch = "/var/tmp";
    int cpu = -1;
    bool gate = false, late_load = false, late_driver = false, second_gate = false, orphan = false, quiet = false;
    double late_load_after_s = 0;
    unsigned forks = 0;  ///< 0: the work is done in the process itself
    uint64_t seed = 1;
    unsigned threads = 1;
    double kernel_us = -1;  ///< below 0: the workload's own
    double duration_s = 0;  ///< 0: no limit
    Pace pace = Pace::spin;
    double rate = 0;

    // calls
    uint64_t count = 1000;
    std::string op = "launch";
    uint64_t bytes = 1 << 20;

    // train
    uint64_t steps = 100, launches = 50, backward_launches = 0, batch_kib = 1024;
    std::string loader = "none";
    double loader_us = 500;
    uint64_t loader_kib = 1024;
    int loader_cpu = -1, backward_cpu = -1;
    bool loader_cold = false, pageable = false;
    uint64_t checkpoint_every = 0, checkpoint_kib = 4096;
    uint16_t ask_port = 0;
    uint64_t ask_every = 1;
    bool ask_keep = false;

    // serve
    double request_rate = 20;
    uint64_t requests = 0, batch = 8, prefill = 100, decode = 50, tokens = 32;
    bool graph = false;
    uint64_t recapture_every = 0;
    uint64_t temporary_mib = 0, leak_every = 0;

    // blocked, jump
    std::string reason = "sleep", blocked_op = "sync", how = "all";
    uint64_t turns = 20;
    double us = 5000, gap_us = 1000;
    uint64_t kib = 256;

    // every
    bool tail_jump = false;

    // chain
    std::string chain_library = "omit", chain_op = "sync";

    // fragment
    uint64_t piece_mib = 64, want_mib = 0;
};

struct Totals {
    uint64_t calls = 0;  ///< outermost calls of the runtime
    uint64_t launches = 0;
    uint64_t errors = 0;  ///< calls that returned one

    void add(const Totals& other) {
        calls += other.calls;
        launches += other.launches;
        errors += other.errors;
    }
};

/// Makes calls and counts them. One a thread.
class Caller {
  public:
    explicit Caller(const Runtime& runtime) : runtime_(runtime) {}

    int launch(const void* kernel, void* stream) {
        ++totals.launches;
        return count([&] { return runtime_.cudaLaunchKernel(kernel, {64, 1, 1}, {256, 1, 1}, nullptr, 0, stream); });
    }
    int copy(void* to, const void* from, size_t bytes, CopyKind kind, void* stream) {
        return count([&] { return runtime_.cudaMemcpyAsync(to, from, bytes, kind, stream); });
    }
    int synchronize(void* stream) {
        return count([&] { return runtime_.cudaStreamSynchronize(stream); });
    }
    void* allocate(size_t bytes) {
        void* pointer = nullptr;
        count([&] { return runtime_.cudaMalloc(&pointer, bytes); });
        return pointer;
    }
    void free(void* pointer) {
        count([&] { return runtime_.cudaFree(pointer); });
    }
    void* allocate_host(size_t bytes) {
        void* pointer = nullptr;
        count([&] { return runtime_.cudaMallocHost(&pointer, bytes); });
        return pointer;
    }
    void free_host(void* pointer) {
        count([&] { return runtime_.cudaFreeHost(pointer); });
    }
    void* create_stream() {
        void* stream = nullptr;
        count([&] { return runtime_.cudaStreamCreateWithFlags(&stream, 1); });
        return stream;
    }
    void destroy_stream(void* stream) {
        count([&] { return runtime_.cudaStreamDestroy(stream); });
    }

    /// Any other call: `call` returns its result. Counted before it is made, since it may not return.
    template <typename Function>
    int count(Function&& call) {
        ++totals.calls;
        const int result = call();
        if (result != 0) ++totals.errors;
        return result;
    }

    const Runtime& runtime() const { return runtime_; }

    Totals totals;

  private:
    const Runtime& runtime_;
};

/// Set by SIGTERM and SIGINT: workloads come to their end.
bool stopping();
void stop_on_signals();

/// Where this program is, without a slash at the end.
std::string own_folder();

uint64_t monotonic_ns();

/// The calling thread, and those that it starts from here on. Throws where there is no such CPU.
void keep_on_cpu(int cpu);

/// Sleeps, or spins, until then or until the program is to stop.
void wait_until_ns(uint64_t target_ns, Pace pace);

/// Keeps to a rate by the clock, not by the interval, so that a late turn does not make the next one late. Rate 0: no
/// waiting.
class Pacer {
  public:
    Pacer(double rate, Pace pace);
    void wait_turn();

  private:
    double interval_ns_;
    Pace pace_;
    uint64_t start_ns_;
    uint64_t turn_ = 0;
};

/// The time limit of the settings, from now.
uint64_t deadline_ns(const Settings& settings);

/// Runs `body(thread index, its caller)` on so many threads, the calling one being the first, and adds up their totals.
Totals run_threads(const Runtime& runtime, unsigned threads, const std::function<void(unsigned, Caller&)>& body);

/// Kernels that the runtime knows by name.
inline constexpr std::string_view kernel_names[] = {"gemm_kernel", "attention_kernel", "layernorm_kernel",
                                                    "optimizer_kernel"};
const void* kernel_symbol(size_t index);
void register_kernels(const Runtime& runtime, Totals& totals);

/// A workload: what to add to the options of the stand-in, records to make room for, and the work. The work returns its
/// own part of the last line, such as " steps=100".
struct Workload {
    std::function<std::string(const Settings&)> options;
    std::function<uint64_t(const Settings&)> records;
    std::function<std::string(const Runtime&, const Settings&, Totals&)> run;
};

Workload calls_workload();
Workload sync_loop_workload();
Workload train_workload();
Workload serve_workload();
Workload blocked_workload();
Workload jump_workload();
Workload every_workload();
Workload chain_workload();
Workload fragment_workload();

}  // namespace ingero::standin
