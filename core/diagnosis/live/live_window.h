// The flight recorder: the latest calls, kept in memory, and the detectors run over them. What it finds is what explain
// finds in the store over the same calls, but that it knows no more history than it keeps.
//
// add() and pass() may be called by two threads; no other two at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/diagnosis/evidence/gpu_states.h"
#include "core/diagnosis/explain.h"
#include "core/model/event.h"
#include "core/model/process/process.h"
#include "core/model/time.h"
#include "core/query/communicators.h"
#include "core/store/rows/history.h"

namespace ingero {

struct LiveWindowOptions {
    /// Kept for so long or up to so many bytes, whichever is less. Where there is no room, that process loses its
    /// oldest calls that has most of them.
    uint64_t history_ns = 30'000'000'000;
    size_t max_bytes = 32 << 20;
    uint64_t judged_ns = 10'000'000'000;  ///< the part that is judged; all of it teaches what is usual
    uint64_t since_ns = 0;                ///< CLOCK_MONOTONIC from which on calls were captured; 0: since the first one
};

class LiveWindow {
  public:
    explicit LiveWindow(std::string boot_id, LiveWindowOptions options = {});
    ~LiveWindow();

    /// Calls as they were recorded, sequence ascending, and how many were lost meanwhile.
    void add(std::vector<Event> events, std::span<const LossRow> losses = {});
    /// What was recorded besides calls; kept as long as they are, within limits.
    void add_spans(const std::vector<SpanRow>& spans);
    void add_state(const StateRow& state);
    /// Of processes whose calls are added: of collectives that can not end more is known than of the calls that are
    /// kept. By the thread that makes passes.
    void set_communicators(Communicators communicators);
    /// Measured from then on, CLOCK_MONOTONIC, as far as they are kept.
    std::vector<GpuStates> gpus_since(uint64_t from_ns) const;
    /// Drops what is too old.
    void trim(uint64_t now_monotonic_ns);
    /// Calls that no pass has seen.
    bool has_new() const;
    bool empty() const;
    size_t bytes() const;

    /// Runs the detectors over the calls that ended in the last `judged_ns`. Findings carry newly_lost_ns: what calls
    /// that no earlier pass saw have lost, and what a collective that cannot end has lost since the pass before.
    std::vector<Finding> pass(const ClockTriple& now, const std::vector<Process>& processes);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
