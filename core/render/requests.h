// Requests and training steps as a user reads them; see render.h.
#pragma once

#include "core/diagnosis/requests.h"
#include "core/render/render.h"

namespace ingero {

/// docs/schemas/requests.schema.json.
nlohmann::json to_json(const RequestsAnswer& answer, const AnswerContext& context);
/// The two notes, a line a request, and the first one in full. As the texts of render.h.
std::string text_requests(const nlohmann::json& answer, const TextStyle& style = {});

}  // namespace ingero
