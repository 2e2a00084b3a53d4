// What of a rank's GPU, or of where the rank runs, is worse than at the other ranks of its host, so that it may wait
// longer for its device than they do. It stands beside a cause as a fact: that it made the rank late is not proven by
// it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/diagnosis/evidence/gpu_states.h"
#include "core/diagnosis/evidence/meanwhile.h"
#include "core/diagnosis/incidents/known_processes.h"
#include "core/model/event.h"
#include "core/model/time.h"

namespace ingero {

struct RankCondition {
    std::string kind;  ///< "throttling", "pcie-link", "nvlink", "corrected-errors", "cpus", "memory"
    std::string text;  ///< "its GPU 3 is on 4 of 16 PCIe lanes": the end of a sentence
    std::string fix;   ///< one sentence or more
};

/// Those that may be why it did `cause` for longer than the others, in the order above: none where that is not a wait
/// for its device, or a call's work; where the cause is not known there is none either. Nor of a process on several
/// GPUs or with several ranks, of a GPU that another rank is on, and where nothing is known of the others. `late`, in
/// which it came late, is CLOCK_MONOTONIC: its last 25 s are looked at, of which the flight recorder has measurements
/// too.
std::vector<RankCondition> rank_conditions(const ProcessKey& rank, std::span<const ProcessKey> others,
                                           const Window& late, const MeanwhilePart* cause,
                                           std::span<const GpuStates> gpus, const KnownProcesses& processes);

/// What is to be read for them: the part of `late` that is looked at, and a measurement's period more.
Window conditions_time(const Window& late);

}  // namespace ingero
