// Gaps in which devices had nothing to do, with what the thread that ended each had done meanwhile. What detectors of
// gaps share, so that no two blame the same time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/evidence/drained_gaps.h"
#include "core/diagnosis/evidence/wait_table.h"
#include "core/model/call_time.h"

namespace ingero {

struct AccountedGap {
    const DrainedGap* gap = nullptr;
    std::vector<SpentPart> parts;  ///< without what its thread spent in calls
    bool is_checkpoint = false;    ///< what was copied back was written meanwhile

    uint64_t sum(std::initializer_list<Spent> spent) const;
};

/// One process on one device that had nothing to do for some of the time.
struct GapAccount {
    ProcessKey process;
    uint16_t device = 0;
    uint64_t active_ns = 0;    ///< from its first call of the window to its last
    uint64_t drained_ns = 0;   ///< of gaps after launches
    uint64_t unproven_ns = 0;  ///< of them, in which calls may be missing
    std::vector<DrainedGap> unproven;
    bool waits_known = false;
    std::vector<AccountedGap> gaps;  ///< after launches, and nothing missing
};

class GapCauses {
  public:
    GapCauses(const DrainedGaps& gaps, const WaitTable& waits, const JudgementContext& context);
    const std::vector<GapAccount>& all() const { return accounts_; }

  private:
    std::vector<GapAccount> accounts_;
};

// What the detectors of gaps have in common.

/// Less than this is no finding, whatever part of a short window it is.
inline constexpr uint64_t gaps_worth_a_word_ns = 100'000'000;

/// As rejected ones are named: "on the CPU between calls".
std::string_view hypothesis(Spent spent);
std::vector<RejectedHypothesis> ranked_hypotheses(const std::map<std::string, uint64_t>& rejected);

/// Whether this is the thread that ended the gap, and not one that it waited for.
bool is_own(const AccountedGap& gap, const GapAccount& account, const SpentPart& part);

/// Fills the lost time, its share and the severity from gaps and what each lost; and the worst gap, as the call that
/// ended it.
class GapLoss {
  public:
    GapLoss(const GapAccount& account, const ExplainOptions& options, const ClockTriple& clock)
        : account_(account), options_(options), clock_(clock) {}
    void add(const AccountedGap& gap, uint64_t ns);
    uint64_t lost_ns() const { return lost_ns_; }
    uint64_t gaps() const { return gaps_; }
    void fill(Finding& finding, const JudgementContext& context) const;
    /// Nothing where that is too little to report: also less than `least_share` of the time in which the process
    /// calls.
    std::optional<Finding> finding(std::string_view kind, double least_share, const JudgementContext& context) const;
    /// Sets what is explained: all but `unknown_ns` of the same gaps, and the gaps in which calls may be missing.
    void prove(Finding& finding, uint64_t unknown_ns, const JudgementContext& context) const;

  private:
    const GapAccount& account_;
    const ExplainOptions& options_;
    const ClockTriple& clock_;
    uint64_t lost_ns_ = 0, newly_lost_ns_ = 0, gaps_ = 0, worst_ns_ = 0;
    const AccountedGap* worst_ = nullptr;
    Evidence evidence_;
};

/// Finds something of each process and device by itself.
class GapDetector : public Detector {
  public:
    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const final;

  protected:
    explicit GapDetector(const DetectorContext& context) : options_(context.options), clock_(context.clock) {}
    virtual void find_in(const GapAccount& account, const JudgementContext& context,
                         std::vector<Finding>& ret_findings) const = 0;

    const ExplainOptions options_;
    const ClockTriple clock_;
};

/// What gaps spent as Spent::wrote.
class Writes {
  public:
    /// The account's gap, which must outlive it.
    void add(const AccountedGap& gap, const GapAccount& account);
    /// "disk", "disk, written by pt_writer"; no processes.
    std::vector<Culprit> culprits() const;
    /// "; the longest wait took 40 ms (fsync)"; empty where there is none.
    std::string longest_text() const;

  private:
    std::map<std::pair<std::string, uint32_t>, uint64_t> by_name_;
    const SpentPart* longest_ = nullptr;
};

/// Largest first, at most ten.
std::vector<Culprit> ranked_culprits(const std::map<std::pair<std::string, uint32_t>, uint64_t>& by_name);

/// What of the gaps' time another kind answers for, or nobody: for Finding::rejected.
/// is_in_finding(gap, part): the finding has it.
template <class IsInFinding>
std::vector<RejectedHypothesis> other_time(const GapAccount& account, IsInFinding is_in_finding) {
    std::map<std::string, uint64_t> rejected;
    for (const AccountedGap& gap : account.gaps) {
        for (const SpentPart& part : gap.parts) {
            if (is_in_finding(gap, part)) continue;
            uint64_t& ns = rejected[std::string(hypothesis(part.spent))];
            ns = saturating_add(ns, part.ns);
        }
    }
    return ranked_hypotheses(rejected);
}

}  // namespace ingero
