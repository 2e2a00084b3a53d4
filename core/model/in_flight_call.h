// A call that has been entered and has not returned yet.
#pragma once

#include "core/model/event.h"

namespace ingero {

enum class ThreadActivity : uint8_t {
    runs = INGERO_THREAD_RUNS,
    runnable = INGERO_THREAD_RUNNABLE,
    blocked = INGERO_THREAD_BLOCKED,
};
/// "running", "runnable", "blocked".
std::string_view to_string(ThreadActivity activity);

struct InFlightCall {
    /// What is known up to now: duration_ns as of `seen_ns`, arguments known at entry, the reason of a sleep in
    /// progress. No sequence, no return code.
    Event call;
    uint64_t seen_ns = 0;  ///< CLOCK_MONOTONIC
    ThreadActivity activity = ThreadActivity::runs;
    uint64_t activity_ns = 0;  ///< how long the thread has been off the CPU; 0 where it runs
    Comm comm{};               ///< of the thread
};

}  // namespace ingero
