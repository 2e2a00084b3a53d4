#include "daemon/relay/nvml.h"

#include <dlfcn.h>

namespace ingero::nvml {

namespace {

template <class F>
void find(void* handle, F& function, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (function) return;
        function = reinterpret_cast<F>(dlsym(handle, name));
    }
}

}  // namespace

Result<std::unique_ptr<Library>> Library::load(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char* why = dlerror();
        return fail(ErrorCode::internal, "cannot load " + path + ": " + (why ? why : "no reason given"));
    }
    std::unique_ptr<Library> library(new Library());
    Functions& call = library->call;
    find(handle, call.init, {"nvmlInit_v2"});
    find(handle, call.shutdown, {"nvmlShutdown"});
    find(handle, call.error_string, {"nvmlErrorString"});
    find(handle, call.device_count, {"nvmlDeviceGetCount_v2"});
    find(handle, call.device_by_index, {"nvmlDeviceGetHandleByIndex_v2"});
    find(handle, call.uuid, {"nvmlDeviceGetUUID"});
    find(handle, call.name, {"nvmlDeviceGetName"});
    find(handle, call.pci_info, {"nvmlDeviceGetPciInfo_v3"});
    find(handle, call.utilization, {"nvmlDeviceGetUtilizationRates"});
    find(handle, call.memory, {"nvmlDeviceGetMemoryInfo"});
    find(handle, call.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
    find(handle, call.clock, {"nvmlDeviceGetClockInfo"});
    find(handle, call.max_clock, {"nvmlDeviceGetMaxClockInfo"});
    find(handle, call.throttle_reasons,
         {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
    find(handle, call.temperature, {"nvmlDeviceGetTemperature"});
    find(handle, call.power, {"nvmlDeviceGetPowerUsage"});
    find(handle, call.power_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
    find(handle, call.ecc_errors, {"nvmlDeviceGetTotalEccErrors"});
    find(handle, call.remapped_rows, {"nvmlDeviceGetRemappedRows"});
    find(handle, call.pcie_throughput, {"nvmlDeviceGetPcieThroughput"});
    find(handle, call.pcie_replays, {"nvmlDeviceGetPcieReplayCounter"});
    find(handle, call.pcie_generation, {"nvmlDeviceGetCurrPcieLinkGeneration"});
    find(handle, call.pcie_max_generation, {"nvmlDeviceGetMaxPcieLinkGeneration"});
    find(handle, call.pcie_width, {"nvmlDeviceGetCurrPcieLinkWidth"});
    find(handle, call.pcie_max_width, {"nvmlDeviceGetMaxPcieLinkWidth"});
    find(handle, call.nvlink_state, {"nvmlDeviceGetNvLinkState"});
    find(handle, call.nvlink_errors, {"nvmlDeviceGetNvLinkErrorCounter"});
    // Version 3 has the structure of version 2.
    find(handle, call.compute_processes,
         {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
    find(handle, call.graphics_processes,
         {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"});
    find(handle, call.event_set_create, {"nvmlEventSetCreate"});
    find(handle, call.event_set_free, {"nvmlEventSetFree"});
    find(handle, call.register_events, {"nvmlDeviceRegisterEvents"});
    find(handle, call.event_set_wait, {"nvmlEventSetWait_v2"});
    if (!call.init || !call.device_count || !call.device_by_index || !call.uuid)
        return fail(ErrorCode::internal, path + " lacks functions that are needed to query a GPU",
                    "install a newer driver");
    return library;
}

Library::~Library() {
    // Never unloaded: threads of the driver's may still run its code.
    if (call.shutdown) call.shutdown();
}

std::string Library::describe(Return code) const {
    const char* text = call.error_string ? call.error_string(code) : nullptr;
    return text ? text : "error " + std::to_string(code);
}

}  // namespace ingero::nvml
