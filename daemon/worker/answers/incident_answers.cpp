#include "daemon/worker/answers/incident_answers.h"

#include "core/diagnosis/incidents/incident_history.h"
#include "core/render/incidents.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t max_incidents = 1'000;

}  // namespace

Result<json> incidents_answer(const StoreSnapshot& snapshot, const Filter& filter, size_t limit,
                              const AnswerContext& context) {
    auto incidents = read_incidents(snapshot, filter);
    if (!incidents) return tl::unexpected(incidents.error());
    const size_t most = limit == 0 ? max_incidents : std::min(limit, max_incidents);
    if (incidents->size() > most) incidents->resize(most);
    const auto covered = coverage(snapshot, filter.window, {.uid = filter.uid, .pid = filter.pid});
    if (!covered) return tl::unexpected(covered.error());
    return incidents_json(*incidents, context, filter.window, *covered);
}

Result<json> incident_answer(const StoreSnapshot& snapshot, const Filter& filter, const std::string& id,
                             const AnswerContext& context) {
    const auto incident = find_incident(snapshot, filter, id);
    if (!incident) return tl::unexpected(incident.error());
    const auto detail = read_incident_detail(snapshot, filter, *incident);
    if (!detail) return tl::unexpected(detail.error());
    const Window window{incident->opened_ns, incident->closed_ns.value_or(incident->updated_ns)};
    const auto covered = coverage(snapshot, window, {.uid = filter.uid, .pid = incident->latest.process.pid});
    if (!covered) return tl::unexpected(covered.error());
    return incident_json(*incident, *detail, context, *covered);
}

Result<json> incident_verify_answer(const StoreSnapshot& snapshot, const Filter& filter, const std::string& id,
                                    const std::optional<Window>& fresh, const AnswerContext& context) {
    const auto incident = find_incident(snapshot, filter, id);
    if (!incident) return tl::unexpected(incident.error());
    const auto verified = verify_incident(snapshot, filter, *incident, fresh.value_or(Window()));
    if (!verified) return tl::unexpected(verified.error());
    return verified_json(*incident, *verified, context);
}

}  // namespace ingero
