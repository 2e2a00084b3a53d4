// `ingerod --check`: what this host offers for tracing, one result a thing that tracing stands on, without starting the
// daemon. `ingeroctl check` prints the same: from here where no daemon answers, else from the daemon, which runs this
// program beside itself and adds what it alone knows.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/ingerod/config/config.h"
#include "daemon/ingerod/probes/kernel/kernel_features.h"

namespace ingero {

struct CheckResult {
    enum class State {
        pass,
        note,  ///< worth knowing, no obstacle
        fail,  ///< tracing does not work, or harms
    };
    std::string name;  ///< the thing: "btf", "capabilities"; a name may come more than once
    State state = State::pass;
    std::string detail;  ///< what was found; holds paths, so it is data
    std::string fix;     ///< what to do about it, in plain words; empty for a pass and nowhere else
};

using CheckResults = std::vector<CheckResult>;

/// What `--probe` measured.
struct ProbeFigures {
    std::string attach_method;
    uint64_t calls = 0;
    uint64_t events = 0;
    uint64_t cost_ns = 0;  ///< a traced call over an untraced one, median
};

struct CheckOptions {
    Config config;  ///< with a node name
    std::string socket;
    std::string worker_program;
    std::string target_program;  ///< ingero-probe-target
    bool probe = false;
    bool processes = true;  ///< look at what running processes have mapped; the daemon does that itself
};

/// docs/schemas/check.schema.json. Takes up to some seconds, and starts processes, all of which have ended when it
/// returns.
nlohmann::json check_host(KernelFeatures& features, const CheckOptions& options);

/// The answer's own part made of results.
nlohmann::json check_answer(const std::string& node, const CheckResults& results,
                            const std::optional<ProbeFigures>& figures);
/// Adds results to an answer, which is ready only if these are.
void add_checks(nlohmann::json& answer, const CheckResults& results);
/// Says so where no result is about a CUDA library.
void note_absent_libraries(nlohmann::json& answer);

}  // namespace ingero
