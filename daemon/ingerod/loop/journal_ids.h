// MESSAGE_ID of each kind of message that ingerod writes to the journal. systemd/ingero.catalog explains them to
// whoever reads with `journalctl --catalog`. Contracts: a kind keeps its id, and one that is dropped leaves its id
// unused.
#pragma once

namespace ingero::journal {

inline constexpr char started_id[] = "7d40fabd8bb943e18548d838ea946749";
inline constexpr char degraded_id[] = "f7e45645d4bf45be97248006f15f0241";
inline constexpr char loss_id[] = "94f6c466f4b34e0a9cc971d4f8a3b8a1";
inline constexpr char incident_opened_id[] = "4891cf7f8bb74a038d6e6af43d73275c";
inline constexpr char incident_closed_id[] = "eba69f7ab4294bc791e664707e6629fb";
inline constexpr char straggler_detected_id[] = "e5c213f1df594ac9a5d7902b92aceee2";
inline constexpr char peer_refused_id[] = "b6b8eaa3c5e7442f9862de456a2a937c";
inline constexpr char reloaded_id[] = "ff4b4e86dc3440d39908f227f546e568";
inline constexpr char stopped_id[] = "9fd7361290914b1f96b6b085fe341dd5";

}  // namespace ingero::journal
