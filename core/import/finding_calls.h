// Incidents name their calls: by sequence, in the finding that is stored with them.
#pragma once

#include <cstdint>

#include "core/store/rows/history.h"

namespace ingero {

/// Adds `by` to the sequence of each call that the row's finding names: where calls get new ones, so must what names
/// them. All else of the finding stays as it is; one that cannot be read stays so too, and so does what another tool
/// found, which names none.
void move_calls(uint64_t by, IncidentRow& row);

}  // namespace ingero
