// The words of a finding: what happened with the number that matters, what to do about it, and how to see that it
// helped.
#pragma once

#include <string_view>

#include "core/diagnosis/findings.h"

namespace ingero {

/// What to do about packets that are lost, whether calls wait for them or what comes between calls.
inline constexpr std::string_view resent_fix =
    "Find where packets are lost on the way: ip -s link and ethtool -S count what an interface of this host dropped, "
    "and ss -ti shows how often a connection retransmitted. If a link is saturated, limit its other traffic; if it "
    "drops packets, replace it or use another route; and let the device work on other requests meanwhile.";

/// Fills summary, fix and confirm. The other fields are set already.
void write_text(Finding& finding, Cause cause, const KindLedger& kind);

}  // namespace ingero
