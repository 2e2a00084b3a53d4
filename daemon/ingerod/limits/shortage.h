// What failed because something of the host's is used up may work later: it is tried again, and no file's fault.
#pragma once

#include <fcntl.h>

#include <cerrno>

#include "core/model/unique_fd.h"

namespace ingero {

/// Descriptors or memory.
constexpr bool is_shortage(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/// Whether a file can be opened at all now. Of what /proc lists nothing may be missing for want of a descriptor.
inline bool can_open_files() {
    const UniqueFd fd(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
    return fd || !is_shortage(errno);
}

}  // namespace ingero
