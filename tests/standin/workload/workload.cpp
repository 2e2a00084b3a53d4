#include "workload.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <thread>

namespace ingero::standin {

namespace {

std::atomic<bool> stop{false};

// Symbols need only be distinct addresses, as a kernel's stub is in a real program.
const char symbols[std::size(kernel_names)] = {};

}  // namespace

bool stopping() {
    return stop.load(std::memory_order_relaxed);
}

void stop_on_signals() {
    struct sigaction action {};
    action.sa_handler = [](int) { stop.store(true, std::memory_order_relaxed); };
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
}

std::string own_folder() {
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    const std::string whole(path, length < 0 ? 0 : size_t(length));
    return whole.substr(0, whole.rfind('/'));
}

uint64_t monotonic_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return uint64_t(time.tv_sec) * 1'000'000'000 + uint64_t(time.tv_nsec);
}

void keep_on_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(size_t(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) throw std::runtime_error("no such CPU: " + std::to_string(cpu));
}

// Sleeps are cut up, since the signal to stop reaches only one of the threads.
void wait_until_ns(uint64_t target_ns, Pace pace) {
    constexpr uint64_t longest = 20'000'000;
    for (uint64_t now = monotonic_ns(); now < target_ns && !stopping(); now = monotonic_ns()) {
        if (pace == Pace::spin) continue;
        const uint64_t until = std::min(target_ns, now + longest);
        const timespec time{time_t(until / 1'000'000'000), long(until % 1'000'000'000)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
    }
}

Pacer::Pacer(double rate, Pace pace)
    : interval_ns_(rate > 0 ? 1e9 / rate : 0), pace_(pace), start_ns_(monotonic_ns()) {}

void Pacer::wait_turn() {
    if (interval_ns_ == 0) return;
    wait_until_ns(start_ns_ + uint64_t(interval_ns_ * double(turn_++)), pace_);
}

uint64_t deadline_ns(const Settings& settings) {
    if (settings.duration_s <= 0) return std::numeric_limits<uint64_t>::max();
    return monotonic_ns() + uint64_t(settings.duration_s * 1e9);
}

Totals run_threads(const Runtime& runtime, unsigned threads, const std::function<void(unsigned, Caller&)>& body) {
    std::vector<Totals> totals(threads);
    const auto work = [&](unsigned index) {
        Caller caller(runtime);
        body(index, caller);
        totals[index] = caller.totals;
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i) {
        others.emplace_back([&work, i] {
            pthread_setname_np(pthread_self(), ("worker-" + std::to_string(i)).c_str());
            work(i);
        });
    }
    work(0);
    for (std::thread& other : others) other.join();
    Totals sum;
    for (const Totals& part : totals) sum.add(part);
    return sum;
}

const void* kernel_symbol(size_t index) {
    return &symbols[index % std::size(kernel_names)];
}

// A real library would read the binary that is registered, and ours is none.
void register_kernels(const Runtime& runtime, Totals& totals) {
    if (runtime.prepare == nullptr) return;
    void** handle = runtime.register_fat_binary(nullptr);
    for (size_t i = 0; i < std::size(kernel_names); ++i) {
        runtime.register_function(handle, &symbols[i], nullptr, kernel_names[i].data(), -1, nullptr, nullptr, nullptr,
                                  nullptr, nullptr);
    }
    totals.calls += 1 + std::size(kernel_names);
}

}  // namespace ingero::standin
