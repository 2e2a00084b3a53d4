// Incidents as a user reads them; see render.h.
#pragma once

#include <string>
#include <vector>

#include "core/diagnosis/explain.h"
#include "core/diagnosis/incidents/incident_history.h"
#include "core/diagnosis/incidents/incidents.h"
#include "core/render/render.h"

namespace ingero {

/// A change as the store keeps it, without the user, and without the finding and what goes with it. `now` is when the
/// change was reported.
IncidentRow incident_row(const IncidentChange& change, const ClockTriple& now);
/// One of `findings` in docs/schemas/explain.schema.json; `coverage` is null where the answer around it has it.
nlohmann::json finding_json(const Finding& finding, const nlohmann::json& coverage);
/// What a stored incident's finding says besides: where its worst call is.
nlohmann::json worst_json(const Finding& finding);
/// `chains` of docs/schemas/waits.schema.json, and their text.
nlohmann::json chains_json(const std::vector<WaitChain>& chains);
std::string text_chains(const nlohmann::json& chains, const TextStyle& style);

/// docs/schemas/incidents.schema.json.
nlohmann::json incidents_json(const std::vector<IncidentHistory>& incidents, const AnswerContext& context,
                              const Window& realtime, const Coverage& coverage);
std::string text_incidents(const nlohmann::json& answer, const TextStyle& style = {});

/// The member `detail` of docs/schemas/incident.schema.json, as it is also kept with the incident.
nlohmann::json detail_json(const IncidentDetail& detail, const ClockTriple& clock);
/// docs/schemas/incident.schema.json. Where `detail` is empty, what was kept with the incident stands for it.
nlohmann::json incident_json(const IncidentHistory& incident, const IncidentDetail& detail,
                             const AnswerContext& context, const Coverage& coverage);
std::string text_incident(const nlohmann::json& answer, const TextStyle& style = {});

/// docs/schemas/incident-verify.schema.json.
nlohmann::json verified_json(const IncidentHistory& incident, const IncidentVerified& verified,
                             const AnswerContext& context);
std::string text_verified(const nlohmann::json& answer, const TextStyle& style = {});

/// Two answers of explain with slices, compared: docs/schemas/explain-diff.schema.json. Errors: bad_request (one has
/// no slices).
Result<nlohmann::json> explain_diff(const nlohmann::json& a, const nlohmann::json& b);
std::string text_explain_diff(const nlohmann::json& answer, const TextStyle& style = {});

/// The groups of an answer of explain: by_process, by_gpu.
std::string text_excess_by_process(const nlohmann::json& answer, const TextStyle& style = {});
std::string text_excess_by_gpu(const nlohmann::json& answer, const TextStyle& style = {});

}  // namespace ingero
