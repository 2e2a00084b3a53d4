#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/gap_causes.h"
#include "core/diagnosis/findings.h"
#include "core/query/answers/gpus.h"
#include "core/store/rows/state_names.h"

namespace ingero {

namespace {

// nvml.h, nvmlClocksEventReason*: those by which a GPU is slower than it is set to be.
constexpr uint64_t power_cap = 0x4, hw_slowdown = 0x8, sw_thermal = 0x20, hw_thermal = 0x40, power_brake = 0x80;
constexpr uint64_t throttles = power_cap | hw_slowdown | sw_thermal | hw_thermal | power_brake;
/// A measurement says how it was in the time before it, as far as that goes.
constexpr uint64_t longest_period_ns = 5'000'000'000;
constexpr size_t fewest_measurements = 3;  ///< throttled, and not
constexpr double slower_from = 1.15;       ///< steps, against those of other times
constexpr double less_clock_from = 0.95;

std::optional<double> value_of(const StateRow& row, std::string_view name) {
    for (const auto& [known, value] : row.values)
        if (known == name) return value;
    return std::nullopt;
}

/// What was measured of one GPU at once.
struct Measured {
    uint64_t from_ns = 0, time_ns = 0;
    uint64_t reasons = 0;  ///< those that throttle
    double clock_mhz = 0;  ///< 0: not known
    std::vector<uint32_t> pids;
};

struct Gpu {
    std::string uuid;
    std::optional<double> index;
    std::vector<Measured> times;
};

/// Steps of a process while its GPU was in one of two states.
struct Steps {
    uint64_t busy_ns = 0;
    uint64_t newly_busy_ns = 0;
    uint64_t steps = 0;
    size_t measurements = 0;
    double clocks = 0;
    size_t clock_count = 0;
    double step_ns() const { return steps ? static_cast<double>(busy_ns) / static_cast<double>(steps) : 0; }
    double clock_mhz() const { return clock_count ? clocks / static_cast<double>(clock_count) : 0; }
};

std::vector<Gpu> gpus_of(const std::vector<StateRow>& states) {
    std::map<std::string, Gpu> by_uuid;
    for (const StateRow& row : states) {
        if (!row.source.starts_with(gpu_source)) continue;
        const auto reasons = value_of(row, "throttle_reasons");
        if (!reasons || *reasons < 0 || *reasons > 1e15) continue;
        Gpu& gpu = by_uuid[row.source.substr(gpu_source.size())];
        gpu.index = value_of(row, "gpu_index");
        Measured measured;
        measured.time_ns = row.time_ns;
        measured.reasons = static_cast<uint64_t>(*reasons) & throttles;
        measured.clock_mhz = std::max(0.0, value_of(row, "sm_clock_mhz").value_or(0));
        for (const auto& process : gpu_processes(row)) measured.pids.push_back(process["pid"].get<uint32_t>());
        gpu.times.push_back(std::move(measured));
    }
    std::vector<Gpu> gpus;
    for (auto& [uuid, gpu] : by_uuid) {
        gpu.uuid = uuid;
        std::stable_sort(gpu.times.begin(), gpu.times.end(),
                         [](const Measured& a, const Measured& b) { return a.time_ns < b.time_ns; });
        for (size_t i = 0; i < gpu.times.size(); ++i) {
            const uint64_t earliest = saturating_subtract(gpu.times[i].time_ns, longest_period_ns);
            gpu.times[i].from_ns = i == 0 ? earliest : std::max(earliest, gpu.times[i - 1].time_ns);
        }
        gpus.push_back(std::move(gpu));
    }
    return gpus;
}

/// By what the driver says of it; of one that it says nothing of, the only GPU there is.
bool is_on(const Gpu& gpu, uint32_t pid, size_t gpus) {
    bool names_any = false;
    for (const Measured& one : gpu.times) {
        names_any = names_any || !one.pids.empty();
        if (std::find(one.pids.begin(), one.pids.end(), pid) != one.pids.end()) return true;
    }
    return !names_any && gpus == 1;
}

class Throttling final : public Detector {
  public:
    explicit Throttling(const DetectorContext& context) : options_(context.options) {}

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        if (!context.states || context.states->empty() || !context.drained) return;
        const std::vector<Gpu> gpus = gpus_of(*context.states);
        if (gpus.empty()) return;
        context.drained->visit([&](const ProcessKey& process, uint16_t ordinal, const DrainedDevice& device) {
            for (const Gpu& gpu : gpus)
                if (is_on(gpu, process.pid, gpus.size())) find(process, ordinal, device, gpu, context, ret_findings);
        });
    }

  private:
    void find(const ProcessKey& process, uint16_t ordinal, const DrainedDevice& device, const Gpu& gpu,
              const JudgementContext& context, std::vector<Finding>& ret_findings) const {
        Steps throttled, other;
        uint64_t reasons = 0;
        auto counted_to = gpu.times.begin();
        device.steps.visit(options_.new_from_sequence, [&](const Window& part, const StepTime& steps) {
            const auto first = std::partition_point(gpu.times.begin(), gpu.times.end(),
                                                    [&](const Measured& one) { return one.time_ns <= part.from_ns; });
            auto last = first;
            while (last != gpu.times.end() && last->from_ns < part.to_ns) ++last;
            // In which of two states the steps were is known where all of the part was in one.
            if (first == last || first->from_ns > part.from_ns) return;
            const bool is_throttled = first->reasons != 0;
            if (std::any_of(first, last, [&](const Measured& one) { return (one.reasons != 0) != is_throttled; }))
                return;
            Steps& sums = is_throttled ? throttled : other;
            sums.busy_ns = saturating_add(sums.busy_ns, steps.busy_ns);
            sums.newly_busy_ns = saturating_add(sums.newly_busy_ns, steps.newly_busy_ns);
            sums.steps += steps.steps;
            for (counted_to = std::max(counted_to, first); counted_to < last; ++counted_to) {
                reasons |= counted_to->reasons;
                ++sums.measurements;
                if (counted_to->clock_mhz == 0) continue;
                sums.clocks += counted_to->clock_mhz;
                ++sums.clock_count;
            }
        });
        if (throttled.measurements < fewest_measurements || other.measurements < fewest_measurements) return;
        const double slower = throttled.step_ns() / std::max(other.step_ns(), 1.0);
        if (slower < slower_from) return;
        Finding finding = make_finding("throttling", process, gpu.uuid + ":" + std::to_string(ordinal), context);
        finding.lost_ns = static_cast<uint64_t>(static_cast<double>(throttled.busy_ns) * (1 - 1 / slower));
        finding.newly_lost_ns = static_cast<uint64_t>(static_cast<double>(throttled.newly_busy_ns) * (1 - 1 / slower));
        finding.window_share = share_of(finding.lost_ns, context.covered_ns);
        if (finding.window_share < options_.window_floor) return;
        // Work that waits for memory slows down by less than the clock does; what is slower by more has another reason.
        const bool clocks = throttled.clock_count != 0 && other.clock_count != 0;
        const double clock_part = clocks ? throttled.clock_mhz() / other.clock_mhz() : 1;
        if (clocks && clock_part > less_clock_from) return;
        const double by_clock = static_cast<double>(throttled.busy_ns) * (1 - clock_part);
        finding.explained_fraction =
            clocks ? std::min(1.0, by_clock / std::max<double>(1, static_cast<double>(finding.lost_ns))) : 0;
        finding.severity = severity_of(finding.window_share);
        finding.verdict = clocks ? verdict_of(finding.explained_fraction, context.lossy) : Verdict::partial;
        write(finding, gpu, reasons, throttled, other);
        ret_findings.push_back(std::move(finding));
    }

    static void write(Finding& finding, const Gpu& gpu, uint64_t reasons, const Steps& throttled, const Steps& other) {
        std::string names;
        for (const std::string& name : throttle_reason_names(reasons)) names += (names.empty() ? "" : ", ") + name;
        const std::string which =
            gpu.index ? "GPU " + std::to_string(static_cast<uint64_t>(*gpu.index)) : "GPU " + gpu.uuid;
        finding.culprits = {{which + ": " + names, 0, finding.lost_ns, 0}};
        const auto mhz = [](const Steps& steps) { return std::to_string(static_cast<uint64_t>(steps.clock_mhz())); };
        const auto step = [](const Steps& steps) { return format_duration(static_cast<uint64_t>(steps.step_ns())); };
        finding.summary = which + " was throttled (" + names + "): steps of " + process_text(finding) + " took " +
                          step(throttled) + " instead of " + step(other);
        if (throttled.clock_count != 0 && other.clock_count != 0)
            finding.summary += " at " + mhz(throttled) + " instead of " + mhz(other) + " MHz";
        finding.summary += loss_text(finding);
        finding.fix =
            (reasons & (sw_thermal | hw_thermal)) != 0
                ? "It is too hot: check fans, air flow and the temperature of the room, and what else heats the "
                  "host; nvidia-smi -q -d TEMPERATURE,PERFORMANCE shows the limits."
                : "For sw_power_cap, it is at its power limit: raise it if the hardware allows (nvidia-smi "
                  "-q -d POWER; nvidia-smi -pl). For hw_slowdown and hw_power_brake_slowdown, check the "
                  "power supply, cables and connectors.";
        finding.confirm =
            "Run explain again over a window of the same length: its clocks should stay up, and steps of " +
            process_text(finding) + " take about " + step(other) + " throughout.";
    }

    ExplainOptions options_;
};

}  // namespace

std::unique_ptr<Detector> make_throttling(const DetectorContext& context) {
    return std::make_unique<Throttling>(context);
}

}  // namespace ingero
