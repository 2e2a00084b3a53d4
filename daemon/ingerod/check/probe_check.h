// `--probe`: the whole way tried for real. A program of the package makes calls, the daemon's own BPF programs trace
// them, and what came back is compared with what was called.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/model/event.h"
#include "daemon/ingerod/check/check.h"

namespace ingero {

class SymbolReader;

/// Starts `target_program` twice, the second time under a seccomp filter; all it attaches and starts has gone when it
/// returns. `ret_figures` is set where all events came back.
CheckResults check_by_probing(KernelFeatures& features, const std::string& target_program, SymbolReader& symbols,
                              std::optional<ProbeFigures>& ret_figures);

/// The program's calls, as it made them.
struct TargetRun {
    uint32_t pid = 0;
    uint32_t tid = 0;
    uint64_t calls = 0;
    uint64_t begun_ns = 0;  ///< CLOCK_MONOTONIC around all of them
    uint64_t ended_ns = 0;
};

/// How the events, in the order in which they came, differ from the calls; empty where they do not.
std::string compare_events(const TargetRun& run, std::span<const Event> events);

}  // namespace ingero
