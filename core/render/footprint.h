// A footprint as JSON, docs/schemas/footprint.schema.json, and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/model/process/footprint.h"
#include "core/render/render.h"

namespace ingero {

/// Without `ended`, which only who recorded it knows.
nlohmann::json footprint_json(const Footprint& footprint, const std::string& node);
/// What took longest and was touched most, and how much more there is.
std::string text_footprint(const nlohmann::json& answer, const TextStyle& style = {});

}  // namespace ingero
