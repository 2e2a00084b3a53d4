#include "core/diagnosis/stragglers.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "core/diagnosis/findings.h"
#include "core/model/call_time.h"
#include "core/query/event_filter.h"

namespace ingero {

namespace {

/// What a late rank did is asked for within this. Ranges from before so long a pause do not count any more.
constexpr uint64_t history_ns = 30'000'000'000;
/// A pause is never shorter than so many steps.
constexpr uint64_t quiet_steps = 3;
/// After the first range of a loop, the next one is waited for so long.
constexpr uint64_t longest_step_ns = 600'000'000'000;
constexpr size_t max_waiting = 32'768;  ///< calls, to be put in order
constexpr size_t max_watched = 1'024;   ///< communicators
constexpr size_t max_members = 4'096;   ///< ranks in the totals of a communicator
constexpr size_t max_culprits = 10;
/// Stored calls are looked at so long at a time.
constexpr uint64_t slice_ns = 1'000'000'000;
/// Calls come in order of their end, but for those of a turn of the rings.
constexpr uint64_t settled_after_ns = 500'000'000;
constexpr size_t max_pairs = 256;  ///< whom one rank waited for
/// Ranges that are kept, for each that counts: of a rank that alone synchronises with most, few show how late it is.
constexpr size_t kept_ranges = 8;
constexpr size_t max_judged = 64;  ///< ranges of a communicator that are not to be judged once more
/// An episode ends where the rank is late in less than this part of what opens one: a rank at that limit is not
/// reported again and again.
constexpr unsigned resolved_percent = 66;
/// Of two ranks one is last half the time.
constexpr unsigned late_percent_of_two = 70;
constexpr size_t max_with_conditions = 64;  ///< episodes, those that lost the most

std::string hex_id(const std::string& text) {
    char hex[17];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH64(text.data(), text.size(), 0)));
    return hex;
}

RankKey key_of(const RankWait& rank) {
    return {rank.process, rank.communicator};
}

uint64_t first_end_ns(const CollectiveRange& range) {
    uint64_t first_ns = UINT64_MAX;
    for (const RankWait& wait : range.waits) first_ns = std::min(first_ns, wait.sync_end_ns);
    return first_ns;
}

std::string boot_id_of(const StoreSnapshot& snapshot, uint32_t boot_index) {
    for (const Session& session : snapshot.sessions())
        if (session.boot_index == boot_index) return session.boot_id;
    return {};
}

}  // namespace

const MeanwhilePart* StragglerEpisode::cause() const {
    if (meanwhile.empty()) return nullptr;
    const MeanwhilePart& most = meanwhile.front();
    return !most.is_known() || most.ns < lost_ns - lost_ns / 2 ? nullptr : &most;
}

Severity StragglerEpisode::severity() const {
    const MeanwhilePart* most = cause();
    // Where it waited for ranks, one of another communicator may have been late first.
    const bool may_be_led = conditions.empty();
    if (may_be_led && most && most->kind == "rank-wait") return Severity::low;
    const double led = may_be_led ? share_of(ns_of_kind(meanwhile, "rank-wait"), lost_ns) : 0;
    const double at_once = share_of(at_once_ns, saturating_subtract(latest_ns, since_ns));
    return severity_of(std::max(at_once, certain_share) * (1 - led));
}

std::string rank_text(const StragglerEpisode& episode, const std::string& comm) {
    const std::string who = episode.rank ? "rank " + std::to_string(*episode.rank) : std::string("a rank");
    const std::string pid = "pid " + std::to_string(visible_pid(episode.process.pid));
    return who + " (" + (comm.empty() ? pid : comm + ", " + pid) + ")";
}

Finding straggler_finding(const StragglerEpisode& episode, const std::string& comm, const ClockTriple& clock) {
    Finding finding;
    finding.id = episode.id;
    finding.kind = "straggler";
    finding.pid = episode.process.pid;
    finding.comm = comm;
    finding.lost_ns = finding.newly_lost_ns = episode.lost_ns;
    finding.lost_low_ns = episode.at_once_ns;
    finding.lost_all();
    finding.window_share = share_of(episode.lost_ns, saturating_subtract(episode.latest_ns, episode.since_ns));
    const MeanwhilePart* cause = episode.cause();
    const bool waited_for_ranks = cause && cause->kind == "rank-wait";
    finding.severity = episode.severity();
    uint64_t known_ns = 0;
    const std::string who = rank_text(episode, comm);
    for (const MeanwhilePart& part : episode.meanwhile) {
        if (!part.is_known()) continue;
        known_ns = saturating_add(known_ns, part.ns);
        if (finding.culprits.size() < max_culprits)
            finding.culprits.push_back({part.name.empty() ? meanwhile_text(part) : part.name, part.pid, part.ns, 0});
    }
    finding.explained_fraction = episode.lost_ns == 0 ? 0 : share_of(known_ns, episode.lost_ns);
    const bool is_certain = verdict_of(share_of(episode.at_once_ns, episode.lost_ns), false) == Verdict::proven;
    finding.verdict = cause && !waited_for_ranks && is_certain ? Verdict::proven : Verdict::partial;
    finding.summary = who + " came last to the collectives of " + std::to_string(episode.local_ranks) +
                      " ranks of this host in " + std::to_string(episode.late) + " of the latest " +
                      std::to_string(episode.of_ranges) + " rounds, late by a median of " +
                      format_duration(episode.lateness_ns) + "; " +
                      (cause ? "meanwhile it was " + meanwhile_text(*cause) + " for " + format_duration(cause->ns) +
                                   " of " + format_duration(episode.lost_ns)
                             : std::string("no single cause explains the delay"));
    if (!episode.conditions.empty()) finding.summary += "; " + episode.conditions[0].text;
    if (!is_certain) finding.summary += doubt_of_lateness(finding.lost_low_ns);
    finding.fix = "Compare what " + who +
                  " does between its collectives with the other ranks: its share of the work, " +
                  "its CPUs (ingeroctl processes), its loader, other tasks on its CPUs.";
    if (!episode.conditions.empty()) finding.fix += " " + episode.conditions[0].fix;
    finding.confirm = std::string(finding.severity == Severity::low
                                      ? "Run stragglers again after the change"
                                      : "Run explain --verify with the incident's id after the change") +
                      ": the rank should come last in few rounds, or by less than " +
                      format_duration(episode.threshold_ns) + ".";
    Event& event = finding.worst.event;
    event.tgid = episode.process.pid;
    event.process_start_ns = episode.process.start_ns;
    event.tid = episode.tid;
    event.start_ns = episode.since_ns;
    finding.worst.start_realtime_ns = clock.to_realtime(episode.since_ns);
    finding.worst.excess_ns = finding.worst.explained_ns = episode.worst_ns;
    finding.worst.cause = finding.kind;
    return finding;
}

void add_conditions(StragglerEpisode& episode, const std::map<uint64_t, CommunicatorTotals>& totals,
                    std::span<const GpuStates> gpus, const KnownProcesses& processes) {
    const auto communicator = totals.find(episode.hash);
    if (communicator == totals.end()) return;
    std::vector<ProcessKey> others;
    for (const auto& [key, member] : communicator->second.members)
        if (key != std::pair(episode.process, episode.communicator)) others.push_back(key.first);
    episode.conditions = rank_conditions(episode.process, others, {episode.since_ns, episode.latest_ns},
                                         episode.cause(), gpus, processes);
}

StragglerWatch::StragglerWatch(const Communicators& communicators, const StragglerOptions& options, std::string seed)
    : communicators_(communicators),
      options_(options),
      seed_(std::move(seed)),
      deriver_(communicators),
      history_(history_ns) {
    communicators_changed();
}

void StragglerWatch::communicators_changed() {
    std::set<ProcessKey> now;
    std::set<uint64_t> hashes;
    for (const Communicator& one : communicators_.all()) {
        if (one.row.hash == 0) continue;
        now.insert(one.row.process);
        hashes.insert(one.row.hash);
    }
    for (const ProcessKey& process : processes_)
        if (!now.contains(process)) history_.forget(process);
    processes_ = std::move(now);
    std::erase_if(watched_, [&](const auto& one) {
        const bool is_gone = one.second.open.empty() && !hashes.contains(one.first);
        if (is_gone) totals_.erase(one.first);
        return is_gone;
    });
    deriver_.forget_gone();
}

bool StragglerWatch::wants(const Event& event) {
    return ThreadHistory::wants(event) || CollectiveWaitsDeriver::wants(event);
}

void StragglerWatch::take(std::span<const Event> events) {
    for (const Event& event : events) {
        if (!processes_.contains(event.process())) continue;
        history_.take(event);
        if (CollectiveWaitsDeriver::wants(event)) waiting_.push_back(event);
    }
    if (waiting_.size() < max_waiting) return;
    std::stable_sort(waiting_.begin(), waiting_.end(), CollectiveWaitsDeriver::before);
    pass_on(waiting_[waiting_.size() / 2].start_ns);
}

void StragglerWatch::pass_on(uint64_t until_ns) {
    std::stable_sort(waiting_.begin(), waiting_.end(), CollectiveWaitsDeriver::before);
    const auto end = std::partition_point(waiting_.begin(), waiting_.end(),
                                          [&](const Event& event) { return event.start_ns < until_ns; });
    for (auto event = waiting_.begin(); event != end; ++event) deriver_.take(*event);
    waiting_.erase(waiting_.begin(), end);
}

std::vector<StragglerChange> StragglerWatch::settle(uint64_t until_ns) {
    pass_on(until_ns);
    std::vector<StragglerChange> changes;
    for (const CollectiveRange& range : deriver_.take_ranges(until_ns)) judge(range, changes);
    history_.trim(until_ns);
    return changes;
}

void StragglerWatch::judge(const CollectiveRange& range, std::vector<StragglerChange>& changes) {
    if (range.local_ranks() < 2) return;
    if (watched_.size() >= max_watched && !watched_.contains(range.hash)) return;
    Watched& watched = watched_[range.hash];
    // One that synchronises much later than the others has a range of its own.
    if (std::find(watched.judged.begin(), watched.judged.end(), range.last_sequence) != watched.judged.end()) return;
    watched.judged.push_back(range.last_sequence);
    if (watched.judged.size() > max_judged) watched.judged.pop_front();
    const uint64_t silent_ns = saturating_subtract(first_end_ns(range), watched.last_end_ns);
    if (!watched.latest.empty() && is_quiet(watched, silent_ns)) end_all(watched, changes);
    auto arrival = late_arrival(range);
    const uint64_t step_ns = this->step_ns(watched);
    const uint64_t threshold_ns = std::max(options_.floor_ns, step_ns / 100 * options_.step_percent);
    const bool is_late = arrival && this->is_late(*arrival, threshold_ns);
    add_totals(range, arrival ? &*arrival : nullptr, is_late);
    if (step_ns != 0) totals_[range.hash].step_ns = step_ns;
    if (!arrival) return;
    watched.local_ranks = std::max(watched.local_ranks, range.local_ranks());
    watched.ranks = range.ranks;
    watched.last_end_ns = std::max(watched.last_end_ns, arrival->end_ns);
    if (is_late) {
        const auto open = watched.open.find(key_of(arrival->late));
        if (open != watched.open.end()) add_late(open->second, *arrival);
    }
    std::vector<Waited>().swap(arrival->waited);
    watched.latest.push_back({std::move(*arrival), is_late});
    if (watched.latest.size() > kept_ranges * options_.ranges) watched.latest.pop_front();
    open_or_close(range.hash, watched, threshold_ns, changes);
}

bool StragglerWatch::is_late(LateArrival& arrival, uint64_t threshold_ns) const {
    if (arrival.lateness_ns == 0 || arrival.lateness_ns < threshold_ns) return false;
    if (arrival.may_cost()) return true;
    // Frameworks enter collectives on a thread of their own, and wait for data on the main one.
    for (const uint32_t tid : {arrival.late.arrival_tid, arrival.late.process.pid}) {
        const auto parts = history_.parts(arrival.late.process, tid, arrival.lateness());
        if (waited_elsewhere_ns(parts) >= arrival.lateness_ns / 2) arrival.waited_elsewhere = true;
    }
    return arrival.may_cost();
}

void StragglerWatch::add_totals(const CollectiveRange& range, const LateArrival* arrival, bool is_late) {
    CommunicatorTotals& totals = totals_[range.hash];
    ++totals.ranges;
    totals.ranks = range.ranks;
    const auto member = [&](const RankWait& rank) -> RankTotals* {
        const auto key = key_of(rank);
        if (totals.members.size() >= max_members && !totals.members.contains(key)) return nullptr;
        RankTotals& one = totals.members[key];
        one.rank = rank.rank;
        one.process = rank.process;
        return &one;
    };
    for (const RankWait& wait : range.waits)
        if (RankTotals* one = member(wait)) ++one->ranges;
    if (!is_late) return;
    const bool has_waited = std::any_of(range.waits.begin(), range.waits.end(),
                                        [&](const RankWait& wait) { return key_of(wait) == key_of(arrival->late); });
    if (RankTotals* late = member(arrival->late)) {
        late->ranges += has_waited ? 0 : 1;
        ++late->came_last;
        late->late_ns = saturating_add(late->late_ns, arrival->lateness_ns);
    }
    for (const Waited& waited : arrival->waited) {
        RankTotals* one = member(waited.rank);
        if (!one) continue;
        one->waited_ns = saturating_add(one->waited_ns, waited.ns);
        const auto whom = key_of(arrival->late);
        if (one->waited_for.size() >= max_pairs && !one->waited_for.contains(whom)) continue;
        auto& [ns, times] = one->waited_for[whom];
        ns = saturating_add(ns, waited.ns);
        ++times;
    }
}

std::vector<const StragglerWatch::Latest*> StragglerWatch::latest_of(const Watched& watched, const Rank& rank) const {
    const uint64_t from_ns = saturating_subtract(watched.last_end_ns, options_.latest_ns);
    std::vector<const Latest*> latest;
    size_t recent = 0;
    for (auto one = watched.latest.rbegin(); one != watched.latest.rend() && latest.size() < options_.ranges; ++one) {
        if (!one->arrival.shows(rank)) continue;
        latest.push_back(&*one);
        recent += one->arrival.end_ns >= from_ns;
    }
    if (recent >= options_.least_ranges)
        latest.resize(recent);
    else if (latest.size() < options_.ranges)
        latest.clear();
    std::reverse(latest.begin(), latest.end());
    return latest;
}

void StragglerWatch::open_or_close(uint64_t hash, Watched& watched, uint64_t threshold_ns,
                                   std::vector<StragglerChange>& changes) {
    unsigned percent = options_.late_percent;
    if (watched.local_ranks == 2) percent = std::max(percent, late_percent_of_two);
    const auto late_of = [this, &watched](const Rank& rank, size_t& ret_of_ranges) {
        std::vector<const Latest*> latest = latest_of(watched, rank);
        ret_of_ranges = latest.size();
        std::erase_if(latest, [&](const Latest* one) { return !one->late || key_of(one->arrival.late) != rank; });
        return latest;
    };
    for (auto open = watched.open.begin(); open != watched.open.end();) {
        StragglerEpisode& episode = open->second;
        size_t of_ranges = 0;
        const size_t late = late_of(open->first, of_ranges).size();
        // Where it alone synchronises any more, or too seldom to tell.
        const uint64_t past_ns = saturating_subtract(watched.last_end_ns, episode.latest_ns);
        const bool is_past = past_ns > history_ns && is_quiet(watched, past_ns);
        const bool is_late = late * 10'000 >= size_t{percent} * resolved_percent * of_ranges;
        if (of_ranges == 0 ? !is_past : is_late) {
            ++open;
            continue;
        }
        episode.resolved_ns = episode.latest_ns;
        changes.push_back({true, std::move(episode)});
        open = watched.open.erase(open);
    }
    if (!watched.latest.back().late) return;
    const RankWait& who = watched.latest.back().arrival.late;
    const Rank rank = key_of(who);
    size_t of_ranges = 0;
    const std::vector<const Latest*> late = late_of(rank, of_ranges);
    const auto open = watched.open.find(rank);
    const bool opens = open == watched.open.end();
    if (opens && (of_ranges == 0 || late.size() * 100 < size_t{percent} * of_ranges)) return;
    StragglerEpisode& episode = opens ? watched.open[rank] : open->second;
    if (opens) {
        episode = begin(hash, watched, who);
        for (const Latest* one : late) add_late(episode, one->arrival);
    }
    std::vector<uint64_t> lateness;
    uint64_t certain_ns = 0;
    for (const Latest* one : late) {
        lateness.push_back(one->arrival.lateness_ns);
        if (one->arrival.at_once()) certain_ns = saturating_add(certain_ns, one->arrival.lateness_ns);
    }
    if (!late.empty())
        episode.certain_share =
            share_of(certain_ns, watched.latest.back().arrival.end_ns - late.front()->arrival.lateness().from_ns);
    episode.lateness_ns = median_of(std::move(lateness));
    episode.threshold_ns = threshold_ns;
    episode.late = late.size();
    episode.of_ranges = of_ranges;
    if (opens) changes.push_back({false, episode});
}

StragglerEpisode StragglerWatch::begin(uint64_t hash, const Watched& watched, const RankWait& rank) {
    StragglerEpisode episode;
    episode.hash = hash;
    episode.process = rank.process;
    episode.tid = rank.tid;
    episode.communicator = rank.communicator;
    episode.rank = rank.rank;
    episode.ranks = watched.ranks;
    episode.local_ranks = watched.local_ranks;
    episode.detected_ns = watched.latest.back().arrival.end_ns;
    episode.id = hex_id(seed_ + '\0' + std::to_string(hash) + '\0' + std::to_string(rank.process.pid) + '\0' +
                        std::to_string(rank.process.start_ns) + '\0' + std::to_string(rank.communicator) + '\0' +
                        std::to_string(episode.detected_ns));
    return episode;
}

void StragglerWatch::add_late(StragglerEpisode& episode, const LateArrival& arrival) const {
    const uint64_t from_ns = saturating_subtract(arrival.late.arrival_ns, arrival.lateness_ns);
    // Ranks that synchronise with different collectives may wait for it at the same time.
    const Window time{std::max(from_ns, episode.counted_until_ns),
                      std::max(arrival.late.arrival_ns, episode.counted_until_ns)};
    episode.counted_until_ns = time.to_ns;
    if (episode.since_ns == 0 || from_ns < episode.since_ns) episode.since_ns = from_ns;
    episode.latest_ns = std::max(episode.latest_ns, arrival.end_ns);
    episode.lost_ns = saturating_add(episode.lost_ns, time.length_ns());
    if (arrival.at_once()) episode.at_once_ns = saturating_add(episode.at_once_ns, time.length_ns());
    episode.worst_ns = std::max(episode.worst_ns, arrival.lateness_ns);
    ++episode.late_ranges;
    const auto waits_for_others = [&](const Event& call) {
        return deriver_.waits_for_others(call.process(), call.tid, call.start_ns, episode.hash);
    };
    add_parts(episode.meanwhile,
              history_.parts(arrival.late.process, arrival.late.arrival_tid, time, waits_for_others));
}

uint64_t StragglerWatch::step_ns(const Watched& watched) const {
    const size_t count = std::min(watched.latest.size(), options_.ranges);
    std::vector<const LateArrival*> latest;
    for (size_t i = watched.latest.size() - count; i < watched.latest.size(); ++i)
        latest.push_back(&watched.latest[i].arrival);
    return step_of(latest);
}

bool StragglerWatch::is_quiet(const Watched& watched, uint64_t silent_ns) const {
    if (silent_ns < options_.latest_ns) return false;
    const uint64_t step_ns = this->step_ns(watched);
    if (watched.open.empty()) {
        // While nobody is late, ranges from before a short pause still count.
        const uint64_t least_ns = step_ns == 0 ? longest_step_ns : history_ns;
        if (silent_ns < least_ns) return false;
    }
    return silent_ns >= saturating_multiply(step_ns, quiet_steps);
}

void StragglerWatch::end_all(Watched& watched, std::vector<StragglerChange>& changes) {
    for (auto& [rank, episode] : watched.open) {
        episode.resolved_ns = episode.latest_ns;
        changes.push_back({true, std::move(episode)});
    }
    watched.open.clear();
    watched.latest.clear();
    watched.local_ranks = 0;
}

std::vector<CollectiveRange> StragglerWatch::unjudged_ranges() const {
    CollectiveWaitsDeriver deriver = deriver_;
    std::vector<Event> waiting = waiting_;
    std::stable_sort(waiting.begin(), waiting.end(), CollectiveWaitsDeriver::before);
    for (const Event& event : waiting) deriver.take(event);
    return deriver.finish().ranges;
}

std::vector<StragglerChange> StragglerWatch::quiet(uint64_t now_ns) {
    std::vector<StragglerChange> changes;
    std::optional<std::vector<CollectiveRange>> unjudged;
    const uint64_t known_until_ns = saturating_subtract(now_ns, settled_after_ns);
    for (auto one = watched_.begin(); one != watched_.end();) {
        auto& [hash, watched] = *one;
        const auto is_quiet_since = [&, &watched = watched](uint64_t end_ns) {
            return is_quiet(watched, saturating_subtract(known_until_ns, end_ns));
        };
        const bool is_empty = watched.latest.empty();
        bool ends = is_quiet_since(watched.last_end_ns);
        if (ends && !is_empty) {
            if (!unjudged) unjudged = unjudged_ranges();
            // Whether it was quiet before a range that has ended meanwhile is decided when that is judged.
            ends = std::none_of(unjudged->begin(), unjudged->end(), [&, hash = hash](const CollectiveRange& range) {
                return range.hash == hash && range.local_ranks() >= 2 && !is_quiet_since(first_end_ns(range));
            });
        }
        if (!ends) {
            ++one;
            continue;
        }
        end_all(watched, changes);
        if (is_empty) totals_.erase(hash);
        one = is_empty ? watched_.erase(one) : std::next(one);
    }
    return changes;
}

std::vector<StragglerEpisode> StragglerWatch::open() const {
    std::vector<StragglerEpisode> all;
    for (const auto& [hash, watched] : watched_)
        for (const auto& [rank, episode] : watched.open) all.push_back(episode);
    return all;
}

Result<StragglersAnswer> compute_stragglers(const StoreSnapshot& snapshot, const Filter& filter,
                                            const StragglerOptions& options) {
    StragglersAnswer answer;
    answer.window = filter.window;
    answer.options = options;
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
    // One process is compared with the others that the caller may see.
    EventFilter visible({.window = {}, .uid = filter.uid, .pid = {}}, *processes);
    communicators->keep_if([&](const ProcessKey& process) { return visible.matches(process); });
    for (const BootWindow& boot : boot_windows(snapshot, filter.window)) {
        StragglersAnswer::Boot found;
        found.clock = boot.clock;
        StragglerWatch watch(*communicators, options, boot_id_of(snapshot, boot.boot_index));
        std::vector<StragglerChange> changes;
        const auto take_over = [&](std::vector<StragglerChange> more) {
            std::move(more.begin(), more.end(), std::back_inserter(changes));
        };
        std::vector<Event> waiting;
        // As they ended, a second at a time: what later ones say of earlier times is known by then, as live.
        const auto pass_on = [&](uint64_t ended_before_ns) {
            const auto ends_before = [](const Event& a, const Event& b) {
                return saturating_end_ns(a) < saturating_end_ns(b);
            };
            std::stable_sort(waiting.begin(), waiting.end(), ends_before);
            const auto end = std::partition_point(waiting.begin(), waiting.end(), [&](const Event& event) {
                return saturating_end_ns(event) < ended_before_ns;
            });
            for (auto first = waiting.begin(); first != end;) {
                const uint64_t until_ns = saturating_add(saturating_end_ns(*first), slice_ns);
                const auto last = std::partition_point(
                    first, end, [&](const Event& event) { return saturating_end_ns(event) < until_ns; });
                watch.take({first, last});
                take_over(watch.settle(saturating_subtract(saturating_end_ns(*std::prev(last)), settled_after_ns)));
                first = last;
            }
            waiting.erase(waiting.begin(), end);
        };
        const auto scanned = snapshot.scan(boot.boot_index, boot.monotonic, [&](std::span<const Event> block) {
            uint64_t first_ns = UINT64_MAX;
            for (const Event& event : block) first_ns = std::min(first_ns, event.start_ns);
            pass_on(first_ns);  // blocks come in order of start
            std::copy_if(block.begin(), block.end(), std::back_inserter(waiting),
                         [](const Event& event) { return StragglerWatch::wants(event); });
            return true;
        });
        if (!scanned) return tl::unexpected(scanned.error());
        pass_on(UINT64_MAX);
        take_over(watch.settle(UINT64_MAX));
        found.communicators = watch.totals();
        take_over(watch.quiet(boot.monotonic.to_ns));
        for (StragglerEpisode& open : watch.open()) found.episodes.push_back(std::move(open));
        for (StragglerChange& change : changes)
            if (change.resolved) found.episodes.push_back(std::move(change.episode));
        if (filter.pid)
            std::erase_if(found.episodes, [&](const StragglerEpisode& one) { return one.process.pid != *filter.pid; });
        std::stable_sort(found.episodes.begin(), found.episodes.end(),
                         [](const auto& a, const auto& b) { return a.lost_ns > b.lost_ns; });
        const KnownProcesses known = all_known.of_boot(*boots_of_processes, boot.boot_index, boot.clock);
        for (size_t i = 0; i < std::min(found.episodes.size(), max_with_conditions); ++i) {
            StragglerEpisode& one = found.episodes[i];
            if (!one.cause()) continue;
            // Without what cannot be read the answer is as it is without measurements.
            const auto gpus =
                read_gpu_states(snapshot, boot.boot_index, conditions_time({one.since_ns, one.latest_ns}));
            if (gpus) add_conditions(one, found.communicators, *gpus, known);
        }
        answer.boots.push_back(std::move(found));
    }
    return answer;
}

}  // namespace ingero
