#include <map>
#include <string>
#include <utility>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/gap_causes.h"
#include "core/model/host_event.h"
#include "core/model/text/format.h"

namespace ingero {

namespace {

constexpr double waited_from = 0.05;  ///< of the time in which the process calls

/// Another answers, or a program that was started ends: of this process, not of a loader's worker.
bool is_tool_call(const GapAccount& account, const SpentPart& part) {
    return part.process.pid == account.process.pid && (part.spent == Spent::peer || part.spent == Spent::child);
}

/// Who ended the longest of these waits is who was waited for, where it is of this host.
Culprit culprit_of(const SpentPart& part) {
    Culprit culprit;
    if (!part.longest) return culprit;
    const bool task = part.longest->waker_kind == WakerKind::task;
    const std::string comm = task ? std::string(to_string_view(part.longest->waker_comm)) : std::string();
    culprit.pid = task ? visible_pid(part.longest->waker_tgid) : 0;
    culprit.name = comm;
    if (part.spent == Spent::peer) culprit.name += (comm.empty() ? "" : " at ") + peer_text(*part.longest);
    if (culprit.name.empty()) culprit.name = "a process that it started";
    return culprit;
}

class IdleInToolCall final : public GapDetector {
  public:
    explicit IdleInToolCall(const DetectorContext& context) : GapDetector(context) {}

  private:
    void find_in(const GapAccount& account, const JudgementContext& context,
                 std::vector<Finding>& ret_findings) const override {
        GapLoss loss(account, options_, clock_);
        uint64_t child_ns = 0, unknown_ns = 0;
        std::map<std::pair<std::string, uint32_t>, uint64_t> by_name;
        for (const AccountedGap& gap : account.gaps) {
            uint64_t ns = 0, unknown = 0;
            for (const SpentPart& part : gap.parts) {
                if (part.spent == Spent::unknown) unknown = saturating_add(unknown, part.ns);
                if (!is_tool_call(account, part)) continue;
                ns = saturating_add(ns, part.ns);
                if (part.spent == Spent::child) child_ns = saturating_add(child_ns, part.ns);
                const Culprit culprit = culprit_of(part);
                uint64_t& sum = by_name[{culprit.name, culprit.pid}];
                sum = saturating_add(sum, part.ns);
            }
            if (ns != 0) unknown_ns = saturating_add(unknown_ns, unknown);
            loss.add(gap, ns);
        }
        auto found = loss.finding("idle-in-tool-call", waited_from, context);
        if (!found) return;
        Finding& finding = *found;
        loss.prove(finding, unknown_ns, context);
        finding.culprits = ranked_culprits(by_name);
        finding.rejected = other_time(
            account, [&](const AccountedGap&, const SpentPart& part) { return is_tool_call(account, part); });
        const std::string who = process_text(finding);
        finding.summary = "the device of " + who + " had nothing to do while the program waited for " +
                          (child_ns > finding.lost_ns / 2 ? "a program that it had started" : "a remote peer") + ", " +
                          format_count(loss.gaps(), "time", "times") + ", mostly " + finding.culprits[0].name +
                          loss_text(finding);
        finding.fix =
            "Let the device work meanwhile: serve other requests or agents in the same process while this one's tool "
            "runs, call several tools at once, and make slow tools faster or cache what they answer.";
        finding.confirm = "Run explain again over a window of the same length: waits of " + who +
                          " for tools should leave its device idle for less than " + percent_text(waited_from) +
                          " of the time.";
        ret_findings.push_back(std::move(*found));
    }
};

}  // namespace

std::unique_ptr<Detector> make_idle_in_tool_call(const DetectorContext& context) {
    return std::make_unique<IdleInToolCall>(context);
}

}  // namespace ingero
