#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/diagnosis/detectors/detectors.h"
#include "core/diagnosis/evidence/collective_waits.h"
#include "core/diagnosis/evidence/drained_gaps.h"
#include "core/diagnosis/evidence/late_arrival.h"
#include "core/diagnosis/evidence/late_waits.h"
#include "core/diagnosis/evidence/meanwhile.h"
#include "core/diagnosis/evidence/rank_conditions.h"
#include "core/diagnosis/findings.h"
#include "core/model/call_time.h"

namespace ingero {

namespace {

constexpr size_t max_calls = 65'536;          ///< slow ones of ranks, for what a late rank did meanwhile
constexpr size_t max_device_waits = 131'072;  ///< of all ranks
constexpr size_t max_culprits = 10;
constexpr uint64_t late_from_ns = default_late_from_ns;
constexpr uint64_t late_part = 100 / default_late_step_percent;
/// An odd late arrival stands out from the usual ones.
constexpr uint64_t odd_from = 8;
/// Of the latest ranges, those in which a straggler comes last.
constexpr size_t latest_ranges = 50;
constexpr size_t enough_ranges = 8;
constexpr double straggles_from = 0.6;
/// Of two ranks one is last half the time.
constexpr double straggles_from_of_two = 0.7;
/// One wait of so long is worth a word, whatever its share.
constexpr uint64_t worth_a_word_ns = 100'000'000;
constexpr uint64_t latest_ns = 10'000'000'000;
/// For all late ranks of a window: what is beyond them is not known.
constexpr size_t max_waits_looked_at = 1'000'000;

using Rank = RankKey;

Rank key_of(const RankWait& wait) {
    return {wait.process, wait.communicator};
}

/// Ranges of one communicator, in order of their end, as far as this host's ranks show who was last.
struct Ranges {
    std::vector<LateArrival> all;
    uint64_t step_ns = 0;            ///< median from one to the next
    uint64_t usual_lateness_ns = 0;  ///< median
    std::set<Rank> ranks;            ///< on this host, of any range
    size_t most_ranks = 0;           ///< in one range
    std::set<Rank> stragglers;       ///< that nearly always come last
};

/// What took the most of a slow call of a rank.
struct SlowPart {
    Window time;
    uint64_t ns = 0;
    Cause cause = Cause::cpu_contention;
    std::pair<Comm, uint32_t> suspect;
};

/// A call that waited for the device.
struct DeviceWait {
    Window time;
    uint64_t ns = 0;  ///< of it
    OpId op = 0;
};

/// What late ranks did while others waited, as far as their own threads' slow calls and their waits show it.
struct Meanwhile {
    uint64_t late_ns = 0;
    std::map<std::pair<Cause, std::pair<Comm, uint32_t>>, uint64_t> causes;
    std::vector<MeanwhilePart> parts;
};

class LateRanks final : public Detector {
  public:
    explicit LateRanks(const DetectorContext& context) : context_(context) {
        if (context.communicators) feed_.emplace(*context.communicators);
    }

    bool wants(const Op& op) const override { return feed_ && !feed_->empty() && CollectiveWaitsDeriver::wants(op); }
    void before(const Event& event, const Op&) override { feed_->take(event); }
    void see(const Event& event, const Op& op) override {
        feed_->take(event);
        if (!op.waits_for_device || event.duration_ns < late_from_ns / 2 || event.split_uncertain()) return;
        if (device_wait_count_ >= max_device_waits || !feed_->has(event.process())) return;
        const CallTime time = call_time(event);
        const bool slept = cause_of_sleep(event.blocked_reason, &op, true) == Cause::device_wait;
        ++device_wait_count_;
        device_waits_[{event.process(), event.tid}].push_back(
            {{event.start_ns, saturating_end_ns(event)}, time.on_cpu_ns + (slept ? time.blocked_ns : 0), event.op});
    }

    void judged(const JudgedCall& call) override {
        if (!feed_ || !feed_->has(call.event.process()) || slow_calls_ >= max_calls) return;
        const auto most = std::max_element(call.assignment.ns.begin(), call.assignment.ns.end());
        const auto cause = static_cast<Cause>(most - call.assignment.ns.begin());
        if (*most < late_from_ns / 2 || cause == Cause::device_wait) return;
        ++slow_calls_;
        slow_[{call.event.process(), call.event.tid}].push_back(
            {{call.event.start_ns, saturating_end_ns(call.event)}, *most, cause, suspect_of(cause, call.event)});
    }

    void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const override {
        if (!feed_ || feed_->empty()) return;
        for (auto& [thread, parts] : slow_)
            std::sort(parts.begin(), parts.end(),
                      [](const SlowPart& a, const SlowPart& b) { return a.time.from_ns < b.time.from_ns; });
        for (auto& [thread, waits] : device_waits_)
            std::sort(waits.begin(), waits.end(),
                      [](const DeviceWait& a, const DeviceWait& b) { return a.time.from_ns < b.time.from_ns; });
        conditions_.clear();
        waits_to_look_at_ = max_waits_looked_at;
        find_idle(context);
        std::map<uint64_t, Ranges> communicators;
        for (const CollectiveRange& range : feed_->derived().finish().ranges) {
            Ranges& ranges = communicators[range.hash];
            ranges.most_ranks = std::max(ranges.most_ranks, range.local_ranks());
            for (const RankWait& wait : range.waits) ranges.ranks.insert(key_of(wait));
            auto arrival = late_arrival(range);
            if (!arrival) continue;
            see_waits(*arrival, context);
            ranges.ranks.insert(key_of(arrival->late));
            if (arrival->end_ns >= context_.window.from_ns) ranges.all.push_back(std::move(*arrival));
        }
        std::map<ProcessKey, LateWaits> waiters;
        std::map<Rank, const Ranges*> ranges_of;
        for (auto& [hash, ranges] : communicators) {
            measure(ranges);
            for (const Rank& rank : ranges.ranks) ranges_of.emplace(rank, &ranges);
            for (const LateArrival& arrival : ranges.all) {
                if (!counts(ranges, arrival)) continue;
                for (const Waited& one : arrival.waited)
                    if (arrival.left_after_ns <= one.ns || arrival.waited_elsewhere || arrival.idle_ns > one.ns / 2)
                        waiters[one.rank.process].emplace_back(&arrival, &one);
            }
        }
        for (const auto& [process, waits] : waiters) find_wait(process, waits, ranges_of, context, ret_findings);
        for (const auto& [hash, ranges] : communicators) find_straggler(hash, ranges, context, ret_findings);
    }

  private:
    /// When devices of ranks had nothing to do, of those of which more is seen than collectives. Which of several is
    /// the rank's is not known.
    void find_idle(const JudgementContext& context) const {
        idle_.clear();
        if (!context.drained) return;
        context.drained->visit([this](const ProcessKey& process, uint16_t, const DrainedDevice& device) {
            if (!feed_->has(process)) return;
            const auto [place, is_first] = idle_.try_emplace(process);
            std::vector<Window>& idle = place->second;
            if (!is_first) return idle.clear();
            for (const DrainedGap& gap : device.gaps) {
                const Op* const op = find_op(gap.op);
                if (gap.after_launch && op && op->op_class != OpClass::collective) idle.push_back(gap.time);
            }
        });
        for (auto& [process, idle] : idle_)
            std::sort(idle.begin(), idle.end(), [](const Window& a, const Window& b) { return a.to_ns < b.to_ns; });
    }

    uint64_t idle_ns(const ProcessKey& process, const Window& time) const {
        const auto idle = idle_.find(process);
        if (idle == idle_.end()) return 0;
        auto gap = std::upper_bound(idle->second.begin(), idle->second.end(), time.from_ns,
                                    [](uint64_t ns, const Window& one) { return ns < one.to_ns; });
        uint64_t ns = 0;
        for (; gap != idle->second.end() && gap->from_ns < time.to_ns; ++gap)
            ns += Window{std::max(gap->from_ns, time.from_ns), std::min(gap->to_ns, time.to_ns)}.length_ns();
        return std::min(ns, time.length_ns());
    }

    void see_waits(LateArrival& arrival, const JudgementContext& context) const {
        if (arrival.lateness_ns < late_from_ns || arrival.at_once()) return;
        arrival.idle_ns = idle_ns(arrival.late.process, arrival.lateness());
        if (arrival.may_cost()) return;
        if (!context.waits || !context.waits->knows(arrival.late.process)) return;
        // Frameworks enter collectives on a thread of their own, and wait for data on the main one.
        for (const uint32_t tid : {arrival.late.arrival_tid, arrival.late.process.pid}) {
            const auto waits =
                context.waits->waits_of(arrival.late.process, tid, arrival.lateness(), waits_to_look_at_);
            waits_to_look_at_ -= waits.size();
            const auto parts = meanwhile_parts(waits, arrival.late.process, arrival.lateness());
            if (waited_elsewhere_ns(parts) >= arrival.lateness_ns / 2) arrival.waited_elsewhere = true;
        }
    }

    static void measure(Ranges& ranges) {
        std::sort(ranges.all.begin(), ranges.all.end(),
                  [](const LateArrival& a, const LateArrival& b) { return a.end_ns < b.end_ns; });
        std::vector<const LateArrival*> arrivals;
        std::vector<uint64_t> lateness;
        for (const LateArrival& one : ranges.all) {
            arrivals.push_back(&one);
            if (one.shows_lateness()) lateness.push_back(one.may_cost() ? one.lateness_ns : 0);
        }
        ranges.step_ns = step_of(arrivals);
        ranges.usual_lateness_ns = median_of(std::move(lateness));
        std::set<Rank> seen;
        for (const LateArrival& arrival : ranges.all) {
            const Rank late = key_of(arrival.late);
            if (seen.insert(late).second && straggles(ranges, showing(ranges, late), late))
                ranges.stragglers.insert(late);
        }
    }

    static bool is_late(const Ranges& ranges, const LateArrival& arrival) {
        return arrival.may_cost() && arrival.lateness_ns >= std::max(late_from_ns, ranges.step_ns / late_part);
    }

    /// Some rank is always the last: what counts is one that nearly always is, or that comes much later than is usual.
    static bool counts(const Ranges& ranges, const LateArrival& arrival) {
        if (!is_late(ranges, arrival)) return false;
        return arrival.lateness_ns / odd_from >= ranges.usual_lateness_ns ||
               ranges.stragglers.contains(key_of(arrival.late));
    }

    using Arrivals = std::vector<const LateArrival*>;

    /// Ranges in which it would show that the rank came last.
    static Arrivals showing(const Ranges& ranges, const Rank& rank) {
        Arrivals some;
        for (const LateArrival& one : ranges.all)
            if (one.shows(rank)) some.push_back(&one);
        return some;
    }

    static size_t late_in(const Ranges& ranges, const Arrivals& some, const Rank& rank) {
        return static_cast<size_t>(std::count_if(some.begin(), some.end(), [&](const LateArrival* one) {
            return is_late(ranges, *one) && key_of(one->late) == rank;
        }));
    }

    static bool straggles(const Ranges& ranges, const Arrivals& some, const Rank& rank) {
        if (some.size() < enough_ranges) return false;
        const double from = ranges.most_ranks > 2 ? straggles_from : straggles_from_of_two;
        return static_cast<double>(late_in(ranges, some, rank)) >= from * static_cast<double>(some.size());
    }

    /// In a time before its arrival in which a rank waited for it, on the thread that arrived.
    void add(Meanwhile& meanwhile, const LateArrival& arrival, const Window& time,
             const JudgementContext& context) const {
        meanwhile.late_ns = saturating_add(meanwhile.late_ns, time.length_ns());
        const RankWait& late = arrival.late;
        add_waits(meanwhile, late, time, context);
        add_device_waits(meanwhile, arrival, time);
        const auto calls = slow_.find({late.process, late.arrival_tid});
        if (calls == slow_.end()) return;
        for (auto part = first_of(calls->second, time); part != calls->second.end() && part->time.from_ns < time.to_ns;
             ++part) {
            const Window both{std::max(part->time.from_ns, time.from_ns), std::min(part->time.to_ns, time.to_ns)};
            if (both.length_ns() == 0) continue;
            uint64_t& sum = meanwhile.causes[{part->cause, part->suspect}];
            sum = saturating_add(sum, std::min(both.length_ns(), part->ns));
        }
    }

    /// Outermost calls of a thread follow each other: of those that begin before, one may reach into it.
    template <class Call>
    static typename std::vector<Call>::const_iterator first_of(const std::vector<Call>& calls, const Window& time) {
        auto call = std::upper_bound(calls.begin(), calls.end(), time.from_ns,
                                     [](uint64_t ns, const Call& one) { return ns < one.time.from_ns; });
        return call == calls.begin() ? call : call - 1;
    }

    /// In calls, which waits between them do not show.
    void add_device_waits(Meanwhile& meanwhile, const LateArrival& arrival, const Window& time) const {
        const RankWait& late = arrival.late;
        const auto waits = device_waits_.find({late.process, late.arrival_tid});
        if (waits == device_waits_.end()) return;
        std::vector<MeanwhilePart> parts;
        uint64_t sum_ns = 0;
        for (auto one = first_of(waits->second, time); one != waits->second.end() && one->time.from_ns < time.to_ns;
             ++one) {
            const Window both{std::max(one->time.from_ns, time.from_ns), std::min(one->time.to_ns, time.to_ns)};
            // Where in the call it lay is not known.
            const uint64_t ns =
                std::min(saturating_subtract(one->ns, one->time.length_ns() - both.length_ns()), both.length_ns());
            if (ns == 0) continue;
            sum_ns += ns;
            MeanwhilePart part = device_wait_part(
                feed_->settled().waits_for_others(late.process, late.arrival_tid, one->time.from_ns, arrival.hash),
                one->op);
            part.ns = ns;
            add_parts(parts, {part});
        }
        add_parts(meanwhile.parts, parts);
        for (MeanwhilePart& part : meanwhile.parts)
            if (part.kind == "not-known") part.ns = saturating_subtract(part.ns, std::exchange(sum_ns, 0));
    }

    /// What its waits between calls were for. What is not seen of them says nothing.
    void add_waits(Meanwhile& meanwhile, const RankWait& late, const Window& time,
                   const JudgementContext& context) const {
        if (!context.waits || !context.waits->knows(late.process)) return;
        const auto waits = context.waits->waits_of(late.process, late.arrival_tid, time, waits_to_look_at_);
        waits_to_look_at_ -= waits.size();
        add_parts(meanwhile.parts, meanwhile_parts(waits, late.process, time));
    }

    struct Clause {
        std::string text;                        ///< the end of a sentence
        std::optional<MeanwhilePart> part = {};  ///< by far the most, of its waits
    };

    /// What it did for half of that time or more, and who or what that was.
    static Clause meanwhile_clause(const Meanwhile& meanwhile, const std::string& late, Culprit& ret_culprit) {
        const auto is_most = [&](uint64_t ns) { return ns >= meanwhile.late_ns - meanwhile.late_ns / 2; };
        const auto by_ns = [](const auto& a, const auto& b) { return a.second < b.second; };
        const auto cause = std::max_element(meanwhile.causes.begin(), meanwhile.causes.end(), by_ns);
        if (cause != meanwhile.causes.end() && is_most(cause->second)) {
            const auto& [what, ns] = *cause;
            const std::string_view name = to_string_view(what.second.first);
            ret_culprit = {name.empty() ? std::string(to_string(what.first)) : std::string(name), what.second.second,
                           ns, 0};
            std::string text = "meanwhile " + late + " lost " + format_duration(ns) + " of " +
                               format_duration(meanwhile.late_ns) + " to " + std::string(to_string(what.first));
            if (!name.empty()) text += " (" + std::string(name) + ")";
            return {text};
        }
        const auto most = std::max_element(meanwhile.parts.begin(), meanwhile.parts.end(),
                                           [](const auto& a, const auto& b) { return a.ns < b.ns; });
        if (most == meanwhile.parts.end()) return {"the late rank's calls do not show what it did meanwhile"};
        if (!most->is_known() || !is_most(most->ns))
            return {"neither the late rank's calls nor its waits show what it did meanwhile"};
        const std::string text = meanwhile_text(*most);
        ret_culprit.ns = most->ns;
        if (most->pid != 0) {
            ret_culprit.name = most->name;
            ret_culprit.pid = most->pid;
        } else {
            ret_culprit.name += ", " + text;
        }
        return {"meanwhile " + late + " was " + text + " for " + format_duration(most->ns) + " of " +
                    format_duration(meanwhile.late_ns),
                *most};
    }

    /// Adds what of a straggler's GPU or of its place may be why it did so. The fix for that, with a space before it;
    /// empty where there is no such thing.
    std::string add_condition(Clause& clause, const Rank& rank, const Ranges& ranges,
                              const JudgementContext& context) const {
        if (!ranges.stragglers.contains(rank) || !clause.part || !context.gpus || !context.processes) return {};
        const auto [known, is_new] = conditions_.try_emplace({rank, clause.part->kind});
        if (is_new) known->second = conditions_of(rank, ranges, *clause.part, context);
        if (known->second.empty()) return {};
        clause.text += "; " + known->second[0].text;
        return " " + known->second[0].fix;
    }

    static std::vector<RankCondition> conditions_of(const Rank& rank, const Ranges& ranges, const MeanwhilePart& cause,
                                                    const JudgementContext& context) {
        std::vector<ProcessKey> others;
        for (const Rank& other : ranges.ranks)
            if (other != rank) others.push_back(other.first);
        Window late{UINT64_MAX, 0};
        for (const LateArrival& one : ranges.all) {
            if (key_of(one.late) != rank || !is_late(ranges, one)) continue;
            late.from_ns = std::min(late.from_ns, saturating_subtract(one.late.arrival_ns, one.lateness_ns));
            late.to_ns = std::max(late.to_ns, one.end_ns);
        }
        return rank_conditions(rank.first, others, late, &cause, *context.gpus, *context.processes);
    }

    static std::string rank_text(const RankWait& rank, const JudgementContext& context) {
        const std::string who = rank.rank ? "rank " + std::to_string(*rank.rank) : std::string("a rank");
        const std::string name = context.processes ? context.processes->name(rank.process) : std::string();
        const std::string pid = "pid " + std::to_string(visible_pid(rank.process.pid));
        return who + " (" + (name.empty() ? pid : name + ", " + pid) + ")";
    }

    void show(Finding& finding, const RankWait& wait, uint64_t ns) const {
        Event& event = finding.worst.event;
        event.sequence = wait.sync_call;
        event.op = wait.sync_op;
        event.tgid = wait.process.pid;
        event.tid = wait.tid;
        event.process_start_ns = wait.process.start_ns;
        event.start_ns = wait.sync_start_ns;
        event.duration_ns = wait.sync_end_ns - wait.sync_start_ns;
        finding.worst.start_realtime_ns = context_.clock.to_realtime(wait.sync_start_ns);
        finding.worst.excess_ns = finding.worst.explained_ns = ns;
        finding.worst.cause = finding.kind;
    }

    void find_wait(const ProcessKey& process, const LateWaits& waits, const std::map<Rank, const Ranges*>& ranges_of,
                   const JudgementContext& context, std::vector<Finding>& ret_findings) const {
        const LateWaitSums sums = sum_late_waits(waits, context_.options.new_from_sequence);
        if (!sums.longest) return;
        Finding finding = make_finding("collective-wait", process, "", context);
        finding.lost_ns = sums.lost_ns;
        finding.newly_lost_ns = sums.newly_lost_ns;
        finding.window_share = share_of(finding.lost_ns, context.time_of(finding.worst.event.process()));
        if (finding.window_share < context_.options.window_floor && sums.longest->ns < worth_a_word_ns) return;
        judge(finding, sums.certain_ns, context);
        std::vector<const LateOne*> ranked;
        for (const auto& [who, late] : sums.late) ranked.push_back(&late);
        std::stable_sort(ranked.begin(), ranked.end(), [](const auto* a, const auto* b) { return a->ns > b->ns; });
        for (const LateOne* one : ranked) {
            if (finding.culprits.size() == max_culprits) break;
            const RankWait& rank = one->longest->late;
            finding.culprits.push_back({rank_text(rank, context), visible_pid(rank.process.pid), one->ns, 0});
        }
        finding.evidence = sums.evidence.sequences();
        show(finding, sums.longest->rank, sums.longest->ns);
        const RankWait& late = ranked[0]->longest->late;
        Meanwhile meanwhile;
        for (const auto& [arrival, time] : ranked[0]->parts) add(meanwhile, *arrival, time, context);
        Culprit of_the_late_one;
        const std::string self = rank_text(sums.longest->rank, context), other = finding.culprits[0].name;
        Clause why = meanwhile_clause(meanwhile, late.rank ? "rank " + std::to_string(*late.rank) : "the late rank",
                                      of_the_late_one);
        const std::string condition_fix = add_condition(why, key_of(late), *ranges_of.at(key_of(late)), context);
        take_off_led(finding, why, sums.certain_ns, meanwhile, !condition_fix.empty(), context);
        finding.summary = self + " waited " + format_duration(finding.lost_ns) + " for " + other + ", " +
                          some_ranges(sums.times) + "; " + why.text + doubt_text(finding);
        finding.fix = "Check what " + other + " does before it enters its collectives: ingeroctl explain --pid " +
                      std::to_string(visible_pid(late.process.pid)) +
                      "; uneven batches, a slow loader, checkpoints and logging of one rank are the usual reasons." +
                      condition_fix;
        finding.confirm = "Run explain again after the change: " + self + " should wait for nobody longer than " +
                          format_duration(late_from_ns) + ".";
        ret_findings.push_back(std::move(finding));
    }

    /// Up to the late one's arrival the others could not go on. Where they did not then go on at once, their own
    /// devices may have been at work as long, unless its device had nothing to do meanwhile.
    static void judge(Finding& finding, uint64_t certain_ns, const JudgementContext& context) {
        finding.lost_low_ns = std::min(certain_ns, finding.lost_ns);
        finding.severity = severity_of(share_of(certain_ns, context.time_of(finding.worst.event.process())));
        finding.explained_fraction = share_of(certain_ns, finding.lost_ns);
        const Verdict verdict = verdict_of(finding.explained_fraction, context.lossy);
        finding.verdict = verdict == Verdict::proven ? verdict : Verdict::partial;
    }
    /// Where the late rank waited for ranks of another communicator, one of these may have been late first.
    static void take_off_led(Finding& finding, const Clause& why, uint64_t certain_ns, const Meanwhile& meanwhile,
                             bool has_condition, const JudgementContext& context) {
        const bool by_ranks = why.part && why.part->kind == "rank-wait";
        if (by_ranks) finding.verdict = Verdict::partial;
        if (has_condition) return;
        const double led = share_of(ns_of_kind(meanwhile.parts, "rank-wait"), std::max<uint64_t>(meanwhile.late_ns, 1));
        finding.severity =
            by_ranks ? Severity::low
                     : severity_of(share_of(certain_ns, context.time_of(finding.worst.event.process())) * (1 - led));
    }
    static std::string doubt_text(const Finding& finding) {
        const bool is_sure = verdict_of(finding.explained_fraction, false) == Verdict::proven;
        return (is_sure ? "" : doubt_of_lateness(finding.lost_low_ns)) + loss_text(finding, !is_sure);
    }

    static std::string some_ranges(size_t number) { return number == 1 ? "once" : std::to_string(number) + " times"; }

    void find_straggler(uint64_t hash, const Ranges& ranges, const JudgementContext& context,
                        std::vector<Finding>& ret_findings) const {
        std::set<Rank> seen;
        for (auto last = ranges.all.rbegin(); last != ranges.all.rend(); ++last) {
            const Rank rank = key_of(last->late);
            if (!seen.insert(rank).second) continue;
            const Arrivals latest = latest_showing(ranges, rank);
            if (straggles(ranges, latest, rank) &&
                report_straggler(hash, ranges, latest, last->late, context, ret_findings))
                return;
        }
    }

    static Arrivals latest_showing(const Ranges& ranges, const Rank& rank) {
        Arrivals latest = showing(ranges, rank);
        auto first = latest.end() - static_cast<std::ptrdiff_t>(std::min(latest.size(), latest_ranges));
        if (latest.size() < latest_ranges) {
            const uint64_t from_ns = saturating_subtract(ranges.all.back().end_ns, latest_ns);
            while (first != latest.end() && (*first)->end_ns < from_ns) ++first;
        }
        latest.erase(latest.begin(), first);
        return latest;
    }

    /// Whether it is worth a finding.
    bool report_straggler(uint64_t hash, const Ranges& ranges, const Arrivals& latest, const RankWait& rank,
                          const JudgementContext& context, std::vector<Finding>& ret_findings) const {
        Finding finding = make_finding("straggler", rank.process, std::to_string(hash), context);
        Meanwhile meanwhile;
        Evidence evidence;
        std::vector<uint64_t> lateness;
        const LateArrival* worst = nullptr;
        uint64_t certain_ns = 0, counted_until_ns = 0;
        for (const LateArrival& one : ranges.all) {
            if (!is_late(ranges, one) || key_of(one.late) != key_of(rank)) continue;
            // Ranks that synchronise with different collectives may wait for it at the same time.
            const uint64_t ns = std::min(one.lateness_ns, saturating_subtract(one.late.arrival_ns, counted_until_ns));
            counted_until_ns = std::max(counted_until_ns, one.late.arrival_ns);
            finding.lost_ns = saturating_add(finding.lost_ns, ns);
            if (one.late.arrival_call >= context_.options.new_from_sequence)
                finding.newly_lost_ns = saturating_add(finding.newly_lost_ns, ns);
            evidence.add(one.lateness_ns, one.late.arrival_call);
            certain_ns = saturating_add(certain_ns, one.at_once() ? ns : one.certain_ns(ns));
            lateness.push_back(one.lateness_ns);
            add(meanwhile, one, one.before(ns), context);
            if (!worst || one.lateness_ns > worst->lateness_ns) worst = &one;
        }
        const size_t late = lateness.size(), shown = showing(ranges, key_of(rank)).size();
        finding.window_share = share_of(finding.lost_ns, context.time_of(finding.worst.event.process()));
        if (finding.window_share < context_.options.window_floor) return false;
        judge(finding, certain_ns, context);
        finding.evidence = evidence.sequences();
        show(finding, worst->late, worst->lateness_ns);
        const std::string who = rank_text(rank, context);
        Culprit cause{who, visible_pid(rank.process.pid), meanwhile.late_ns, 0};
        Clause why = meanwhile_clause(meanwhile, "it", cause);
        const std::string condition_fix = add_condition(why, key_of(rank), ranges, context);
        take_off_led(finding, why, certain_ns, meanwhile, !condition_fix.empty(), context);
        finding.culprits = {cause};
        finding.summary = who + " came last to the collectives of " + std::to_string(ranges.most_ranks) +
                          " ranks of this host in " + std::to_string(late) + " of " + std::to_string(shown) + " rounds";
        if (late != shown && latest.size() < shown)
            finding.summary += " (of the latest " + std::to_string(latest.size()) + ", " +
                               std::to_string(late_in(ranges, latest, key_of(rank))) + ")";
        finding.summary += ", late by a median of " + format_duration(median_of(std::move(lateness))) + "; " +
                           why.text + doubt_text(finding);
        finding.fix = "Compare what " + who + " does between its collectives with the other ranks: its share of the " +
                      "work, its CPUs (ingeroctl processes), its loader, other tasks on its CPUs." + condition_fix;
        finding.confirm = "Run explain again after the change: no rank should come last in most rounds.";
        ret_findings.push_back(std::move(finding));
        return true;
    }

    DetectorContext context_;
    // Both are put in order when they are asked.
    mutable std::optional<CollectiveFeed> feed_;
    mutable std::map<std::pair<ProcessKey, uint32_t>, std::vector<SlowPart>> slow_;  ///< by thread
    size_t slow_calls_ = 0;
    mutable std::map<std::pair<ProcessKey, uint32_t>, std::vector<DeviceWait>> device_waits_;  ///< by thread
    size_t device_wait_count_ = 0;
    mutable std::map<ProcessKey, std::vector<Window>> idle_;  ///< in order of their end; in find()
    mutable std::map<std::pair<Rank, std::string>, std::vector<RankCondition>>
        conditions_;                                         ///< by what it did; in find()
    mutable size_t waits_to_look_at_ = max_waits_looked_at;  ///< yet, in find()
};

}  // namespace

std::unique_ptr<Detector> make_late_ranks(const DetectorContext& context) {
    return std::make_unique<LateRanks>(context);
}

}  // namespace ingero
