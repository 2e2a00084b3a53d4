// Incidents of a store, as `ingeroctl incidents` and `explain --incident` show them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/query/answers/stats.h"
#include "core/render/render.h"
#include "core/store/store.h"

namespace ingero {

/// docs/schemas/incidents.schema.json; `limit` 0: all.
Result<nlohmann::json> incidents_answer(const StoreSnapshot& snapshot, const Filter& filter, size_t limit,
                                        const AnswerContext& context);
/// docs/schemas/incident.schema.json.
Result<nlohmann::json> incident_answer(const StoreSnapshot& snapshot, const Filter& filter, const std::string& id,
                                       const AnswerContext& context);
/// docs/schemas/incident-verify.schema.json. `fresh`: to look at no other time.
Result<nlohmann::json> incident_verify_answer(const StoreSnapshot& snapshot, const Filter& filter,
                                              const std::string& id, const std::optional<Window>& fresh,
                                              const AnswerContext& context);

}  // namespace ingero
