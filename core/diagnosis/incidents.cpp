#include "core/diagnosis/incidents.h"

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
    unsigned passes = 0;  ///< with more time lost, since the finding came; while no incident is open
    uint64_t lost_ns = 0;
    uint64_t last_seen_ns = 0;  ///< CLOCK_MONOTONIC
    std::optional<Incident> incident;
    Incident told;  ///< as it was when a change was last handed out
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
}

}  // namespace

struct IncidentTracker::Impl {
    std::string boot_id;
    IncidentOptions options;
    std::map<Subject, Watched> watched;
    std::vector<Subject> open;  ///< in order of opening
    uint64_t refused = 0;

    bool grown(const Watched& one) const {
        const Incident& now = *one.incident;
        return now.severity != one.told.severity || now.verdict != one.told.verdict ||
               static_cast<double>(now.lost_ns) >= static_cast<double>(one.told.lost_ns) * (1 + options.update_growth);
    }

    void see(const Finding& finding, const ClockTriple& now, std::vector<IncidentChange>& changes) {
        const Subject subject{finding.kind, finding.worst.event.process()};
        Watched& one = watched[subject];
        one.lost_ns += finding.newly_lost_ns;
        if (one.incident) {
            // What is still in the window but was all seen before keeps nothing open.
            if (finding.newly_lost_ns == 0) return;
            one.last_seen_ns = now.monotonic_ns;
            take_over(*one.incident, finding);
            one.incident->lost_ns = one.lost_ns;
            if (!grown(one)) return;
            one.told = *one.incident;
            changes.push_back({IncidentChange::What::updated, one.told});
            return;
        }
        one.last_seen_ns = now.monotonic_ns;
        if (finding.newly_lost_ns != 0) ++one.passes;
        if (one.passes < options.passes_to_open && finding.severity < Severity::high) return;
        if (open.size() >= options.max_open) {
            ++refused;
            return;
        }
        Incident incident;
        incident.kind = finding.kind;
        incident.process = subject.second;
        incident.opened_realtime_ns = now.realtime_ns;
        incident.id =
            hex_id(finding.kind + '\0' + std::to_string(subject.second.pid) + '\0' +
                   std::to_string(subject.second.start_ns) + '\0' + std::to_string(now.monotonic_ns) + '\0' + boot_id);
        take_over(incident, finding);
        incident.lost_ns = one.lost_ns;
        one.incident = one.told = std::move(incident);
        open.push_back(subject);
        changes.push_back({IncidentChange::What::opened, one.told});
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
    for (const Finding& finding : findings) {
        const auto known = impl_->watched.find({finding.kind, finding.worst.event.process()});
        const bool open = known != impl_->watched.end() && known->second.incident;
        if (!is_evidence(finding) || (!open && finding.severity < impl_->options.open_from)) continue;
        impl_->see(finding, now, changes);
    }
    // What this pass did not have begins anew.
    std::erase_if(impl_->watched,
                  [&](const auto& one) { return !one.second.incident && one.second.last_seen_ns != now.monotonic_ns; });
    impl_->close_quiet(now, changes);
    return changes;
}

std::vector<Incident> IncidentTracker::open() const {
    std::vector<Incident> result;
    for (const Subject& subject : impl_->open) result.push_back(*impl_->watched.at(subject).incident);
    return result;
}

bool IncidentTracker::waiting() const {
    return !impl_->watched.empty();
}

uint64_t IncidentTracker::refused() const {
    return impl_->refused;
}

}  // namespace ingero
