#include <string>
#include <utility>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/gap_causes.h"
#include "core/model/text/format.h"

namespace ingero {

namespace {

constexpr double waited_from = 0.02;  ///< of the time in which the process calls

/// A program that then sleeps for a time of its own choice, or waits to be asked, may have had that much to spare.
bool has_time_to_spare(const AccountedGap& gap, uint64_t wrote_ns) {
    return gap.sum({Spent::timer, Spent::clients}) > wrote_ns / 10;
}

class OwnIoWait final : public GapDetector {
  public:
    explicit OwnIoWait(const DetectorContext& context) : GapDetector(context) {}

  private:
    void find_in(const GapAccount& account, const JudgementContext& context,
                 std::vector<Finding>& ret_findings) const override {
        GapLoss loss(account, options_, clock_);
        uint64_t most_ns = 0, unknown_ns = 0;
        Writes writes;
        const auto is_lost = [](const AccountedGap& gap) {
            return !gap.is_checkpoint && !has_time_to_spare(gap, gap.sum({Spent::wrote}));
        };
        for (const AccountedGap& gap : account.gaps) {
            const uint64_t wrote_ns = gap.is_checkpoint ? 0 : gap.sum({Spent::wrote});
            if (wrote_ns == 0) continue;
            most_ns = saturating_add(most_ns, wrote_ns);
            if (!is_lost(gap)) continue;
            loss.add(gap, wrote_ns);
            unknown_ns = saturating_add(unknown_ns, gap.sum({Spent::unknown}));
            writes.add(gap, account);
        }
        auto found = loss.finding("own-io-wait", waited_from, context);
        if (!found) return;
        Finding& finding = *found;
        loss.prove(finding, unknown_ns, context);
        finding.lost_high_ns = most_ns;
        finding.culprits = writes.culprits();
        finding.rejected = other_time(account, [&](const AccountedGap& gap, const SpentPart& part) {
            return part.spent == Spent::wrote && is_lost(gap);
        });
        const std::string who = process_text(finding);
        finding.summary = "the device of " + who + " had nothing to do while the program waited for writes, " +
                          format_count(loss.gaps(), "time", "times") + ", mostly to " + finding.culprits[0].name +
                          writes.longest_text() + loss_text(finding);
        finding.fix =
            "Write and sync in another thread or process while the device works, sync less often, or keep the files on "
            "faster storage. iostat -x 1 shows whether the disk is busy with other work.";
        finding.confirm = "Run explain again over a window of the same length: " + who +
                          " should wait for writes between steps for less than " + percent_text(waited_from) +
                          " of the time.";
        ret_findings.push_back(std::move(*found));
    }
};

}  // namespace

std::unique_ptr<Detector> make_own_io_wait(const DetectorContext& context) {
    return std::make_unique<OwnIoWait>(context);
}

}  // namespace ingero
