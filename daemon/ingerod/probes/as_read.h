// A file that is attached to must be the one whose functions were looked for: a probe elsewhere changes the program.
#pragma once

#include <sys/stat.h>

#include <span>

#include "daemon/ingerod/probes/attach/targets.h"

namespace ingero {

/// The file is what it was when its symbols were asked for, and has the bytes that the worker saw. Both, since a time
/// stamp may be as coarse as a tick, and what is written through a shared mapping may come without one.
bool is_as_read(int fd, const struct stat& read_as, std::span<const ProbeSite> sites);

/// The same for as long as it is attached to, when its name, owner and rights may have changed.
bool has_same_content(int fd, const struct stat& first, std::span<const ProbeSite> sites);

}  // namespace ingero
