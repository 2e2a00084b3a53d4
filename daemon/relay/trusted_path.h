// Which files of the system a program with rights may run code of: those that root alone can change.
#pragma once

#include <string>

#include "core/model/result.h"

namespace ingero {

/// Follows the path, symbolic links too: each folder, each link and the file must be root's and writable by no other.
/// Errors: not_found, denied (the message names what is not root's), bad_request (not absolute, too many links).
Result<void> check_trusted_path(const std::string& path);

}  // namespace ingero
