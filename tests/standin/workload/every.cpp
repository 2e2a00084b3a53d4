#include "every.h"

#include <array>
#include <mutex>
#include <stdexcept>

namespace ingero::standin {

namespace {

constexpr int devices = 2;

}  // namespace

Every::Every(const Runtime& runtime, unsigned thread)
    : caller(runtime), driver_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)), thread_(thread) {
    fail_next_ = reinterpret_cast<void (*)(int)>(dlsym(runtime.library, "standin_fail_next"));
    if (fail_next_ == nullptr || driver_ == nullptr)
        throw std::runtime_error("`every` needs the stand-in libraries, the driver loaded");
    int version = 0;
    call<int(int*)>("cudaRuntimeGetVersion", &version);
    is_cuda_13_ = version >= 13000;
    own_streams_.resize(devices);
    for (int i = devices - 1; i >= 0; --i) {
        call<int(int)>("cudaSetDevice", i);
        for (unsigned flags : {0u, 1u}) {
            void* made = nullptr;
            call<int(void**, unsigned)>("cudaStreamCreateWithFlags", &made, flags);
            own_streams_[size_t(i)].push_back(made);
        }
        void* event = nullptr;
        call<int(void**, unsigned)>("cudaEventCreateWithFlags", &event, 0u);
        call<int(void*, void*)>("cudaEventRecord", event, nullptr);
        events_.insert(events_.begin(), event);
    }
    call<int(void**, size_t)>("cudaMalloc", &memory_, size_t(wide()));
}

void* Every::find(const char* name) {
    void* found = dlsym(caller.runtime().library, name);
    if (found == nullptr) found = dlsym(driver_, name);
    (found == nullptr ? missing_ : called_).insert(name);
    return found;
}

void Every::fail_next() {
    constexpr std::array<int, 8> codes{1, 2, 201, 400, 700, 719, 801, 999};
    fail_next_(codes[++numbers_ % codes.size()]);
}

void Every::turn_device() {
    device_ = 1 - device_;
    call<int(int)>("cudaSetDevice", device_);
}

void* Every::stream() {
    switch (++turn_ % 5) {
        case 0:
            return nullptr;
        case 1:
            return own_streams_[size_t(device_)][0];
        case 2:
            return reinterpret_cast<void*>(uintptr_t(1));
        case 3:
            return own_streams_[size_t(device_)][1];
        default:
            return reinterpret_cast<void*>(uintptr_t(2));
    }
}

namespace {

struct Counted {
    std::set<std::string> called, missing;
};

void call_all(Every& every, const Settings& settings) {
    call_every_name(every);
    every.turn_device();
    call_every_launch(every, settings.tail_jump);
    every.turn_device();
    call_every_allocation(every);
    every.turn_device();
    call_every_copy(every);
    every.turn_device();
    call_every_synchronization(every);
    every.turn_device();
    call_every_graph(every);
    call_every_device(every);
}

std::string run_every(const Runtime& runtime, const Settings& settings, Totals& totals) {
    Counted counted;
    std::mutex lock;
    totals.add(run_threads(runtime, settings.threads, [&](unsigned index, Caller& caller) {
        Every every(runtime, index);
        call_all(every, settings);
        caller.totals.add(every.caller.totals);
        const std::lock_guard guard(lock);
        counted.called.insert(every.called().begin(), every.called().end());
        counted.missing.insert(every.missing().begin(), every.missing().end());
    }));
    std::string line =
        " functions=" + std::to_string(counted.called.size()) + " missing=" + std::to_string(counted.missing.size());
    for (const std::string& name : counted.missing) line += " no=" + name;
    return line;
}

}  // namespace

Workload every_workload() {
    return {
        [](const Settings&) { return "kernel_us=0,copy_us=0,copy_gbps=1000000,memory_mb=4194304,devices=2"; },
        [](const Settings& settings) { return uint64_t(settings.threads) * 4096; },
        run_every,
    };
}

}  // namespace ingero::standin
