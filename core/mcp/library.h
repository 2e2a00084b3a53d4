// Prompts and resources: what a client can put into a conversation besides the answers of tools.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/mcp/message.h"
#include "core/mcp/tool.h"

namespace ingero::mcp {

/// As prompts/list and resources/list have them.
nlohmann::json describe_prompts(std::string_view revision);
nlohmann::json describe_resources(std::string_view revision);

/// The result of prompts/get. Errors: invalid_params.
tl::expected<nlohmann::json, RpcError> get_prompt(const nlohmann::json& params);

/// One element of the contents of resources/read. The schema is asked of the source. Errors: not_found, and those of
/// the source.
Result<nlohmann::json> resource_contents(const std::string& uri, Source& source);

}  // namespace ingero::mcp
