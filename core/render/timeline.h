// A timeline as JSON; see render.h.
#pragma once

#include <string>
#include <vector>

#include "core/query/answers/timeline.h"
#include "core/render/render.h"

namespace ingero {

/// docs/worker.md. `kernels`: of each call the function that it launches, empty where it is none or not known.
nlohmann::json to_json(const TimelineAnswer& answer, const AnswerContext& context,
                       const std::vector<std::string>& kernels);

}  // namespace ingero
