// Who is at the other end of a Unix socket, as the kernel says.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "daemon/ingerod/control_backend.h"

namespace ingero {

/// The gid of a group by name; nullopt where there is none.
std::optional<gid_t> find_group(const std::string& name);

/// The caller behind a connected stream socket (SO_PEERCRED: who connected, not who holds the socket now).
///
/// `sees_all` needs, first, that the peer runs in the daemon's own user and pid namespaces, since root of a container
/// could else take any uid and group. Where this cannot be read, only the daemon's own uid counts. Then: uid 0, the
/// daemon's own uid, or `privileged_group` among the peer's groups.
///
/// The pid is pinned while /proc is read: by SO_PEERPIDFD where the kernel has it (Linux 6.5), else by comparing the
/// process's start time before and after. A peer that is gone meanwhile counts as unreadable.
Caller identify_peer(int socket, std::optional<gid_t> privileged_group);

}  // namespace ingero
