// What tracing takes from a program, with the real ingerod: an engine that waits for its device, and one that launches
// as fast as it can. Both loops run on the stand-in libraries in this process, traced and untraced in turns.
//
// Untraced means that no daemon runs: the probe sets could be turned off instead, but the scheduler's tracepoints, the
// readers of the rings and the watch on mappings would stay, and they are part of what tracing costs.
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "bench/figures.h"
#include "core/model/time.h"
#include "core/wire/child_process.h"
#include "core/wire/client.h"
#include "daemon/ingerod/probes/call_probes.h"

using namespace ingero;
using namespace std::chrono_literals;

namespace {

constexpr int default_turns = 20;
constexpr int warm_up_steps = 5;
/// An engine's step: a token of a batch, say.
constexpr int launches_a_step = 100;
constexpr int device_steps = 50;  ///< 10 ms each
constexpr int launch_steps = 600;
constexpr uint64_t launches_a_turn = uint64_t{launches_a_step} * (warm_up_steps + device_steps + launch_steps);

struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
};

int fail_with(const std::string& what) {
    fprintf(stderr, "overhead: %s\n", what.c_str());
    return 1;
}

/// Kernels of 100 µs, so that 10,000 a second keep the device busy, or of none; a launch takes 2 to 4 µs of CPU time.
class Engine {
  public:
    static std::optional<Engine> load() {
        setenv("INGERO_STANDIN", "kernel_us=0,kernel.device_bound_us=100,call_ns=1500", 1);
        void* library = dlopen(CUDART_LIBRARY, RTLD_NOW);
        Engine engine;
        const auto find = [&](auto& function, const char* name) {
            function =
                library ? reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name)) : nullptr;
            return function != nullptr;
        };
        void** (*register_binary)(void*) = nullptr;
        void (*register_function)(void**, const char*, char*, const char*, int, void*, void*, Dim3*, Dim3*, int*) =
            nullptr;
        if (!find(engine.launch_, "cudaLaunchKernel") || !find(engine.synchronize_, "cudaStreamSynchronize") ||
            !find(register_binary, "__cudaRegisterFatBinary") || !find(register_function, "__cudaRegisterFunction"))
            return std::nullopt;
        void** binary = register_binary(nullptr);
        register_function(binary, &kernels[0], nullptr, "device_bound", -1, nullptr, nullptr, nullptr, nullptr,
                          nullptr);
        register_function(binary, &kernels[1], nullptr, "launch_bound", -1, nullptr, nullptr, nullptr, nullptr,
                          nullptr);
        return engine;
    }

    /// Mean ns a step.
    double device_bound(int steps) const { return run(&kernels[0], steps); }
    double launch_bound(int steps) const { return run(&kernels[1], steps); }

  private:
    double run(const char* kernel, int steps) const {
        const uint64_t begin = monotonic_now_ns();
        for (int step = 0; step < steps; ++step) {
            for (int i = 0; i < launches_a_step; ++i) launch_(kernel, {}, {}, nullptr, 0, nullptr);
            synchronize_(nullptr);
        }
        return static_cast<double>(monotonic_now_ns() - begin) / steps;
    }

    static constexpr char kernels[2] = {};
    int (*launch_)(const void*, Dim3, Dim3, void**, size_t, void*) = nullptr;
    int (*synchronize_)(void*) = nullptr;
};

/// With a store of its own, and without a budget: the price of each call is what is looked for.
class Tracer {
  public:
    explicit Tracer(const std::string& directory) : socket_(directory + "/run/control.sock") {
        std::ofstream(directory + "/ingerod.conf") << "[capture]\noverhead_budget = 0\n";
        auto child =
            ChildProcess::start({INGEROD_PROGRAM, "--directory", directory + "/run", "--config",
                                 directory + "/ingerod.conf", "--worker", WORKER_PROGRAM, "--log-level", "error"});
        if (!child) return;
        child_.emplace(std::move(*child));
        const auto until = std::chrono::steady_clock::now() + 30s;
        while (!is_traced() && std::chrono::steady_clock::now() < until) {
            const timespec a_while{0, 5'000'000};
            nanosleep(&a_while, nullptr);
        }
    }
    ~Tracer() { stop(); }

    /// Of this process; asked again while it is fewer than `expected`, since the store may be behind.
    uint64_t calls_recorded(uint64_t expected) {
        const auto until = std::chrono::steady_clock::now() + 30s;
        uint64_t calls = 0;
        while (client_ && calls < expected && std::chrono::steady_clock::now() < until) {
            const auto stats = client_->call("stats", {{"pid", getpid()}, {"since_ns", 3'600'000'000'000}}, 60s);
            if (!stats) return calls;
            calls = 0;
            for (const auto& op : stats->at("ops")) calls += op.at("count").get<uint64_t>();
        }
        return calls;
    }

    void stop() {
        if (!child_) return;
        kill(child_->pid(), SIGTERM);
        child_->wait();
        child_.reset();
    }

  private:
    bool is_traced() {
        if (!client_) {
            auto client = ControlClient::connect(socket_);
            if (!client) return false;
            client_.emplace(std::move(*client));
        }
        const auto answer = client_->call("processes", nlohmann::json::object(), 30s);
        if (!answer) return false;
        for (const auto& process : answer->at("processes"))
            if (process.at("pid") == getpid()) return process.at("state") == "tracing";
        return false;
    }

    std::string socket_;
    std::optional<ChildProcess> child_;
    std::optional<ControlClient> client_;
};

struct Turn {
    double device_ns = 0, launch_ns = 0;  ///< a step
};

Turn take_turn(const Engine& engine) {
    engine.device_bound(warm_up_steps);
    return {.device_ns = engine.device_bound(device_steps), .launch_ns = engine.launch_bound(launch_steps)};
}

/// Fraction of the steps that are not made any more.
double fewer_steps(double untraced_ns, double traced_ns) {
    return 1 - untraced_ns / traced_ns;
}

double quantile(std::vector<double> values, double part) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

/// The middle half of the turns.
std::string spread(const std::vector<double>& values) {
    char text[64];
    snprintf(text, sizeof(text), "half of the turns %.4f to %.4f", quantile(values, 0.25), quantile(values, 0.75));
    return text;
}

std::optional<uint32_t> call_cost_ns() {
    KernelFeatures features;
    auto probes = CallProbes::load(features);
    if (!probes) return std::nullopt;
    const auto cost = (*probes)->calibrate();
    return cost ? std::optional(cost->call_ns) : std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
    bool as_json = false;
    int turns = default_turns;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (strcmp(argv[i], "--turns") == 0 && i + 1 < argc)
            turns = std::max(atoi(argv[++i]), 1);
        else
            return fail_with("usage: overhead [--json] [--turns N]");
    }
    std::string directory = std::filesystem::temp_directory_path() / "ingero-overhead-XXXXXX";
    if (!mkdtemp(directory.data())) return fail_with(strerror(errno));
    struct Remove {
        const std::string& path;
        ~Remove() { std::filesystem::remove_all(path); }
    } const remove{directory};

    const auto cost_ns = call_cost_ns();
    if (!cost_ns) return fail_with("cannot measure what a call costs");
    const auto engine = Engine::load();
    if (!engine) return fail_with("cannot load " CUDART_LIBRARY);
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);

    std::vector<double> device, launch, untraced_rates, traced_rates, device_rates;
    for (int turn = 0; turn < turns; ++turn) {
        Turn traced, untraced;
        // Who is first takes turns too, so that a drift of the machine's meets both.
        for (const bool now_traced : {turn % 2 == 0, turn % 2 != 0}) {
            std::optional<Tracer> tracer;
            if (now_traced) tracer.emplace(directory);
            cpu_set_t all;
            sched_getaffinity(0, sizeof(all), &all);
            sched_setaffinity(0, sizeof(first), &first);
            (now_traced ? traced : untraced) = take_turn(*engine);
            sched_setaffinity(0, sizeof(all), &all);
            if (!now_traced) continue;
            // Each launch is a call of the runtime and, inside it, of the driver.
            const uint64_t calls = tracer->calls_recorded(2 * launches_a_turn);
            tracer->stop();
            std::filesystem::remove_all(directory + "/run");
            if (calls < 2 * launches_a_turn)
                return fail_with("a call that is not recorded is cheaper than one that is: " + std::to_string(calls) +
                                 " of " + std::to_string(2 * launches_a_turn));
        }
        device.push_back(fewer_steps(untraced.device_ns, traced.device_ns));
        launch.push_back(fewer_steps(untraced.launch_ns, traced.launch_ns));
        device_rates.push_back(1e9 * launches_a_step / untraced.device_ns);
        untraced_rates.push_back(1e9 * launches_a_step / untraced.launch_ns);
        traced_rates.push_back(1e9 * launches_a_step / traced.launch_ns);
    }

    const double expected = 2 * *cost_ns * bench::median(traced_rates) / 1e9;
    bench::print(
        "overhead",
        {{"device-bound: fewer steps", "device_bound_slowdown", bench::median(device), "",
          "at most 0.004; " + spread(device)},
         {"device-bound: launches", "device_bound_launches_per_s", bench::median(device_rates), "1/s", ""},
         {"launch-bound: fewer steps", "launch_bound_slowdown", bench::median(launch), "", spread(launch)},
         {"price of two probed calls x rate of launches", "launch_bound_price", expected, "", "what it may be at most"},
         {"launch-bound: launches, untraced", "launch_bound_launches_per_s", bench::median(untraced_rates), "1/s", ""},
         {"launch-bound: launches, traced", "launch_bound_traced_launches_per_s", bench::median(traced_rates), "1/s",
          ""},
         {"a probed call, calibrated", "call_cost_ns", static_cast<double>(*cost_ns), "ns", ""},
         {"turns", "turns", static_cast<double>(turns), "", ""}},
        as_json);
    return 0;
}
