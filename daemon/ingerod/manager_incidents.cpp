// Reports what the live diagnosis found: on D-Bus, in the journal, and in the store, which keeps an incident's history.
#include <syslog.h>

#include <algorithm>

#include "core/diagnosis/stragglers.h"
#include "core/render/incidents.h"
#include "core/wire/utf8.h"
#include "daemon/ingerod/manager.h"

namespace ingero {

using nlohmann::json;

namespace {

/// How long the rows that outlive their calls are waited for.
constexpr uint64_t detail_wait_us = 1'000'000;

/// Within what a row holds: the waits' chains go first, then the rows.
std::string text_of(json& finding) {
    std::string text;
    for (const char* part : {"", "chains", "rows", "evidence"}) {
        if (*part != 0 && finding.contains("detail")) finding["detail"][part] = json::array();
        text = finding.dump(-1, ' ', true, json::error_handler_t::replace);
        if (text.size() <= max_finding_bytes) break;
    }
    return text;
}

/// Flat, as D-Bus carries it.
json details_of(const StragglerEpisode& episode) {
    json details = {{"pid", visible_pid(episode.process.pid)},
                    {"late", episode.late},
                    {"of_ranges", episode.of_ranges},
                    {"local_ranks", episode.local_ranks}};
    if (episode.rank) details["rank"] = *episode.rank;
    if (episode.ranks) details["ranks"] = *episode.ranks;
    if (const MeanwhilePart* cause = episode.cause()) {
        details["cause"] = cause->kind;
        if (!cause->name.empty()) details["culprit"] = to_valid_utf8(cause->name);
        if (cause->pid != 0) details["culprit_pid"] = cause->pid;
    }
    if (!episode.conditions.empty()) {
        details["condition"] = episode.conditions[0].kind;
        details["condition_text"] = to_valid_utf8(episode.conditions[0].text);
    }
    return details;
}

/// As io.ingero.Ingero1(5) has its signals, with times in ns.
json notice_of(const IncidentChange& change) {
    const Incident& incident = change.incident;
    json notice = {{"id", incident.id}, {"severity", to_string(incident.severity)}};
    switch (change.what) {
        case IncidentChange::What::opened:
            notice["event"] = "incident-opened";
            notice["kind"] = incident.kind;
            notice["summary"] = to_valid_utf8(incident.summary);
            return notice;
        case IncidentChange::What::updated:
            notice["event"] = "incident-updated";
            notice["lost_ns"] = incident.lost_ns;
            notice["explained_fraction"] = incident.explained_fraction;
            return notice;
        case IncidentChange::What::closed:
            break;
    }
    notice["event"] = "incident-closed";
    notice["lost_ns"] = incident.lost_ns;
    notice["at_ns"] = incident.closed_realtime_ns;
    return notice;
}

json notice_of(const Straggler& straggler) {
    return {{"event", "straggler-detected"},
            {"id", straggler.id},
            {"scope", straggler.scope},
            {"subject", to_valid_utf8(straggler.subject)},
            {"lateness_ns", straggler.lateness_ns},
            {"threshold_ns", straggler.threshold_ns},
            {"since_ns", straggler.since_realtime_ns},
            {"details", straggler.details}};
}

}  // namespace

void Manager::on_pass(const DiagnosisPass& pass) {
    for (const IncidentChange& change : incidents_.observe(pass.findings, pass.at)) report(change, pass.at);
    on_stragglers(pass);
    // The end of an episode is found by a pass, also of one that is no incident.
    live_->keep_awake(incidents_.waiting() || !straggler_owners_.empty());
}

void Manager::on_stragglers(const DiagnosisPass& pass) {
    const auto put = [&](const StragglerEpisode& episode, const std::string& comm, bool is_over = false) {
        const Finding finding = straggler_finding(episode, comm, pass.at);
        if (const auto change = incidents_.put(episode.id, finding, pass.at, is_over)) report(*change, pass.at);
    };
    // Its process may be forgotten before it is over.
    const auto owner_of = [&](const StragglerEpisode& episode) -> StragglerOwner {
        if (const auto known = process_of(episode.process)) return {known->uid, known->comm};
        const auto before = straggler_owners_.find(episode.id);
        return before == straggler_owners_.end() ? StragglerOwner() : before->second;
    };
    for (const auto& [resolved, episode] : pass.stragglers) {
        const auto [uid, comm] = owner_of(episode);
        // What it lost since the latest pass counts too.
        put(episode, comm, resolved);
        if (!resolved) {
            straggler_owners_[episode.id] = {uid, comm};
            const Straggler straggler = {.id = episode.id,
                                         .scope = "local",
                                         .subject = rank_text(episode, comm),
                                         .lateness_ns = episode.lateness_ns,
                                         .threshold_ns = episode.threshold_ns,
                                         .since_realtime_ns = pass.at.to_realtime(episode.since_ns),
                                         .details = details_of(episode)};
            if (on_straggler_) on_straggler_(straggler);
            notices_.send(notice_of(straggler), uid);
            continue;
        }
        const uint64_t at_ns = pass.at.to_realtime(episode.resolved_ns);
        if (auto change = incidents_.end(episode.id, at_ns)) {
            // The rank may have been late for the last time before the pass that opened its incident.
            Incident& incident = change->incident;
            incident.closed_realtime_ns = std::max(incident.closed_realtime_ns, incident.opened_realtime_ns);
            report(*change, pass.at);
        }
        straggler_owners_.erase(episode.id);
        if (on_straggler_resolved_) on_straggler_resolved_(episode.id, at_ns);
        notices_.send({{"event", "straggler-resolved"}, {"id", episode.id}, {"at_ns", at_ns}}, uid);
    }
    for (const StragglerEpisode& episode : pass.late_now) put(episode, owner_of(episode).comm);
}

void Manager::report(const IncidentChange& change, const ClockTriple& now) {
    const Incident& incident = change.incident;
    const std::vector<JournalField> fields = {{"INGERO_INCIDENT_ID", incident.id},
                                              {"INGERO_KIND", incident.kind},
                                              {"INGERO_PID", std::to_string(incident.process.pid)},
                                              {"INGERO_LOST_USEC", std::to_string(incident.lost_ns / 1'000)}};
    if (change.what == IncidentChange::What::opened)
        journal_.send(incident.kind == "straggler" ? MessageKind::straggler_detected : MessageKind::incident_opened,
                      LOG_WARNING, escape_text(incident.summary), fields);
    if (change.what == IncidentChange::What::closed)
        journal_.send(MessageKind::incident_closed, LOG_NOTICE,
                      incident.kind + " of " + escape_text(incident.comm) + " (pid " +
                          std::to_string(incident.process.pid) + ") is over: " + format_duration(incident.lost_ns) +
                          " lost in all",
                      fields);
    const uint32_t uid = store(change, now);
    if (on_incident_) on_incident_(change);
    notices_.send(notice_of(change), uid);
}

/// Of one that has just ended too: an incident may open after that, and is its owner's.
std::optional<Process> Manager::process_of(const ProcessKey& key) const {
    if (const ProcessEntry* known = processes_->find(key)) return known->process;
    return live_->process(key);
}

uint32_t Manager::store(const IncidentChange& change, const ClockTriple& now) {
    const Incident& incident = change.incident;
    IncidentProcess& process = incident_processes_[incident.id];
    if (const auto known = process_of(incident.process)) {
        process.uid = known->uid;
        process.comm = known->comm;
    }
    // It names the owner's requests.
    if (incident.finding.owner.pid != 0) process.uid = incident.finding.owner_uid;
    IncidentRow row = incident_row(change, now);
    // Of an incident the latest row says all.
    row.at_ns = std::max(row.at_ns, process.row.at_ns);
    row.uid = process.uid;
    json finding = finding_json(incident.finding, nullptr);
    finding["worst"] = worst_json(incident.finding);
    const uint64_t worst = incident.finding.worst.event.start_ns;
    const bool is_new = process.worst != worst || process.detail.is_null();
    if (!is_new) finding["detail"] = process.detail;
    process.worst = worst;
    row.finding = text_of(finding);
    process.row = row;
    ingest_->put_incident(row);
    // The rows around the worst of it outlive the calls, which are thinned and in the end deleted.
    if (is_new && change.what != IncidentChange::What::updated) keep_detail(row);
    if (change.what == IncidentChange::What::closed) incident_processes_.erase(incident.id);
    return row.uid;
}

void Manager::keep_detail(const IncidentRow& row) {
    after_commit(detail_wait_us, [this, row, alive = alive_] {
        if (!*alive) return;
        workers_->request(no_user, "incidents", {{"id", row.id}, {"whole_trace", true}}, std::nullopt,
                          [this, row, alive](const Result<json>& answer) {
                              if (!*alive || !answer || !answer->is_object() || !answer->contains("detail") ||
                                  answer->value("detail_from", json()) != "store")
                                  return;
                              const auto open = incident_processes_.find(row.id);
                              IncidentRow latest = open == incident_processes_.end() ? row : open->second.row;
                              json finding = json::parse(latest.finding, nullptr, false);
                              const json& detail = (*answer)["detail"];
                              if (!finding.is_object() || !detail.is_object()) return;
                              finding["detail"] = detail;
                              latest.finding = text_of(finding);
                              if (latest.event == IncidentEvent::opened) latest.event = IncidentEvent::updated;
                              if (open != incident_processes_.end()) {
                                  open->second.detail = detail;
                                  open->second.row = latest;
                              }
                              ingest_->put_incident(std::move(latest));
                          });
    });
}

}  // namespace ingero
