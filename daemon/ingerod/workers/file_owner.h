// Whose a file is that a worker is passed.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <compare>
#include <cstdint>

#include "core/model/result.h"

namespace ingero {

/// Who may have written a file. By its mount too: the root of a container may write files of root's on the host's disk,
/// where a folder of it was mounted for the container.
struct FileOwner {
    uint64_t device = 0;
    uint64_t mount = 0;
    uint32_t uid = 0;
    auto operator<=>(const FileOwner&) const = default;
};

/// As far as the kernel remembers it, so that no server is waited for.
inline Result<FileOwner> owner_of(int fd) {
    struct statx facts {};
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_UID | STATX_MNT_ID, &facts) != 0)
        return fail(ErrorCode::internal, errno_message("the file's owner cannot be read", errno));
    return FileOwner{makedev(facts.stx_dev_major, facts.stx_dev_minor), facts.stx_mnt_id, facts.stx_uid};
}

}  // namespace ingero
