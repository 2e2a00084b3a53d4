// Judges calls: first learns what is usual, then holds each call against it. The same for a stored interval and for the
// live window.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/evidence/cycles.h"
#include "core/diagnosis/evidence/drained_gaps.h"
#include "core/diagnosis/evidence/excess.h"
#include "core/diagnosis/evidence/expected.h"
#include "core/diagnosis/evidence/wait_table.h"
#include "core/diagnosis/findings.h"
#include "core/query/event_filter.h"
#include "core/query/launch_queue.h"
#include "core/query/op_lookup.h"
#include "core/query/segment_columns.h"

namespace ingero {

/// The calls with the largest excess, in bounded memory.
class SlowCalls {
  public:
    explicit SlowCalls(size_t limit) : limit_(limit) {}

    bool wants(uint64_t excess_ns) const {
        return limit_ > 0 && (heap_.size() < limit_ || excess_ns > heap_.front().excess_ns);
    }
    void add(SlowCall call);
    /// Largest first.
    std::vector<SlowCall> take();

  private:
    size_t limit_;
    std::vector<SlowCall> heap_;
};

/// Calls count by weight, as lost ones do.
struct JudgedTotals {
    uint64_t recorded = 0;  ///< calls of any depth and process, and waits
    uint64_t calls = 0;     ///< that were judged
    uint64_t uncertain = 0;
    uint64_t failed = 0;  ///< of calls; not those that say that something is not ready yet
    uint64_t excess_ns = 0;
    uint64_t explained_ns = 0;
};

/// One boot's calls. `slow` and `totals` are added to and must outlive it.
class Judge {
  public:
    Judge(const DetectorContext& context, EventFilter filter, SlowCalls& slow, JudgedTotals& totals);

    /// Calls of the window and of the history before it; blocks in the order in which they were recorded.
    void learn(std::span<const Event> block);
    /// The same of a stored block all of whose rows count, of which no more is decoded than is asked for. Errors:
    /// corrupt.
    Result<void> learn(BlockView& block);
    void finish_learning();
    /// Whether rows of an op can be anything to judge(); of others it is enough to know how many there are.
    static bool is_judged(OpId op) { return is_call(op); }
    /// Appends those rows of a stored block, besides the calls, that judge() has a use for: waits between calls in
    /// which a thread that feeds a device had no CPU, or slept for a lock or for files. Once learnt. Errors: corrupt.
    Result<void> add_gap_waits(BlockView& block, std::vector<Event>& ret_rows);
    /// Calls of the window, and waits between them; blocks in order of start, rows of a block in any order. `others`:
    /// its rows that are left out.
    void judge(std::span<const Event> block, size_t others = 0);
    void finish_judging();
    void forget_samples();

    /// Of what time look_back() is to be shown all calls; empty where nothing asks for it. After judging.
    Window looks_back_at() const;
    void look_back(std::span<const Event> block);

    /// Of all detectors, in no order.
    std::vector<Finding> findings(const JudgementContext& context) const;
    const Ledger& ledger() const { return ledger_; }
    /// Empty unless ExplainOptions::with_groups.
    const Excess& excess() const { return excess_; }

  private:
    struct Watched {
        std::vector<Detector*> detectors;
        bool known = false;
    };
    void judge(const Event& event, bool queue_full);
    bool is_gap_wait(const Event& event);
    bool slept_in_work(const Event& wait) const;
    void judge_gap_wait(const Event& wait);
    void learn(const Event& call, const Op* op);
    void take_losses();
    void take_waits(std::span<const Event> block);
    Result<void> learn_calls(OpId op);
    Result<void> learn_waits(BlockView& block, size_t segment);
    /// Where the quota of its control group kept the thread off the CPU: as if that had had it.
    Event blame_quota(const Event& event) const;
    /// The same of so many ns of it.
    static Event blame_quota(Event event, uint64_t ns);
    bool is_neighbour(const Event& event, uint32_t preemptor_tgid) const;
    /// Who had the CPU, as far as the waits inside the call say more of it than the call, and whose tasks they are.
    Assignment name_preemptors(const Event& event, Assignment assignment) const;
    Assignment name_neighbours(const Event& event, Assignment assignment) const;
    Assignment name_resent(const Event& event, Assignment assignment) const;
    /// The block's calls that some detector wants, in order of start.
    void show(std::span<const Event> block, bool before);
    const std::vector<Detector*>& watchers_of(const Op& op);

    Window window_;
    std::vector<std::unique_ptr<Detector>> detectors_;
    std::vector<Detector*> of_failures_;
    std::vector<Watched> of_ops_;  ///< by place among all_ops()
    std::vector<const Event*> shown_;
    std::vector<Event> rows_;  ///< of the block that is learnt from
    SegmentColumns columns_;   ///< the same
    std::vector<uint16_t> wanted_;

    EventFilter filter_;
    EventFilter any_process_;  ///< whom a thread waited for may be of another process than is asked about
    WaitTable waits_;
    DeviceWork work_;
    DrainedGaps gaps_;
    Cycles cycles_;
    std::vector<ThreadLoss> losses_;  ///< of the block that is judged
    const KnownProcesses* processes_;
    ClockTriple clock_;
    ExpectedTimes expected_;
    Ledger ledger_;
    bool with_groups_;
    Excess excess_;
    LaunchQueues queues_;
    OpLookup ops_;
    SlowCalls& slow_;
    JudgedTotals& totals_;
};

}  // namespace ingero
