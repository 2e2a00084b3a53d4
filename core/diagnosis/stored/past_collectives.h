// A hang may be older than the history that is read before a window: its ranks have called nothing since. What they did
// last is looked for backwards, block by block, and only where a rank that lives entered no collective in all that
// time.
#pragma once

#include <cstdint>
#include <optional>

#include "core/diagnosis/evidence/collective_waits.h"
#include "core/diagnosis/incidents/known_processes.h"
#include "core/query/coverage.h"
#include "core/store/store.h"

namespace ingero {

/// Nothing where no rank can have waited since before `shown`, the time of which detectors are shown all calls: the
/// boot's window and the history before it. `recorded_from_ns`: when the session began that was recorded without a gap
/// until then. Of `max_blocks` rows are decoded: beyond these it stays unknown what ranks did before. `communicators`
/// must outlive the result. Errors: corrupt.
Result<std::optional<PastCollectives>> read_past_collectives(const StoreSnapshot& snapshot, const BootWindow& boot,
                                                             const Window& shown, uint64_t recorded_from_ns,
                                                             const Communicators& communicators,
                                                             const KnownProcesses& processes,
                                                             size_t max_blocks = 16'384);

}  // namespace ingero
