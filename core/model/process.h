// What is known of a traced process. Text is the target's own and never trusted: bounded here, escaped on output.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/event.h"

namespace ingero {

struct Process {
    ProcessKey key;
    uint32_t uid = 0;
    uint32_t parent_pid = 0;
    std::string comm;            ///< at most 15 bytes
    std::string cgroup;          ///< path in the unified or systemd hierarchy; may be empty
    std::string unit;            ///< systemd unit of that path; empty when none
    uint64_t first_seen_ns = 0;  ///< CLOCK_MONOTONIC
    uint64_t exited_ns = 0;      ///< CLOCK_MONOTONIC; 0 while it lives
    int32_t exit_code = 0;       ///< as wait(2) reports it; valid once exited
};

}  // namespace ingero
