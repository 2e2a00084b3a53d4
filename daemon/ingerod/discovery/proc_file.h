// A file of /proc, read whole.
#pragma once

#include <cstddef>
#include <string>

#include "core/model/result.h"

namespace ingero {

inline constexpr size_t max_proc_file = 16 << 20;

/// Up to some KiB more than `most` bytes. Errors: not_found, busy (no descriptor is left).
Result<std::string> read_proc_file(const std::string& path, size_t most = max_proc_file);
/// The same of one that is open, from where it stands; `path` is for the error's text.
Result<std::string> read_open_file(int fd, const std::string& path, size_t most = max_proc_file);

}  // namespace ingero
