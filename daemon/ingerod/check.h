// `ingerod --check`: what this host offers, one line a check, without starting anything.
#pragma once

#include <string>
#include <vector>

#include "daemon/ingerod/config.h"
#include "daemon/ingerod/probes/kernel_features.h"

namespace ingero {

struct CheckResult {
    std::string name;
    enum class State { pass, note, fail } state = State::pass;
    std::string detail;
    std::string fix;  ///< what to do about it; empty for a pass
};

std::vector<CheckResult> check_host(KernelFeatures& features, const Config& config);
/// Prints them; true when nothing failed.
bool print_checks(const std::vector<CheckResult>& results);

}  // namespace ingero
