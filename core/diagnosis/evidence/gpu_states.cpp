#include "core/diagnosis/evidence/gpu_states.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "core/query/answers/gpus.h"
#include "core/store/rows/state_names.h"

namespace ingero {

namespace {

// nvml.h, nvmlClocksEventReason*: those by which a GPU is slower than it is set to be.
constexpr uint64_t hw_slowdown = 0x8, sw_thermal = 0x20, hw_thermal = 0x40, power_brake = 0x80;
constexpr uint64_t throttles = sw_power_cap | hw_slowdown | sw_thermal | hw_thermal | power_brake;
/// A measurement says how it was in the time before it, as far as that goes.
constexpr uint64_t longest_period_ns = 5'000'000'000;
constexpr size_t max_samples = 65'536;
constexpr size_t max_processes = 128;  ///< as many as ingero-relay reports of a GPU

std::optional<double> value_of(const StateRow& row, std::string_view name) {
    for (const auto& [known, value] : row.values)
        if (known == name) return value;
    return std::nullopt;
}

std::optional<uint32_t> number_of(const StateRow& row, std::string_view name) {
    const double value = value_of(row, name).value_or(-1);
    if (!(value >= 0 && value <= UINT16_MAX)) return std::nullopt;
    return static_cast<uint32_t>(value);
}

std::string text_of(const StateRow& row, std::string_view name) {
    for (const auto& [known, text] : row.texts)
        if (known == name) return text;
    return {};
}

std::optional<double> sum_of(const StateRow& row, std::initializer_list<std::string_view> names) {
    std::optional<double> sum;
    for (const std::string_view name : names)
        if (const auto value = value_of(row, name)) sum = sum.value_or(0) + *value;
    return sum;
}

/// 0 where it is none.
double clock_of(const StateRow& row, std::string_view name) {
    const double mhz = value_of(row, name).value_or(0);
    return mhz > 0 && mhz < 1e6 ? mhz : 0;
}

std::vector<GpuMeasurement::Process> processes_of(const StateRow& row) {
    std::vector<GpuMeasurement::Process> processes;
    for (const auto& process : gpu_processes(row)) {
        const auto pid = process["pid"].get<uint64_t>();
        const auto& bytes = process["memory_bytes"];
        if (processes.size() == max_processes) break;
        if (pid > INT32_MAX) continue;
        processes.push_back({static_cast<uint32_t>(pid), bytes.is_number_unsigned() ? bytes.get<uint64_t>() : 0});
    }
    return processes;
}

}  // namespace

std::string GpuStates::name() const {
    return "GPU " + (index ? std::to_string(*index) : uuid);
}

std::span<const GpuMeasurement> GpuStates::during(const Window& time) const {
    const auto first =
        std::partition_point(times.begin(), times.end(), [&](const auto& one) { return one.time_ns <= time.from_ns; });
    const auto last =
        std::partition_point(first, times.end(), [&](const auto& one) { return one.from_ns < time.to_ns; });
    return {first, last};
}

std::optional<GpuSample> gpu_sample(const StateRow& row) {
    if (!row.source.starts_with(gpu_source)) return std::nullopt;
    GpuSample sample{row.source.substr(gpu_source.size()),
                     number_of(row, "gpu_index"),
                     number_of(row, "numa_node"),
                     text_of(row, "local_cpus"),
                     {}};
    GpuMeasurement& one = sample.measurement;
    one.time_ns = row.time_ns;
    const double reasons = value_of(row, "throttle_reasons").value_or(-1);
    if (reasons >= 0 && reasons < 1e15) one.throttle_reasons = static_cast<uint64_t>(reasons) & throttles;
    one.clock_mhz = clock_of(row, "sm_clock_mhz");
    one.max_clock_mhz = clock_of(row, "max_sm_clock_mhz");
    one.pcie_width = value_of(row, "pcie_width");
    one.pcie_max_width = value_of(row, "pcie_max_width");
    one.nvlinks = value_of(row, "nvlinks_active");
    one.nvlink_errors = sum_of(row, {"nvlink_crc_errors", "nvlink_replays", "nvlink_recoveries"});
    one.ecc_corrected = value_of(row, "ecc_corrected");
    one.processes = std::make_shared<const std::vector<GpuMeasurement::Process>>(processes_of(row));
    return sample;
}

std::vector<GpuStates> gpu_states(std::span<const GpuSample> samples) {
    std::map<std::string, GpuStates> by_uuid;
    for (const GpuSample& sample : samples) {
        GpuStates& gpu = by_uuid[sample.uuid];
        gpu.index = sample.index;
        gpu.numa_node = sample.numa_node;
        gpu.local_cpus = sample.local_cpus;
        gpu.times.push_back(sample.measurement);
    }
    std::vector<GpuStates> gpus;
    for (auto& [uuid, gpu] : by_uuid) {
        gpu.uuid = uuid;
        std::stable_sort(gpu.times.begin(), gpu.times.end(),
                         [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
        for (size_t i = 0; i < gpu.times.size(); ++i) {
            const uint64_t earliest = saturating_subtract(gpu.times[i].time_ns, longest_period_ns);
            gpu.times[i].from_ns = i == 0 ? earliest : std::max(earliest, gpu.times[i - 1].time_ns);
        }
        gpus.push_back(std::move(gpu));
    }
    return gpus;
}

Result<std::vector<GpuStates>> read_gpu_states(const StoreSnapshot& snapshot, uint32_t boot, Window monotonic) {
    std::vector<GpuSample> samples;
    std::optional<Error> error;
    const auto scanned = snapshot.scan_states(boot, monotonic, [&](const StateHead& head) {
        if (!head.source.starts_with(gpu_source)) return true;
        const auto row = read_state(head);
        if (!row) error = row.error();
        if (auto sample = row ? gpu_sample(*row) : std::nullopt) samples.push_back(std::move(*sample));
        // Of more than are kept the latest stay.
        if (samples.size() == 2 * max_samples) samples.erase(samples.begin(), samples.begin() + max_samples);
        return !error;
    });
    if (error) return tl::unexpected(*error);
    if (!scanned) return tl::unexpected(scanned.error());
    return gpu_states(samples);
}

std::string throttle_text(uint64_t reasons) {
    std::string names;
    for (const std::string& name : throttle_reason_names(reasons)) names += (names.empty() ? "" : ", ") + name;
    return names;
}

std::string_view throttle_fix(uint64_t reasons) {
    if ((reasons & (sw_thermal | hw_thermal)) != 0)
        return "It is too hot: check fans, air flow and the temperature of the room, and what else heats the "
               "host; nvidia-smi -q -d TEMPERATURE,PERFORMANCE shows the limits.";
    return "For sw_power_cap, it is at its power limit: raise it if the hardware allows (nvidia-smi "
           "-q -d POWER; nvidia-smi -pl). For hw_slowdown and hw_power_brake_slowdown, check the "
           "power supply, cables and connectors.";
}

}  // namespace ingero
