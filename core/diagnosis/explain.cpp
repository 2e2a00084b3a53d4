#include "core/diagnosis/explain.h"

#include <algorithm>
#include <map>

#include "core/diagnosis/expected.h"
#include "core/diagnosis/findings.h"
#include "core/diagnosis/judge.h"
#include "core/query/event_filter.h"

namespace ingero {

namespace {

constexpr size_t max_rejected = 16;
/// One row lost in ten: what is missing could have told otherwise.
constexpr uint64_t lossy_from = 10;

/// Judges the calls of one boot, read twice from the store.
class BootExplainer {
  public:
    BootExplainer(const BootWindow& boot, const ExplainOptions& options, EventFilter filter, SlowCalls& slow,
                  JudgedTotals& totals)
        : boot_(boot), judge_(options, boot.monotonic, boot.clock, std::move(filter), slow, totals) {}

    Result<void> run(const StoreSnapshot& snapshot) {
        Window known = boot_.monotonic;
        known.from_ns = saturating_subtract(known.from_ns, baseline_history_ns);
        auto learnt = snapshot.scan(boot_.boot_index, known, [this](std::span<const Event> block) {
            judge_.learn(block);
            return true;
        });
        if (!learnt) return learnt;
        judge_.finish_learning();
        auto judged = snapshot.scan(boot_.boot_index, boot_.monotonic, [this](std::span<const Event> block) {
            judge_.judge(block);
            return true;
        });
        judge_.forget_samples();  // a trace may span many boots: one's samples at a time
        return judged;
    }

    const Ledger& ledger() const { return judge_.ledger(); }

  private:
    BootWindow boot_;
    Judge judge_;
};

/// How much of the windows the sessions can answer for: time without probes can have lost nothing.
uint64_t covered_ns(const StoreSnapshot& snapshot, const std::vector<BootWindow>& boots) {
    uint64_t total = 0;
    for (const BootWindow& boot : boots) {
        for (const Session& session : snapshot.sessions()) {
            if (session.boot_index != boot.boot_index || session.first_covered_ns == 0) continue;
            const Window overlap{std::max(session.first_covered_ns, boot.monotonic.from_ns),
                                 std::min(session.last_covered_ns, boot.monotonic.to_ns)};
            total = saturating_add(total, overlap.length_ns());
        }
    }
    return total;
}

std::string boot_id_of(const StoreSnapshot& snapshot, uint32_t boot_index) {
    for (const Session& session : snapshot.sessions()) {
        if (session.boot_index == boot_index) return session.boot_id;
    }
    return {};
}

std::string summary_of(const ExplainAnswer& answer, const JudgedTotals& totals) {
    std::string text;
    if (!answer.findings.empty()) {
        text = answer.findings[0].summary;
        const size_t more = answer.findings.size() - 1;
        if (more) text += ", and " + std::to_string(more) + (more == 1 ? " more finding" : " more findings");
    } else if (totals.calls == 0) {
        text = "no call was recorded in the window";
    } else {
        text = "no finding: " + std::to_string(totals.calls) + " calls, " + format_duration(totals.excess_ns) +
               " over what is usual";
        if (!answer.rejected.empty()) {
            text +=
                ", most of it " + answer.rejected[0].hypothesis + " (" + format_duration(answer.rejected[0].ns) + ")";
        }
    }
    if (totals.uncertain) {
        text += "; " + std::to_string(totals.uncertain) + " calls with an uncertain time split are no evidence";
    }
    return text;
}

}  // namespace

Result<ExplainAnswer> explain(const StoreSnapshot& snapshot, const Filter& filter, const ExplainOptions& options) {
    ExplainAnswer answer;
    answer.window = filter.window;
    auto covered = coverage(snapshot, filter.window, {.uid = filter.uid, .pid = filter.pid});
    if (!covered) return tl::unexpected(covered.error());
    answer.coverage = std::move(*covered);
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());

    const std::vector<BootWindow> boots = boot_windows(snapshot, filter.window);
    SlowCalls slow(options.slow_calls);
    JudgedTotals totals;
    std::vector<std::unique_ptr<BootExplainer>> explainers;
    for (const BootWindow& boot : boots) {
        explainers.push_back(
            std::make_unique<BootExplainer>(boot, options, EventFilter(filter, *processes), slow, totals));
        if (const auto done = explainers.back()->run(snapshot); !done) return tl::unexpected(done.error());
    }

    JudgementContext context;
    context.covered_ns = covered_ns(snapshot, boots);
    if (context.covered_ns == 0) context.covered_ns = filter.window.length_ns();
    context.lossy = answer.coverage.lost > totals.rows / lossy_from;
    std::map<std::string, uint64_t> rejected;
    for (size_t number = 0; number < boots.size(); ++number) {
        context.boot_id = boot_id_of(snapshot, boots[number].boot_index);
        const Ledger& ledger = explainers[number]->ledger();
        auto findings = ledger.findings(*processes, context);
        ledger.add_rejected(findings, rejected);
        std::move(findings.begin(), findings.end(), std::back_inserter(answer.findings));
    }
    std::sort(answer.findings.begin(), answer.findings.end(), [](const Finding& a, const Finding& b) {
        return a.lost_ns != b.lost_ns ? a.lost_ns > b.lost_ns : a.id < b.id;
    });
    answer.rejected = ranked(rejected, max_rejected);
    answer.slow_calls = slow.take();
    answer.calls = totals.calls;
    answer.excess_ns = totals.excess_ns;
    answer.explained_ns = totals.explained_ns;
    answer.healthy = answer.findings.empty();
    answer.summary = summary_of(answer, totals);
    return answer;
}

}  // namespace ingero
