#include "core/diagnosis/evidence/gap_causes.h"

#include <algorithm>

#include "core/diagnosis/findings.h"
#include "core/model/host_event.h"
#include "core/model/text/format.h"

namespace ingero {

namespace {

/// Of a process's time, below which its device was never short of work.
constexpr uint64_t drained_part = 50;
constexpr uint64_t checkpoint_bytes = 1 << 20;
constexpr size_t max_culprits = 10;

/// Of an imported trace: how many calls that enqueue it counted and left out.
uint64_t left_out(const JudgementContext& context, const Window& time) {
    uint64_t calls = 0;
    for (const LossRow& row : context.losses) {
        const Op* op = find_op(row.op);
        if (!op || row.thinned == 0 || row.to_ns <= time.from_ns || row.from_ns >= time.to_ns) continue;
        if (op->op_class == OpClass::launch || op->op_class == OpClass::copy || op->op_class == OpClass::collective)
            calls = saturating_add(calls, row.thinned);
    }
    return calls;
}

bool may_miss_calls(const DrainedGap& gap, const JudgementContext& context) {
    if (context.losses.empty()) return false;
    return context.lost_calls(gap.time.from_ns, gap.time.to_ns,
                              {OpClass::launch, OpClass::copy, OpClass::sync, OpClass::graph, OpClass::collective}) !=
           0;
}

/// Where recording was thinned, calls were made in a time without rows: it is a gap where it lasts so many times what
/// passes from row to row that chance leaves out none. Their time in calls is the least that passes.
uint64_t shortest_gap_ns(const DrainedDevice& device) {
    constexpr uint64_t by_chance = 8;
    if (device.enqueues <= device.enqueue_rows) return 0;
    return saturating_multiply(device.calls_ns / device.enqueue_rows, by_chance);
}

}  // namespace

std::string_view hypothesis(Spent spent) {
    switch (spent) {
        case Spent::ran:
            return "on the CPU between calls";
        case Spent::read:
            return "reading between calls";
        case Spent::wrote:
            return "writing between calls";
        case Spent::peer:
            return "waiting for a peer between calls";
        case Spent::resent:
            return "waiting for retransmissions between calls";
        case Spent::child:
            return "waiting for a child process between calls";
        case Spent::timer:
            return "sleeping between calls";
        case Spent::clients:
            return "waiting for requests between calls";
        case Spent::no_cpu:
            return "no CPU between calls";
        case Spent::short_waits:
            return "short waits between calls";
        case Spent::unknown:
            break;
    }
    return "waiting between calls, reason unknown";
}

uint64_t AccountedGap::sum(std::initializer_list<Spent> spent) const {
    uint64_t ns = 0;
    for (const SpentPart& part : parts)
        if (std::find(spent.begin(), spent.end(), part.spent) != spent.end()) ns = saturating_add(ns, part.ns);
    return ns;
}

bool is_own(const AccountedGap& gap, const GapAccount& account, const SpentPart& part) {
    return part.process.pid == account.process.pid && part.tid == gap.gap->tid;
}

GapCauses::GapCauses(const DrainedGaps& gaps, const WaitTable& waits, const JudgementContext& context) {
    gaps.visit([&](const ProcessKey& process, uint16_t ordinal, const DrainedDevice& device) {
        GapAccount account;
        account.process = process;
        account.device = ordinal;
        account.active_ns = saturating_subtract(device.to_ns, device.from_ns);
        account.waits_known = waits.knows(process);
        if (context.calls_left_out || device.drained_ns < account.active_ns / drained_part) return;
        const uint64_t shortest_ns = shortest_gap_ns(device);
        for (const DrainedGap& gap : device.gaps) {
            if (!gap.after_launch || gap.time.length_ns() < shortest_ns) continue;
            account.drained_ns = saturating_add(account.drained_ns, gap.time.length_ns());
            if (may_miss_calls(gap, context)) {
                account.unproven_ns = saturating_add(account.unproven_ns, gap.time.length_ns());
                account.unproven.push_back(gap);
                continue;
            }
            AccountedGap& one = account.gaps.emplace_back();
            one.gap = &gap;
            if (!account.waits_known) continue;
            one.parts = waits.split(process, gap.tid, gap.time);
            for (SpentPart& part : one.parts)
                if (part.spent == Spent::ran && is_own(one, account, part))
                    part.ns = saturating_subtract(part.ns, gap.in_calls_ns);
            one.is_checkpoint = gap.bytes_back >= checkpoint_bytes &&
                                one.sum({Spent::wrote}) >= (gap.time.length_ns() - gap.in_calls_ns) / 3;
        }
        if (shortest_ns != 0 && account.drained_ns < account.active_ns / drained_part) return;
        if (context.imported) {
            // What the process's calls take in the middle, the wait for the device included.
            const uint64_t usual_ns = device.calls_ns / std::max<uint64_t>(device.enqueues, 1);
            const uint64_t missing = left_out(context, {device.from_ns, device.to_ns});
            account.unproven_ns = saturating_add(account.unproven_ns, saturating_multiply(missing, usual_ns));
        }
        accounts_.push_back(std::move(account));
    });
}

void GapLoss::add(const AccountedGap& gap, uint64_t ns) {
    if (ns == 0) return;
    ++gaps_;
    lost_ns_ = saturating_add(lost_ns_, ns);
    if (gap.gap->call >= options_.new_from_sequence) newly_lost_ns_ = saturating_add(newly_lost_ns_, ns);
    evidence_.add(ns, gap.gap->call);
    if (ns <= worst_ns_) return;
    worst_ns_ = ns;
    worst_ = &gap;
}

void GapLoss::fill(Finding& finding, const JudgementContext& context) const {
    finding.lost_ns = lost_ns_;
    finding.newly_lost_ns = newly_lost_ns_;
    finding.window_share = share_of(lost_ns_, context.time_of(finding.worst.event.process()));
    finding.severity = severity_of(finding.window_share);
    finding.evidence = evidence_.sequences();
    finding.between_calls = true;
    if (!worst_) return;
    Event& event = finding.worst.event;
    event.sequence = worst_->gap->call;
    event.op = op_wait;
    event.tgid = account_.process.pid;
    event.process_start_ns = account_.process.start_ns;
    event.tid = worst_->gap->tid;
    event.device = account_.device;
    event.start_ns = worst_->gap->time.from_ns;
    event.duration_ns = worst_->gap->time.length_ns();
    TimeSplit& split = finding.worst.split;
    for (const SpentPart& part : worst_->parts) {
        const bool own = is_own(*worst_, account_, part);
        uint64_t& ns = !own || (part.spent != Spent::ran && part.spent != Spent::no_cpu) ? split.blocked_ns
                       : part.spent == Spent::ran                                        ? split.on_cpu_ns
                                                                                         : split.runnable_ns;
        ns = saturating_add(ns, part.ns);
    }
    finding.worst.start_realtime_ns = clock_.to_realtime(event.start_ns);
    finding.worst.excess_ns = event.duration_ns;
    finding.worst.explained_ns = worst_ns_;
    finding.worst.cause = finding.kind;
}

std::optional<Finding> GapLoss::finding(std::string_view kind, double least_share,
                                        const JudgementContext& context) const {
    if (lost_ns_ < gaps_worth_a_word_ns || share_of(lost_ns_, account_.active_ns) < least_share) return std::nullopt;
    Finding finding = make_finding(kind, account_.process, std::to_string(account_.device), context);
    fill(finding, context);
    if (finding.window_share < options_.window_floor) return std::nullopt;
    return finding;
}

void GapLoss::prove(Finding& finding, uint64_t unknown_ns, const JudgementContext& context) const {
    const uint64_t doubt_ns = saturating_add(unknown_ns, account_.unproven_ns);
    finding.explained_fraction = share_of(finding.lost_ns, saturating_add(finding.lost_ns, doubt_ns));
    finding.verdict = verdict_of(finding.explained_fraction, context.lossy);
}

void GapDetector::find(const JudgementContext& context, std::vector<Finding>& ret_findings) const {
    if (!context.gaps) return;
    for (const GapAccount& account : context.gaps->all()) find_in(account, context, ret_findings);
}

void Writes::add(const AccountedGap& gap, const GapAccount& account) {
    for (const SpentPart& part : gap.parts) {
        if (part.spent != Spent::wrote) continue;
        std::string name = part.longest ? std::string(to_string(part.longest->blocked_reason)) : std::string("disk");
        const std::string_view writer = to_string_view(part.comm);
        if (part.process.pid != account.process.pid && !writer.empty()) name += ", written by " + std::string(writer);
        uint64_t& ns = by_name_[{std::move(name), 0}];
        ns = saturating_add(ns, part.ns);
        if (!longest_ || part.longest_ns > longest_->longest_ns) longest_ = &part;
    }
}

std::vector<Culprit> Writes::culprits() const {
    return ranked_culprits(by_name_);
}

std::string Writes::longest_text() const {
    if (!longest_ || !longest_->longest) return {};
    const std::string what = wait_detail_text(*longest_->longest);
    return "; the longest wait took " + format_duration(longest_->longest_ns) + (what.empty() ? "" : " (" + what + ")");
}

std::vector<Culprit> ranked_culprits(const std::map<std::pair<std::string, uint32_t>, uint64_t>& by_name) {
    std::vector<Culprit> culprits;
    for (const auto& [who, ns] : by_name) culprits.push_back({who.first, who.second, ns, 0});
    std::stable_sort(culprits.begin(), culprits.end(), [](const Culprit& a, const Culprit& b) { return a.ns > b.ns; });
    if (culprits.size() > max_culprits) culprits.resize(max_culprits);
    return culprits;
}

std::vector<RejectedHypothesis> ranked_hypotheses(const std::map<std::string, uint64_t>& rejected) {
    return ranked(rejected, max_culprits);
}

}  // namespace ingero
