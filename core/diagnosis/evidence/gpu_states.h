// What was measured of GPUs while calls were recorded, and whose they were.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/result.h"
#include "core/model/time.h"
#include "core/store/store.h"

namespace ingero {

/// nvmlClocksEventReasonSwPowerCap: a GPU that works much is often at its power limit.
inline constexpr uint64_t sw_power_cap = 0x4;

/// What was measured of one GPU at once.
struct GpuMeasurement {
    uint64_t from_ns = 0, time_ns = 0;  ///< CLOCK_MONOTONIC: it speaks for the time between them
    /// nvmlClocksEventReason*, those by which it is slower than it is set to be; absent: not known.
    std::optional<uint64_t> throttle_reasons;
    double clock_mhz = 0, max_clock_mhz = 0;  ///< of its multiprocessors; 0: not known
    std::optional<double> pcie_width, pcie_max_width;
    std::optional<double> nvlinks;                       ///< that are up
    std::optional<double> nvlink_errors, ecc_corrected;  ///< since some time before
    struct Process {
        uint32_t pid = 0;
        uint64_t memory_bytes = 0;  ///< 0: not known
    };
    std::shared_ptr<const std::vector<Process>> processes;  ///< never null
};

/// A row of a store, read.
struct GpuSample {
    std::string uuid;
    std::optional<uint32_t> index;
    std::optional<uint32_t> numa_node;
    std::string local_cpus;
    GpuMeasurement measurement;
};

struct GpuStates {
    std::string uuid;
    std::optional<uint32_t> index;
    std::optional<uint32_t> numa_node;
    std::string local_cpus;             ///< list of CPUs next to it, "0-15,32-47"; empty: not known
    std::vector<GpuMeasurement> times;  ///< in order of time

    /// "GPU 3"; "GPU GPU-6f..." where its number is not known.
    std::string name() const;
    /// The measurements that speak for any part of that time.
    std::span<const GpuMeasurement> during(const Window& time) const;
};

/// Nothing of a row of another source.
std::optional<GpuSample> gpu_sample(const StateRow& row);
/// One a GPU, in order of UUID.
std::vector<GpuStates> gpu_states(std::span<const GpuSample> samples);
/// Rows of GPUs of one boot, of very many the latest. `monotonic` is CLOCK_MONOTONIC. Errors: those of the store.
Result<std::vector<GpuStates>> read_gpu_states(const StoreSnapshot& snapshot, uint32_t boot, Window monotonic);

/// "hw_thermal_slowdown, sw_power_cap".
std::string throttle_text(uint64_t reasons);
/// What to do about it, as a sentence.
std::string_view throttle_fix(uint64_t reasons);

}  // namespace ingero
