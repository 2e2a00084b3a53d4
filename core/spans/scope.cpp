#include "core/spans/scope.h"

#include <algorithm>
#include <cstddef>

namespace ingero {

namespace {

bool is_hex(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// systemd(1) names what it starts; Docker, containerd and CRI-O without systemd name a cgroup by the container's id,
// LXC by its own prefix.
bool is_workload(std::string_view name) {
    constexpr size_t container_id_length = 64;
    if (name.ends_with(".service")) return !name.starts_with("user@");
    if (name.ends_with(".scope")) return !name.starts_with("session-") && name != "init.scope";
    if (name.starts_with("lxc.payload.")) return true;
    const size_t id = name.size() < container_id_length ? std::string_view::npos : name.size() - container_id_length;
    return id != std::string_view::npos && is_hex(name.substr(id)) &&
           (id == 0 || name[id - 1] == '-' || name[id - 1] == ':');
}

/// Slurm holds all jobs of a node below one scope: each step of a job is a workload of its own. `below`: what follows
/// the scope in the path. Empty where that is no job.
std::string_view slurm_step(std::string_view below) {
    constexpr std::string_view job = "/job_", step = "/step_";
    if (!below.starts_with(job)) return {};
    size_t end = below.find('/', 1);
    if (end != std::string_view::npos && below.substr(end).starts_with(step)) end = below.find('/', end + 1);
    return below.substr(0, end);
}

}  // namespace

std::string scope_of_cgroup(std::string_view cgroup) {
    std::string_view rest = cgroup;
    while (rest.size() > 1 && rest.front() == '/') {
        const size_t slash = rest.rfind('/');
        const std::string_view name = rest.substr(slash + 1);
        if (name == "slurmstepd.scope" || name.ends_with("_slurmstepd.scope")) {
            const std::string_view step = slurm_step(cgroup.substr(rest.size()));
            return step.empty() ? std::string() : std::string(rest) + std::string(step);
        }
        if (is_workload(name)) return std::string(rest);
        rest = rest.substr(0, slash);
    }
    return {};
}

}  // namespace ingero
