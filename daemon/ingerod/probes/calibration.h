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

/// What the probes add to a call.
struct CallPrice {
    double unkept_ns = 0;  ///< of one that leaves no record
    double record_ns = 0;  ///< a record besides
    double entry_ns = 0;   ///< what the timed part of an entry takes (bpf/call_price.h)

    double call_ns() const { return unkept_ns + record_ns; }
};

/// That in a loop of calls, which has the caches to itself, and in one that works on memory between its calls; and by
/// how many calls it was measured: half of them are to leave no record.
struct CallCost {
    CallPrice alone, amid_work;
    uint64_t calls = 0, unkept_calls = 0;

    /// Work made a difference that could be measured.
    bool knows_work() const;
    /// Where the timed part of entries takes so long: between the two, or beyond the second by half of the way at most.
    CallPrice at(double entry_ns) const;
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

/// More than a core has of fast caches for itself.
inline constexpr size_t calibrated_work_bytes = 4 << 20;

/// Medians of single calls; the first with the clock's own time.
struct SingleCalls {
    uint64_t call_ns = 0, entry_ns = 0;
};
/// Of a thread of its own that works on so many bytes of memory before each call. `timed_ns`, where there is one, reads
/// the sum of what the timed parts of its entries took.
SingleCalls time_single_calls(size_t work_bytes, const std::function<uint64_t()>& timed_ns);

}  // namespace ingero
