#include "core/diagnosis/evidence/rank_conditions.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/diagnosis/evidence/late_arrival.h"

namespace ingero {

namespace {

constexpr uint64_t latest_ns = 25'000'000'000;
constexpr uint64_t period_ns = 5'000'000'000;  ///< of measurements, at most
constexpr size_t fewest_measurements = 3;
constexpr double less_clock_from = 0.95;
// Fewer are usual, and cost nothing.
constexpr double nvlink_errors_a_second = 100, corrected_errors_a_second = 10;
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

/// Cut between two parts.
std::string shown(const std::string& list) {
    constexpr size_t most = 60;
    return list.size() <= most ? list : list.substr(0, list.rfind(',', most)) + ",...";
}

/// Both are known, and have nothing in common.
bool are_apart(const Numbers& a, const Numbers& b) {
    if (a.empty() || b.empty()) return false;
    for (const auto& [first, last] : a)
        for (const auto& [other_first, other_last] : b)
            if (first <= other_last && other_first <= last) return false;
    return true;
}

/// Which GPU processes are on: the only one, or the one that they have by far the most memory of.
class GpusByPid {
  public:
    GpusByPid(std::span<const GpuStates> gpus, const Window& time) {
        for (const GpuStates& gpu : gpus) {
            std::map<uint32_t, uint64_t> bytes_by_pid;
            for (const GpuMeasurement& one : gpu.during(time))
                for (const GpuMeasurement::Process& process : *one.processes) {
                    uint64_t& bytes = bytes_by_pid[process.pid];
                    bytes = std::max(bytes, process.memory_bytes);
                }
            for (const auto& [pid, bytes] : bytes_by_pid) {
                Shares& shares = by_pid_[pid];
                ++shares.gpus;
                shares.bytes = saturating_add(shares.bytes, bytes);
                if (shares.most && bytes <= shares.most_bytes) continue;
                shares.most = &gpu;
                shares.most_bytes = bytes;
            }
        }
    }

    const GpuStates* of(uint32_t pid) const {
        const auto found = by_pid_.find(pid);
        if (found == by_pid_.end()) return nullptr;
        const Shares& shares = found->second;
        return shares.gpus == 1 || shares.most_bytes > shares.bytes / 4 * 3 ? shares.most : nullptr;
    }

  private:
    struct Shares {
        const GpuStates* most = nullptr;
        uint64_t most_bytes = 0, bytes = 0;
        size_t gpus = 0;
    };
    std::map<uint32_t, Shares> by_pid_;
};

/// How it was with one rank.
struct Place {
    const GpuStates* gpu = nullptr;     ///< null: not known, nor are the members below
    size_t measured = 0;                ///< whether it throttled
    uint64_t reasons = 0;               ///< that were there most of the time
    double clock_mhz = 0, speed = 0;    ///< means; speed is of the highest clock; 0: not known
    double width = 0, max_width = 0;    ///< at best; 0: not known
    double nvlinks = 0;                 ///< at most; 0: not known, or none
    double nvlink_errors = 0, ecc = 0;  ///< that came in that time
    bool has_nvlink_errors = false, has_ecc = false;
    double seconds = 0;  ///< over which they were counted
    const Process* process = nullptr;
    bool cpus_known = false, cpus_apart = false, memory_known = false, memory_apart = false;

    bool is_throttled() const { return measured >= fewest_measurements && reasons != 0; }
    bool is_narrow() const { return width > 0 && width < max_width; }
    bool has_bad_nvlinks() const { return seconds > 0 && nvlink_errors / seconds >= nvlink_errors_a_second; }
    bool has_bad_memory() const { return seconds > 0 && ecc / seconds >= corrected_errors_a_second; }
};

/// Nothing where one of two is not known, nor where it began anew.
double growth(const std::optional<double>& from, const std::optional<double>& to) {
    return from && to && *to > *from ? *to - *from : 0;
}

/// The reasons that at least half of the measurements have. At the power limit is who works most: that alone is none.
uint64_t reasons_of(std::span<const GpuMeasurement> measured, size_t known) {
    uint64_t usual = 0;
    for (unsigned bit = 0; bit < 64; ++bit) {
        const uint64_t reason = 1ULL << bit;
        const auto count = std::count_if(measured.begin(), measured.end(), [reason](const GpuMeasurement& one) {
            return (one.throttle_reasons.value_or(0) & reason) != 0;
        });
        if (count != 0 && 2 * static_cast<size_t>(count) >= known) usual |= reason;
    }
    return usual == sw_power_cap ? 0 : usual;
}

void measure(Place& place, std::span<const GpuMeasurement> measured) {
    double clocks = 0, speeds = 0;
    size_t clock_count = 0, speed_count = 0;
    for (size_t i = 0; i < measured.size(); ++i) {
        const GpuMeasurement& one = measured[i];
        place.measured += one.throttle_reasons.has_value();
        if (one.clock_mhz > 0) {
            clocks += one.clock_mhz;
            ++clock_count;
        }
        if (one.clock_mhz > 0 && one.max_clock_mhz > 0) {
            speeds += one.clock_mhz / one.max_clock_mhz;
            ++speed_count;
        }
        place.width = std::max(place.width, one.pcie_width.value_or(0));
        place.max_width = std::max(place.max_width, one.pcie_max_width.value_or(0));
        place.nvlinks = std::max(place.nvlinks, one.nvlinks.value_or(0));
        place.has_nvlink_errors |= one.nvlink_errors.has_value();
        place.has_ecc |= one.ecc_corrected.has_value();
        if (i == 0) continue;
        place.nvlink_errors += growth(measured[i - 1].nvlink_errors, one.nvlink_errors);
        place.ecc += growth(measured[i - 1].ecc_corrected, one.ecc_corrected);
    }
    place.reasons = reasons_of(measured, place.measured);
    if (clock_count != 0) place.clock_mhz = clocks / static_cast<double>(clock_count);
    if (speed_count != 0) place.speed = speeds / static_cast<double>(speed_count);
    place.seconds = static_cast<double>(measured.back().time_ns - measured.front().time_ns) / 1e9;
}

Place place_of(const ProcessKey& rank, const Window& time, const GpusByPid& gpus, const KnownProcesses& processes) {
    Place place;
    place.gpu = gpus.of(rank.pid);
    if (!place.gpu) return place;
    measure(place, place.gpu->during(time));
    place.process = processes.find(rank);
    if (!place.process) return place;
    const Numbers cpus = numbers_of(place.process->cpus_allowed), near = numbers_of(place.gpu->local_cpus);
    const Numbers nodes = numbers_of(place.process->mems_allowed);
    place.cpus_known = !cpus.empty() && !near.empty();
    place.cpus_apart = are_apart(cpus, near);
    place.memory_known = !nodes.empty() && place.gpu->numa_node;
    if (place.memory_known) place.memory_apart = are_apart(nodes, {{*place.gpu->numa_node, *place.gpu->numa_node}});
    return place;
}

/// Whether most of those of whom it is known have it too, which then makes nobody later than the others, or it is known
/// of none.
template <class Known, class Is>
bool is_usual(const std::vector<Place>& others, Known known, Is is) {
    const auto number = std::count_if(others.begin(), others.end(), known);
    return 2 * std::count_if(others.begin(), others.end(), is) >= number;
}

std::string whole(double value) {
    return std::to_string(static_cast<uint64_t>(std::clamp(value, 0.0, 1e15)));
}

/// In percent of the highest clock; 0 where it is not known.
double median_speed(const std::vector<Place>& others) {
    std::vector<uint64_t> speeds;
    for (const Place& one : others)
        if (one.speed > 0) speeds.push_back(static_cast<uint64_t>(std::min(one.speed, 1e3) * 1e6));
    return static_cast<double>(median_of(std::move(speeds))) / 1e6;
}

std::optional<RankCondition> throttling(const Place& rank, const std::vector<Place>& others) {
    if (!rank.is_throttled()) return std::nullopt;
    const std::string why = "throttled (" + throttle_text(rank.reasons) + ")";
    const double usual = median_speed(others);
    RankCondition condition{"throttling", "", std::string(throttle_fix(rank.reasons))};
    if (rank.speed > 0 && usual > 0) {
        if (rank.speed > usual * less_clock_from) return std::nullopt;
        condition.text = "its " + rank.gpu->name() + ", " + why + ", ran at " + whole(rank.speed * 100) +
                         " % of its highest clock (" + whole(rank.clock_mhz) + " MHz), those of other ranks at " +
                         whole(usual * 100) + " %";
        return condition;
    }
    if (is_usual(
            others, [](const Place& one) { return one.measured >= fewest_measurements; },
            [](const Place& one) { return one.is_throttled(); }))
        return std::nullopt;
    condition.text = "its " + rank.gpu->name() + " was " + why + ", those of other ranks were not";
    return condition;
}

std::optional<RankCondition> pcie_link(const Place& rank, const std::vector<Place>& others) {
    const auto known = [](const Place& one) { return one.width > 0 && one.max_width > 0; };
    if (!rank.is_narrow() || is_usual(others, known, [](const Place& one) { return one.is_narrow(); }))
        return std::nullopt;
    return RankCondition{"pcie-link",
                         "its " + rank.gpu->name() + " is on " + whole(rank.width) + " of " + whole(rank.max_width) +
                             " PCIe lanes, those of other ranks on all",
                         "Compare LnkSta with LnkCap of the GPU and its slot (lspci -vv): a riser or cable that is "
                         "not seated well, or the firmware's setting of the slot."};
}

std::optional<RankCondition> nvlink(const Place& rank, const std::vector<Place>& others) {
    const std::string fix = "nvidia-smi nvlink -s and -e show the state and the errors of each link.";
    double most = 0;
    for (const Place& one : others) most = std::max(most, one.nvlinks);
    const auto known = [](const Place& one) { return one.nvlinks > 0; };
    const auto has_fewer = [&](const Place& one) { return one.nvlinks > 0 && one.nvlinks < most; };
    if (has_fewer(rank) && !is_usual(others, known, has_fewer))
        return RankCondition{"nvlink",
                             "its " + rank.gpu->name() + " has " + whole(rank.nvlinks) +
                                 " NVLinks up, those of other ranks up to " + whole(most),
                             fix};
    const auto counts = [](const Place& one) { return one.has_nvlink_errors; };
    if (!rank.has_bad_nvlinks() || is_usual(others, counts, [](const Place& one) { return one.has_bad_nvlinks(); }))
        return std::nullopt;
    return RankCondition{
        "nvlink",
        "its " + rank.gpu->name() + " had " + whole(rank.nvlink_errors / rank.seconds) + " NVLink errors a second",
        fix};
}

std::optional<RankCondition> corrected_errors(const Place& rank, const std::vector<Place>& others) {
    const auto counts = [](const Place& one) { return one.has_ecc; };
    if (!rank.has_bad_memory() || is_usual(others, counts, [](const Place& one) { return one.has_bad_memory(); }))
        return std::nullopt;
    return RankCondition{"corrected-errors",
                         "the memory of its " + rank.gpu->name() + " had " + whole(rank.ecc / rank.seconds) +
                             " corrected errors a second",
                         "nvidia-smi -q -d ECC,ROW_REMAPPER shows whether rows are to be remapped, which a reset of "
                         "the GPU does."};
}

std::optional<RankCondition> cpus_apart(const Place& rank, const std::vector<Place>& others) {
    const auto known = [](const Place& one) { return one.cpus_known; };
    if (!rank.cpus_apart || is_usual(others, known, [](const Place& one) { return one.cpus_apart; }))
        return std::nullopt;
    return RankCondition{"cpus",
                         "it may run on CPUs " + shown(rank.process->cpus_allowed) +
                             " only, which are not next to its " + rank.gpu->name() + " (" +
                             shown(rank.gpu->local_cpus) + ")",
                         "Give the rank CPUs next to its GPU, which ingeroctl --json gpus lists: taskset, numactl, "
                         "the cpuset of its cgroup, or the launcher's binding."};
}

std::optional<RankCondition> memory_apart(const Place& rank, const std::vector<Place>& others) {
    const auto known = [](const Place& one) { return one.memory_known; };
    if (!rank.memory_apart || is_usual(others, known, [](const Place& one) { return one.memory_apart; }))
        return std::nullopt;
    const std::string node = std::to_string(*rank.gpu->numa_node);
    return RankCondition{"memory",
                         "its cpuset gives it memory of NUMA node " + shown(rank.process->mems_allowed) +
                             " only, and its " + rank.gpu->name() + " is at node " + node,
                         "Add node " + node + " to cpuset.mems of its cgroup."};
}

}  // namespace

Window conditions_time(const Window& late) {
    const uint64_t from_ns = std::max(late.from_ns, saturating_subtract(late.to_ns, latest_ns));
    return {saturating_subtract(from_ns, period_ns), saturating_add(late.to_ns, period_ns)};
}

std::vector<RankCondition> rank_conditions(const ProcessKey& rank, std::span<const ProcessKey> others,
                                           const Window& late, const MeanwhilePart* cause,
                                           std::span<const GpuStates> gpus, const KnownProcesses& processes) {
    const bool waits_for_device = cause && (cause->kind == "device-wait" || cause->kind == "rank-wait");
    const bool works_in_call = cause && cause->kind == "own-work" && !cause->name.empty();
    if ((!waits_for_device && !works_in_call) || gpus.empty()) return {};
    if (std::find(others.begin(), others.end(), rank) != others.end()) return {};
    const Window time{std::max(late.from_ns, saturating_subtract(late.to_ns, latest_ns)), late.to_ns};
    const GpusByPid by_pid(gpus, time);
    const Place place = place_of(rank, time, by_pid, processes);
    if (!place.gpu) return {};
    std::vector<Place> other_places;
    for (const ProcessKey& other : others) {
        other_places.push_back(place_of(other, time, by_pid, processes));
        // Which of the two it would make late is not known.
        if (other_places.back().gpu == place.gpu) return {};
    }
    std::vector<RankCondition> conditions;
    const auto add = [&](auto... find) {
        for (auto* one : {find...})
            if (auto found = one(place, other_places)) conditions.push_back(std::move(*found));
    };
    if (waits_for_device) add(throttling, pcie_link, nvlink, corrected_errors);
    add(cpus_apart, memory_apart);
    return conditions;
}

}  // namespace ingero
