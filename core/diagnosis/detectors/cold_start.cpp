#include <algorithm>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/findings.h"

namespace ingero {

namespace {

constexpr size_t max_processes = 4'096;
constexpr size_t max_ops = 256;
constexpr size_t max_culprits = 10;
/// Times what is expected: a launch that takes so long is called slow.
constexpr uint64_t slow_from = 5;
/// Call floors that all first uses of a process take together: on a healthy host one call pays 1.6 ms for pages of code
/// that are not mapped yet and for the probes' own first hits.
constexpr uint64_t floors_together = 5;

/// The first uses of one process.
struct FirstUses {
    uint64_t calls = 0;
    uint64_t lost_ns = 0;
    uint64_t newly_lost_ns = 0;
    uint64_t excess_ns = 0;  ///< of the same calls
    uint64_t launches = 0;
    uint64_t launches_ns = 0;       ///< lost by first launches
    uint64_t slow_launches_ns = 0;  ///< lost by all slow launches
    uint64_t worst_ns = 0;
    bool over_call_floor = false;
    SlowCall worst;
    std::map<OpId, std::pair<uint64_t, uint64_t>> by_op;  ///< lost time and calls
    std::map<uint32_t, uint64_t> by_thread;
    Evidence evidence;

    bool is_evidence() const { return lost_ns > 0; }
    uint64_t worth() const { return lost_ns; }
};

class ColdStart final : public Detector {
  public:
    explicit ColdStart(const DetectorContext& context)
        : context_(context), processes_(max_processes, context.processes) {}

    void judged(const JudgedCall& call) override {
        const bool launch = call.op && call.op->op_class == OpClass::launch;
        if (!call.first_use && !launch) return;
        FirstUses& uses = processes_.at(call.event.process(), call.event.start_ns);
        if (launch && call.time.duration_ns / slow_from >= call.assignment.expected_ns)
            uses.slow_launches_ns =
                saturating_add(uses.slow_launches_ns, call.assignment.of_all(call.assignment.excess_ns));
        const uint64_t ns = call.assignment[Cause::first_use];
        if (!call.first_use || ns == 0) return;
        ++uses.calls;
        uses.lost_ns = saturating_add(uses.lost_ns, ns);
        uses.excess_ns = saturating_add(uses.excess_ns, call.assignment.excess_ns);
        if (call.event.sequence >= context_.options.new_from_sequence)
            uses.newly_lost_ns = saturating_add(uses.newly_lost_ns, ns);
        if (launch) {
            ++uses.launches;
            uses.launches_ns = saturating_add(uses.launches_ns, ns);
        }
        const double ratio_floor = context_.options.ratio_floor * static_cast<double>(call.assignment.expected_ns);
        uses.over_call_floor |=
            ns >= context_.options.call_floor_ns && static_cast<double>(call.time.duration_ns) >= ratio_floor;
        if (ns > uses.worst_ns) {
            uses.worst_ns = ns;
            uses.worst = make_slow_call(call.event, call.time, call.op, call.assignment, context_.clock);
        }
        if (uses.by_op.size() < max_ops || uses.by_op.contains(call.event.op)) {
            auto& [lost, calls] = uses.by_op[call.event.op];
            lost = saturating_add(lost, ns);
            ++calls;
        }
        if (uses.by_thread.size() < max_ops || uses.by_thread.contains(call.event.tid))
            uses.by_thread[call.event.tid] = saturating_add(uses.by_thread[call.event.tid], ns);
        uses.evidence.add(ns, call.event.sequence);
    }

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        for (const auto& [process, uses] : processes_)
            if (uses.lost_ns > 0) find(process, uses, context, ret_findings);
    }

  private:
    void find(const ProcessKey& process, const FirstUses& uses, const JudgementContext& context,
              std::vector<Finding>& ret_findings) const {
        uint64_t busiest = 0;
        for (const auto& [tid, ns] : uses.by_thread) busiest = std::max(busiest, ns);
        const double share = share_of(busiest, context.time_of(process));
        const bool is_long = uses.over_call_floor && uses.lost_ns >= floors_together * context_.options.call_floor_ns;
        if (!is_long && share < context_.options.window_floor) return;
        Finding finding = make_finding("cold-start", process, "", context);
        finding.lost_ns = uses.lost_ns;
        finding.newly_lost_ns = uses.newly_lost_ns;
        finding.window_share = share;
        finding.severity = severity_of(share);
        finding.explained_fraction = share_of(uses.lost_ns, uses.excess_ns);
        finding.verdict = verdict_of(finding.explained_fraction, context.lossy);
        finding.worst = uses.worst;
        for (const auto& [op, lost] : uses.by_op)
            finding.culprits.push_back({"first use of " + std::to_string(lost.second) +
                                            (lost.second == 1 ? " function" : " functions") + " by " + op_name(op),
                                        0, lost.first});
        std::sort(finding.culprits.begin(), finding.culprits.end(),
                  [](const Culprit& a, const Culprit& b) { return a.ns > b.ns; });
        if (finding.culprits.size() > max_culprits) finding.culprits.resize(max_culprits);
        finding.evidence = uses.evidence.sequences();
        write_text(finding, uses, context.knows_from_start(process));
        ret_findings.push_back(std::move(finding));
    }

    static void write_text(Finding& finding, const FirstUses& uses, bool from_start) {
        const std::string who = process_text(finding);
        finding.summary = "first use of " + std::to_string(uses.calls) +
                          (uses.calls == 1 ? " function took " : " functions took ") + format_duration(uses.lost_ns) +
                          " in " + who;
        if (uses.launches > 0)
            finding.summary += "; " + format_duration(uses.launches_ns) + " of it in launches, " +
                               percent_text(share_of(uses.launches_ns, uses.slow_launches_ns)) + " of the " +
                               format_duration(uses.slow_launches_ns) + " that slow launches lost";
        // It may have used a function before what was looked at: then this is the first use seen.
        if (!from_start) finding.summary += "; first in the time that was inspected: the process began before it";
        finding.fix =
            "Use each function once before the work counts: run a warm-up of every shape at start, or load all code "
            "then (CUDA_MODULE_LOADING=EAGER), and keep the process running.";
        finding.confirm = "Run explain again over a window after the warm-up: " + op_name(finding.worst.event.op) +
                          " of " + who + " should take about " + format_duration(finding.worst.expected_ns) + ".";
    }

    DetectorContext context_;
    ProcessTable<FirstUses> processes_;
};

}  // namespace

std::unique_ptr<Detector> make_cold_start(const DetectorContext& context) {
    return std::make_unique<ColdStart>(context);
}

}  // namespace ingero
