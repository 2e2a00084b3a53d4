// Calls as `ingeroctl trace` shows them. On the wire a chunk of them is columns and rows (docs/control-protocol.md);
// for a reader each is an object of docs/schemas/trace.schema.json, or a line of text.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/in_flight_call.h"
#include "core/render/render.h"

namespace ingero {

/// A finished call, or one in flight.
struct TracedCall {
    Event call;
    uint64_t start_realtime_ns = 0;
    std::string comm;                        ///< of the process; may be empty
    std::optional<std::string> kernel;       ///< of a launch
    std::optional<ThreadActivity> activity;  ///< in flight: what its thread does
    uint64_t activity_ns = 0;                ///< for how long; 0: not known
};

/// {"columns": [names], "rows": [[values]], "skipped": calls left out before these rows}.
nlohmann::json trace_chunk(const std::vector<TracedCall>& calls, uint64_t skipped);

/// Each row of a chunk as an object with schema and node, in order; first one of event "skipped" where calls were left
/// out. What is no chunk gives nothing. Does not throw.
std::vector<nlohmann::json> trace_lines(const nlohmann::json& chunk, std::string_view node);
/// One line of text, with a newline. Does not throw.
std::string text_trace(const nlohmann::json& line, const TextStyle& style = {});

}  // namespace ingero
