// Collects what was assigned call by call, and decides what of it is worth a finding.
//
// One Ledger a boot and query. Bounded: a store may name any number of processes, threads, tasks and CPUs.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/diagnosis/assign.h"
#include "core/diagnosis/detector.h"
#include "core/diagnosis/evidence/cycles.h"
#include "core/diagnosis/explain.h"
#include "core/model/process/process.h"
#include "core/query/key_index.h"
#include "core/query/thread_key.h"

namespace ingero {

SlowCall make_slow_call(const Event& event, const CallTime& time, const Op* op, const Assignment& assignment,
                        const ClockTriple& clock);

/// The calls of one process in which one cause took a tenth of the excess or more, and its waits between calls that
/// have this cause; sums count each row as often as it stands for calls.
struct KindLedger {
    uint64_t calls = 0;
    uint64_t waited_ns = 0;         ///< assigned to the cause
    uint64_t newly_waited_ns = 0;   ///< the part of it in rows from ExplainOptions::new_from_sequence on
    CycleLoss lost;                 ///< of it, what made the threads' cycles longer
    CycleLoss newly_lost;           ///< the part of it in cycles that ended since then
    uint64_t host_excess_ns = 0;    ///< of the same calls
    uint64_t explained_ns = 0;      ///< of that, assigned to this cause or another: several may meet in one call
    uint64_t between_calls_ns = 0;  ///< the part of waited_ns that passed there
    uint64_t waits = 0;             ///< there
    bool over_call_floor = false;
    uint64_t worst_worth = 0;  ///< ns in it, of a call four times
    SlowCall worst;
    std::map<uint32_t, uint64_t> by_thread;  ///< waited
    /// `has_others`: threads waited in it that work for this one.
    struct ThreadLost {
        CycleLoss cycles;
        bool has_others = false;
    };
    std::map<uint32_t, ThreadLost> lost_by_thread;
    std::map<uint32_t, uint64_t> by_cpu;
    std::map<OpId, uint64_t> by_op;
    std::map<std::pair<std::string, uint32_t>, uint64_t> by_culprit;
    uint64_t unnamed_culprits_ns = 0;
    Evidence evidence;
};

class Ledger {
  public:
    Ledger(const ExplainOptions& options, const Window& window, const ClockTriple& clock);

    /// Every outermost call: how long each thread was active.
    void saw(const Event& event);
    /// A call, or a wait between calls.
    void add(const Event& event, const CallTime& time, const Op* op, const Assignment& assignment);
    /// What of the waits that were added, or will be, made a thread's cycle longer.
    void lose(const ThreadLoss& loss);
    /// A call whose like is not known: evidence that too little is known, where it lost much off the CPU.
    void add_unjudged(const Event& event, const CallTime& time, const Op* op, const Assignment& assignment);
    /// A wait for the device that took no longer than is usual, by assign_hidden(): reported only where nothing else
    /// has its cause.
    void add_hidden(const Event& event, const CallTime& time, const Op* op, const Assignment& assignment);

    std::vector<Finding> findings(const JudgementContext& context) const;
    /// Adds what of a finding's process was assigned to other causes.
    void add_rejected(Finding& finding) const;
    /// Adds what was assigned and is in no finding, by hypothesis.
    void add_rejected(const std::vector<Finding>& findings, std::map<std::string, uint64_t>& rejected) const;

  private:
    struct ProcessId {
        ProcessKey key;
        bool operator==(const ProcessId&) const = default;
        uint64_t hash() const { return hash_words(key.start_ns, key.pid); }
    };
    struct ProcessLedger {
        std::array<uint64_t, cause_count> ns{};
        std::map<std::string_view, uint64_t> excluded;  ///< by suspect_exclusion(), of which there are few
        uint64_t unexplained_ns = 0;
        std::array<std::unique_ptr<KindLedger>, finding_causes> kinds;
        std::array<std::unique_ptr<KindLedger>, finding_causes> unjudged;
        std::array<std::unique_ptr<KindLedger>, finding_causes> hidden;
    };

    ProcessLedger* process_of(const ProcessKey& process);
    void add_kind(KindLedger& kind, Cause cause, const Event& event, const CallTime& time, const Op* op,
                  const Assignment& assignment);
    uint64_t active_ns(const ProcessKey& process, const KindLedger& kind) const;
    std::optional<Finding> judge(const ProcessKey& process, Cause cause, const KindLedger& kind,
                                 const JudgementContext& context) const;
    void add_rejected(const ProcessKey& key, const ProcessLedger& process, const std::vector<Finding>& findings,
                      std::map<std::string, uint64_t>& rejected) const;

    ExplainOptions options_;
    Window window_;
    ClockTriple clock_;
    KeyIndex<ProcessId> process_index_;
    std::vector<ProcessLedger> processes_;
    KeyIndex<ThreadKey> thread_index_;
    std::vector<Window> active_;
    ProcessId last_process_;
    uint32_t last_process_number_ = KeyIndex<ProcessId>::none;
    ThreadKey last_thread_;
    uint32_t last_thread_number_ = KeyIndex<ThreadKey>::none;
};

/// Largest first, at most `limit`; hypotheses of 0 ns are left out.
std::vector<RejectedHypothesis> ranked(const std::map<std::string, uint64_t>& rejected, size_t limit);

}  // namespace ingero
