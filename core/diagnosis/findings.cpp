#include "core/diagnosis/findings.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "core/diagnosis/evidence/expected.h"
#include "core/diagnosis/finding_text.h"
#include "core/model/host_event.h"

namespace ingero {

namespace {

constexpr size_t max_processes = 16'384;
constexpr size_t max_threads = 65'536;
constexpr size_t max_map_entries = 1'024;
constexpr size_t max_culprits = 10;
constexpr size_t max_rejected = 8;
constexpr size_t pids_before_merging = 3;

/// Of the time the affected threads were active: what a slow call or two in a long run come to is no finding.
constexpr uint64_t active_share = 1'000;
/// Waits that the device's work hid are reported from so many times the window's floor on: others run a little
/// everywhere.
constexpr double hidden_floors = 4;

template <class Map, class Key>
bool add_bounded(Map& map, const Key& key, uint64_t ns) {
    const auto found = map.find(key);
    if (found == map.end() && map.size() >= max_map_entries) return false;
    uint64_t& total = found == map.end() ? map[key] : found->second;
    total = saturating_add(total, ns);
    return true;
}

void add_to(uint64_t& total, uint64_t ns) {
    total = saturating_add(total, ns);
}

/// Each is charged the part it was seen to take.
void add_preemptors(KindLedger& kind, Cause cause, const Assignment& assignment) {
    const uint64_t contention_ns = assignment[Cause::cpu_contention] + assignment[Cause::noisy_neighbour];
    uint64_t unnamed_ns = assignment.of_all(assignment[cause]);
    // Up to each one of them, so that nothing of all is left over for being rounded.
    uint64_t seen_ns = 0, before_ns = 0;
    for (const Preemptor& one : assignment.preemptors) {
        seen_ns += one.ns;
        const auto until_ns = static_cast<uint64_t>(static_cast<unsigned __int128>(contention_ns) * seen_ns /
                                                    std::max<uint64_t>(assignment.contended_ns, 1));
        const uint64_t part_ns = until_ns - std::exchange(before_ns, until_ns);
        if (one.cause != cause) continue;
        const uint64_t ns = std::min(assignment.of_all(part_ns), unnamed_ns);
        if (add_bounded(kind.by_culprit, std::pair(std::string(to_string_view(one.comm)), visible_pid(one.tgid)), ns))
            unnamed_ns -= ns;
    }
    add_to(kind.unnamed_culprits_ns, unnamed_ns);
}

/// Who or what the time went to.
void add_culprit(KindLedger& kind, Cause cause, const Event& event, const Assignment& assignment) {
    if (cause == Cause::cpu_contention || cause == Cause::noisy_neighbour)
        return add_preemptors(kind, cause, assignment);
    const uint64_t ns = assignment.of_all(assignment[cause]);
    const auto [comm, pid] = suspect_of(cause, event);
    std::string name(to_string_view(comm));
    if (cause == Cause::network_retransmit && assignment.resent) name = peer_text(*assignment.resent);
    if (cause == Cause::lock_between_calls) name = interpreter_name;
    if (!add_bounded(kind.by_culprit, std::pair(std::move(name), pid), ns)) add_to(kind.unnamed_culprits_ns, ns);
}

/// A program of many processes is one culprit: beyond three pids the name alone is ranked.
std::vector<Culprit> ranked_culprits(const KindLedger& kind) {
    std::map<std::string, size_t> pids;
    for (const auto& [who, ns] : kind.by_culprit) ++pids[who.first];
    std::map<std::pair<std::string, uint32_t>, uint64_t> merged;
    for (const auto& [who, ns] : kind.by_culprit) {
        add_to(merged[{who.first, pids[who.first] > pids_before_merging ? 0 : who.second}], ns);
    }
    std::vector<Culprit> culprits;
    for (const auto& [who, ns] : merged) {
        culprits.push_back({who.first.empty() ? "a task without a name" : who.first, who.second, ns});
    }
    std::sort(culprits.begin(), culprits.end(), [](const Culprit& a, const Culprit& b) { return a.ns > b.ns; });
    uint64_t others = kind.unnamed_culprits_ns;
    for (; culprits.size() > max_culprits; culprits.pop_back()) add_to(others, culprits.back().ns);
    // Last whatever its size: it is what no name is known for, not a suspect.
    if (others) culprits.push_back({std::string(other_tasks), 0, others});
    return culprits;
}

struct Loss {
    uint64_t low_ns = 0;
    uint64_t point_ns = 0;
    uint64_t high_ns = 0;
};

/// Of no more than what was waited, and at most what coming back on a CPU costs more. Cycles that were shorter than is
/// usual make up for longer ones.
Loss loss_of(const CycleLoss& cycles, uint64_t waited_ns) {
    const auto limited = [](int64_t ns, uint64_t limit_ns) {
        return std::min(static_cast<uint64_t>(std::max<int64_t>(ns, 0)), limit_ns);
    };
    const int64_t low_ns = std::min(cycles.low_ns, cycles.point_ns);
    return {limited(low_ns, waited_ns), limited(cycles.point_ns, waited_ns),
            limited(cycles.high_ns, saturating_add(waited_ns, waited_ns / 20))};
}

/// Of the thread that lost the most.
Loss busiest(const KindLedger& kind) {
    Loss most;
    for (const auto& [tid, lost] : kind.lost_by_thread) {
        const auto waited = kind.by_thread.find(tid);
        const uint64_t own_ns = waited == kind.by_thread.end() ? 0 : waited->second;
        const Loss loss = loss_of(lost.cycles, lost.has_others ? kind.waited_ns : own_ns);
        if (loss.point_ns >= most.point_ns) most = loss;
    }
    return most;
}

uint64_t most_waited(const KindLedger& kind) {
    uint64_t most = 0;
    for (const auto& [tid, ns] : kind.by_thread) most = std::max(most, ns);
    return most;
}

/// Of what was lost to one kind in calls and between them, what is known best and then what was lost more: an incident
/// has one finding.
void keep_one_of_a_kind(std::vector<Finding>& findings) {
    const auto rank = [](const Finding& finding) {
        return std::tuple(finding.verdict != Verdict::insufficient_evidence, finding.lost_low_ns, finding.lost_ns);
    };
    std::stable_sort(findings.begin(), findings.end(),
                     [&](const Finding& a, const Finding& b) { return rank(a) > rank(b); });
    std::map<std::string, Finding*> kept;
    std::vector<Finding> all;
    all.reserve(findings.size());
    for (Finding& finding : findings) {
        if (Finding*& one = kept[finding.kind]) {
            add_to(one->newly_lost_ns, finding.newly_lost_ns);
            add_to(one->newly_waited_ns, finding.newly_waited_ns);
        } else {
            one = &all.emplace_back(std::move(finding));
        }
    }
    findings = std::move(all);
}

bool same_process(const Finding& finding, const ProcessKey& process) {
    return finding.worst.event.process() == process;
}

}  // namespace

SlowCall make_slow_call(const Event& event, const CallTime& time, const Op* op, const Assignment& assignment,
                        const ClockTriple& clock) {
    SlowCall call;
    call.event = event;
    call.start_realtime_ns = clock.to_realtime(event.start_ns);
    call.expected_ns = assignment.expected_ns;
    call.excess_ns = assignment.excess_ns;
    call.explained_ns = std::min(assignment.explained_ns(), assignment.excess_ns);
    call.split.device_wait_ns =
        op && op->waits_for_device ? time.on_cpu_ns : std::min(assignment[Cause::device_wait], time.on_cpu_ns);
    call.split.on_cpu_ns = time.on_cpu_ns - call.split.device_wait_ns;
    call.split.runnable_ns = time.runnable_ns;
    call.split.blocked_ns = time.blocked_ns;
    const auto most = std::max_element(assignment.ns.begin(), assignment.ns.end());
    const bool known = *most > assignment.excess_ns - call.explained_ns;
    call.cause = known ? to_string(static_cast<Cause>(most - assignment.ns.begin())) : "unexplained";
    return call;
}

Ledger::Ledger(const ExplainOptions& options, const Window& window, const ClockTriple& clock)
    : options_(options), window_(window), clock_(clock), process_index_(max_processes), thread_index_(max_threads) {}

void Ledger::saw(const Event& event) {
    const ThreadKey thread{event.process(), event.tid};
    if (last_thread_number_ == KeyIndex<ThreadKey>::none || !(thread == last_thread_)) {
        last_thread_number_ = thread_index_.find_or_add(thread);
        if (last_thread_number_ == KeyIndex<ThreadKey>::none) return;
        last_thread_ = thread;
        if (last_thread_number_ == active_.size()) active_.push_back({UINT64_MAX, 0});
    }
    Window& active = active_[last_thread_number_];
    active.from_ns = std::min(active.from_ns, std::max(event.start_ns, window_.from_ns));
    active.to_ns = std::max(active.to_ns, std::min(saturating_end_ns(event), window_.to_ns));
}

Ledger::ProcessLedger* Ledger::process_of(const ProcessKey& key) {
    const ProcessId process{key};
    if (last_process_number_ == KeyIndex<ProcessId>::none || !(process == last_process_)) {
        last_process_number_ = process_index_.find_or_add(process);
        if (last_process_number_ == KeyIndex<ProcessId>::none) return nullptr;
        last_process_ = process;
        if (last_process_number_ == processes_.size()) processes_.emplace_back();
    }
    return &processes_[last_process_number_];
}

void Ledger::add(const Event& event, const CallTime& time, const Op* op, const Assignment& assignment) {
    ProcessLedger* process = process_of(event.process());
    if (!process) return;
    // Hypotheses are of what calls took too long.
    if (is_call(event.op)) {
        for (size_t cause = 0; cause < cause_count; ++cause)
            add_to(process->ns[cause], assignment.of_all(assignment.ns[cause]));
        add_to(process->unexplained_ns, assignment.of_all(assignment.excess_ns - assignment.explained_ns()));
        if (const uint64_t ns = assignment.of_all(assignment[Cause::excluded_task]))
            add_to(process->excluded[suspect_exclusion(event.preemptor_comm)], ns);
    }
    for (size_t number = 0; number < finding_causes; ++number) {
        if (!assignment.speaks_for(static_cast<Cause>(number))) continue;
        auto& kind = process->kinds[number];
        if (!kind) kind = std::make_unique<KindLedger>();
        add_kind(*kind, static_cast<Cause>(number), event, time, op, assignment);
    }
}

void Ledger::lose(const ThreadLoss& loss) {
    ProcessLedger* process = process_of(loss.process);
    if (!process) return;
    for (size_t number = 0; number < finding_causes; ++number) {
        const CycleLoss& one = loss.causes[number];
        if (one.is_nothing()) continue;
        auto& kind = process->kinds[number];
        if (!kind) kind = std::make_unique<KindLedger>();
        kind->lost.add(one);
        if (loss.sequence >= options_.new_from_sequence) kind->newly_lost.add(one);
        // After the calls that waited themselves, those at whose end the loss showed.
        if (loss.between_calls[number] && one.point_ns > 0 && loss.last_call != 0)
            kind->evidence.add_last(static_cast<uint64_t>(one.point_ns), loss.last_call);
        const auto of_thread = kind->lost_by_thread.find(loss.tid);
        if (of_thread == kind->lost_by_thread.end() && kind->lost_by_thread.size() == max_map_entries) continue;
        KindLedger::ThreadLost& lost = kind->lost_by_thread[loss.tid];
        lost.cycles.add(one);
        lost.has_others |= loss.has_others;
    }
}

void Ledger::add_unjudged(const Event& event, const CallTime& time, const Op* op, const Assignment& assignment) {
    for (size_t number = 0; number < finding_causes; ++number) {
        if (assignment.ns[number] < options_.call_floor_ns) continue;
        ProcessLedger* process = process_of(event.process());
        if (!process) return;
        auto& kind = process->unjudged[number];
        if (!kind) kind = std::make_unique<KindLedger>();
        add_kind(*kind, static_cast<Cause>(number), event, time, op, assignment);
    }
}

void Ledger::add_hidden(const Event& event, const CallTime& time, const Op* op, const Assignment& assignment) {
    for (size_t number = 0; number < finding_causes; ++number) {
        if (assignment.ns[number] == 0) continue;
        ProcessLedger* process = process_of(event.process());
        if (!process) return;
        auto& kind = process->hidden[number];
        if (!kind) kind = std::make_unique<KindLedger>();
        add_kind(*kind, static_cast<Cause>(number), event, time, op, assignment);
        const uint64_t ns = std::min(assignment.ns[number], possible_delay_ns(event, op));
        kind->lost.add({0, 0, static_cast<int64_t>(std::min<uint64_t>(assignment.of_all(ns), INT64_MAX))});
    }
}

void Ledger::add_kind(KindLedger& kind, Cause cause, const Event& event, const CallTime& time, const Op* op,
                      const Assignment& assignment) {
    const uint64_t ns = assignment[cause], all_ns = assignment.of_all(ns);
    const bool in_call = is_call(event.op);
    add_to(in_call ? kind.calls : kind.between_calls_ns, in_call ? assignment.calls : all_ns);
    if (!in_call) add_to(kind.waits, std::max<uint64_t>(event.waits, 1));
    add_to(kind.waited_ns, all_ns);
    if (event.sequence >= options_.new_from_sequence) add_to(kind.newly_waited_ns, all_ns);
    add_to(kind.host_excess_ns, assignment.of_all(assignment.host_excess_ns()));
    add_to(kind.explained_ns, assignment.of_all(assignment.host_explained_ns()));
    const double ratio_floor = options_.ratio_floor * static_cast<double>(assignment.expected_ns);
    kind.over_call_floor |=
        in_call && ns >= options_.call_floor_ns && static_cast<double>(time.duration_ns) >= ratio_floor;
    // A call says more than a wait between calls that is not much longer.
    const uint64_t worth = in_call ? saturating_multiply(ns, 4) : ns;
    if (worth > kind.worst_worth) {
        kind.worst_worth = worth;
        kind.worst = make_slow_call(event, time, op, assignment, clock_);
    }
    add_bounded(kind.by_thread, event.tid, all_ns);
    add_bounded(kind.by_cpu, in_call || event.preempted_ns == 0 ? event.cpu : uint32_t{wait_place(event).from_cpu},
                all_ns);
    add_culprit(kind, cause, event, assignment);
    if (!in_call) return;
    add_bounded(kind.by_op, event.op, all_ns);
    kind.evidence.add(ns, event.sequence);
}

uint64_t Ledger::active_ns(const ProcessKey& process, const KindLedger& kind) const {
    uint64_t total = 0;
    for (const auto& [tid, ns] : kind.by_thread) {
        const uint32_t number = thread_index_.find({process, tid});
        // A thread there was no room for counts as active all the time, which asks for more lost time, not less.
        add_to(total, number == KeyIndex<ThreadKey>::none ? window_.length_ns() : active_[number].length_ns());
    }
    return total;
}

std::optional<Finding> Ledger::judge(const ProcessKey& process, Cause cause, const KindLedger& kind,
                                     const JudgementContext& context) const {
    const bool slow_calls = kind.over_call_floor && kind.waited_ns >= active_ns(process, kind) / active_share;
    const uint64_t time_ns = context.time_of(process);
    const double waited_share = share_of(most_waited(kind), time_ns);
    if (kind.waited_ns == 0 || (!slow_calls && waited_share < options_.window_floor)) return std::nullopt;

    Finding finding;
    finding.kind = to_string(cause);
    finding.waited_ns = kind.waited_ns;
    const Loss lost = loss_of(kind.lost, kind.waited_ns);
    finding.lost_ns = lost.point_ns;
    finding.lost_low_ns = lost.low_ns;
    finding.lost_high_ns = lost.high_ns;
    finding.newly_lost_ns = loss_of(kind.newly_lost, kind.waited_ns).point_ns;
    finding.newly_waited_ns = kind.newly_waited_ns;
    finding.waited_between_calls_ns = kind.between_calls_ns;
    const Loss most = busiest(kind);
    // That a thread sleeps there is as it should be, as far as its cycles do not show that they are longer for it.
    if (is_between_calls(cause) &&
        (share_of(most.low_ns, time_ns) < options_.window_floor || most.low_ns < most.point_ns / 2))
        return std::nullopt;
    finding.window_share = share_of(most.point_ns, time_ns);
    finding.severity = severity_of(share_of(most.low_ns, time_ns));
    finding.explained_fraction = share_of(kind.explained_ns, kind.host_excess_ns);
    finding.verdict = verdict_of(finding.explained_fraction, context.lossy);
    // Who had the time is not all: a proof says what it cost.
    const bool is_bounded = lost.high_ns == 0 || (lost.low_ns != 0 && lost.low_ns >= lost.point_ns / 2);
    // And a futex may be a lock, or how one thread gives another work.
    if (finding.verdict == Verdict::proven && (!is_bounded || cause == Cause::lock_between_calls))
        finding.verdict = Verdict::partial;
    finding.pid = process.pid;
    finding.culprits = ranked_culprits(kind);
    finding.worst = kind.worst;
    const std::string subject = finding.culprits.empty() ? "" : finding.culprits[0].name;
    finding.id =
        finding_id(to_string(cause), process, is_between_calls(cause) ? "between calls" : subject, context.boot_id);
    finding.evidence = kind.evidence.sequences();
    return finding;
}

std::vector<Finding> Ledger::findings(const JudgementContext& context) const {
    std::vector<Finding> all;
    for (uint32_t number = 0; number < processes_.size(); ++number) {
        const ProcessKey& key = process_index_.key(number).key;
        std::vector<Finding> own;
        for (size_t cause = 0; cause < finding_causes; ++cause) {
            const ProcessLedger& process = processes_[number];
            const KindLedger* kind = process.kinds[cause].get();
            std::optional<Finding> finding;
            if (kind) finding = judge(key, static_cast<Cause>(cause), *kind, context);
            if (!finding && process.unjudged[cause]) {
                kind = process.unjudged[cause].get();
                finding = judge(key, static_cast<Cause>(cause), *kind, context);
                if (finding) {
                    finding->verdict = Verdict::insufficient_evidence;
                    finding->severity = Severity::low;
                    finding->explained_fraction = 0;
                    // What is usual is not known, and so not what it lost.
                    finding->lost_high_ns = finding->waited_ns;
                    finding->lost_ns = finding->waited_ns / 2;
                    finding->lost_low_ns = 0;
                    finding->newly_lost_ns = kind->newly_waited_ns;
                    finding->window_share = share_of(most_waited(*kind), context.time_of(key)) / 2;
                }
            }
            if (!finding && process.hidden[cause]) {
                kind = process.hidden[cause].get();
                if (share_of(most_waited(*kind), context.time_of(key)) >= hidden_floors * options_.window_floor)
                    finding = judge(key, static_cast<Cause>(cause), *kind, context);
                if (finding) {
                    finding->hidden = true;
                    finding->newly_waited_ns = 0;
                }
            }
            if (!finding) continue;
            if (context.processes) finding->comm = context.processes->name(key);
            write_text(*finding, static_cast<Cause>(cause), *kind);
            own.push_back(std::move(*finding));
        }
        std::map<std::string, uint64_t> rejected;
        if (!own.empty()) add_rejected(key, processes_[number], own, rejected);
        keep_one_of_a_kind(own);
        for (Finding& finding : own) {
            finding.rejected = ranked(rejected, max_rejected);
            all.push_back(std::move(finding));
        }
    }
    return all;
}

void Ledger::add_rejected(const ProcessKey& key, const ProcessLedger& process, const std::vector<Finding>& findings,
                          std::map<std::string, uint64_t>& rejected) const {
    for (size_t number = 0; number < cause_count; ++number) {
        const auto cause = static_cast<Cause>(number);
        if (cause == Cause::excluded_task) continue;
        const std::string name(to_string(cause));
        uint64_t found = 0;
        const std::string_view kind = cause == Cause::first_use     ? "cold-start"
                                      : cause == Cause::device_wait ? "throttling"
                                                                    : std::string_view(name);
        for (const Finding& finding : findings) {
            // What was lost between calls was never among what calls lost.
            const bool assigned =
                finding.verdict != Verdict::insufficient_evidence && !finding.between_calls && !finding.hidden;
            if (assigned && finding.kind == kind && same_process(finding, key))
                add_to(found, saturating_subtract(finding.waited_ns, finding.waited_between_calls_ns));
        }
        add_to(rejected[name], saturating_subtract(process.ns[number], found));
    }
    for (const auto& [name, ns] : process.excluded) add_to(rejected[std::string(name)], ns);
    add_to(rejected["unexplained"], process.unexplained_ns);
}

void Ledger::add_rejected(Finding& finding) const {
    const ProcessKey process = finding.worst.event.process();
    const uint32_t number = process_index_.find({process});
    if (number == KeyIndex<ProcessId>::none) return;
    std::map<std::string, uint64_t> rejected;
    add_rejected(process, processes_[number], {finding}, rejected);
    // What the detector itself rejected stays.
    for (const auto& [hypothesis, ns] : finding.rejected) add_to(rejected[hypothesis], ns);
    finding.rejected = ranked(rejected, max_rejected);
}

void Ledger::add_rejected(const std::vector<Finding>& findings, std::map<std::string, uint64_t>& rejected) const {
    for (uint32_t number = 0; number < processes_.size(); ++number) {
        add_rejected(process_index_.key(number).key, processes_[number], findings, rejected);
    }
}

std::vector<RejectedHypothesis> ranked(const std::map<std::string, uint64_t>& rejected, size_t limit) {
    std::vector<RejectedHypothesis> list;
    for (const auto& [hypothesis, ns] : rejected) {
        if (ns) list.push_back({hypothesis, ns});
    }
    std::sort(list.begin(), list.end(),
              [](const RejectedHypothesis& a, const RejectedHypothesis& b) { return a.ns > b.ns; });
    if (list.size() > limit) list.resize(limit);
    return list;
}

}  // namespace ingero
