#include "core/diagnosis/evidence/rank_conditions.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/diagnosis/evidence/late_arrival.h"

namespace ingero {

namespace {

constexpr uint64_t latest_ns = 25'000'000'000;
constexpr size_t fewest_measurements = 3;
constexpr double less_clock_from = 0.95;
constexpr size_t max_parts = 1'024;  ///< of a list

using Numbers = std::vector<std::pair<uint32_t, uint32_t>>;  ///< first and last of each part

/// "0-3,8"; empty where it is not of that form.
Numbers numbers_of(std::string_view list) {
    Numbers numbers;
    const char* at = list.data();
    const char* const end = at + list.size();
    while (at != end && numbers.size() < max_parts) {
        uint32_t first = 0;
        auto [next, error] = std::from_chars(at, end, first);
        if (error != std::errc()) return {};
        uint32_t last = first;
        if (next != end && *next == '-') {
            const auto [after, wrong] = std::from_chars(next + 1, end, last);
            if (wrong != std::errc() || last < first) return {};
            next = after;
        }
        numbers.emplace_back(first, last);
        if (next != end && (*next != ',' || next + 1 == end)) return {};
        at = next == end ? end : next + 1;
    }
    if (at != end) return {};
    return numbers;
}

std::string shown(const std::string& list) {
    constexpr size_t most = 60;
    return list.size() <= most ? list : list.substr(0, most) + "...";
}

/// Both are known, and have nothing in common.
bool are_apart(const Numbers& a, const Numbers& b) {
    if (a.empty() || b.empty()) return false;
    for (const auto& [first, last] : a)
        for (const auto& [other_first, other_last] : b)
            if (first <= other_last && other_first <= last) return false;
    return true;
}

/// The one that it is on, or has by far the most memory of.
const GpuStates* gpu_of(uint32_t pid, const Window& time, std::span<const GpuStates> gpus) {
    const GpuStates* most = nullptr;
    uint64_t most_bytes = 0, all_bytes = 0;
    size_t number = 0;
    for (const GpuStates& gpu : gpus) {
        uint64_t bytes = 0;
        bool is_on = false;
        for (const GpuMeasurement& one : gpu.during(time)) {
            for (const auto& process : one.processes) {
                if (process.pid != pid) continue;
                is_on = true;
                bytes = std::max(bytes, process.memory_bytes);
            }
        }
        if (!is_on) continue;
        ++number;
        all_bytes = saturating_add(all_bytes, bytes);
        if (!most || bytes > most_bytes) {
            most = &gpu;
            most_bytes = bytes;
        }
    }
    return number == 1 || most_bytes > all_bytes / 4 * 3 ? most : nullptr;
}

/// How it was with one rank.
struct Place {
    const GpuStates* gpu = nullptr;  ///< the members below are of it
    size_t measured = 0, throttled = 0;
    uint64_t reasons = 0;
    double clock_mhz = 0;  ///< 0: not known
    std::optional<double> width, max_width, nvlinks;
    double nvlink_errors = 0, ecc_corrected = 0;  ///< in that time
    std::string cpus, memory_nodes;               ///< that the process may use
    bool cpus_known = false, cpus_apart = false, memory_known = false, memory_apart = false;

    bool is_throttled() const { return measured >= fewest_measurements && throttled >= measured - measured / 2; }
    bool is_narrow() const { return width && max_width && *width > 0 && *width < *max_width; }
};

void add_growth(const std::optional<double>& from, const std::optional<double>& to, double& sum) {
    if (from && to && *to > *from) sum += *to - *from;
}

Place place_of(const ProcessKey& rank, const Window& time, std::span<const GpuStates> gpus,
               const KnownProcesses& processes) {
    Place place;
    place.gpu = gpu_of(rank.pid, time, gpus);
    if (!place.gpu) return place;
    const std::span<const GpuMeasurement> measured = place.gpu->during(time);
    double clocks = 0;
    size_t clock_count = 0;
    for (size_t i = 0; i < measured.size(); ++i) {
        const GpuMeasurement& one = measured[i];
        if (one.throttle_reasons) {
            ++place.measured;
            place.throttled += *one.throttle_reasons != 0;
            place.reasons |= *one.throttle_reasons;
        }
        if (one.clock_mhz > 0) {
            clocks += one.clock_mhz;
            ++clock_count;
        }
        if (i == 0) continue;
        add_growth(measured[i - 1].nvlink_errors, one.nvlink_errors, place.nvlink_errors);
        add_growth(measured[i - 1].ecc_corrected, one.ecc_corrected, place.ecc_corrected);
    }
    if (clock_count != 0) place.clock_mhz = clocks / static_cast<double>(clock_count);
    place.width = measured.back().pcie_width;
    place.max_width = measured.back().pcie_max_width;
    place.nvlinks = measured.back().nvlinks;
    const Process* process = processes.find(rank);
    if (!process) return place;
    const Numbers cpus = numbers_of(process->cpus_allowed), near = numbers_of(place.gpu->local_cpus);
    const Numbers nodes = numbers_of(process->mems_allowed);
    place.cpus = process->cpus_allowed;
    place.memory_nodes = process->mems_allowed;
    place.cpus_known = !cpus.empty() && !near.empty();
    place.cpus_apart = are_apart(cpus, near);
    place.memory_known = !nodes.empty() && place.gpu->numa_node;
    if (place.memory_known) place.memory_apart = are_apart(nodes, {{*place.gpu->numa_node, *place.gpu->numa_node}});
    return place;
}

/// What most of those of whom it is known have too makes none later than the others.
template <class Known, class Is>
bool is_usual(const std::vector<Place>& others, Known known, Is is) {
    const auto number = std::count_if(others.begin(), others.end(), known);
    return number != 0 && 2 * std::count_if(others.begin(), others.end(), is) >= number;
}

std::string whole(double value) {
    return std::to_string(static_cast<uint64_t>(std::clamp(value, 0.0, 1e15)));
}

double median_clock(const std::vector<Place>& others) {
    std::vector<uint64_t> clocks;
    for (const Place& one : others)
        if (one.clock_mhz > 0) clocks.push_back(static_cast<uint64_t>(std::min(one.clock_mhz, 1e9)));
    return static_cast<double>(median_of(std::move(clocks)));
}

std::optional<RankCondition> throttling(const Place& rank, const std::vector<Place>& others) {
    if (!rank.is_throttled()) return std::nullopt;
    const std::string gpu = "its " + rank.gpu->name(), why = "throttled (" + throttle_text(rank.reasons) + ")";
    const double usual_mhz = median_clock(others);
    RankCondition condition{"throttling", "", std::string(throttle_fix(rank.reasons))};
    if (rank.clock_mhz > 0 && usual_mhz > 0) {
        if (rank.clock_mhz > usual_mhz * less_clock_from) return std::nullopt;
        condition.text = gpu + " ran at " + whole(rank.clock_mhz) + " MHz, " + why + ", those of other ranks at " +
                         whole(usual_mhz) + " MHz";
        return condition;
    }
    if (is_usual(
            others, [](const Place& one) { return one.measured >= fewest_measurements; },
            [](const Place& one) { return one.is_throttled(); }))
        return std::nullopt;
    condition.text = gpu + " was " + why;
    return condition;
}

std::optional<RankCondition> pcie_link(const Place& rank, const std::vector<Place>& others) {
    const auto known = [](const Place& one) { return one.width && one.max_width; };
    if (!rank.is_narrow() || is_usual(others, known, [](const Place& one) { return one.is_narrow(); }))
        return std::nullopt;
    return RankCondition{
        "pcie-link",
        "its " + rank.gpu->name() + " is on " + whole(*rank.width) + " of " + whole(*rank.max_width) + " PCIe lanes",
        "Seat the GPU and its riser or cable anew, and check the slot's lanes in the firmware: "
        "lspci -vv shows LnkSta against LnkCap."};
}

std::optional<RankCondition> nvlink(const Place& rank, const std::vector<Place>& others) {
    const auto known = [](const Place& one) { return one.nvlinks.has_value(); };
    const std::string fix = "nvidia-smi nvlink -s and -e show the state and the errors of each link.";
    double most = 0;
    for (const Place& one : others) most = std::max(most, one.nvlinks.value_or(0));
    const auto has_fewer = [&](const Place& one) { return one.nvlinks && *one.nvlinks < most; };
    if (has_fewer(rank) && !is_usual(others, known, has_fewer))
        return RankCondition{"nvlink",
                             "its " + rank.gpu->name() + " has " + whole(*rank.nvlinks) +
                                 " NVLinks up, those of other ranks " + whole(most),
                             fix};
    const auto errs = [](const Place& one) { return one.nvlink_errors > 0; };
    if (!errs(rank) || is_usual(others, known, errs)) return std::nullopt;
    return RankCondition{
        "nvlink", "its " + rank.gpu->name() + " had " + whole(rank.nvlink_errors) + " NVLink errors meanwhile", fix};
}

std::optional<RankCondition> corrected_errors(const Place& rank, const std::vector<Place>& others) {
    const auto errs = [](const Place& one) { return one.ecc_corrected > 0; };
    if (!errs(rank) || is_usual(
                           others, [](const Place& one) { return one.gpu != nullptr; }, errs))
        return std::nullopt;
    return RankCondition{
        "corrected-errors",
        "the memory of its " + rank.gpu->name() + " had " + whole(rank.ecc_corrected) + " corrected errors meanwhile",
        "nvidia-smi -q -d ECC,ROW_REMAPPER shows whether it gets worse; a reset of the GPU remaps "
        "rows that are pending."};
}

RankCondition cpus_apart(const Place& rank) {
    return {"cpus",
            "it may run on CPUs " + shown(rank.cpus) + " only, which are not next to its " + rank.gpu->name() + " (" +
                shown(rank.gpu->local_cpus) + ")",
            "Give the rank CPUs next to its GPU (" + shown(rank.gpu->local_cpus) +
                "): taskset, numactl, cpuset of its cgroup, or the launcher's binding.",
            false};
}

RankCondition memory_apart(const Place& rank) {
    return {"memory",
            "it may have memory of NUMA nodes " + shown(rank.memory_nodes) + " only, and its " + rank.gpu->name() +
                " is at node " + std::to_string(*rank.gpu->numa_node),
            "Let the rank have memory of node " + std::to_string(*rank.gpu->numa_node) +
                ": numactl, cpuset.mems of its cgroup, or the launcher's binding.",
            false};
}

}  // namespace

std::vector<RankCondition> rank_conditions(const ProcessKey& rank, std::span<const ProcessKey> others,
                                           const Window& late, std::span<const GpuStates> gpus,
                                           const KnownProcesses& processes) {
    const Window time{std::max(late.from_ns, saturating_subtract(late.to_ns, latest_ns)), late.to_ns};
    if (gpus.empty() || std::find(others.begin(), others.end(), rank) != others.end()) return {};
    const Place place = place_of(rank, time, gpus, processes);
    if (!place.gpu) return {};
    std::vector<Place> other_places;
    for (const ProcessKey& other : others) other_places.push_back(place_of(other, time, gpus, processes));
    std::vector<RankCondition> conditions;
    for (auto* find : {throttling, pcie_link, nvlink, corrected_errors})
        if (auto found = find(place, other_places)) conditions.push_back(std::move(*found));
    if (place.cpus_apart && !is_usual(
                                other_places, [](const Place& one) { return one.cpus_known; },
                                [](const Place& one) { return one.cpus_apart; }))
        conditions.push_back(cpus_apart(place));
    if (place.memory_apart && !is_usual(
                                  other_places, [](const Place& one) { return one.memory_known; },
                                  [](const Place& one) { return one.memory_apart; }))
        conditions.push_back(memory_apart(place));
    return conditions;
}

const RankCondition* likely_condition(std::span<const RankCondition> conditions, std::string_view meanwhile_kind) {
    const bool in_gpu = meanwhile_kind.empty() || meanwhile_kind == "device-wait" || meanwhile_kind == "driver-wait";
    const bool in_program = meanwhile_kind.empty() || meanwhile_kind == "own-work" || meanwhile_kind == "device-wait";
    for (const RankCondition& one : conditions)
        if (one.of_gpu ? in_gpu : in_program) return &one;
    return nullptr;
}

}  // namespace ingero
