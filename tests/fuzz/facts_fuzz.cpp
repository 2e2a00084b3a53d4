// Control groups, environments and command lines: whatever they hold, what is kept of them is bounded and inert.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/process/process_facts.h"

namespace {

void check(bool holds) {
    if (!holds) std::abort();
}

bool is_plain(std::string_view text, size_t most) {
    if (text.size() > most) return false;
    for (const char c : text)
        if (c < ' ' || c > '~') return false;
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    static const std::vector<std::string> allowed = {"JOB_NAME"};
    ingero::ProcessFacts facts;
    ingero::read_cgroup_facts(text, facts);
    ingero::read_environ_facts(text, allowed, facts);
    for (const std::string* one : {&facts.container, &facts.container_runtime, &facts.pod_uid, &facts.pod_name,
                                   &facts.pod_namespace, &facts.slurm_job, &facts.slurm_step, &facts.ecs_task,
                                   &facts.cuda_visible_devices, &facts.nvidia_visible_devices})
        check(is_plain(*one, 256));
    check(!facts.rank || !facts.world_size || *facts.rank < *facts.world_size);
    check(facts.environment.size() <= 1);
    for (const auto& [name, value] : facts.environment)
        check(name == "JOB_NAME" && value.size() <= ingero::max_kept_value_bytes);
    check(is_plain(ingero::redact_command(text), ingero::max_command_bytes));
    check(ingero::join_command(text).size() <= ingero::max_command_bytes);
    return 0;
}
