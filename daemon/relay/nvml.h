// The few functions of libnvidia-ml.so.1 that are used, declared by its public binary interface. A function that a
// library does not have is a null pointer: only what it would have returned is missing. One thread.
#pragma once

#include <memory>
#include <string>

#include "core/model/result.h"

namespace ingero::nvml {

using Device = struct DeviceHandle*;
using EventSet = struct EventSetHandle*;
using Return = int;

inline constexpr Return success = 0;
inline constexpr Return timeout = 10;
inline constexpr Return insufficient_size = 7;
inline constexpr Return gpu_is_lost = 15;  ///< fallen off the bus, or out of reach for another reason

/// What the library's functions fill in.
struct Utilization {
    unsigned gpu;
    unsigned memory;
};
struct Memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};
struct MemoryV2 {
    unsigned version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
};
struct PciInfo {
    char bus_id_legacy[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned device_id;
    unsigned subsystem_id;
    char bus_id[32];
};
struct ProcessInfo {
    unsigned pid;
    unsigned long long used_memory;  ///< UINT64_MAX: not known
    unsigned gpu_instance;
    unsigned compute_instance;
};
struct EventData {
    Device device;
    unsigned long long type;
    unsigned long long data;  ///< of event_xid: its number
    unsigned gpu_instance;
    unsigned compute_instance;
};
inline constexpr unsigned memory_v2_version = sizeof(MemoryV2) | 2U << 24;
inline constexpr unsigned long long event_xid = 8;
inline constexpr unsigned clock_graphics = 0, clock_sm = 1, clock_memory = 2;
inline constexpr unsigned ecc_corrected = 0, ecc_uncorrected = 1, ecc_since_start = 0;
inline constexpr unsigned pcie_sent = 0, pcie_received = 1;
inline constexpr unsigned nvlinks = 18;
inline constexpr unsigned nvlink_replay = 0, nvlink_recovery = 1, nvlink_crc_flit = 2, nvlink_crc_data = 3;

struct Functions {
    Return (*init)() = nullptr;
    Return (*shutdown)() = nullptr;
    const char* (*error_string)(Return) = nullptr;
    Return (*device_count)(unsigned*) = nullptr;
    Return (*device_by_index)(unsigned, Device*) = nullptr;
    Return (*uuid)(Device, char*, unsigned) = nullptr;
    Return (*name)(Device, char*, unsigned) = nullptr;
    Return (*pci_info)(Device, PciInfo*) = nullptr;
    Return (*utilization)(Device, Utilization*) = nullptr;
    Return (*memory)(Device, Memory*) = nullptr;
    Return (*memory_v2)(Device, MemoryV2*) = nullptr;
    Return (*clock)(Device, unsigned type, unsigned*) = nullptr;
    Return (*max_clock)(Device, unsigned type, unsigned*) = nullptr;
    Return (*throttle_reasons)(Device, unsigned long long*) = nullptr;
    Return (*temperature)(Device, unsigned sensor, unsigned*) = nullptr;
    Return (*power)(Device, unsigned* milliwatts) = nullptr;
    Return (*power_limit)(Device, unsigned* milliwatts) = nullptr;
    Return (*ecc_errors)(Device, unsigned type, unsigned counter, unsigned long long*) = nullptr;
    Return (*remapped_rows)(Device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                            unsigned* failed) = nullptr;
    Return (*pcie_throughput)(Device, unsigned counter, unsigned* kilobytes_per_s) = nullptr;
    Return (*pcie_replays)(Device, unsigned*) = nullptr;
    Return (*pcie_generation)(Device, unsigned*) = nullptr;
    Return (*pcie_max_generation)(Device, unsigned*) = nullptr;
    Return (*pcie_width)(Device, unsigned*) = nullptr;
    Return (*pcie_max_width)(Device, unsigned*) = nullptr;
    Return (*nvlink_state)(Device, unsigned link, unsigned* active) = nullptr;
    Return (*nvlink_errors)(Device, unsigned link, unsigned counter, unsigned long long*) = nullptr;
    Return (*compute_processes)(Device, unsigned* count, ProcessInfo*) = nullptr;
    Return (*graphics_processes)(Device, unsigned* count, ProcessInfo*) = nullptr;
    Return (*event_set_create)(EventSet*) = nullptr;
    Return (*event_set_free)(EventSet) = nullptr;
    Return (*register_events)(Device, unsigned long long types, EventSet) = nullptr;
    Return (*event_set_wait)(EventSet, EventData*, unsigned timeout_ms) = nullptr;
};

class Library {
  public:
    /// Loads the file at `path`, which the caller has found to be trusted, and looks its functions up; calls none.
    /// Errors: failed to load, or none of the functions without which nothing can be asked (internal).
    static Result<std::unique_ptr<Library>> load(const std::string& path);
    ~Library();
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    Functions call;

    std::string describe(Return code) const;

  private:
    Library() = default;
};

}  // namespace ingero::nvml
