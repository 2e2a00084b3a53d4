#include <algorithm>
#include <cmath>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/render/incidents.h"
#include "core/render/json/values.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

const char* event_text(IncidentEvent event) {
    switch (event) {
        case IncidentEvent::opened:
            return "opened";
        case IncidentEvent::updated:
            return "updated";
        case IncidentEvent::closed:
            return "closed";
        case IncidentEvent::not_kept:
            break;
    }
    return "unknown";
}

json to_json(const IncidentHistory& incident) {
    const IncidentRow& row = incident.latest;
    json culprits = json::array();
    for (const IncidentRow::Culprit& culprit : row.culprits)
        culprits.push_back(
            {{"name", to_valid_utf8(culprit.name)}, {"pid", pid_or_null(culprit.pid)}, {"ns", culprit.ns}});
    return {{"id", to_valid_utf8(row.id)},
            {"kind", to_valid_utf8(row.kind)},
            {"severity", to_valid_utf8(row.severity)},
            {"verdict", to_valid_utf8(row.verdict)},
            {"summary", to_valid_utf8(row.summary)},
            {"pid", pid_or_null(row.process.pid)},
            {"comm", text_or_null(incident.comm)},
            {"opened_ns", incident.opened_ns},
            {"updated_ns", incident.updated_ns},
            {"closed_ns", incident.closed_ns ? json(*incident.closed_ns) : json(nullptr)},
            {"lost_ns", row.lost_ns},
            {"explained_fraction", row.explained_permille / 1e3},
            {"culprits", std::move(culprits)}};
}

json row_json(const Event& event, const ClockTriple& clock, uint64_t worst) {
    json one = {{"id", event.sequence},
                {"op", op_name(event.op)},
                {"tid", event.tid},
                {"start_ns", clock.to_realtime(event.start_ns)},
                {"duration_ns", event.duration_ns},
                {"depth", event.depth},
                {"on_cpu_ns", event.on_cpu_ns()},
                {"runnable_ns", event.runnable_ns},
                {"blocked_ns", event.blocked_ns},
                {"blocked_on", nullptr},
                {"ran_instead", nullptr},
                {"worst", worst != 0 && event.sequence == worst}};
    if (event.blocked_reason != BlockedReason::none) one["blocked_on"] = std::string(to_string(event.blocked_reason));
    if (event.preemptor_tgid != 0 && event.preemptor_ns != 0)
        one["ran_instead"] = {{"name", to_valid_utf8(to_string_view(event.preemptor_comm))},
                              {"pid", pid_or_null(event.preemptor_tgid)},
                              {"ns", event.preemptor_ns}};
    return one;
}

json rows_json(const std::vector<Event>& events, const ClockTriple& clock, uint64_t worst) {
    json rows = json::array();
    for (const Event& event : events) rows.push_back(row_json(event, clock, worst));
    return rows;
}

IncidentEvent event_of(IncidentChange::What what) {
    switch (what) {
        case IncidentChange::What::opened:
            return IncidentEvent::opened;
        case IncidentChange::What::updated:
            return IncidentEvent::updated;
        case IncidentChange::What::closed:
            break;
    }
    return IncidentEvent::closed;
}

}  // namespace

IncidentRow incident_row(const IncidentChange& change, const ClockTriple& now) {
    const Incident& incident = change.incident;
    IncidentRow row;
    row.id = incident.id;
    row.event = event_of(change.what);
    row.at_ns = incident.closed_realtime_ns != 0 ? now.to_monotonic(incident.closed_realtime_ns) : now.monotonic_ns;
    row.opened_ns = incident.opened_monotonic_ns;
    row.kind = incident.kind;
    row.severity = to_string(incident.severity);
    row.verdict = to_string(incident.verdict);
    row.summary = incident.summary;
    row.process = incident.process;
    row.lost_ns = incident.lost_ns;
    row.explained_permille =
        static_cast<uint32_t>(std::lround(std::clamp(incident.explained_fraction, 0.0, 1.0) * 1'000));
    for (const Culprit& culprit : incident.culprits) row.culprits.push_back({culprit.name, culprit.pid, culprit.ns});
    return row;
}

json worst_json(const Finding& finding) {
    const Event& event = finding.worst.event;
    // For what is no call, report the time of the excess.
    const uint64_t length_ns = event.duration_ns != 0 ? event.duration_ns : finding.worst.excess_ns;
    return {{"call", event.sequence},
            {"tid", event.tid},
            {"from_ns", event.start_ns},
            {"to_ns", event.start_ns + length_ns}};
}

json incidents_json(const std::vector<IncidentHistory>& incidents, const AnswerContext& context, const Window& realtime,
                    const Coverage& coverage) {
    json result = answer_head("incidents", context, realtime, coverage);
    json list = json::array();
    for (const IncidentHistory& incident : incidents) list.push_back(to_json(incident));
    result["incidents"] = std::move(list);
    return result;
}

json detail_json(const IncidentDetail& detail, const ClockTriple& clock) {
    const bool empty = detail.around.length_ns() == 0;
    return {{"from_ns", empty ? json(nullptr) : json(clock.to_realtime(detail.around.from_ns))},
            {"to_ns", empty ? json(nullptr) : json(clock.to_realtime(detail.around.to_ns))},
            {"rows", rows_json(detail.rows, clock, detail.worst)},
            {"evidence", rows_json(detail.evidence, clock, detail.worst)},
            {"chains", chains_json(detail.chains)}};
}

json incident_json(const IncidentHistory& incident, const IncidentDetail& detail, const AnswerContext& context,
                   const Coverage& coverage) {
    const Window window{incident.opened_ns, incident.closed_ns.value_or(incident.updated_ns)};
    json result = answer_head("incident", context, window, coverage);
    json history = json::array();
    for (const IncidentHistory::Step& step : incident.steps)
        history.push_back({{"event", event_text(step.event)}, {"at_ns", step.at_ns}, {"lost_ns", step.lost_ns}});
    json finding = incident.finding;
    json kept;
    if (finding.is_object()) {
        kept = finding.value("detail", json());
        finding.erase("detail");
        finding.erase("worst");
        finding.erase("coverage");
    }
    result["incident"] = to_json(incident);
    result["history"] = std::move(history);
    result["finding"] = finding.empty() ? json(nullptr) : std::move(finding);
    const bool from_kept = detail.is_empty() && kept.is_object();
    result["detail_from"] = from_kept ? "incident" : "store";
    result["detail"] = from_kept ? std::move(kept) : detail_json(detail, incident.boot.clock);
    return result;
}

json verified_json(const IncidentHistory& incident, const IncidentVerified& verified, const AnswerContext& context) {
    json result = answer_head("incident-verify", context, verified.fresh, verified.coverage);
    result["incident"] = to_json(incident);
    result["state"] = std::string(to_string(verified.fixed));
    result["why"] = to_valid_utf8(verified.why);
    const json& finding = incident.finding;
    const json confirm = finding.is_object() ? finding.value("confirm", json()) : json();
    result["confirm"] = confirm.is_string() ? confirm : json(nullptr);
    result["calls"] = verified.calls;
    result["lost_ns"] = verified.lost_ns;
    result["window_share"] = verified.share;
    result["window_share_before"] = verified.share_before;
    return result;
}

}  // namespace ingero
