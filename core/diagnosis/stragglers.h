// Ranks of one host that keep coming last to their collectives: since when, how late, what they did meanwhile, and when
// that was over. Ranges are judged one after another, so that live and stored calls have the same answer.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/diagnosis/evidence/collective_waits.h"
#include "core/diagnosis/evidence/late_arrival.h"
#include "core/diagnosis/evidence/meanwhile.h"
#include "core/diagnosis/evidence/rank_conditions.h"
#include "core/diagnosis/explain.h"
#include "core/query/answers/stats.h"

namespace ingero {

struct StragglerOptions {
    uint64_t floor_ns = default_late_from_ns;           ///< who is not later than this is not late
    unsigned step_percent = default_late_step_percent;  ///< nor who is not later than this part of a step
    unsigned late_percent = 60;                         ///< of the latest ranges: from here on it is a straggler
    size_t ranges = 50;                                 ///< the latest, of those
    uint64_t latest_ns = 10'000'000'000;                ///< the ones of so long, where they are `least_ranges`
    size_t least_ranges = 8;
};

/// One rank, from when it was found to keep coming last to when it no longer did.
struct StragglerEpisode {
    std::string id;        ///< 16 hex digits
    std::string incident;  ///< id of its incident in the store; empty: there is none, or it was not looked for
    uint64_t hash = 0;     ///< of the communicator
    ProcessKey process;
    uint32_t tid = 0;
    uint64_t communicator = 0;  ///< CommunicatorRow::id
    std::optional<uint32_t> rank;
    std::optional<uint32_t> ranks;  ///< of the communicator, on whichever hosts
    size_t local_ranks = 0;         ///< of them on this host
    // CLOCK_MONOTONIC.
    uint64_t since_ns = 0;     ///< when others first waited for it
    uint64_t detected_ns = 0;  ///< the end of the range that decided
    uint64_t latest_ns = 0;    ///< the end of the latest range in which it was late
    uint64_t resolved_ns = 0;  ///< 0: not yet
    // Of the latest ranges when it was last late.
    uint64_t lateness_ns = 0;  ///< median
    uint64_t threshold_ns = 0;
    size_t late = 0;
    size_t of_ranges = 0;
    double certain_share = 0;  ///< of their time, that in which others surely waited for it
    uint64_t lost_ns = 0;      ///< that the rank that waited longest waited, summed over ranges since since_ns
    uint64_t at_once_ns = 0;   ///< of that, in ranges that the ranks then left at once
    uint64_t late_ranges = 0;  ///< since since_ns
    uint64_t worst_ns = 0;
    uint64_t counted_until_ns = 0;          ///< CLOCK_MONOTONIC, in lost_ns
    std::vector<MeanwhilePart> meanwhile;   ///< sums to lost_ns
    std::vector<RankCondition> conditions;  ///< that may be why, as far as add_conditions() was called

    /// What it did for half of the time or more; nullptr where there is no such thing, or it is not known.
    const MeanwhilePart* cause() const;
    /// Of what others surely lost by it. One that is low opens no incident.
    Severity severity() const;
};

struct StragglerChange {
    bool resolved = false;
    StragglerEpisode episode;
};

/// What ranks waited for each other, over all ranges.
struct RankTotals {
    std::optional<uint32_t> rank;
    ProcessKey process;
    uint64_t ranges = 0;
    uint64_t came_last = 0;  ///< late enough to count
    uint64_t late_ns = 0;    ///< that the longest waiting one waited for it then
    uint64_t waited_ns = 0;  ///< for late ranks
    std::map<std::pair<ProcessKey, uint64_t>, std::pair<uint64_t, uint64_t>> waited_for;  ///< rank: ns, times
};

/// Of one communicator.
struct CommunicatorTotals {
    std::optional<uint32_t> ranks;
    uint64_t ranges = 0;                                            ///< with two ranks or more of this host
    uint64_t step_ns = 0;                                           ///< of the latest ranges, median
    std::map<std::pair<ProcessKey, uint64_t>, RankTotals> members;  ///< by process and CommunicatorRow::id
};

/// "rank 3 (python, pid 4711)".
std::string rank_text(const StragglerEpisode& episode, const std::string& comm);
/// The episode as a finding: `comm` of the process.
Finding straggler_finding(const StragglerEpisode& episode, const std::string& comm, const ClockTriple& clock);

/// From measurements of the last seconds of the episode. `totals`: of its communicator.
void add_conditions(StragglerEpisode& episode, const std::map<uint64_t, CommunicatorTotals>& totals,
                    std::span<const GpuStates> gpus, const KnownProcesses& processes);

class StragglerWatch {
  public:
    /// `communicators` must outlive it, and may change between calls. `seed` goes into ids.
    StragglerWatch(const Communicators& communicators, const StragglerOptions& options, std::string seed = {});

    void set_options(const StragglerOptions& options) { options_ = options; }
    /// Processes with communicators are others than before.
    void communicators_changed();
    /// Whether the op says anything of collectives or of waits.
    static bool wants(const Event& event);
    /// Calls and waits about as they ended.
    void take(std::span<const Event> events);
    /// Judges what ended before `until_ns`, which nothing is taken of any more.
    std::vector<StragglerChange> settle(uint64_t until_ns);
    /// Ends the episodes of communicators whose ranks have left no range for some steps. Where a later range shows
    /// that, settle() does it: the episodes are the same however often this is called.
    std::vector<StragglerChange> quiet(uint64_t now_ns);

    std::vector<StragglerEpisode> open() const;
    const std::map<uint64_t, CommunicatorTotals>& totals() const { return totals_; }

  private:
    using Rank = std::pair<ProcessKey, uint64_t>;
    struct Latest {
        LateArrival arrival;
        bool late = false;
    };
    struct Watched {
        std::deque<Latest> latest;
        std::deque<uint32_t> judged;  ///< the last collectives of ranges, the latest
        size_t local_ranks = 0;
        std::optional<uint32_t> ranks;
        std::map<Rank, StragglerEpisode> open;
        uint64_t last_end_ns = 0;
    };

    void pass_on(uint64_t until_ns);
    void judge(const CollectiveRange& range, std::vector<StragglerChange>& changes);
    void add_totals(const CollectiveRange& range, const LateArrival* late, bool is_late);
    /// Ranges that count for the rank, in order; none where they are too few.
    std::vector<const Latest*> latest_of(const Watched& watched, const Rank& rank) const;
    void open_or_close(uint64_t hash, Watched& watched, uint64_t threshold_ns, std::vector<StragglerChange>& changes);
    /// Late by more than the devices then needed, or as far as is seen of what it did.
    bool is_late(LateArrival& arrival, uint64_t threshold_ns) const;
    /// From one range to the next, the median of the latest; 0: not known.
    uint64_t step_ns(const Watched& watched) const;
    /// Whether a time without ranges is a pause of its loop, and no step.
    bool is_quiet(const Watched& watched, uint64_t silent_ns) const;
    /// That have ended, as far as calls were taken.
    std::vector<CollectiveRange> unjudged_ranges() const;
    /// Nobody is late any more, and ranges of before do not count.
    static void end_all(Watched& watched, std::vector<StragglerChange>& changes);
    StragglerEpisode begin(uint64_t hash, const Watched& watched, const RankWait& rank);
    void add_late(StragglerEpisode& episode, const LateArrival& arrival) const;

    const Communicators& communicators_;
    StragglerOptions options_;
    std::string seed_;
    std::set<ProcessKey> processes_;
    std::vector<Event> waiting_;
    CollectiveWaitsDeriver deriver_;
    ThreadHistory history_;
    std::map<uint64_t, Watched> watched_;
    std::map<uint64_t, CommunicatorTotals> totals_;
};

struct StragglersAnswer {
    Window window;  ///< CLOCK_REALTIME
    Coverage coverage;
    StragglerOptions options;
    struct Boot {
        ClockTriple clock;
        std::map<uint64_t, CommunicatorTotals> communicators;
        std::vector<StragglerEpisode> episodes;  ///< the one that lost the most first
    };
    std::vector<Boot> boots;
};

/// Errors: those of the store.
Result<StragglersAnswer> compute_stragglers(const StoreSnapshot& snapshot, const Filter& filter,
                                            const StragglerOptions& options = {});

}  // namespace ingero
