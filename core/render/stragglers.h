// Ranks that come late, as a user reads of them; see render.h.
#pragma once

#include "core/diagnosis/stragglers.h"
#include "core/render/render.h"

namespace ingero {

/// docs/schemas/stragglers.schema.json.
nlohmann::json to_json(const StragglersAnswer& answer, const AnswerContext& context);
std::string text_stragglers(const nlohmann::json& answer, const TextStyle& style = {});

/// `options` of the answer, and of a request to a worker.
nlohmann::json straggler_options_json(const StragglerOptions& options);
/// Null: the defaults. Errors: bad_request.
Result<StragglerOptions> straggler_options(const nlohmann::json& options);

}  // namespace ingero
