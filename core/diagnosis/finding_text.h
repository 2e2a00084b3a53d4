// The words of a finding: what happened with the number that matters, what to do about it, and how to see that it
// helped.
#pragma once

#include <string>

#include "core/diagnosis/findings.h"

namespace ingero {

/// Fills summary, fix and confirm. The other fields are set already.
void write_text(Finding& finding, Cause cause, const KindLedger& kind);

}  // namespace ingero
