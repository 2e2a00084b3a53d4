// The function that ingerod calibrates with, probed as one of the runtime.
#pragma once

#include <algorithm>

#include "daemon/ingerod/probes/attach/targets.h"
#include "daemon/ingerod/probes/calibration.h"

namespace ingero::test {

/// As cudaDeviceSynchronize.
inline ProbeSite calibrated_site(const CalibratedFunction& function) {
    const auto targets = targets_of(Library::cuda_runtime);
    const auto target = std::find_if(targets.begin(), targets.end(),
                                     [](const Target& one) { return one.symbol == "cudaDeviceSynchronize"; });
    return {function.file_offset, target->cookie, "ingero_calibrated_call", true, target->op};
}

}  // namespace ingero::test
