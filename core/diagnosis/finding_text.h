// The words of a finding: what happened with the number that matters, what to do about it, and how to see that it
// helped.
#pragma once

#include <string>

#include "core/diagnosis/findings.h"

namespace ingero {

/// "python (pid 123)"; "pid 123" where the name is not known.
std::string process_text(const Finding& finding);

/// Fills summary, fix and confirm. The other fields are set already.
void write_text(Finding& finding, Cause cause, const KindLedger& kind);

}  // namespace ingero
