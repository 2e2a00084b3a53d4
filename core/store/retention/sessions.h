// What a store still answers for of its sessions, as what they recorded goes.
#pragma once

#include <cstdint>
#include <optional>

#include "core/store/file/environment.h"
#include "core/store/file/tables.h"
#include "core/store/retention/space.h"

namespace ingero {

/// No longer claims as covered what went; deletes the sessions that no rows describe any more, all but `current`.
/// `rolled_up`: what went was summed up first. Returns an LMDB code.
int move_horizon(MDB_txn* transaction, MDB_dbi table, const Evicted& evicted, bool rolled_up, SessionMap& sessions,
                 std::optional<uint32_t> current);

/// Where each boot's times become older than `age_ns`. Within the running boot the wall clock does not matter.
AgeLimits age_limits(const SessionMap& sessions, std::optional<uint32_t> current, uint64_t age_ns);

}  // namespace ingero
