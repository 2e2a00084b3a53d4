// Which processes are recorded in slices only: those whose calls cost them more than the budget although hardly any of
// them leaves a record. Decides by the storms that the kernel side reports; does nothing itself. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "bpf/event.h"
#include "core/model/op.h"
#include "core/model/process/process.h"

namespace ingero {

/// A thread's calls of some time, which cost more than the budget (bpf/event.h). Of one in slices, more than half of
/// it.
struct StormReport {
    ProcessKey process;
    uint64_t time_ns = 0;     ///< CLOCK_MONOTONIC
    uint64_t elapsed_ns = 0;  ///< up to then
    std::vector<std::pair<OpId, uint64_t>> calls{};
    uint64_t other_calls = 0;  ///< of ops that are always attached to
    ingero_pace pace{};        ///< of one in slices: what its counts are estimated by
};

/// By how much of itself a count of calls in slices may be off, as far as that comes from the pace: nearly always.
/// Nothing where that is not known, or so much that it says nothing.
std::optional<double> count_error(const ingero_pace& pace);

class StageControl {
  public:
    void add(const StormReport& report);
    void forget(const ProcessKey& process) {
        storms_.erase(process);
        sliced_.erase(process);
    }
    /// What follows of the time that has passed.
    void tick(uint64_t now_ns);

    bool is_calm() const { return storms_.empty(); }
    /// The processes in slices, and the ops of each that are.
    const std::map<ProcessKey, std::set<OpId>>& sliced() const { return sliced_; }
    /// As the function; of its threads the one that calls most.
    std::optional<double> error_of(const ProcessKey& process) const;

    /// So long a storm must last, and so long one is forgotten after its last report.
    static constexpr uint64_t enter_after_ns = 1'000'000'000;
    static constexpr uint64_t interruption_ns = 500'000'000;
    /// Without a report a process in slices leaves them.
    static constexpr uint64_t leave_after_ns = 5'000'000'000;

  private:
    struct Storm {
        uint64_t since_ns = 0, latest_ns = 0;
        std::map<OpId, uint64_t> calls{};  ///< since `since_ns`; in slices since the ops were last looked at
        uint64_t all_calls = 0;
        uint64_t looked_ns = 0;
        std::set<OpId> ops{};  ///< in slices; empty: not in them
        std::optional<double> error{};
        uint64_t calls_of_error = 0;

        void count(const StormReport& report);
        void choose_ops(uint64_t now_ns);
    };
    std::map<ProcessKey, Storm> storms_;
    std::map<ProcessKey, std::set<OpId>> sliced_;
};

}  // namespace ingero
