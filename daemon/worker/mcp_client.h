// A worker that speaks MCP with one client, and asks its daemon for what the store does not have.
#pragma once

#include <cstdint>
#include <optional>

#include "core/model/result.h"
#include "daemon/worker/requests.h"

namespace ingero {

/// Until the client or the daemon has gone. Answers are of the processes of `uid`, nullopt: of all. Errors: internal,
/// bad_request (the daemon is out of step).
Result<void> serve_mcp_client(RequestHandler& handler, std::optional<uint32_t> uid);

}  // namespace ingero
