// A libnvidia-ml.so.1 that says what a script beside it has it say: the file "nvml.script" in its own folder.
//
//     gpus 2                 how many there are, asked after asked
//     0.lost 0 1 0           whether the GPU is lost, a number each time its load is asked for
//     0.power 70000 85000    what a function says of a GPU, call by call; the last again and again
//     0.name Stand-in        texts have no spaces
//     0.processes 4711 1024  a pid and its bytes, again and again
//     0.xid 79 31            events, each told once
//     hang 0.power 3         its third call never returns
//     crash 1.temperature 2  its second call ends the process
//     fail init 9            a function returns a code
//
// What the script does not say is not supported. Built with STANDIN_NVML_OLD it lacks the functions of later drivers.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int success = 0, not_supported = 3, not_found = 6, too_small = 7, timed_out = 10, gpu_is_lost = 15;

struct Script {
    std::map<std::string, std::vector<std::string>> says;
    std::map<std::string, uint64_t> hangs, crashes;
    std::map<std::string, int> fails;
    std::map<std::string, uint64_t> calls;
    std::mutex mutex;

    Script() {
        Dl_info self{};
        dladdr(reinterpret_cast<void*>(&success_marker), &self);
        std::string path = self.dli_fname ? self.dli_fname : "";
        std::ifstream file(path.substr(0, path.rfind('/') + 1) + "nvml.script");
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::string key, name, word;
            words >> key;
            if (key == "hang" || key == "crash" || key == "fail") {
                uint64_t number = 1;
                words >> name >> number;
                if (key == "hang") hangs[name] = number;
                if (key == "crash") crashes[name] = number;
                if (key == "fail") fails[name] = static_cast<int>(number);
                continue;
            }
            while (words >> word) says[key].push_back(word);
        }
    }

    /// What it says at this call; null where it says nothing.
    const std::string* next(const std::string& key) {
        uint64_t call = 0;
        {
            const std::lock_guard lock(mutex);
            call = ++calls[key];
        }
        if (const auto hang = hangs.find(key); hang != hangs.end() && hang->second == call)
            for (;;) pause();
        if (const auto crash = crashes.find(key); crash != crashes.end() && crash->second == call) abort();
        const auto found = says.find(key);
        if (found == says.end() || found->second.empty()) return nullptr;
        return &found->second[std::min<size_t>(call - 1, found->second.size() - 1)];
    }

    static void success_marker() {}
};

Script& script() {
    static Script one;
    return one;
}

/// As the last question was answered.
std::atomic<uint64_t> gpus_now{0};

uint64_t gpu_count() {
    return gpus_now;
}

/// Numbers of GPUs.
std::set<uintptr_t>& lost_gpus() {
    static std::set<uintptr_t> lost;
    return lost;
}
bool is_lost(void* device) {
    return lost_gpus().contains(reinterpret_cast<uintptr_t>(device));
}

using Device = void*;
Device device_of(unsigned index) {
    return reinterpret_cast<Device>(uintptr_t{index} + 1);
}
std::string key_of(Device device, const std::string& name) {
    return std::to_string(reinterpret_cast<uintptr_t>(device) - 1) + "." + name;
}

template <class T>
int say(Device device, const std::string& name, T* out) {
    if (is_lost(device)) return gpu_is_lost;
    const std::string* text = script().next(key_of(device, name));
    if (!text) return not_supported;
    *out = static_cast<T>(std::stoull(*text));
    return success;
}

int say_text(Device device, const char* name, char* out, unsigned size) {
    const std::string* text = script().next(key_of(device, name));
    if (!text) return not_supported;
    if (text->size() >= size) return too_small;
    std::memcpy(out, text->c_str(), text->size() + 1);
    return success;
}

struct Utilization {
    unsigned gpu, memory;
};
struct Memory {
    unsigned long long total, free, used;
};
struct MemoryV2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct PciInfo {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
struct ProcessInfo {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
struct EventData {
    Device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

}  // namespace

EXPORT int nvmlInit_v2() {
    script().next("init");
    const auto fail = script().fails.find("init");
    return fail == script().fails.end() ? success : fail->second;
}
EXPORT int nvmlShutdown() {
    return success;
}
EXPORT const char* nvmlErrorString(int code) {
    return code == 9 ? "Driver Not Loaded" : "some error";
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
    const std::string* number = script().next("gpus");
    gpus_now = number ? std::stoull(*number) : 0;
    *count = static_cast<unsigned>(gpu_count());
    return success;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
    if (index >= gpu_count()) return not_found;
    *device = device_of(index);
    return success;
}
EXPORT int nvmlDeviceGetUUID(Device device, char* text, unsigned size) {
    return say_text(device, "uuid", text, size);
}
EXPORT int nvmlDeviceGetName(Device device, char* text, unsigned size) {
    return say_text(device, "name", text, size);
}
EXPORT int nvmlDeviceGetPciInfo_v3(Device device, PciInfo* info) {
    return say_text(device, "pci", info->bus_id, sizeof(info->bus_id));
}
EXPORT int nvmlDeviceGetUtilizationRates(Device device, Utilization* out) {
    if (const std::string* lost = script().next(key_of(device, "lost"))) {
        lost_gpus().erase(reinterpret_cast<uintptr_t>(device));
        if (*lost == "1") lost_gpus().insert(reinterpret_cast<uintptr_t>(device));
    }
    const int result = say(device, "utilization", &out->gpu);
    return result == success ? say(device, "memory_utilization", &out->memory) : result;
}
EXPORT int nvmlDeviceGetMemoryInfo(Device device, Memory* out) {
    const int result = say(device, "memory_total", &out->total);
    return result == success ? say(device, "memory_used", &out->used) : result;
}
EXPORT int nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned* out) {
    return say(device, "clock" + std::to_string(type), out);
}
EXPORT int nvmlDeviceGetMaxClockInfo(Device device, unsigned type, unsigned* out) {
    return say(device, "max_clock" + std::to_string(type), out);
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* out) {
    return say(device, "throttle", out);
}
EXPORT int nvmlDeviceGetTemperature(Device device, unsigned, unsigned* out) {
    return say(device, "temperature", out);
}
EXPORT int nvmlDeviceGetPowerUsage(Device device, unsigned* out) {
    return say(device, "power", out);
}
#ifndef STANDIN_NVML_OLD
EXPORT int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* out) {
    constexpr unsigned version = sizeof(MemoryV2) | 2U << 24;
    if (out->version != version) return not_supported;
    const int result = say(device, "memory_total", &out->total);
    return result == success ? say(device, "memory_used", &out->used) : result;
}
EXPORT int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* out) {
    return say(device, "power_limit", out);
}
EXPORT int nvmlDeviceGetRemappedRows(Device device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                                     unsigned* failed) {
    if (say(device, "remapped_corrected", corrected) != success) return not_supported;
    say(device, "remapped_uncorrected", uncorrected);
    say(device, "remap_pending", pending);
    return say(device, "remap_failed", failed);
}
EXPORT int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* active) {
    return say(device, "nvlink" + std::to_string(link), active);
}
EXPORT int nvmlDeviceGetNvLinkErrorCounter(Device device, unsigned link, unsigned counter, unsigned long long* out) {
    return say(device, "nvlink" + std::to_string(link) + "_errors" + std::to_string(counter), out);
}
#endif
EXPORT int nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned, unsigned long long* out) {
    return say(device, "ecc" + std::to_string(type), out);
}
EXPORT int nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned* out) {
    return say(device, "pcie" + std::to_string(counter), out);
}
EXPORT int nvmlDeviceGetPcieReplayCounter(Device device, unsigned* out) {
    return say(device, "replays", out);
}
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* out) {
    return say(device, "generation", out);
}
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* out) {
    return say(device, "max_generation", out);
}
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* out) {
    return say(device, "width", out);
}
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* out) {
    return say(device, "max_width", out);
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo* out) {
    const auto found = script().says.find(key_of(device, "processes"));
    if (found == script().says.end()) return not_supported;
    const auto listed = static_cast<unsigned>(found->second.size() / 2);
    const bool has_room = listed <= *count;
    *count = listed;
    if (!has_room) return too_small;
    for (unsigned i = 0; i < listed; ++i)
        out[i] = {static_cast<unsigned>(std::stoul(found->second[2 * i])), std::stoull(found->second[2 * i + 1]), 0, 0};
    return success;
}
EXPORT int nvmlEventSetCreate(void** set) {
    *set = &script();
    return success;
}
EXPORT int nvmlDeviceRegisterEvents(Device, unsigned long long, void*) {
    return success;
}
EXPORT int nvmlEventSetWait_v2(void*, EventData* out, unsigned timeout_ms) {
    for (unsigned index = 0; index < gpu_count(); ++index) {
        const std::string key = key_of(device_of(index), "xid");
        const auto found = script().says.find(key);
        if (found == script().says.end() || script().calls[key] >= found->second.size()) continue;
        *out = {device_of(index), 8, std::stoull(found->second[script().calls[key]++]), 0, 0};
        return success;
    }
    usleep(timeout_ms * 1'000);
    return timed_out;
}
