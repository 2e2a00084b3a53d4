// What programs that measure tracing have in common: an engine on the stand-in libraries in this process, and an
// ingerod that traces it.
#pragma once

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/time.h"
#include "core/wire/child_process.h"
#include "core/wire/client.h"

namespace ingero::bench {

using namespace std::chrono_literals;
using namespace nlohmann::literals;

/// An engine's step: a token of a batch, say.
inline constexpr int launches_a_step = 100;
inline constexpr size_t work_bytes = 2 << 20;

/// Of a program that takes [--json] [--turns N].
struct Arguments {
    bool as_json = false;
    int turns = 1;

    /// Nothing where they are others.
    static std::optional<Arguments> parse(int argc, char** argv, int default_turns) {
        Arguments arguments{.turns = default_turns};
        for (int i = 1; i < argc; ++i) {
            if (std::string_view(argv[i]) == "--json")
                arguments.as_json = true;
            else if (std::string_view(argv[i]) == "--turns" && i + 1 < argc)
                arguments.turns = std::max(atoi(argv[++i]), 1);
            else
                return std::nullopt;
        }
        return arguments;
    }
};

/// Gone with what is in it when it goes out of scope; without a path where it could not be made.
class Folder {
  public:
    explicit Folder(const std::string& name) : path_(std::filesystem::temp_directory_path() / (name + "-XXXXXX")) {
        if (!mkdtemp(path_.data())) path_.clear();
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
        if (!path_.empty()) std::filesystem::remove_all(path_);
    }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
};

inline double quantile(std::vector<double> values, double part) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

/// What a step took. What else runs on the machine only ever adds: the tenth of the steps that it left alone counts.
struct Steps {
    double undisturbed_ns = 0, mean_ns = 0;
};

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

    Steps device_bound(int steps) const { return run(&kernels[0], steps); }
    Steps launch_bound(int steps) const { return run(&kernels[1], steps); }
    /// The same, but between launches the program works on memory of its own, which takes the caches from the probes.
    Steps amid_work(int steps) const { return run(&kernels[1], steps, work_bytes); }

    struct TimedLaunches {
        std::vector<uint32_t> ns;             ///< that each took
        std::vector<uint64_t> step_began_ns;  ///< CLOCK_MONOTONIC: the first of each `launches_a_step`
    };

    /// Launches one after another for so long. The device is waited for between steps.
    TimedLaunches time_launches(uint64_t duration_ns) const {
        TimedLaunches launches;
        std::vector<uint32_t>& ns = launches.ns;
        const uint64_t until = monotonic_now_ns() + duration_ns;
        for (uint64_t last = monotonic_now_ns(); last < until; last = monotonic_now_ns()) {
            launches.step_began_ns.push_back(last);
            for (int i = 0; i < launches_a_step; ++i) {
                launch_(&kernels[1], {}, {}, nullptr, 0, nullptr);
                const uint64_t now = monotonic_now_ns();
                ns.push_back(static_cast<uint32_t>(now - std::exchange(last, now)));
            }
            synchronize_(nullptr);
        }
        return launches;
    }

  private:
    Steps run(const char* kernel, int steps, size_t bytes = 0) const {
        std::vector<uint64_t> memory(bytes / sizeof(uint64_t));
        std::vector<double> ns;
        ns.reserve(static_cast<size_t>(steps));
        const uint64_t begin = monotonic_now_ns();
        uint64_t last = begin;
        for (int step = 0; step < steps; ++step) {
            for (int i = 0; i < launches_a_step; ++i) {
                launch_(kernel, {}, {}, nullptr, 0, nullptr);
                for (size_t at = 0; at < memory.size(); at += cache_line / sizeof(uint64_t)) memory[at] += at;
                asm volatile("" : : "r"(memory.data()) : "memory");
            }
            synchronize_(nullptr);
            const uint64_t now = monotonic_now_ns();
            ns.push_back(static_cast<double>(now - std::exchange(last, now)));
        }
        return {.undisturbed_ns = quantile(ns, 0.1), .mean_ns = static_cast<double>(last - begin) / steps};
    }

    static constexpr size_t cache_line = 64;
    static constexpr char kernels[2] = {};
    int (*launch_)(const void*, Dim3, Dim3, void**, size_t, void*) = nullptr;
    int (*synchronize_)(void*) = nullptr;
};

/// With a store of its own.
class Tracer {
  public:
    Tracer(const std::string& directory, const std::string& config) : socket_(directory + "/run/control.sock") {
        std::ofstream(directory + "/ingerod.conf") << config;
        auto child = ChildProcess::start({"/usr/bin/setpriv", "--pdeathsig", "KILL", "--", INGEROD_PROGRAM,
                                          "--directory", directory + "/run", "--config", directory + "/ingerod.conf",
                                          "--worker", WORKER_PROGRAM, "--log-level", "error"});
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

    /// What status says that tracing costs, as a share of time; 0 where it says nothing.
    double told() {
        if (!client_) return 0;
        const auto status = client_->call("status", nlohmann::json::object(), 30s);
        return status ? status->value("/overhead/measured_permille"_json_pointer, 0.0) / 1000 : 0;
    }

    /// What `method` answers; null where it does not.
    nlohmann::json ask(const std::string& method, nlohmann::json params = nlohmann::json::object()) {
        if (!client_) return nullptr;
        auto answer = client_->call(method, std::move(params), 60s);
        return answer ? std::move(*answer) : nlohmann::json();
    }
    /// Its own, all threads together.
    double cpu_seconds() const {
        if (!child_) return 0;
        std::ifstream file("/proc/" + std::to_string(child_->pid()) + "/stat");
        std::string text;
        std::getline(file, text);
        std::istringstream fields(text.substr(text.rfind(')') + 2));
        std::string field;
        double ticks = 0;
        for (int number = 3; fields >> field; ++number)
            if (number == 14 || number == 15) ticks += std::stod(field);
        return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
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

}  // namespace ingero::bench
