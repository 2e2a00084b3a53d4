#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/drained_gaps.h"
#include "core/diagnosis/evidence/gpu_states.h"
#include "core/diagnosis/findings.h"

namespace ingero {

namespace {

constexpr size_t fewest_measurements = 3;  ///< throttled, and not
constexpr double slower_from = 1.15;       ///< steps, against those of other times
constexpr double less_clock_from = 0.95;

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

/// By what the driver says of it; of one that it says nothing of, the only GPU there is.
bool is_on(const GpuStates& gpu, uint32_t pid, size_t gpus) {
    bool names_any = false;
    for (const GpuMeasurement& one : gpu.times) {
        names_any = names_any || !one.processes->empty();
        for (const GpuMeasurement::Process& process : *one.processes)
            if (process.pid == pid) return true;
    }
    return !names_any && gpus == 1;
}

class Throttling final : public Detector {
  public:
    explicit Throttling(const DetectorContext& context) : options_(context.options) {}

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        if (!context.gpus || context.gpus->empty() || !context.drained) return;
        const std::vector<GpuStates>& gpus = *context.gpus;
        context.drained->visit([&](const ProcessKey& process, uint16_t ordinal, const DrainedDevice& device) {
            for (const GpuStates& gpu : gpus)
                if (is_on(gpu, process.pid, gpus.size())) find(process, ordinal, device, gpu, context, ret_findings);
        });
    }

  private:
    void find(const ProcessKey& process, uint16_t ordinal, const DrainedDevice& device, const GpuStates& gpu,
              const JudgementContext& context, std::vector<Finding>& ret_findings) const {
        Steps throttled, other;
        uint64_t reasons = 0;
        const GpuMeasurement* counted_to = gpu.times.data();
        device.steps.visit(options_.new_from_sequence, [&](const Window& part, const StepTime& steps) {
            const std::span<const GpuMeasurement> measured = gpu.during(part);
            // In which of two states the steps were is known where all of the part was in one.
            if (measured.empty() || measured.front().from_ns > part.from_ns) return;
            const bool is_throttled = measured.front().throttle_reasons.value_or(0) != 0;
            if (std::any_of(measured.begin(), measured.end(), [&](const GpuMeasurement& one) {
                    return !one.throttle_reasons || (*one.throttle_reasons != 0) != is_throttled;
                }))
                return;
            Steps& sums = is_throttled ? throttled : other;
            sums.busy_ns = saturating_add(sums.busy_ns, steps.busy_ns);
            sums.newly_busy_ns = saturating_add(sums.newly_busy_ns, steps.newly_busy_ns);
            sums.steps += steps.steps;
            counted_to = std::max(counted_to, measured.data());
            for (; counted_to < measured.data() + measured.size(); ++counted_to) {
                reasons |= *counted_to->throttle_reasons;
                ++sums.measurements;
                if (counted_to->clock_mhz == 0) continue;
                sums.clocks += counted_to->clock_mhz;
                ++sums.clock_count;
            }
        });
        if (throttled.measurements < fewest_measurements || other.measurements < fewest_measurements) return;
        const double slower = throttled.step_ns() / std::max(other.step_ns(), 1.0);
        if (slower < slower_from) return;
        // Work that waits for memory slows down by less than the clock does; what is slower by more has another reason,
        // as where a GPU is throttled in one kind of step and not in another.
        const bool clocks = throttled.clock_count != 0 && other.clock_count != 0;
        const double clock_part = clocks ? throttled.clock_mhz() / other.clock_mhz() : 1;
        if (clocks && clock_part > less_clock_from) return;
        const double more = 1 - 1 / slower, lost_part = clocks ? std::min(more, 1 - clock_part) : more;
        Finding finding = make_finding("throttling", process, gpu.uuid + ":" + std::to_string(ordinal), context);
        finding.lost_ns = static_cast<uint64_t>(static_cast<double>(throttled.busy_ns) * lost_part);
        finding.newly_lost_ns = static_cast<uint64_t>(static_cast<double>(throttled.newly_busy_ns) * lost_part);
        finding.window_share = share_of(finding.lost_ns, context.time_of(process));
        if (finding.window_share < options_.window_floor) return;
        finding.explained_fraction = clocks ? lost_part / more : 0;
        finding.severity = clocks ? severity_of(finding.window_share) : Severity::low;
        finding.verdict = clocks ? verdict_of(finding.explained_fraction, context.lossy) : Verdict::partial;
        write(finding, gpu, reasons, throttled, other);
        ret_findings.push_back(std::move(finding));
    }

    static void write(Finding& finding, const GpuStates& gpu, uint64_t reasons, const Steps& throttled,
                      const Steps& other) {
        const std::string names = throttle_text(reasons), which = gpu.name();
        finding.culprits = {{which + ": " + names, 0, finding.lost_ns, 0}};
        const auto mhz = [](const Steps& steps) { return std::to_string(static_cast<uint64_t>(steps.clock_mhz())); };
        const auto step = [](const Steps& steps) { return format_duration(static_cast<uint64_t>(steps.step_ns())); };
        finding.summary = which + " was throttled (" + names + "): steps of " + process_text(finding) + " took " +
                          step(throttled) + " instead of " + step(other);
        if (throttled.clock_count != 0 && other.clock_count != 0)
            finding.summary += " at " + mhz(throttled) + " instead of " + mhz(other) + " MHz";
        finding.summary += loss_text(finding);
        finding.fix = throttle_fix(reasons);
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
