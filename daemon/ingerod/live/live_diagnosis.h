// Runs the detectors over the live window in a thread of its own while there is something to judge: once a second, or
// less often where that would take more than one core's sixtieth.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/diagnosis/live/live_window.h"
#include "core/diagnosis/stragglers.h"
#include "core/model/process/process.h"
#include "core/model/time.h"
#include "core/query/communicators.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero {

/// What one pass found, nothing too.
struct DiagnosisPass {
    std::vector<Finding> findings;
    std::vector<StragglerChange> stragglers;
    std::vector<StragglerEpisode> late_now;
    ClockTriple at;
};

class LiveDiagnosis {
  public:
    /// `on_pass` runs on the loop thread.
    using OnPass = std::function<void(const DiagnosisPass&)>;

    LiveDiagnosis(EventLoop& loop, const std::string& boot_id, const StragglerOptions& stragglers, OnPass on_pass);
    ~LiveDiagnosis();

    /// From the ingest thread.
    void add(std::vector<Event> events, std::span<const LossRow> losses = {});
    /// Any thread.
    void add_spans(const std::vector<SpanRow>& spans);
    void add_state(const StateRow& state);
    /// A new or changed process, so that findings can name it; one that has exited is forgotten after a minute, or
    /// sooner where there are very many. Any thread.
    void put_process(const Process& process);
    /// The same of one that is not traced, and forgotten first. Any thread.
    void put_bystander(const Process& process);
    /// What was put of it last; nothing where it was not, or has been forgotten. Any thread.
    std::optional<Process> process(const ProcessKey& key) const;
    /// As rank_in_largest() has it, of communicators that it made since then (CLOCK_MONOTONIC). Any thread.
    std::optional<JobRank> rank_of(const ProcessKey& process, uint64_t since_ns) const;
    using StoreCommunicator = std::function<void(const CommunicatorRow&)>;
    /// A new or changed communicator, which is stored by `store` as it is from then on. Any thread.
    void put_communicator(CommunicatorRow row, const StoreCommunicator& store);
    /// Of the process, or of all: what their ranks enter from the time's beginning on (CLOCK_MONOTONIC) is not compared
    /// any more, nor of communicators that they make until its end. Those of which that was not so before are stored by
    /// `store`. Any thread.
    void interrupt_communicators(std::optional<ProcessKey> process, const Window& time, const StoreCommunicator& store);
    void set_straggler_options(const StragglerOptions& options);
    /// Passes go on though no call comes in. Any thread.
    void keep_awake(bool awake);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
