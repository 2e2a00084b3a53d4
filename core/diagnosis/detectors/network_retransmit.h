// The kind "network-retransmit": devices that wait while what the program sent is sent again. What calls lose to that
// is the Ledger's. See catalogue.cpp.
#pragma once

#include <string_view>

#include "core/diagnosis/detector.h"

namespace ingero {

inline constexpr std::string_view resent_fix =
    "Find where packets are lost on the way: ip -s link and ethtool -S count what an interface of this host dropped, "
    "and ss -ti shows how often a connection retransmitted. If a link is saturated, limit its other traffic; if it "
    "drops packets, replace it or use another route; and let the device work on other requests meanwhile.";

std::unique_ptr<Detector> make_network_retransmit(const DetectorContext& context);

}  // namespace ingero
