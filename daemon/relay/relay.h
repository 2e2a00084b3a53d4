// The relay itself: keeps the processes that measure running, and hands what they say to ingerod. It waits for neither:
// a process that is silent for too long is killed and replaced after a while, a socket that accepts nothing for long
// costs rows, but not the latest report of how measuring goes. One thread.
#pragma once

#include <chrono>
#include <string>

#include "core/model/result.h"
#include "daemon/relay/poller.h"

namespace ingero {

struct RelayOptions {
    std::string socket = "/run/ingerod/relay.sock";
    std::string program = "/proc/self/exe";            ///< of the processes that measure
    PollerOptions poller;                              ///< the interval is ingerod's to say
    std::chrono::milliseconds patience{10'000};        ///< that a round may take beyond the interval
    std::chrono::milliseconds first_patience{60'000};  ///< and the first one: a driver may have to start
    std::chrono::milliseconds least_pause{1'000};      ///< before a process is started again; doubled each time
    std::chrono::milliseconds most_pause{60'000};
};

/// Runs until SIGTERM or SIGINT, which must be blocked; the exit code.
int run_relay(const RelayOptions& options);

}  // namespace ingero
