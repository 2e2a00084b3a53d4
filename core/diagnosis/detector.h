// A problem that can be found: what proves it, what that needs, and the code that does. A further one is a file in
// detectors/, with a line in detectors.h and one in catalogue.cpp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/diagnosis/assign.h"
#include "core/diagnosis/explain.h"
#include "core/diagnosis/incidents/known_processes.h"
#include "core/model/event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/query/communicators.h"
#include "core/store/rows/history.h"

namespace ingero {

/// An outermost call of the window that took longer than is usual, and where the rest of its time went.
struct JudgedCall {
    const Event& event;
    const CallTime& time;
    const Op* op;
    const Assignment& assignment;
    bool first_use;
};

struct PastCollectives;

struct DetectorContext {
    ExplainOptions options;
    Window window;  ///< CLOCK_MONOTONIC
    ClockTriple clock;
    const KnownProcesses* processes = nullptr;
    const Communicators* communicators = nullptr;
    const PastCollectives* collectives = nullptr;  ///< of before what is learnt from; null: none are known
};

class DrainedGaps;
class GapCauses;
struct GpuStates;
class WaitTable;

/// What finding needs to know of the window.
struct JudgementContext {
    uint64_t covered_ns = 0;  ///< of the window, by sessions
    Window window;            ///< CLOCK_MONOTONIC of the boot; empty: not known
    std::string boot_id;
    bool lossy = false;  ///< so much was lost that nothing is proven
    /// From here on, up to recorded_until_ns, all that was recorded was looked at: the window and the history before
    /// it. CLOCK_MONOTONIC of the boot; 0: not known.
    uint64_t learnt_from_ns = 0;
    uint64_t recorded_until_ns = UINT64_MAX;
    bool filtered = false;  ///< calls of other processes were left out
    ClockTriple clock;
    std::vector<LossRow> losses = {};  ///< of what was looked at; op 0: of any op
    const KnownProcesses* processes = nullptr;
    bool imported = false;        ///< of a trace that left calls out
    bool calls_left_out = false;  ///< and did not count them: a time without calls proves nothing
    const GapCauses* gaps = nullptr;
    const DrainedGaps* drained = nullptr;
    const WaitTable* waits = nullptr;
    const std::vector<GpuStates>* gpus = nullptr;  ///< what was measured of them in the window
    const std::vector<SpanRow>* spans = nullptr;   ///< that overlap the window, and who registered for their scopes
    size_t new_spans_from = 0;  ///< place in `spans` of the first that no earlier pass over a live window had

    /// What shares of a process's time are of: the covered time in which it was there. Of less than the live window
    /// shares say little: it is not less, but where less is covered.
    uint64_t time_of(const ProcessKey& process) const;
    /// learnt_from_ns, or later where rows of the process were dropped.
    uint64_t learnt_from(const ProcessKey& process) const;
    /// Whatever the process did, it did since then.
    bool knows_from_start(const ProcessKey& process) const;
    /// Up to when it is known what it did: to the end of the window, of the recording, or its own.
    uint64_t known_until_ns(const ProcessKey& process, const Window& window) const;
    /// Calls of these classes that were lost from `from_ns` to `to_ns`, of whichever process.
    uint64_t lost_calls(uint64_t from_ns, uint64_t to_ns, std::initializer_list<OpClass> classes) const;
};

/// One for each window and boot. Bounded: a store may name any number of processes, addresses and handles.
class Detector {
  public:
    virtual ~Detector() = default;

    /// Ops of which it is shown each call, outermost and others: those of the window and, by before(), those of the
    /// history before it. In order of start inside a block, blocks in order of start.
    virtual bool wants(const Op&) const { return false; }
    /// Also each call of any op that failed.
    virtual bool wants_failures() const { return false; }
    virtual void before(const Event&, const Op&) {}
    virtual void see(const Event&, const Op&) {}
    /// In any order.
    virtual void judged(const JudgedCall&) {}
    /// Once all calls were seen: of this time it is shown every call once more, in order as above. What few windows
    /// need is not kept for all.
    virtual Window looks_back_at() const { return {}; }
    virtual void look_back(const Event&, const Op&) {}

    virtual void find(const JudgementContext& context, std::vector<Finding>& ret_findings) const = 0;
};

/// What `ingeroctl problems` and the documentation say of a kind of finding.
struct CatalogueEntry {
    std::string_view kind;
    std::string_view title;
    std::string_view proof;   ///< the evidence that decides
    std::string_view needs;   ///< what must have been recorded
    std::string_view limits;  ///< what it cannot see
    /// nullptr: found of the calls' own time splits, by Ledger, or by the detector of the kind before.
    std::unique_ptr<Detector> (*make)(const DetectorContext&);
};

/// All kinds, in the order in which they are listed.
std::span<const CatalogueEntry> catalogue();

// What detectors have in common.

inline constexpr size_t max_evidence = 20;

/// The calls that lost the most.
class Evidence {
  public:
    void add(uint64_t ns, uint64_t sequence);
    /// A call to be listed after all that lost something themselves, unless it is among them.
    void add_last(uint64_t ns, uint64_t sequence);
    /// Sequences, the most lost first; at most max_evidence.
    std::vector<uint64_t> sequences() const;

  private:
    using Heap = std::vector<std::pair<uint64_t, uint64_t>>;  ///< lost time and sequence, the least on top
    static void add(Heap& heap, uint64_t ns, uint64_t sequence);

    Heap first_, last_;
};

/// A finding of a process, with what does not depend on its kind. `subject` distinguishes findings of one kind.
Finding make_finding(std::string_view kind, const ProcessKey& process, std::string_view subject,
                     const JudgementContext& context);
std::string finding_id(std::string_view kind, const ProcessKey& process, std::string_view subject,
                       const std::string& boot_id);
Severity severity_of(double window_share);
Verdict verdict_of(double explained_fraction, bool lossy);
/// 0 to 1; a part of nothing is all of it.
double share_of(uint64_t part, uint64_t whole);
/// "python (pid 123)"; "pid 123" where the name is not known.
std::string process_text(const Finding& finding);
std::string percent_text(double share);
/// "; that cost the program 2.4 s, 11.6 % of the window", to end a summary with. `at_most`: it may be less.
std::string loss_text(const Finding& finding, bool at_most = false);

}  // namespace ingero
