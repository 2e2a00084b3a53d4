#include "core/diagnosis/incidents/incidents.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

namespace ingero {

namespace {

/// The same trouble of the same process, whoever makes it at the moment.
using Subject = std::pair<std::string, ProcessKey>;

struct Watched {
    unsigned passes = 0;   ///< with more time lost, since the finding came; while no incident is open
    bool refused = false;  ///< it would have opened one, and there was no room
    uint64_t lost_ns = 0;
    uint64_t last_seen_ns = 0;  ///< CLOCK_MONOTONIC
    std::optional<Incident> incident;
    Incident reported;  ///< as it was when a change was last returned
};

/// What one pass has of a subject.
struct Seen {
    Finding finding;                ///< of several the one that lost the most, with what is new of all
    uint64_t in_calls_ns = 0;       ///< newly lost, by threads of which each has its own
    uint64_t between_calls_ns = 0;  ///< the same by the device that lost the most: others waited meanwhile

    explicit Seen(const Finding& first) : finding(first) {}
    void add(const Finding& one) {
        if (one.between_calls)
            between_calls_ns = std::max(between_calls_ns, one.newly_lost_ns);
        else
            in_calls_ns = saturating_add(in_calls_ns, one.newly_lost_ns);
        const uint64_t newly_waited_ns = std::max(finding.newly_waited_ns, one.newly_waited_ns);
        if (one.lost_ns > finding.lost_ns) finding = one;
        finding.newly_lost_ns = saturating_add(in_calls_ns, between_calls_ns);
        finding.newly_waited_ns = newly_waited_ns;
    }
};

bool is_evidence(const Finding& finding) {
    return finding.verdict == Verdict::proven || finding.verdict == Verdict::partial;
}

std::string hex_id(const std::string& text) {
    char hex[17];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH64(text.data(), text.size(), 0)));
    return hex;
}

void take_over(Incident& incident, const Finding& finding) {
    // Severity is the worst there was: an incident that fades is no lesser one.
    incident.severity = std::max(incident.severity, finding.severity);
    incident.verdict = finding.verdict;
    incident.summary = finding.summary;
    incident.comm = finding.comm;
    incident.explained_fraction = finding.explained_fraction;
    incident.culprits = finding.culprits;
    if (finding.worst.excess_ns >= incident.finding.worst.excess_ns) incident.finding = finding;
}

}  // namespace

struct IncidentTracker::Impl {
    std::string boot_id;
    IncidentOptions options;
    std::map<Subject, Watched> watched;
    std::vector<Subject> open;                       ///< in order of opening
    std::vector<std::pair<Incident, Incident>> put;  ///< as it is, and as last reported; in order of opening
    uint64_t refused = 0;

    bool grown(const Incident& now, const Incident& reported) const {
        const double enough_ns = static_cast<double>(reported.lost_ns) * (1 + options.update_growth);
        return now.severity != reported.severity || now.verdict != reported.verdict ||
               (now.lost_ns > reported.lost_ns && static_cast<double>(now.lost_ns) >= enough_ns);
    }
    bool is_full() {
        if (open.size() + put.size() < options.max_open) return false;
        ++refused;
        return true;
    }

    void see(const Finding& finding, const ClockTriple& now, std::vector<IncidentChange>& changes) {
        const Subject subject{finding.kind, finding.owning_process()};
        Watched& one = watched[subject];
        one.lost_ns += finding.newly_lost_ns;
        if (one.incident) {
            // A finding that is still in the window but has nothing new keeps no incident open.
            // What a wait costs is reported only once its cycle has ended, which may take longer than a quiet time.
            const bool waits_on = finding.newly_waited_ns != 0 && finding.severity > Severity::low;
            if (!waits_on && finding.newly_lost_ns == 0) return;
            one.last_seen_ns = now.monotonic_ns;
            take_over(*one.incident, finding);
            one.incident->lost_ns = one.lost_ns;
            if (!grown(*one.incident, one.reported)) return;
            one.reported = *one.incident;
            changes.push_back({IncidentChange::What::updated, one.reported});
            return;
        }
        one.last_seen_ns = now.monotonic_ns;
        if (finding.newly_lost_ns != 0) ++one.passes;
        // What has grown graver only since the window moved on is over.
        const bool is_new = finding.newly_lost_ns != 0 || finding.newly_waited_ns != 0;
        if (one.passes < options.passes_to_open && (finding.severity < Severity::high || !(is_new || one.refused)))
            return;
        one.refused = is_full();
        if (one.refused) return;
        Incident incident;
        incident.kind = finding.kind;
        incident.process = subject.second;
        incident.opened_monotonic_ns = now.monotonic_ns;
        incident.opened_realtime_ns = now.realtime_ns;
        incident.id =
            hex_id(finding.kind + '\0' + std::to_string(subject.second.pid) + '\0' +
                   std::to_string(subject.second.start_ns) + '\0' + std::to_string(now.monotonic_ns) + '\0' + boot_id);
        take_over(incident, finding);
        incident.lost_ns = one.lost_ns;
        one.incident = one.reported = std::move(incident);
        open.push_back(subject);
        changes.push_back({IncidentChange::What::opened, one.reported});
    }

    void close_quiet(const ClockTriple& now, std::vector<IncidentChange>& changes) {
        for (auto subject = open.begin(); subject != open.end();) {
            const auto found = watched.find(*subject);
            Watched& one = found->second;
            const uint64_t quiet_ns = now.monotonic_ns - one.last_seen_ns;
            if (quiet_ns < options.quiet_to_close_ns) {
                ++subject;
                continue;
            }
            one.incident->closed_realtime_ns = now.realtime_ns - quiet_ns;
            changes.push_back({IncidentChange::What::closed, *one.incident});
            watched.erase(found);
            subject = open.erase(subject);
        }
    }
};

IncidentTracker::IncidentTracker(std::string boot_id, IncidentOptions options) : impl_(std::make_unique<Impl>()) {
    impl_->boot_id = std::move(boot_id);
    impl_->options = options;
}

IncidentTracker::~IncidentTracker() = default;

std::vector<IncidentChange> IncidentTracker::observe(const std::vector<Finding>& findings, const ClockTriple& now) {
    std::vector<IncidentChange> changes;
    // A process may have several findings of one kind, of several devices or in calls and between them: one incident.
    std::vector<Seen> seen;
    std::map<Subject, size_t> places;
    for (const Finding& finding : findings) {
        if (finding.kind == impl_->options.put_kind) continue;
        const Subject subject{finding.kind, finding.owning_process()};
        const auto known = impl_->watched.find(subject);
        const bool open = known != impl_->watched.end() && known->second.incident;
        if (!is_evidence(finding) || (!open && finding.severity < impl_->options.open_from)) continue;
        const auto [place, is_first] = places.try_emplace(subject, seen.size());
        if (is_first) seen.emplace_back(finding);
        seen[place->second].add(finding);
    }
    for (const Seen& one : seen) impl_->see(one.finding, now, changes);
    // What this pass did not have begins anew.
    std::erase_if(impl_->watched,
                  [&](const auto& one) { return !one.second.incident && one.second.last_seen_ns != now.monotonic_ns; });
    impl_->close_quiet(now, changes);
    return changes;
}

std::optional<IncidentChange> IncidentTracker::put(const std::string& id, const Finding& finding,
                                                   const ClockTriple& now, bool is_over) {
    auto& all = impl_->put;
    const auto known = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first.id == id; });
    const bool is_new = known == all.end();
    if (is_new && (is_over || finding.severity < impl_->options.open_from || impl_->is_full())) return std::nullopt;
    auto& [incident, reported] = is_new ? all.emplace_back() : *known;
    take_over(incident, finding);
    incident.finding = finding;
    incident.lost_ns = finding.lost_ns;
    if (!is_new) {
        if (!impl_->grown(incident, reported)) return std::nullopt;
        reported = incident;
        return IncidentChange{IncidentChange::What::updated, incident};
    }
    incident.id = id;
    incident.kind = finding.kind;
    incident.process = finding.owning_process();
    incident.opened_monotonic_ns = now.monotonic_ns;
    incident.opened_realtime_ns = now.realtime_ns;
    reported = incident;
    return IncidentChange{IncidentChange::What::opened, incident};
}

std::optional<IncidentChange> IncidentTracker::end(const std::string& id, uint64_t at_realtime_ns) {
    auto& all = impl_->put;
    const auto known = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first.id == id; });
    if (known == all.end()) return std::nullopt;
    IncidentChange change{IncidentChange::What::closed, std::move(known->first)};
    all.erase(known);
    change.incident.closed_realtime_ns = at_realtime_ns;
    return change;
}

std::vector<Incident> IncidentTracker::open() const {
    std::vector<Incident> result;
    for (const auto& [incident, reported] : impl_->put) result.push_back(incident);
    for (const Subject& subject : impl_->open) result.push_back(*impl_->watched.at(subject).incident);
    return result;
}

bool IncidentTracker::waiting() const {
    return !impl_->watched.empty() || !impl_->put.empty();
}

uint64_t IncidentTracker::refused() const {
    return impl_->refused;
}

}  // namespace ingero
