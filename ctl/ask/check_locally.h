// `ingerod --check`, where no daemon answers.
#pragma once

#include <nlohmann/json.hpp>

#include "ctl/command.h"

namespace ingero::ctl {

/// docs/schemas/check.schema.json, with the rights of the caller. `probe`: a program is traced too. Errors: internal,
/// deadline.
Result<nlohmann::json> check_locally(const Options& options, bool probe);

}  // namespace ingero::ctl
