#include "core/diagnosis/incidents/incident_history.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/incidents/incidents.h"
#include "core/diagnosis/incidents/known_processes.h"
#include "core/diagnosis/stragglers.h"
#include "core/model/call_time.h"
#include "core/query/event_filter.h"
#include "core/query/kernel_names.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr Window all_time{0, INT64_MAX};
constexpr uint64_t least_around_ns = 2'000'000;
constexpr uint64_t most_around_ns = 200'000'000;
/// The live diagnosis judges so much at a time: all evidence of a finding is as near to its worst call.
constexpr uint64_t evidence_within_ns = 11'000'000'000;
constexpr size_t most_chains = 5;
/// Less of a program says nothing of whether it is well.
constexpr uint64_t enough_calls_to_verify = 100;
constexpr uint64_t enough_time_to_verify_ns = 10'000'000'000;
/// Of what shows once in a run: nobody waits for longer.
constexpr uint64_t most_time_to_verify_ns = 3'600'000'000'000;
constexpr uint64_t lossy_from = 10;
constexpr double little_share = 0.01;

uint64_t number_in(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

bool is_shown(const IncidentRow& row, const Filter& filter) {
    return row.kind != imported_finding && (!filter.uid || row.uid == *filter.uid) &&
           (!filter.pid || row.process.pid == *filter.pid);
}

void add_step(IncidentHistory& incident, IncidentRow row) {
    incident.updated_ns = incident.boot.clock.to_realtime(row.at_ns);
    incident.closed_ns.reset();
    if (row.event == IncidentEvent::closed) incident.closed_ns = incident.updated_ns;
    incident.steps.push_back({row.event, incident.updated_ns, row.lost_ns});
    // The first stays: it says when it was opened.
    if (incident.steps.size() > max_incident_steps) incident.steps.erase(incident.steps.begin() + 1);
    incident.latest = std::move(row);
}

/// What the incident's finding says of its worst call, of CLOCK_MONOTONIC.
struct Worst {
    Window time;
    uint32_t tid = 0;
    uint64_t sequence = 0;
};

Worst worst_of(const IncidentHistory& incident) {
    const auto found = incident.finding.is_object() ? incident.finding.find("worst") : incident.finding.end();
    if (!incident.finding.is_object() || found == incident.finding.end()) return {};
    return {{number_in(*found, "from_ns"), number_in(*found, "to_ns")},
            static_cast<uint32_t>(number_in(*found, "tid")),
            number_in(*found, "call")};
}

/// Of more rows than there is room for, the worst call, what was called meanwhile, and the longest others.
void keep_what_counts_most(std::vector<Event>& rows, const Worst& worst) {
    const auto counts_more = [&](const Event& a, const Event& b) {
        const auto rank = [&](const Event& event) {
            const bool same_thread = event.tid == worst.tid;
            return std::tuple(event.sequence == worst.sequence, same_thread, event.duration_ns);
        };
        return rank(a) > rank(b);
    };
    if (rows.size() > max_incident_rows) {
        std::nth_element(rows.begin(), rows.begin() + max_incident_rows, rows.end(), counts_more);
        rows.resize(max_incident_rows);
    }
    std::sort(rows.begin(), rows.end(), [](const Event& a, const Event& b) {
        return std::tie(a.start_ns, a.depth, a.sequence) < std::tie(b.start_ns, b.depth, b.sequence);
    });
}

/// The live diagnosis knows functions by their handles.
void name_functions(const KernelNames& names, IncidentHistory& incident) {
    const ProcessKey& process = incident.latest.process;
    for (IncidentRow::Culprit& culprit : incident.latest.culprits) names.name(process, culprit.name);
    const auto culprits = incident.finding.is_object() ? incident.finding.find("culprits") : incident.finding.end();
    if (culprits == incident.finding.end() || !culprits->is_array()) return;
    for (json& culprit : *culprits) {
        const auto name = culprit.is_object() ? culprit.find("name") : culprit.end();
        if (name == culprit.end() || !name->is_string()) continue;
        std::string text = name->get<std::string>();
        names.name(process, text);
        *name = to_valid_utf8(text);
    }
}

}  // namespace

Result<std::vector<IncidentHistory>> read_incidents(const StoreSnapshot& snapshot, const Filter& filter) {
    std::vector<IncidentHistory> all;
    std::map<std::pair<uint32_t, std::string>, size_t> by_id;
    for (const BootWindow& boot : boot_windows(snapshot, all_time)) {
        auto rows = snapshot.incidents(boot.boot_index, {0, UINT64_MAX});
        if (!rows) return tl::unexpected(rows.error());
        for (IncidentRow& row : *rows) {
            if (!is_shown(row, filter)) continue;
            const auto [at, added] = by_id.try_emplace({boot.boot_index, row.id}, all.size());
            if (added) {
                all.emplace_back();
                all.back().boot = boot;
                all.back().opened_ns = boot.clock.to_realtime(row.opened_ns);
            }
            add_step(all[at->second], std::move(row));
        }
    }
    for (IncidentHistory& one : all) {
        if (one.closed_ns) continue;
        if (const auto end_ns = writer_end_ns(snapshot.sessions(), one.boot.boot_index, one.latest.at_ns))
            one.closed_ns = one.boot.clock.to_realtime(*end_ns);
    }
    std::erase_if(all, [&](const IncidentHistory& one) {
        return one.opened_ns >= filter.window.to_ns || one.closed_ns.value_or(UINT64_MAX) < filter.window.from_ns;
    });
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());
    const KnownProcesses known(*processes);
    std::optional<KernelNames> names;
    for (IncidentHistory& one : all) {
        one.comm = known.name(one.latest.process);
        one.finding = json::parse(one.latest.finding, nullptr, false);
        if (!one.finding.is_object()) one.finding = nullptr;
        if (one.latest.kind != "device-fault") continue;
        if (!names) {
            auto read = KernelNames::read(snapshot);
            names = read ? std::move(*read) : KernelNames();  // handles are better than nothing
        }
        name_functions(*names, one);
    }
    std::stable_sort(all.begin(), all.end(), [](const IncidentHistory& a, const IncidentHistory& b) {
        return a.latest.lost_ns > b.latest.lost_ns;
    });
    return all;
}

Result<IncidentHistory> find_incident(const StoreSnapshot& snapshot, const Filter& filter, const std::string& id) {
    auto all = read_incidents(snapshot, {.window = all_time, .uid = filter.uid, .pid = {}});
    if (!all) return tl::unexpected(all.error());
    IncidentHistory* found = nullptr;
    for (IncidentHistory& one : *all) {
        if (one.latest.id == id) return std::move(one);
        if (id.empty() || !one.latest.id.starts_with(id)) continue;
        if (found)
            return fail(ErrorCode::bad_request, "several incidents have an id that begins like this",
                        "name the whole id");
        found = &one;
    }
    if (!found) return fail(ErrorCode::not_found, "there is no such incident", "ingeroctl incidents lists them");
    return std::move(*found);
}

void name_incidents(const StoreSnapshot& snapshot, const Filter& filter, std::vector<Finding>& ret_findings) {
    std::map<std::pair<std::string, ProcessKey>, std::string> ids;
    for (const BootWindow& boot : boot_windows(snapshot, filter.window)) {
        const auto rows = snapshot.incidents(boot.boot_index, boot.monotonic);
        if (!rows) return;
        for (const IncidentRow& row : *rows)
            if (is_shown(row, filter)) ids[{row.kind, row.process}] = row.id;
    }
    for (Finding& finding : ret_findings) {
        const auto found = ids.find({finding.kind, finding.owning_process()});
        if (found != ids.end()) finding.incident_id = found->second;
    }
}

Result<IncidentDetail> read_incident_detail(const StoreSnapshot& snapshot, const Filter& filter,
                                            const IncidentHistory& incident) {
    IncidentDetail detail;
    const Worst worst = worst_of(incident);
    detail.worst = worst.sequence;
    if (worst.time.length_ns() == 0) return detail;
    const uint64_t margin_ns = std::clamp(worst.time.length_ns() / 2, least_around_ns, most_around_ns);
    detail.around = {saturating_subtract(worst.time.from_ns, margin_ns), saturating_add(worst.time.to_ns, margin_ns)};
    std::set<uint64_t> evidence;
    if (const auto list = incident.finding.find("evidence"); list != incident.finding.end() && list->is_array())
        for (const json& one : *list)
            if (one.is_number_unsigned() && evidence.size() < max_evidence) evidence.insert(one.get<uint64_t>());
    const Window near{saturating_subtract(worst.time.from_ns, evidence_within_ns),
                      saturating_add(worst.time.to_ns, evidence_within_ns)};
    const auto scanned = snapshot.scan(incident.boot.boot_index, near, [&](std::span<const Event> block) {
        for (const Event& event : block) {
            if (event.process() != incident.latest.process) continue;
            if (evidence.contains(event.sequence)) detail.evidence.push_back(event);
            if (event.start_ns < detail.around.to_ns && saturating_end_ns(event) > detail.around.from_ns)
                detail.rows.push_back(event);
            // A flood of short calls must not take all memory.
            if (detail.rows.size() >= 50'000) keep_what_counts_most(detail.rows, worst);
        }
        return true;
    });
    if (!scanned) return tl::unexpected(scanned.error());
    keep_what_counts_most(detail.rows, worst);
    std::sort(detail.evidence.begin(), detail.evidence.end(),
              [](const Event& a, const Event& b) { return a.start_ns < b.start_ns; });
    WaitsQuery waits;
    waits.filter = {.window = {incident.boot.clock.to_realtime(worst.time.from_ns),
                               incident.boot.clock.to_realtime(worst.time.to_ns)},
                    .uid = filter.uid,
                    .pid = incident.latest.process.pid};
    waits.tid = worst.tid;
    waits.limit = most_chains;
    auto chains = compute_waits(snapshot, waits);
    if (!chains) return tl::unexpected(chains.error());
    detail.chains = std::move(chains->chains);
    return detail;
}

std::string_view to_string(Fixed fixed) {
    switch (fixed) {
        case Fixed::yes:
            return "fixed";
        case Fixed::no:
            return "not-fixed";
        case Fixed::not_known:
            break;
    }
    return "not-enough-data";
}

namespace {

/// The same program, whichever process it is now.
std::set<uint32_t> pids_like(const std::vector<Process>& processes, const IncidentHistory& incident) {
    const auto same = std::find_if(processes.begin(), processes.end(),
                                   [&](const Process& one) { return one.key == incident.latest.process; });
    std::set<uint32_t> pids{incident.latest.process.pid};
    if (same == processes.end()) return pids;
    for (const Process& one : processes)
        if (one.comm == same->comm && one.uid == same->uid &&
            (!same->facts.rank || !one.facts.rank || one.facts.rank == same->facts.rank))
            pids.insert(one.key.pid);
    return pids;
}

std::string some_calls(uint64_t calls) {
    return std::to_string(calls) + (calls == 1 ? " call" : " calls");
}

/// A fault however little of the window it takes: memory that is kept costs no time, an allocation fails at once, and
/// what is left of a run after a fault, or in a hang, is little of a long window. It shows when a program has run for a
/// while, not every ten seconds.
bool shows_once(std::string_view kind) {
    constexpr std::array<std::string_view, 4> kinds = {"gpu-leak", "gpu-oom", "device-fault", "nccl-hang"};
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

/// One hang is found once, whichever rank of it was first.
bool concerns(const Finding& finding, const std::set<uint32_t>& pids) {
    return pids.contains(finding.pid) || std::any_of(finding.ranks.begin(), finding.ranks.end(),
                                                     [&](const ProcessKey& rank) { return pids.contains(rank.pid); });
}

/// The severest that is found of the incident's kind in the fresh window; nullptr where none is.
const Finding* find_again(const std::vector<Finding>& findings, const IncidentHistory& incident,
                          const std::set<uint32_t>& pids, IncidentVerified& verified) {
    const Finding* again = nullptr;
    for (const Finding& finding : findings) {
        const bool evidence = finding.verdict == Verdict::proven || finding.verdict == Verdict::partial;
        if (!evidence || finding.kind != incident.latest.kind || !concerns(finding, pids)) continue;
        // What is left of the incident itself has not come back.
        if (finding.happened_realtime_ns != 0 && finding.happened_realtime_ns < verified.fresh.from_ns) continue;
        verified.lost_ns = saturating_add(verified.lost_ns, finding.lost_ns);
        verified.share = std::max(verified.share, finding.window_share);
        if (!again) again = &finding;
    }
    return again;
}

/// Whether what was found again is too much to call the incident over.
bool stays(const Finding& again, const IncidentVerified& verified) {
    // The share of a slow request is that of one request: the longer the window, the smaller. Severity says how many.
    if (shows_once(again.kind) || again.kind == "slow-request") return again.severity >= IncidentOptions().open_from;
    // Some of nearly everything is left on a host with other work: what counts is less than half, and little.
    return verified.share > 0 && verified.share >= std::min(little_share, verified.share_before / 2);
}

/// How long the incident's process ran until it opened. Where its start is not known, since the host's clock began.
uint64_t ran_before_ns(const IncidentHistory& incident) {
    return saturating_subtract(incident.latest.opened_ns, started_ns(incident.latest.process, incident.boot.clock));
}

/// How long the program must run to say that it is well.
uint64_t time_to_verify_ns(const IncidentHistory& incident) {
    if (!shows_once(incident.latest.kind)) return enough_time_to_verify_ns;
    return std::clamp(ran_before_ns(incident), enough_time_to_verify_ns, most_time_to_verify_ns);
}

/// Of the processes with these pids, the one that ran the longest in the window: for how long that was recorded.
Result<uint64_t> longest_run_ns(const StoreSnapshot& snapshot, const std::vector<Process>& processes,
                                const std::set<uint32_t>& pids, const Window& window) {
    const auto boots = snapshot.process_boots();
    if (!boots) return tl::unexpected(boots.error());
    uint64_t longest_ns = 0;
    for (const BootWindow& boot : boot_windows(snapshot, window)) {
        for (const Process& one : processes) {
            const auto own = boots->find(one.key);
            if (!pids.contains(one.key.pid) || (own != boots->end() && own->second != boot.boot_index)) continue;
            std::optional<uint64_t> end_ns = one.exited_ns;
            // One that lived when its ingerod ended may have ended since, unseen: the next one would have seen it anew.
            if (one.exited_ns == 0) end_ns = writer_end_ns(snapshot.sessions(), boot.boot_index, one.first_seen_ns);
            const Window run{std::max(boot.monotonic.from_ns, started_ns(one.key, boot.clock)),
                             std::min(boot.monotonic.to_ns, end_ns.value_or(UINT64_MAX))};
            uint64_t recorded_ns = 0;
            for (const Session& session : snapshot.sessions()) {
                if (session.boot_index != boot.boot_index || session.first_covered_ns == 0) continue;
                const Window recorded{std::max(run.from_ns, session.first_covered_ns),
                                      std::min(run.to_ns, session.last_covered_ns)};
                recorded_ns = saturating_add(recorded_ns, recorded.length_ns());
            }
            longest_ns = std::max(longest_ns, recorded_ns);
        }
    }
    return longest_ns;
}

/// Of stragglers: whether a rank of the program is late again, and whether enough ranges were recorded to decide.
Result<void> verify_straggler(const StoreSnapshot& snapshot, const Filter& filter, const std::set<uint32_t>& pids,
                              IncidentVerified& verified) {
    const auto answer = compute_stragglers(snapshot, {.window = verified.fresh, .uid = filter.uid, .pid = {}}, {});
    if (!answer) return tl::unexpected(answer.error());
    uint64_t ranges = 0;
    bool late = false;
    for (const StragglersAnswer::Boot& boot : answer->boots) {
        for (const auto& [hash, totals] : boot.communicators)
            for (const auto& [key, member] : totals.members)
                if (pids.contains(key.first.pid)) ranges = std::max(ranges, member.ranges);
        for (const StragglerEpisode& episode : boot.episodes) {
            if (!pids.contains(episode.process.pid)) continue;
            late = true;
            verified.lost_ns = saturating_add(verified.lost_ns, episode.lost_ns);
        }
    }
    if (late) {
        verified.fixed = Fixed::no;
        verified.why = "a rank of the program keeps coming last: others lost " + format_duration(verified.lost_ns);
    } else if (ranges < StragglerOptions().ranges) {
        verified.why = "only " + std::to_string(ranges) + " rounds of collectives were recorded since; " +
                       std::to_string(StragglerOptions().ranges) + " are needed";
    } else {
        verified.fixed = Fixed::yes;
        verified.why = "no rank of the program kept coming last in " + std::to_string(ranges) + " rounds";
    }
    return {};
}

}  // namespace

Result<IncidentVerified> verify_incident(const StoreSnapshot& snapshot, const Filter& filter,
                                         const IncidentHistory& incident, Window fresh) {
    IncidentVerified verified;
    const Window whole = whole_trace(snapshot);
    if (fresh.length_ns() == 0) fresh = {incident.closed_ns.value_or(incident.updated_ns), whole.to_ns};
    // What was before it is over cannot speak for it.
    fresh.from_ns = std::max(fresh.from_ns, incident.closed_ns.value_or(incident.opened_ns));
    verified.fresh = fresh;
    if (incident.finding.is_object())
        if (const auto share = incident.finding.find("window_share");
            share != incident.finding.end() && share->is_number())
            verified.share_before = share->get<double>();
    if (fresh.length_ns() == 0 || fresh.from_ns >= whole.to_ns) {
        verified.fresh.to_ns = std::max(fresh.from_ns, fresh.to_ns);
        verified.why = "nothing was recorded after the incident";
        return verified;
    }
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());
    std::set<uint32_t> pids = pids_like(*processes, incident);
    auto answer = explain(snapshot, {.window = fresh, .uid = filter.uid, .pid = {}});
    if (!answer) return tl::unexpected(answer.error());
    verified.coverage = std::move(answer->coverage);
    const std::string& kind = incident.latest.kind;
    const Finding* const again = find_again(answer->findings, incident, pids, verified);
    std::string whose = " of the program";
    if (kind == "device-fault") {
        // Its own process says nothing of it: the context accepts no more work, whatever is still called.
        pids.erase(incident.latest.process.pid);
        whose = " of other processes of the program";
    }
    for (const ExcessGroup& group : answer->by_process)
        if (pids.contains(group.pid)) verified.calls += group.sums.calls;
    if (again && kind != "straggler" && stays(*again, verified)) {
        verified.fixed = Fixed::no;
        verified.why = again->summary;
        return verified;
    }
    if (verified.coverage.lost > answer->calls / lossy_from) {
        verified.why = "too many calls were lost since: " + std::to_string(verified.coverage.lost);
        return verified;
    }
    const uint64_t needed_ns = time_to_verify_ns(incident);
    if (verified.calls < enough_calls_to_verify || fresh.length_ns() < enough_time_to_verify_ns) {
        verified.why = "only " + some_calls(verified.calls) + whose + " in " + format_duration(fresh.length_ns()) +
                       " since; " + some_calls(enough_calls_to_verify) + " and " + format_duration(needed_ns) +
                       " are needed";
        return verified;
    }
    if (kind == "straggler") {
        if (auto done = verify_straggler(snapshot, filter, pids, verified); !done) return tl::unexpected(done.error());
        return verified;
    }
    if (shows_once(kind)) {
        const auto run_ns = longest_run_ns(snapshot, *processes, pids, fresh);
        if (!run_ns) return tl::unexpected(run_ns.error());
        if (*run_ns < needed_ns)
            verified.why = "the program ran for " + format_duration(ran_before_ns(incident)) + " before " + kind +
                           " showed; its longest run since took " + format_duration(*run_ns) + ", and " +
                           format_duration(needed_ns) + " are needed";
        // A collective that some wait in may be the next hang, or not.
        if (again && kind == "nccl-hang") verified.why = again->summary;
        if (!verified.why.empty()) return verified;
    }
    verified.fixed = Fixed::yes;
    verified.why = (again ? "little " : "no ") + kind + " in " + some_calls(verified.calls) + whose + " since";
    if (again) verified.why += ": " + percent_text(verified.share) + " of the window";
    return verified;
}

}  // namespace ingero
