// Who is at the other end of a Unix socket, or of the bus, as the kernel says.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/ingerod/control/control_backend.h"

namespace ingero {

/// The gid of a group by name; nullopt where there is none.
std::optional<gid_t> find_group(const std::string& name);

/// What the kernel noted of a process as it connected.
struct ProcessCredentials {
    uint32_t uid = 0;
    uint32_t pid = 0;           ///< 0: none that our pid namespace holds
    std::vector<gid_t> groups;  ///< the primary one too
};

struct Identity {
    Caller caller;
    /// Runs in the daemon's own user and pid namespaces: its uid means what it means here.
    bool at_home = false;
};

/// `sees_all` needs, first, that the process runs in the daemon's own user and pid namespaces, since root of a
/// container could else take any uid and group. Where this cannot be read, only the daemon's own uid counts. Then: uid
/// 0, the daemon's own uid, or `privileged_group` among the groups.
///
/// The pid is pinned while /proc is read: by `pidfd` where there is one (else -1), else by comparing the process's
/// start time before and after. A process that is gone meanwhile counts as unreadable.
Identity identify_process(const ProcessCredentials& credentials, int pidfd, std::optional<gid_t> privileged_group);

/// The caller behind a connected stream socket (SO_PEERCRED: who connected, not who holds the socket now), pinned by
/// SO_PEERPIDFD where the kernel has it (Linux 6.5).
Caller identify_peer(int socket, std::optional<gid_t> privileged_group);

}  // namespace ingero
