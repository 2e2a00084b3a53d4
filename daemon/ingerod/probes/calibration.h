// What a probe costs a call, measured on a function of our own: the traps included, which the kernel's run-time
// statistics leave out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/model/result.h"
#include "core/model/unique_fd.h"

namespace ingero {

/// What the probes add to a call, and by how many calls that was measured: half of them are to leave no record.
struct CallCost {
    uint32_t call_ns = 0;    ///< of a recorded call
    uint32_t unkept_ns = 0;  ///< of a call that leaves no record
    uint64_t calls = 0, unkept_calls = 0;
};

/// A function that does nothing and begins with an instruction that the kernel emulates, as most exports of the CUDA
/// runtime do. Returns 0, for a call that fails always leaves a record. Never inlined.
extern "C" int ingero_calibrated_call();

/// Our own executable and where in it the function lies.
struct CalibratedFunction {
    UniqueFd file;
    uint64_t file_offset = 0;
};
Result<CalibratedFunction> find_calibrated_function();

/// Ns a call in each of `ways`, from a thread of its own, which is gone when this returns. `prepare` brings about a
/// way, on that thread. The ways take turns, and of each the lower quartile counts: what else runs only ever adds.
std::vector<uint32_t> time_calibrated_calls(size_t ways, const std::function<void(size_t way)>& prepare);

}  // namespace ingero
