#include "core/diagnosis/explain.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/diagnosis/evidence/expected.h"
#include "core/diagnosis/findings.h"
#include "core/diagnosis/judge.h"
#include "core/diagnosis/stored/past_collectives.h"
#include "core/diagnosis/stored/recorded_blocks.h"
#include "core/diagnosis/stored/window_history.h"
#include "core/model/text/format.h"
#include "core/query/event_filter.h"
#include "core/query/kernel_names.h"
#include "core/store/block/block_rows.h"

namespace ingero {

namespace {

constexpr size_t max_rejected = 16;
/// One call lost in ten: the missing ones could have shown otherwise.
constexpr uint64_t lossy_from = 10;
/// One call in ten that fails is no healthy program's.
constexpr uint64_t failing_from = 10;
/// Of the time: where calls took so much longer than usual in all, something was slow, whatever it was.
constexpr double slow_from = 0.2;

/// What is learnt from.
Window with_history(const Window& window) {
    return {saturating_subtract(window.from_ns, baseline_history_ns), window.to_ns};
}

/// Judges the calls of one boot, read twice from the store: most rows are never decoded, and of most of the others only
/// what is learnt from.
class BootExplainer {
  public:
    BootExplainer(const BootWindow& boot, bool imported, const DetectorContext& context, EventFilter filter,
                  SlowCalls& slow, JudgedTotals& totals)
        : boot_(boot), imported_(imported), judge_(context, std::move(filter), slow, totals) {}

    Result<void> run(const StoreSnapshot& snapshot) {
        if (auto learnt = learn(snapshot); !learnt) return learnt;
        judge_.finish_learning();
        auto judged = judge(snapshot);
        judge_.finish_judging();
        judge_.forget_samples();  // a trace may span many boots: one's samples at a time
        const Window more = judge_.looks_back_at();
        if (!judged || more.length_ns() == 0) return judged;
        return look_back(snapshot, more);
    }

    const Judge& judge() const { return judge_; }
    bool imported() const { return imported_; }

  private:
    Result<void> learn(const StoreSnapshot& snapshot) {
        const Window known = with_history(boot_.monotonic);
        const auto blocks = recorded_blocks(snapshot, boot_.boot_index, known, imported_);
        if (!blocks) return tl::unexpected(blocks.error());
        for (const RecordedBlock& block : *blocks) {
            if (block.is_inside) {
                if (auto opened = view_.open(block.bytes); !opened) return opened;
                if (auto learnt = judge_.learn(view_); !learnt) return learnt;
                continue;
            }
            if (auto decoded = decode_within(block, known, rows_); !decoded) return decoded;
            judge_.learn(rows_);
        }
        return {};
    }

    Result<void> judge(const StoreSnapshot& snapshot) {
        const auto blocks = recorded_blocks(snapshot, boot_.boot_index, boot_.monotonic, imported_);
        if (!blocks) return tl::unexpected(blocks.error());
        for (const RecordedBlock& block : *blocks) {
            size_t others = 0;
            if (block.is_inside) {
                rows_.clear();
                if (auto opened = view_.open(block.bytes); !opened) return opened;
                auto decoded = decode_rows(
                    view_, [](const OpSummary& op) { return Judge::is_judged(op.op); }, rows_);
                if (decoded) decoded = judge_.add_gap_waits(view_, rows_);
                if (!decoded) return decoded;
                others = view_.rows() - rows_.size();
            } else if (auto decoded = decode_within(block, boot_.monotonic, rows_); !decoded) {
                return decoded;
            }
            judge_.judge(rows_, others);
        }
        return {};
    }

    Result<void> look_back(const StoreSnapshot& snapshot, const Window& more) {
        const auto blocks = recorded_blocks(snapshot, boot_.boot_index, more, imported_);
        if (!blocks) return tl::unexpected(blocks.error());
        for (const RecordedBlock& block : *blocks) {
            if (auto decoded = decode_within(block, more, rows_); !decoded) return decoded;
            judge_.look_back(rows_);
        }
        return {};
    }

    BootWindow boot_;
    bool imported_;  ///< from a trace that does not say in full what it left out
    Judge judge_;
    BlockView view_;
    std::vector<Event> rows_;  ///< of one block
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

/// From when on the session has recorded what began after its start. Its coverage begins only when all that was mapped
/// by then has its probes; where it begins much later, calls of before were dropped.
uint64_t recorded_from_ns(const Session& session) {
    constexpr uint64_t settling_ns = 10'000'000'000;
    const uint64_t start_ns = std::max<uint64_t>(session.clock.monotonic_ns, 1);
    const bool dropped =
        session.rolled_up_from_ns != 0 || saturating_subtract(session.first_covered_ns, start_ns) > settling_ns;
    return dropped ? session.first_covered_ns : std::min(start_ns, session.first_covered_ns);
}

/// What of the boot was recorded up to the window's end, and nothing of it missing: the latest session. from_ns is 0
/// where no session covers anything.
Window recorded_of(const StoreSnapshot& snapshot, const BootWindow& boot) {
    Window known;
    for (const Session& session : snapshot.sessions()) {
        if (session.boot_index != boot.boot_index || session.first_covered_ns == 0) continue;
        known.to_ns = std::max(known.to_ns, session.last_covered_ns);
        // Between two sessions anything may have been called.
        if (session.first_covered_ns < boot.monotonic.to_ns)
            known.from_ns = std::max(known.from_ns, recorded_from_ns(session));
    }
    return known;
}

Result<void> name_functions(const StoreSnapshot& snapshot, std::vector<Finding>& findings) {
    std::optional<KernelNames> names;
    for (Finding& finding : findings) {
        for (Culprit& culprit : finding.culprits) {
            if (culprit.function == 0) continue;
            if (!names) {
                auto read = KernelNames::read(snapshot);
                if (!read) return tl::unexpected(read.error());
                names = std::move(*read);
            }
            const std::string name = names->text(names->number(finding.worst.event.process(), culprit.function));
            if (!name.empty()) culprit.name = name;
        }
    }
    return {};
}

/// Calls of the boot's window; a row that reaches past it counts whole.
Result<uint64_t> lost_calls(const StoreSnapshot& snapshot, const BootWindow& boot) {
    const auto losses = snapshot.losses(boot.boot_index, boot.monotonic);
    if (!losses) return tl::unexpected(losses.error());
    uint64_t lost = 0;
    for (const LossRow& row : *losses) lost = saturating_add(lost, row.lost());
    return lost;
}

/// What was not recorded and could have shown a cause; empty where it is too little to matter.
std::string missing_evidence(const Coverage& coverage, uint64_t recorded, uint64_t covered_ns) {
    std::string text;
    if (coverage.lost > recorded / lossy_from) text = format_count(coverage.lost, "call was", "calls were") + " lost";
    std::map<std::string, uint64_t> turned_off;
    const std::string prefix = std::string(to_string(GapReason::turned_off)) + ": ";
    for (const Gap& gap : coverage.gaps)
        if (gap.reason.starts_with(prefix)) turned_off[gap.reason.substr(prefix.size())] += gap.to_ns - gap.from_ns;
    for (const auto& [what, ns] : turned_off) {
        if (ns < covered_ns / lossy_from) continue;
        if (!text.empty()) text += ", and ";
        text += what + " was turned off for " + format_duration(ns);
    }
    return text;
}

/// The same of ranks that were left out; empty where none were.
std::string missing_ranks(const Communicators& communicators, const std::deque<KnownProcesses>& known_of_boots,
                          const std::vector<BootWindow>& boots,
                          const std::map<ProcessKey, uint32_t>& boots_of_processes) {
    std::set<uint64_t> interrupted;
    for (const Communicator& one : communicators.all())
        for (size_t number = 0; number < boots.size(); ++number) {
            const KnownProcesses& known = known_of_boots[number];
            const Window& window = boots[number].monotonic;
            const auto boot = boots_of_processes.find(one.row.process);
            if (boot != boots_of_processes.end() && boot->second != boots[number].boot_index) continue;
            if (one.hash_at(window.to_ns) != one.row.hash && known.exited_ns(one.row.process) > window.from_ns)
                interrupted.insert(one.row.hash);
        }
    if (interrupted.empty()) return {};
    return "ranks of " + std::to_string(interrupted.size()) +
           (interrupted.size() == 1 ? " communicator" : " communicators") +
           " were not compared, since some of their collectives may not have been recorded";
}

/// Whether anything is known of those that the answer may speak of.
bool is_known(const std::vector<Process>& processes, EventFilter& visible) {
    return std::any_of(processes.begin(), processes.end(),
                       [&](const Process& process) { return visible.matches(process.key); });
}

/// Why nothing was judged. `visible`: the processes that the answer may speak of.
std::string nothing_recorded(const Filter& filter, const std::vector<Process>& processes, EventFilter& visible) {
    if (!filter.pid) return "nothing to explain: no CUDA call was recorded in the window";
    const std::string subject = "process " + std::to_string(*filter.pid);
    if (is_known(processes, visible))
        return "nothing to explain: no CUDA call of " + subject + " was recorded in the window";
    return "nothing to explain: no traced " + subject +
           " that you may see; 'ingeroctl processes' lists the traced ones, 'ingeroctl check' shows what this host "
           "cannot trace";
}

bool fails_often(const JudgedTotals& totals) {
    return totals.failed != 0 && saturating_multiply(totals.failed, failing_from) >= totals.calls;
}

/// Of processes whose calls took much of their time beyond what is usual.
struct SlowProcesses {
    ExcessSums host;         ///< where that is not the device's time
    bool of_device = false;  ///< some are slow for that alone

    /// Those of a boot.
    void add(const Excess& excess, const JudgementContext& context) {
        std::map<ProcessKey, ExcessSums> processes;
        for (uint32_t number = 0; number < excess.groups().size(); ++number)
            processes[excess.groups().key(number).process].add(excess.of_group(number));
        for (const auto& [process, sums] : processes) {
            const uint64_t time_ns = context.time_of(process);
            if (share_of(sums.host_ns(), time_ns) >= slow_from)
                host.add(sums);
            else
                of_device = of_device || share_of(sums.excess_ns, time_ns) >= slow_from;
        }
    }
    bool any() const { return host.calls != 0; }
    /// Largest first.
    std::vector<std::pair<std::string, uint64_t>> parts() const {
        auto all = host.by_cause();
        std::erase_if(all, [](const auto& one) { return one.first == to_string(Cause::device_wait); });
        for (auto& [name, ns] : all)
            if (name == uncertain_split) ns -= std::min(ns, host.uncertain_device_ns);
        std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
        return all;
    }
    /// Whether most of it has a cause, if none that makes a finding.
    bool has_causes() const {
        uint64_t known_ns = 0;
        for (const auto& [name, ns] : parts())
            if (name != uncertain_split && name != unexplained) known_ns = saturating_add(known_ns, ns);
        return known_ns >= host.host_ns() / 2;
    }
};

std::string summary_of(const ExplainAnswer& answer, const JudgedTotals& totals, const SlowProcesses& slow,
                       const std::string& missing, const std::string& nothing) {
    std::string text;
    const auto add_part = [&](const std::string& name, uint64_t ns, uint64_t whole_ns) {
        text += (ns >= whole_ns / 2 ? ", mostly " : ", of it ") + name + " (" + format_duration(ns) + ")";
    };
    if (!answer.findings.empty()) {
        text = answer.findings[0].summary;
        const size_t more = answer.findings.size() - 1;
        if (more) text += ", and " + std::to_string(more) + (more == 1 ? " more finding" : " more findings");
        if (answer.findings[0].severity == Severity::low && slow.any() && !slow.has_causes()) {
            text += "; no cause found for most of the " + format_duration(slow.host.host_ns()) +
                    " that calls took longer than usual";
            const auto [name, ns] = slow.parts().front();
            add_part(name, ns, slow.host.host_ns());
        }
        if (!missing.empty()) text += "; for other causes there is insufficient evidence: " + missing;
    } else if (!missing.empty()) {
        text = "insufficient evidence: " + missing + "; no finding in " +
               format_count(totals.calls, "call that was", "calls that were") + " recorded";
    } else if (totals.calls == 0) {
        text = nothing;
    } else {
        text = (slow.any()            ? (slow.has_causes() ? "slow: " : "no cause found: ")
                : fails_often(totals) ? "calls failed: "
                : slow.of_device      ? "nothing slow on the host: "
                                      : "nothing slow found: ") +
               format_count(totals.calls, "call", "calls") + " together took " + format_duration(totals.excess_ns) +
               " longer than usual";
        if (const auto parts = slow.parts(); !parts.empty())
            add_part(parts.front().first, parts.front().second, totals.excess_ns);
        else if (!answer.rejected.empty())
            add_part(answer.rejected[0].hypothesis, answer.rejected[0].ns, totals.excess_ns);
    }
    if (fails_often(totals))
        text += "; " + format_count(totals.failed) + " of the " + format_count(totals.calls, "call", "calls") +
                " failed: 'ingeroctl stats' counts the errors";
    if (totals.uncertain) {
        text += "; " + format_count(totals.uncertain, "call has no cause assigned: its time split is an estimate",
                                    "calls have no cause assigned: their time split is an estimate");
    }
    return text;
}

}  // namespace

namespace {

/// The index or UUID of the host's GPU where the process's CUDA_VISIBLE_DEVICES names it; else its ordinal.
std::string gpu_name(const Process* process, uint16_t device) {
    if (device == INGERO_DEVICE_UNKNOWN) return "unknown";
    std::string_view visible = process ? std::string_view(process->facts.cuda_visible_devices) : std::string_view();
    for (uint16_t ordinal = 0; !visible.empty(); ++ordinal) {
        const size_t comma = visible.find(',');
        if (ordinal == device) return std::string(visible.substr(0, comma));
        if (comma == std::string_view::npos) break;
        visible.remove_prefix(comma + 1);
    }
    return std::to_string(device);
}

/// How much longer than usual each boot's calls took, all together and by process and GPU.
class ExcessGroups {
  public:
    void add(const Excess& excess, const KnownProcesses& processes) {
        for (uint32_t number = 0; number < excess.groups().size(); ++number) {
            const Excess::Group& group = excess.groups().key(number);
            const ExcessSums& sums = excess.of_group(number);
            whole_.add(sums);
            ExcessGroup& process = processes_[group.process];
            process.name = processes.name(group.process);
            process.pid = visible_pid(group.process.pid);
            process.sums.add(sums);
            ExcessGroup& gpu = gpus_[gpu_name(processes.find(group.process), group.device)];
            gpu.sums.add(sums);
        }
        whole_.add(excess.others());
    }
    void take_to(ExplainAnswer& answer) {
        answer.excess = whole_;
        for (auto& [key, group] : processes_) answer.by_process.push_back(std::move(group));
        for (auto& [name, group] : gpus_) {
            answer.by_gpu.push_back(std::move(group));
            answer.by_gpu.back().name = name;
        }
        for (auto* groups : {&answer.by_process, &answer.by_gpu}) {
            std::stable_sort(groups->begin(), groups->end(),
                             [](const auto& a, const auto& b) { return a.sums.excess_ns > b.sums.excess_ns; });
            if (groups->size() > max_listed_groups) groups->resize(max_listed_groups);
        }
    }

  private:
    static constexpr size_t max_listed_groups = 256;
    ExcessSums whole_;
    std::map<ProcessKey, ExcessGroup> processes_;
    std::map<std::string, ExcessGroup> gpus_;
};

}  // namespace

namespace {

void add_slices(const std::vector<ExcessSlice>& slices, const BootWindow& boot, std::vector<ExcessSlice>& ret_slices) {
    const Window& window = boot.monotonic;
    const auto at = [&](size_t number) {
        return boot.clock.to_realtime(
            window.from_ns +
            static_cast<uint64_t>(static_cast<unsigned __int128>(window.length_ns()) * number / slices.size()));
    };
    for (size_t number = 0; number < slices.size(); ++number) {
        ret_slices.push_back(slices[number]);
        ret_slices.back().wall = {at(number), at(number + 1)};
    }
}

/// What is found by comparing ranks with each other.
bool is_of_ranks(const Finding& finding) {
    constexpr std::array<std::string_view, 3> kinds = {"collective-wait", "straggler", "nccl-hang"};
    return std::find(kinds.begin(), kinds.end(), finding.kind) != kinds.end();
}

/// `of_ranks`: instead of findings of that kind that the calls of the one process show.
Result<ExplainAnswer> explain(const StoreSnapshot& snapshot, const Filter& filter, const ExplainOptions& given,
                              std::optional<std::vector<Finding>> of_ranks) {
    ExplainAnswer answer;
    ExplainOptions options = given;
    options.with_groups = true;
    answer.window = filter.window;
    auto covered = coverage(snapshot, filter.window, {.uid = filter.uid, .pid = filter.pid});
    if (!covered) return tl::unexpected(covered.error());
    answer.coverage = std::move(*covered);
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());

    const KnownProcesses all_known(*processes);
    const auto boots_of_processes = snapshot.process_boots();
    if (!boots_of_processes) return tl::unexpected(boots_of_processes.error());
    auto communicators = Communicators::read(snapshot);
    if (!communicators) return tl::unexpected(communicators.error());
    // Of ranks whose calls are left out nothing is known, and they may be another user's.
    EventFilter visible(filter, *processes);
    communicators->keep_if([&](const ProcessKey& process) { return visible.matches(process); });

    const std::vector<BootWindow> boots = boot_windows(snapshot, filter.window);
    SlowCalls slow(options.slow_calls);
    JudgedTotals totals;
    std::vector<std::unique_ptr<BootExplainer>> explainers;
    std::vector<Window> recorded;
    std::vector<uint64_t> recorded_calls;
    std::deque<std::optional<PastCollectives>> past;
    std::deque<KnownProcesses> known_of_boots;
    for (const BootWindow& boot : boots) {
        known_of_boots.push_back(all_known.of_boot(*boots_of_processes, boot.boot_index, boot.clock));
        const KnownProcesses& known = known_of_boots.back();
        const auto gaps = snapshot.gaps(boot.boot_index, boot.monotonic);
        if (!gaps) return tl::unexpected(gaps.error());
        const bool imported = std::any_of(gaps->begin(), gaps->end(),
                                          [](const GapRow& gap) { return gap.reason == GapReason::imported; });
        recorded.push_back(recorded_of(snapshot, boot));
        std::optional<PastCollectives>& before = past.emplace_back();
        if (!imported) {
            auto read = read_past_collectives(snapshot, boot, with_history(boot.monotonic), recorded.back().from_ns,
                                              *communicators, known);
            if (!read) return tl::unexpected(read.error());
            if (*read) before.emplace(std::move(**read));
        }
        const DetectorContext context{.options = options,
                                      .window = boot.monotonic,
                                      .clock = boot.clock,
                                      .processes = &known,
                                      .communicators = &*communicators,
                                      .collectives = before ? &*before : nullptr};
        explainers.push_back(
            std::make_unique<BootExplainer>(boot, imported, context, EventFilter(filter, *processes), slow, totals));
        const uint64_t of_boots_before = totals.recorded;
        if (const auto done = explainers.back()->run(snapshot); !done) return tl::unexpected(done.error());
        recorded_calls.push_back(totals.recorded - of_boots_before);
    }

    JudgementContext context;
    context.filtered = filter.uid || filter.pid;
    uint64_t all_covered_ns = covered_ns(snapshot, boots);
    if (all_covered_ns == 0) all_covered_ns = filter.window.length_ns();
    std::map<std::string, uint64_t> rejected;
    ExcessGroups groups;
    SlowProcesses slow_processes;
    size_t requests_left_out = 0;
    for (size_t number = 0; number < boots.size(); ++number) {
        context.boot_id = boot_id_of(snapshot, boots[number].boot_index);
        const Window& window = boots[number].monotonic;
        const KnownProcesses& known = known_of_boots[number];
        context.processes = &known;
        context.window = window;
        context.covered_ns = covered_ns(snapshot, {boots[number]});
        if (context.covered_ns == 0) context.covered_ns = window.length_ns();
        context.learnt_from_ns = 0;
        if (recorded[number].from_ns != 0)
            context.learnt_from_ns = std::max(recorded[number].from_ns, with_history(window).from_ns);
        context.recorded_until_ns = recorded[number].to_ns;
        context.clock = boots[number].clock;
        const auto lost = lost_calls(snapshot, boots[number]);
        if (!lost) return tl::unexpected(lost.error());
        context.lossy = *lost > recorded_calls[number] / lossy_from;
        const uint64_t known_from_ns =
            past[number] ? std::min(past[number]->first_ns, context.learnt_from_ns) : context.learnt_from_ns;
        auto losses = snapshot.losses(boots[number].boot_index, {known_from_ns, window.to_ns});
        if (!losses) return tl::unexpected(losses.error());
        context.losses = std::move(*losses);
        context.imported = explainers[number]->imported();
        const bool counted = std::any_of(context.losses.begin(), context.losses.end(),
                                         [](const LossRow& row) { return row.thinned != 0; });
        context.calls_left_out = context.imported && !counted;
        auto history = read_history(snapshot, boots[number], filter);
        if (!history) return tl::unexpected(history.error());
        requests_left_out += history->left_out;
        context.gpus = &history->gpus;
        context.spans = &history->spans;
        auto findings = explainers[number]->judge().findings(context);
        explainers[number]->judge().ledger().add_rejected(findings, rejected);
        const Excess& excess = explainers[number]->judge().excess();
        groups.add(excess, known);
        slow_processes.add(excess, context);
        add_slices(excess.slices(), boots[number], answer.slices);
        if (auto named = name_functions(snapshot, findings); !named) return tl::unexpected(named.error());
        std::move(findings.begin(), findings.end(), std::back_inserter(answer.findings));
    }
    if (of_ranks) {
        std::erase_if(answer.findings, is_of_ranks);
        std::move(of_ranks->begin(), of_ranks->end(), std::back_inserter(answer.findings));
    }
    std::sort(answer.findings.begin(), answer.findings.end(), [](const Finding& a, const Finding& b) {
        return std::tie(b.severity, b.lost_ns, a.id) < std::tie(a.severity, a.lost_ns, b.id);
    });
    groups.take_to(answer);
    answer.rejected = ranked(rejected, max_rejected);
    answer.slow_calls = slow.take();
    answer.calls = totals.calls;
    answer.excess_ns = totals.excess_ns;
    answer.explained_ns = totals.explained_ns;
    std::string missing = missing_evidence(answer.coverage, totals.recorded, all_covered_ns);
    if (const std::string ranks = missing_ranks(*communicators, known_of_boots, boots, *boots_of_processes);
        !ranks.empty())
        missing += (missing.empty() ? "" : ", and ") + ranks;
    answer.healthy = answer.findings.empty() && missing.empty() && !fails_often(totals) && !slow_processes.any() &&
                     (!filter.pid || is_known(*processes, visible));
    answer.summary = summary_of(answer, totals, slow_processes, missing, nothing_recorded(filter, *processes, visible));
    if (requests_left_out != 0)
        answer.summary += "; the first " + format_count(requests_left_out) +
                          " requests and steps of the window were not compared: ask for a shorter window";
    return answer;
}

}  // namespace

Result<ExplainAnswer> explain(const StoreSnapshot& snapshot, const Filter& filter, const ExplainOptions& options) {
    if (!filter.pid) return explain(snapshot, filter, options, std::nullopt);
    auto communicators = Communicators::read(snapshot);
    if (!communicators) return tl::unexpected(communicators.error());
    const auto& all = communicators->all();
    if (std::none_of(all.begin(), all.end(),
                     [&](const Communicator& one) { return one.row.process.pid == *filter.pid; }))
        return explain(snapshot, filter, options, std::nullopt);
    // One rank alone says nothing of the others.
    Filter of_all = filter;
    of_all.pid.reset();
    ExplainOptions without_lists = options;
    without_lists.slow_calls = without_lists.slices = 0;
    auto compared = explain(snapshot, of_all, without_lists, std::nullopt);
    if (!compared) return compared;
    std::erase_if(compared->findings, [&](const Finding& finding) {
        const auto is_asked = [&](uint32_t pid) { return pid == *filter.pid; };
        const bool is_about = is_asked(finding.worst.event.tgid) ||
                              std::any_of(finding.culprits.begin(), finding.culprits.end(),
                                          [&](const Culprit& culprit) { return is_asked(culprit.pid); }) ||
                              std::any_of(finding.ranks.begin(), finding.ranks.end(),
                                          [&](const ProcessKey& process) { return is_asked(process.pid); });
        return !is_of_ranks(finding) || !is_about;
    });
    return explain(snapshot, filter, options, std::move(compared->findings));
}

}  // namespace ingero
