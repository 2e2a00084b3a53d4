// Which file the probes of a file lie in. All containers of one image have files of their own, on an overlay each, and
// these are names of one file, in a layer that they share: attached to by each name, each call would be probed once for
// each container.
#pragma once

#include <functional>
#include <optional>

#include "daemon/ingerod/discovery/proc_fs.h"

namespace ingero {

/// Of an open file; nullopt where it cannot be said. From any thread; it may wait for whoever serves the file.
using RealFileOf = std::function<std::optional<FileId>(int fd)>;

/// `program`: find_real_file, which the result keeps; -1 where this kernel cannot have it (before Linux 5.17).
RealFileOf real_file_of(int program);

}  // namespace ingero
