// The slow calls of a window and what made them slow. A nanosecond is blamed on one cause, by the call's own time split
// on the same thread; what cannot be assigned stays unexplained.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/diagnosis/evidence/excess.h"
#include "core/query/answers/stats.h"
#include "core/query/coverage.h"

namespace ingero {

/// Time waiting for the device is part of a call's split and never a culprit.
struct TimeSplit {
    uint64_t on_cpu_ns = 0;
    uint64_t device_wait_ns = 0;
    uint64_t runnable_ns = 0;
    uint64_t blocked_ns = 0;
};

struct Culprit {
    std::string name;  ///< a command, or what was waited for
    uint32_t pid = 0;  ///< 0 where it is no process
    uint64_t ns = 0;
    uint64_t function = 0;  ///< the handle of a launch's function, to be named by who knows the names; 0: none
    std::string request{};  ///< the id of the request that it held up, for its owner alone; empty: none
};

struct SlowCall {
    Event event;
    uint64_t start_realtime_ns = 0;
    uint64_t expected_ns = 0;
    uint64_t excess_ns = 0;
    uint64_t explained_ns = 0;
    TimeSplit split;
    std::string cause;  ///< of the largest part of the excess, as in Finding::kind and rejected; or "unexplained"
};

enum class Severity { low, medium, high };
enum class Verdict { proven, partial, unexplained, insufficient_evidence };

struct RejectedHypothesis {
    std::string hypothesis;
    uint64_t ns = 0;
};

struct Finding {
    std::string id;    ///< stable for the same cause in the same window
    std::string kind;  ///< "cpu-contention", "own-io-wait", "lock-wait", "memory-reclaim"...
    Severity severity = Severity::low;
    Verdict verdict = Verdict::unexplained;
    std::string summary;                   ///< one line with the number that matters
    uint64_t waited_ns = 0;                ///< by the process's threads: measured
    uint64_t lost_ns = 0;                  ///< what of it made the program slower, the likeliest value
    uint64_t lost_low_ns = 0;              ///< the least that it may be
    uint64_t lost_high_ns = 0;             ///< the most: more than waited_ns where coming back cost more, or where it
                                           ///< is not known what the awaited threads did
    uint64_t waited_between_calls_ns = 0;  ///< of waited_ns
    uint64_t newly_waited_ns = 0;          ///< of waited_ns, in rows from ExplainOptions::new_from_sequence on
    uint64_t newly_lost_ns = 0;            ///< of lost_ns, the same
    double window_share = 0;  ///< lost time of the busiest affected thread by the covered part of the window
    /// Of the excess without device wait, of the calls that this finding speaks of and of its waits between calls: the
    /// part that has a cause.
    double explained_fraction = 0;
    uint32_t pid = 0;  ///< the process that lost the time
    std::string comm;
    std::vector<Culprit> culprits;  ///< largest first
    std::vector<ProcessKey> ranks;  ///< of a collective that cannot end: that wait in it, and that it waits for
    std::vector<RejectedHypothesis> rejected;
    std::vector<uint64_t> evidence;  ///< event sequences, worst first, at most 20
    SlowCall worst;                  ///< the timeline shown; its op is op_wait for a wait between calls
    ProcessKey owner;                ///< of the work that was held up, where that is not the worst call's process
    uint32_t owner_uid = 0;          ///< of that
    bool between_calls = false;      ///< it was lost
    bool hidden = false;             ///< waited in calls that took no longer than is usual
    std::string incident_id;         ///< of the incident of the same kind and process in the window; may be empty
    std::string fix;
    std::string confirm;
    /// CLOCK_REALTIME, of what may be older than the window: when it last happened; of what lasts on, up to when it is
    /// known to. 0: it happened in the window.
    uint64_t happened_realtime_ns = 0;

    ProcessKey owning_process() const { return owner.pid != 0 ? owner : worst.event.process(); }
    /// Where all that was waited is lost, or more or less where lost_high_ns or lost_low_ns says so.
    void lost_all() {
        waited_ns = lost_ns;
        lost_low_ns = std::min(lost_low_ns, lost_ns);
        lost_high_ns = std::max(lost_high_ns, lost_ns);
        newly_waited_ns = newly_lost_ns;
    }
};

struct ExplainOptions {
    uint64_t call_floor_ns = 1'000'000;  ///< lost in one call to be worth a finding
    double window_floor = 0.005;         ///< or this share of the window
    double ratio_floor = 2.0;            ///< and duration by expected at least this
    size_t slow_calls = 10;              ///< listed
    uint64_t new_from_sequence = 0;      ///< the first row that no earlier pass over a moving window had
    size_t slices = 0;                   ///< equal parts of the window, each with its own sums
    bool with_groups = false;            ///< of processes and devices
};

/// How much longer than usual the calls of one process, or on one GPU, took.
struct ExcessGroup {
    std::string name;  ///< command; a GPU's index or UUID, "unknown"
    uint32_t pid = 0;  ///< 0: of several
    ExcessSums sums;
};

struct ExplainAnswer {
    Window window;
    Coverage coverage;
    std::vector<Finding> findings;  ///< the severest first, of these what lost most
    std::vector<SlowCall> slow_calls;
    std::vector<RejectedHypothesis> rejected;  ///< what was seen and is no finding, all processes together
    uint64_t calls = 0;
    uint64_t excess_ns = 0;
    uint64_t explained_ns = 0;
    ExcessSums excess;                            ///< all of excess_ns by cause
    std::vector<ExcessGroup> by_process, by_gpu;  ///< the largest excess first
    std::vector<ExcessSlice> slices;
    bool healthy = false;
    std::string summary;
};

Result<ExplainAnswer> explain(const StoreSnapshot& snapshot, const Filter& filter, const ExplainOptions& options = {});

}  // namespace ingero
