// A process as lists of processes have it.
#include "core/render/json/values.h"
#include "core/render/render.h"
#include "core/spans/scope.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

json number_or_null(const std::optional<uint32_t>& number) {
    return number ? json(*number) : json();
}

}  // namespace

json process_json(const Process& process) {
    const ProcessFacts& facts = process.facts;
    json environment = json::object();
    for (const auto& [name, value] : facts.environment) environment[to_valid_utf8(name)] = to_valid_utf8(value);
    return {{"pid", visible_pid(process.key.pid)},
            {"start_time_ns", nullptr},
            {"comm", to_valid_utf8(process.comm)},
            {"command", text_or_null(facts.command)},
            {"parent_pid", visible_pid(process.parent_pid)},
            {"unit", text_or_null(process.unit)},
            {"container", text_or_null(facts.container)},
            {"container_runtime", text_or_null(facts.container_runtime)},
            {"cgroup", text_or_null(process.cgroup)},
            {"scope", text_or_null(scope_of_cgroup(process.cgroup))},
            {"pod_uid", text_or_null(facts.pod_uid)},
            {"pod_name", text_or_null(facts.pod_name)},
            {"pod_namespace", text_or_null(facts.pod_namespace)},
            {"slurm_job", text_or_null(facts.slurm_job)},
            {"slurm_step", text_or_null(facts.slurm_step)},
            {"ecs_task", text_or_null(facts.ecs_task)},
            {"rank", number_or_null(facts.rank)},
            {"local_rank", number_or_null(facts.local_rank)},
            {"world_size", number_or_null(facts.world_size)},
            {"rank_source", text_or_null(facts.rank_source)},
            {"cuda_visible_devices", text_or_null(facts.cuda_visible_devices)},
            {"nvidia_visible_devices", text_or_null(facts.nvidia_visible_devices)},
            {"cpus_allowed", text_or_null(process.cpus_allowed)},
            {"mems_allowed", text_or_null(process.mems_allowed)},
            {"environment", std::move(environment)},
            {"devices", nullptr},
            {"calls_per_s", nullptr},
            {"gpu_memory_bytes", nullptr},
            {"state", nullptr},
            {"slices", nullptr}};
}

}  // namespace ingero
