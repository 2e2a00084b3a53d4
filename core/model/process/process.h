// What is known of a traced process. Text is the target's own and never trusted: bounded here, escaped on output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/event.h"

namespace ingero {

/// What a process is part of, as its control group, its environment at the start and its command line say. Empty or
/// absent where they do not, or where what they say is not of the form it must have.
struct ProcessFacts {
    std::string command;                 ///< by [processes] cmdline; redacted unless that says otherwise
    std::string container;               ///< id: 64 hex digits, or as ECS and LXC name theirs
    std::string container_runtime;       ///< "docker", "containerd", "cri-o", "podman", "lxc"; empty: not known
    std::string pod_uid;                 ///< Kubernetes: 8-4-4-4-12 hex digits, or 32 of a static pod
    std::string pod_name;                ///< Kubernetes
    std::string pod_namespace;           ///< Kubernetes
    std::string slurm_job;               ///< number
    std::string slurm_step;              ///< number, or "batch", "extern", "interactive"
    std::string ecs_task;                ///< id: 32 hex digits
    std::optional<uint32_t> rank;        ///< of its job, below world_size
    std::optional<uint32_t> local_rank;  ///< of its job on this node
    std::optional<uint32_t> world_size;  ///< processes of its job, or ranks
    std::string rank_source;             ///< "torchrun", "openmpi", "pmix", "pmi", "slurm"; "nccl": see JobRank
    std::string cuda_visible_devices;    ///< as set; "none" where it is set to nothing
    std::string nvidia_visible_devices;  ///< as set
    /// Variables that [processes] environ_allow names.
    std::vector<std::pair<std::string, std::string>> environment;
    bool operator==(const ProcessFacts&) const = default;
};

/// The exit_code of a process that has ended, where nobody was told how: as wait(2) reports it none is negative.
inline constexpr int32_t exit_status_unknown = -1;

struct Process {
    ProcessKey key;
    uint32_t uid = 0;
    uint32_t parent_pid = 0;
    std::string comm;                         ///< at most 15 bytes
    std::string cgroup;                       ///< path in the unified or systemd hierarchy; may be empty
    std::string unit;                         ///< systemd unit of that path; empty when none
    uint64_t first_seen_ns = 0;               ///< CLOCK_MONOTONIC
    uint64_t exited_ns = 0;                   ///< CLOCK_MONOTONIC; 0 while it lives
    int32_t exit_code = exit_status_unknown;  ///< as wait(2) reports it; valid once exited
    ProcessFacts facts = {};
    std::string cpus_allowed = {};  ///< list of CPUs it may run on, "0-3,8"
    std::string mems_allowed = {};  ///< list of NUMA nodes it may have memory of
};

}  // namespace ingero
