#include <map>
#include <string>
#include <utility>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/gap_causes.h"
#include "core/diagnosis/finding_text.h"
#include "core/model/host_event.h"
#include "core/model/text/format.h"

namespace ingero {

namespace {

constexpr double waited_from = 0.02;  ///< of the time in which the process calls

bool is_resent(const SpentPart& part) {
    return part.spent == Spent::resent;
}

std::string connection_text(const GapAccount& account, const SpentPart& part) {
    const std::string peer = part.longest ? peer_text(*part.longest) : std::string();
    const std::string_view who = to_string_view(part.comm);
    return part.process.pid == account.process.pid || who.empty() ? peer : peer + ", asked by " + std::string(who);
}

class NetworkRetransmit final : public GapDetector {
  public:
    explicit NetworkRetransmit(const DetectorContext& context) : GapDetector(context) {}

  private:
    void find_in(const GapAccount& account, const JudgementContext& context,
                 std::vector<Finding>& ret_findings) const override {
        GapLoss loss(account, options_, clock_);
        uint64_t unknown_ns = 0;
        std::map<std::pair<std::string, uint32_t>, uint64_t> by_name;
        for (const AccountedGap& gap : account.gaps) {
            const uint64_t ns = gap.sum({Spent::resent});
            if (ns != 0) unknown_ns = saturating_add(unknown_ns, gap.sum({Spent::unknown}));
            for (const SpentPart& part : gap.parts) {
                if (!is_resent(part)) continue;
                uint64_t& sum = by_name[{connection_text(account, part), 0}];
                sum = saturating_add(sum, part.ns);
            }
            loss.add(gap, ns);
        }
        auto found = loss.finding("network-retransmit", waited_from, context);
        if (!found) return;
        Finding& finding = *found;
        loss.prove(finding, unknown_ns, context);
        finding.culprits = ranked_culprits(by_name);
        finding.rejected =
            other_time(account, [](const AccountedGap&, const SpentPart& part) { return is_resent(part); });
        const std::string who = process_text(finding);
        finding.summary = "the device of " + who + " had nothing to do while the program waited for retransmissions, " +
                          format_count(loss.gaps(), "time", "times") + ", mostly to " + finding.culprits[0].name +
                          loss_text(finding);
        finding.fix = resent_fix;
        finding.confirm = "Run explain again over a window of the same length: " + who +
                          " should wait for retransmissions for less than " + percent_text(waited_from) +
                          " of the time, and SQL's socket_events should have no tcp_retransmit of it.";
        ret_findings.push_back(std::move(*found));
    }
};

}  // namespace

std::unique_ptr<Detector> make_network_retransmit(const DetectorContext& context) {
    return std::make_unique<NetworkRetransmit>(context);
}

}  // namespace ingero
