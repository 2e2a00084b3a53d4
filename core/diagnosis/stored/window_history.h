// What a store has of a window besides calls: measurements of GPUs, requests and steps.
#pragma once

#include <cstddef>
#include <vector>

#include "core/diagnosis/evidence/gpu_states.h"
#include "core/query/answers/stats.h"
#include "core/query/coverage.h"
#include "core/store/store.h"

namespace ingero {

struct WindowHistory {
    std::vector<GpuStates> gpus;
    std::vector<SpanRow> spans;  ///< the latest 262,144 requests and steps, and who is registered for their scopes
    size_t left_out = 0;         ///< of requests and steps, the oldest
};

/// Errors: those of the store.
Result<WindowHistory> read_history(const StoreSnapshot& snapshot, const BootWindow& boot, const Filter& filter);

}  // namespace ingero
