// The processes that measure: each writes MessagePack maps to its standard output, a round of them an interval, and
// ends with the relay. What it asks may hang or crash; nobody waits for it but the relay, and that not for long.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace ingero {

struct PollerOptions {
    std::chrono::milliseconds interval{1'000};
    std::string library;  ///< libnvidia-ml.so.1; empty: where drivers put it
    std::string sysfs = "/sys";
};

inline constexpr int poller_absent = 3;  ///< exit code: there is nothing to measure

/// One map to standard output. False where nobody reads it any more.
bool emit(const nlohmann::json& message);
/// {"kind": "source"}: how measuring goes, and why it does not.
bool emit_state(const char* source, const char* state, const std::string& reason);
/// Ends with its parent, which is `parent_pid`. False where that is gone already.
bool end_with_parent(int parent_pid);
/// Sleeps until then. False where it is to end, since nobody reads what it writes.
bool sleep_until(std::chrono::steady_clock::time_point then);

/// Both return the exit code.
int poll_gpus(const PollerOptions& options);
int poll_ports(const PollerOptions& options);

}  // namespace ingero
