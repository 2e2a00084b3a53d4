#include <string>
#include <utility>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/gap_causes.h"
#include "core/model/text/format.h"

namespace ingero {

namespace {

constexpr double stalled_from = 0.01;  ///< of the time in which the process calls

class CheckpointStall final : public GapDetector {
  public:
    explicit CheckpointStall(const DetectorContext& context) : GapDetector(context) {}

  private:
    void find_in(const GapAccount& account, const JudgementContext& context,
                 std::vector<Finding>& ret_findings) const override {
        GapLoss loss(account, options_, clock_);
        uint64_t wrote_ns = 0, all_ns = 0, bytes = 0;
        Writes writes;
        for (const AccountedGap& gap : account.gaps) {
            if (!gap.is_checkpoint) continue;
            // Between the waits for the disk the thread makes ready and hands over what is to be written.
            const uint64_t wrote = gap.sum({Spent::wrote});
            const uint64_t chosen = gap.sum({Spent::timer, Spent::clients});
            wrote_ns = saturating_add(wrote_ns, wrote);
            all_ns =
                saturating_add(all_ns, saturating_subtract(gap.gap->time.length_ns(), chosen + gap.gap->in_calls_ns));
            bytes = saturating_add(bytes, gap.gap->bytes_back);
            loss.add(gap, saturating_add(wrote, gap.sum({Spent::ran})));
            writes.add(gap, account);
        }
        auto found = loss.finding("checkpoint-stall", stalled_from, context);
        if (!found) return;
        Finding& finding = *found;
        finding.explained_fraction = share_of(finding.lost_ns, all_ns);
        finding.verdict = verdict_of(finding.explained_fraction, context.lossy);
        finding.culprits = writes.culprits();
        finding.rejected = other_time(account, [](const AccountedGap& gap, const SpentPart& part) {
            return gap.is_checkpoint && (part.spent == Spent::wrote || part.spent == Spent::ran);
        });
        const std::string who = process_text(finding);
        finding.summary = who + " waited for " + format_count(loss.gaps(), "checkpoint", "checkpoints") +
                          ": writing the " + std::to_string(bytes >> 20) + " MiB copied from the device took " +
                          format_duration(wrote_ns) + writes.longest_text() + loss_text(finding);
        finding.fix =
            "Write checkpoints while training goes on: copy to host memory and let another thread or process write and "
            "sync them (asynchronous checkpoints). Or write them less often, to faster storage, or let each rank write "
            "its own part.";
        finding.confirm = "Run explain again over a window with a checkpoint: the step after it should begin within " +
                          format_duration(options_.call_floor_ns * 100) + " of the copy.";
        ret_findings.push_back(std::move(*found));
    }
};

}  // namespace

std::unique_ptr<Detector> make_checkpoint_stall(const DetectorContext& context) {
    return std::make_unique<CheckpointStall>(context);
}

}  // namespace ingero
