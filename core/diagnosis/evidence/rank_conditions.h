// What of a rank's GPU, or of where the rank runs, is worse than at the other ranks of its host, so that it may come
// later than they do. It stands beside a cause as a fact: that it made the rank late is not proven by it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnosis/evidence/gpu_states.h"
#include "core/diagnosis/incidents/known_processes.h"
#include "core/model/event.h"
#include "core/model/time.h"

namespace ingero {

struct RankCondition {
    std::string kind;  ///< "throttling", "pcie-link", "nvlink", "corrected-errors", "cpus", "memory"
    std::string text;  ///< "its GPU 3 is on 4 of 16 PCIe lanes": a sentence's end
    std::string fix;   ///< one sentence or more
    bool of_gpu = true;

    bool operator==(const RankCondition&) const = default;
};

/// In the order above. Nothing of a process on several GPUs, or with several ranks. `time`, in which it came late, is
/// CLOCK_MONOTONIC: its last 25 s are looked at, for which the flight recorder has measurements too.
std::vector<RankCondition> rank_conditions(const ProcessKey& rank, std::span<const ProcessKey> others,
                                           const Window& time, std::span<const GpuStates> gpus,
                                           const KnownProcesses& processes);

/// The one that may be why a rank did what is called `meanwhile_kind` (MeanwhilePart; empty: not known) for longer than
/// others; nullptr where there is none: who waits for another program's lock does so whatever its GPU is like.
const RankCondition* likely_condition(std::span<const RankCondition> conditions, std::string_view meanwhile_kind);

}  // namespace ingero
