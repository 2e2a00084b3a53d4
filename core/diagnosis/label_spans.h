// Steps and phases of programs whose emitters tell only when one begins, as those of the earlier agent do.
#pragma once

#include <span>
#include <vector>

#include "core/store/rows/history.h"

namespace ingero {

/// Of each process, from a moment with a label `step` (`kind` is step) or `phase` to the next that begins or ends one:
/// a step ends at the next step, phase or epoch, a phase at the next phase. A phase whose name ends in "_end" begins
/// none. What lasts longer than a span may, and what is not ended among `moments`, is left out. The moments may be in
/// any order, and lose what goes into a span; spans of other kinds, and intervals, are not looked at.
std::vector<SpanRow> spans_of_labels(std::span<SpanRow> moments, SpanKind kind);

}  // namespace ingero
