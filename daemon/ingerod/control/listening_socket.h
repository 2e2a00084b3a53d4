// A Unix socket of our own, where systemd passes none.
#pragma once

#include <sys/types.h>

#include <string>

#include "core/model/result.h"
#include "core/model/unique_fd.h"

namespace ingero {

/// Listens at `path` in place of a socket that nobody listens on any more. Errors: busy (another daemon
/// listens there), bad_request (a path too long), internal; each with a hint.
Result<UniqueFd> listen_at(const std::string& path, mode_t mode = 0666);

}  // namespace ingero
