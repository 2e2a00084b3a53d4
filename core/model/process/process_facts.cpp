#include "core/model/process/process_facts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "core/model/text/characters.h"

namespace ingero {

namespace {

constexpr size_t container_id_length = 64;
constexpr size_t short_id_length = 32;
constexpr size_t max_name_bytes = 253;  // of a pod: RFC 1123

// Control groups.

void set_once(std::string& kept, std::string_view value) {
    if (kept.empty()) kept = value;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

/// With dashes for the underscores that systemd's names have in their place.
std::string pod_uid_of(std::string_view text) {
    std::string uid(text);
    std::replace(uid.begin(), uid.end(), '_', '-');
    if (uid.size() == short_id_length && is_hex(uid)) return uid;  // of a static pod: a hash of its manifest
    constexpr std::array<size_t, 4> dashes = {8, 13, 18, 23};
    if (uid.size() != 36) return {};
    for (size_t i = 0; i < uid.size(); ++i) {
        const bool dash = std::find(dashes.begin(), dashes.end(), i) != dashes.end();
        if (dash ? uid[i] != '-' : !is_hex({&uid[i], 1})) return {};
    }
    return uid;
}

// kubelet's: "pod<uid>", and as systemd's slice "kubepods-burstable-pod<uid>.slice".
void read_pod(std::string_view component, ProcessFacts& facts) {
    if (component.ends_with(".slice")) component.remove_suffix(6);
    const size_t at = component.starts_with("kubepods") ? component.rfind("-pod") : std::string_view::npos;
    if (at != std::string_view::npos) component.remove_prefix(at + 1);
    if (!take_prefix(component, "pod")) return;
    if (const std::string uid = pod_uid_of(component); !uid.empty()) set_once(facts.pod_uid, uid);
}

struct RuntimePrefix {
    std::string_view prefix;
    std::string_view runtime;
};
constexpr RuntimePrefix runtimes[] = {{"docker-", "docker"},      {"cri-containerd-", "containerd"},
                                      {"nerdctl-", "containerd"}, {"containerd-", "containerd"},
                                      {"crio-", "cri-o"},         {"libpod-", "podman"},
                                      {"podman-", "podman"},      {"", ""}};

// "docker-<id>.scope" and the like; without systemd "<id>" alone, below a group that says whose it is. containerd names
// one that it makes itself "<slice>:cri-containerd:<id>".
void read_container(std::string_view component, std::string_view parent, ProcessFacts& facts) {
    if (component.ends_with(".scope")) component.remove_suffix(6);
    if (const size_t colon = component.rfind(':'); colon != std::string_view::npos) {
        const std::string_view before = component.substr(0, colon);
        const std::string_view id = component.substr(colon + 1);
        if (id.size() != container_id_length || !is_hex(id)) return;
        facts.container = id;
        facts.container_runtime = before.ends_with("containerd") ? "containerd" : "";
        read_pod(before.substr(0, before.find(':')), facts);
        return;
    }
    for (const auto& [prefix, runtime] : runtimes) {
        std::string_view id = component;
        if (!take_prefix(id, prefix) || id.size() != container_id_length || !is_hex(id)) continue;
        facts.container = id;
        facts.container_runtime = runtime;
        if (prefix.empty() && parent == "docker") facts.container_runtime = "docker";
        if (prefix.empty() && parent == "libpod_parent") facts.container_runtime = "podman";
        return;
    }
    constexpr std::string_view lxc = "lxc.payload.";
    if (component.starts_with(lxc) && component.size() <= lxc.size() + 64 && component.size() > lxc.size() &&
        consists_of(component.substr(lxc.size()), "-_.")) {
        facts.container = component.substr(lxc.size());
        facts.container_runtime = "lxc";
    }
}

// On Fargate a container is "<task>-<number>" below its task.
void read_ecs(std::string_view component, std::string_view parent, bool below_ecs, ProcessFacts& facts) {
    std::string_view id = component;
    if (take_prefix(id, "ecstasks-") && id.ends_with(".slice")) {
        id.remove_suffix(6);
        if (id.size() == short_id_length && is_hex(id)) set_once(facts.ecs_task, id);
        return;
    }
    if (!below_ecs) return;
    if (id.size() == short_id_length && is_hex(id)) return set_once(facts.ecs_task, id);
    const size_t dash = id.find('-');
    if (dash != short_id_length || !is_hex(id.substr(0, dash)) || !is_number(id.substr(dash + 1)) || id.size() > 48)
        return;
    if (parent == id.substr(0, dash) || facts.ecs_task.empty()) set_once(facts.ecs_task, id.substr(0, dash));
    set_once(facts.container, id);
}

constexpr size_t max_id_digits = 10;

bool is_slurm_step(std::string_view text) {
    return (is_number(text) && text.size() <= max_id_digits) || text == "batch" || text == "extern" ||
           text == "interactive";
}

void read_slurm(std::string_view component, ProcessFacts& facts) {
    if (std::string_view job = component; take_prefix(job, "job_") && is_number(job) && job.size() <= max_id_digits)
        set_once(facts.slurm_job, job);
    if (std::string_view step = component;
        take_prefix(step, "step_") && !facts.slurm_job.empty() && is_slurm_step(step))
        set_once(facts.slurm_step, step);
}

void read_cgroup_path(std::string_view path, ProcessFacts& facts) {
    std::string_view parent;
    bool below_slurm = false, below_ecs = false;
    ProcessFacts found;
    for_each_part(path, '/', [&](std::string_view component) {
        // The process that watches over a container is not in it.
        if (component.starts_with("crio-conmon-") || component.starts_with("libpod-conmon-")) return false;
        read_pod(component, found);
        read_ecs(component, parent, below_ecs, found);
        read_container(component, parent, found);
        if (below_slurm) read_slurm(component, found);
        below_slurm = below_slurm || component == "slurm" || component.starts_with("slurm_") ||
                      component == "slurmstepd.scope" || component.ends_with("_slurmstepd.scope");
        below_ecs = below_ecs || component == "ecs";
        parent = component;
        return true;
    });
    if (facts.container.empty()) {
        facts.container = found.container;
        facts.container_runtime = found.container_runtime;
    } else if (facts.container == found.container) {
        set_once(facts.container_runtime, found.container_runtime);
    }
    set_once(facts.pod_uid, found.pod_uid);
    set_once(facts.ecs_task, found.ecs_task);
    if (facts.slurm_job.empty()) {
        facts.slurm_job = found.slurm_job;
        facts.slurm_step = found.slurm_step;
    } else if (facts.slurm_job == found.slurm_job) {
        set_once(facts.slurm_step, found.slurm_step);
    }
}

// Environment.

/// Of the environment, the variables that are looked at.
struct Variables {
    std::vector<std::pair<std::string_view, std::string_view>> found;

    std::string_view operator[](std::string_view name) const {
        const auto at = std::find_if(found.begin(), found.end(), [&](const auto& one) { return one.first == name; });
        return at == found.end() ? std::string_view() : at->second;
    }
    bool has(std::string_view name) const {
        return std::any_of(found.begin(), found.end(), [&](const auto& one) { return one.first == name; });
    }
};

struct RankFamily {
    std::string_view name;
    std::array<std::string_view, 1> rank;
    std::array<std::string_view, 2> local_rank;
    std::array<std::string_view, 2> world_size;
};
/// The first that gives a rank is believed: who sets variables for torch does so knowing those of the launcher.
constexpr RankFamily families[] = {
    {"torchrun", {"RANK"}, {"LOCAL_RANK", ""}, {"WORLD_SIZE", ""}},
    {"openmpi", {"OMPI_COMM_WORLD_RANK"}, {"OMPI_COMM_WORLD_LOCAL_RANK", ""}, {"OMPI_COMM_WORLD_SIZE", ""}},
    {"pmi", {"PMI_RANK"}, {"PMI_LOCAL_RANK", "MPI_LOCALRANKID"}, {"PMI_SIZE", ""}},
    {"pmix", {"PMIX_RANK"}, {"PMIX_LOCAL_RANK", ""}, {"PMIX_SIZE", ""}},
    {"slurm", {"SLURM_PROCID"}, {"SLURM_LOCALID", ""}, {"SLURM_NTASKS", "SLURM_NPROCS"}},
};
constexpr std::string_view other_variables[] = {"SLURM_JOB_ID",
                                                "SLURM_JOBID",
                                                "SLURM_STEP_ID",
                                                "SLURM_STEPID",
                                                "CUDA_VISIBLE_DEVICES",
                                                "NVIDIA_VISIBLE_DEVICES",
                                                "POD_NAME",
                                                "MY_POD_NAME",
                                                "POD_NAMESPACE",
                                                "MY_POD_NAMESPACE",
                                                "HOSTNAME",
                                                "KUBERNETES_SERVICE_HOST",
                                                "ECS_CONTAINER_METADATA_URI_V4"};

bool is_known_variable(std::string_view name) {
    const auto names = [&](const auto& list) {
        return std::find(std::begin(list), std::end(list), name) != std::end(list);
    };
    return names(other_variables) || std::any_of(std::begin(families), std::end(families), [&](const RankFamily& one) {
               return names(one.rank) || names(one.local_rank) || names(one.world_size);
           });
}

/// A number of processes: none has more than 2^31 - 1.
std::optional<uint32_t> count_of(std::string_view text) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > INT32_MAX)
        return std::nullopt;
    return value;
}

template <size_t n>
std::optional<uint32_t> first_count(const Variables& variables, const std::array<std::string_view, n>& names) {
    for (const std::string_view name : names)
        if (const auto value = name.empty() ? std::nullopt : count_of(variables[name])) return value;
    return std::nullopt;
}

void read_ranks(const Variables& variables, ProcessFacts& facts) {
    for (const RankFamily& family : families) {
        const auto rank = first_count(variables, family.rank);
        const auto local_rank = first_count(variables, family.local_rank);
        const auto world_size = first_count(variables, family.world_size);
        if (!rank || (world_size && *rank >= *world_size)) continue;
        if (facts.rank && facts.rank != rank) continue;  // of another communicator, or of the launcher's step
        if (!facts.rank) facts.rank_source = family.name;
        facts.rank = rank;
        if (!facts.world_size) facts.world_size = world_size;
        const bool fits = !facts.world_size || !local_rank || *local_rank < *facts.world_size;
        if (!facts.local_rank && fits) facts.local_rank = local_rank;
    }
}

bool is_dns_name(std::string_view text) {
    return !text.empty() && text.size() <= max_name_bytes && text.front() != '-' && text.front() != '.' &&
           std::all_of(text.begin(), text.end(),
                       [](char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '.'; });
}

std::string_view first_name(const Variables& variables, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names)
        if (is_dns_name(variables[name])) return variables[name];
    return {};
}

std::string devices_of(const Variables& variables, std::string_view name) {
    const std::string_view value = variables[name];
    if (!variables.has(name) || value.size() > max_kept_value_bytes || !consists_of(value, ",:-_/")) return {};
    return value.empty() ? "none" : std::string(value);
}

std::string_view slurm_step_name(std::string_view number) {
    // slurm.h: SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT, SLURM_INTERACTIVE_STEP
    if (number == "4294967291") return "batch";
    if (number == "4294967292") return "extern";
    if (number == "4294967290") return "interactive";
    return number;
}

// ".../v4/<task>-<number>", or ".../v4/<uuid>" on EC2, which names no task.
void read_ecs_uri(std::string_view uri, ProcessFacts& facts) {
    if (!uri.starts_with("http://169.254.170.2/")) return;
    const std::string_view id = uri.substr(uri.rfind('/') + 1);
    const size_t dash = id.find('-');
    if (dash == short_id_length && is_hex(id.substr(0, dash)) && is_number(id.substr(dash + 1)))
        set_once(facts.ecs_task, id.substr(0, dash));
}

}  // namespace

bool is_variable_name(std::string_view name) {
    return !name.empty() && name.size() <= 64 && !is_digit(name.front()) && consists_of(name, "_");
}

void read_cgroup_facts(std::string_view cgroup_file, ProcessFacts& facts) {
    for_each_part(cgroup_file, '\n', [&](std::string_view line) {
        // "4:memory:/docker/<id>": a path may hold colons, the two before it are the first.
        const size_t first = line.find(':');
        const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
        if (second != std::string_view::npos) read_cgroup_path(line.substr(second + 1), facts);
        return true;
    });
}

void read_environ_facts(std::string_view environ_file, std::span<const std::string> allowed, ProcessFacts& facts) {
    Variables variables;
    for_each_part(environ_file, '\0', [&](std::string_view one) {
        const size_t equals = one.find('=');
        if (equals == std::string_view::npos) return true;
        const std::string_view name = one.substr(0, equals), value = one.substr(equals + 1);
        // The first of a name is the one that getenv() finds.
        if (is_known_variable(name) && !variables.has(name)) variables.found.emplace_back(name, value);
        const bool is_kept = std::any_of(facts.environment.begin(), facts.environment.end(),
                                         [&](const auto& kept) { return kept.first == name; });
        if (std::find(allowed.begin(), allowed.end(), name) != allowed.end() && !is_kept &&
            facts.environment.size() < max_kept_variables)
            facts.environment.emplace_back(name, value.substr(0, max_kept_value_bytes));
        return true;
    });
    read_ranks(variables, facts);
    facts.cuda_visible_devices = devices_of(variables, "CUDA_VISIBLE_DEVICES");
    facts.nvidia_visible_devices = devices_of(variables, "NVIDIA_VISIBLE_DEVICES");
    for (const char* name : {"SLURM_JOB_ID", "SLURM_JOBID"})
        if (const std::string_view job = variables[name];
            facts.slurm_job.empty() && is_number(job) && job.size() <= max_id_digits)
            facts.slurm_job = job;
    for (const char* name : {"SLURM_STEP_ID", "SLURM_STEPID"})
        if (const std::string_view step = slurm_step_name(variables[name]);
            facts.slurm_step.empty() && !facts.slurm_job.empty() && is_slurm_step(step))
            facts.slurm_step = step;
    read_ecs_uri(variables["ECS_CONTAINER_METADATA_URI_V4"], facts);
    const bool in_pod = !facts.pod_uid.empty() || variables.has("KUBERNETES_SERVICE_HOST");
    if (!in_pod) return;
    // Whoever starts a pod's containers sets the host's name to the pod's, unless its specification says otherwise.
    facts.pod_name = first_name(variables, {"POD_NAME", "MY_POD_NAME", "HOSTNAME"});
    facts.pod_namespace = first_name(variables, {"POD_NAMESPACE", "MY_POD_NAMESPACE"});
}

}  // namespace ingero
