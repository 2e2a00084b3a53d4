// A healthy host is one whose noise is accounted for: a finding that others took the CPU is true where the scheduler
// says so.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace ingero::test {

/// For how long the workload's threads waited for a CPU, by the line that it ends with.
inline uint64_t run_delay_ns(const std::string& workload_output) {
    const std::string name = " run_delay_ns=";
    const size_t at = workload_output.rfind(name);
    return at == std::string::npos ? 0 : std::stoull(workload_output.substr(at + name.size()));
}

/// Of findings or incidents those that are not others' work on the CPUs, or say that it cost more than it did.
inline nlohmann::json not_others_work(const nlohmann::json& findings, uint64_t run_delay_ns) {
    nlohmann::json left = nlohmann::json::array();
    uint64_t lost_ns = 0;
    for (const nlohmann::json& finding : findings) {
        lost_ns += finding.at("lost_ns").get<uint64_t>();
        if (finding.at("kind") != "cpu-contention" || lost_ns > run_delay_ns) left.push_back(finding);
    }
    return left;
}

}  // namespace ingero::test
