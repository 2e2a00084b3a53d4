// How long each rank waited in its collectives, derived: a collective's call only puts it on a stream, and what the
// thread waits for is its next synchronisation with that stream. So the wait is known for the collectives between two
// synchronisations together, a range of sequence numbers. The ranks of a communicator leave a collective together: who
// waited least came last, and no clocks need be compared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/model/event.h"
#include "core/model/op.h"
#include "core/query/communicators.h"

namespace ingero {

/// A process and its CommunicatorRow::id: one process may have several ranks.
using RankKey = std::pair<ProcessKey, uint64_t>;

/// One rank's part in a range.
struct RankWait {
    ProcessKey process;
    uint32_t tid = 0;           ///< of the thread that synchronised
    uint64_t communicator = 0;  ///< CommunicatorRow::id within the process
    std::optional<uint32_t> rank;
    uint32_t first_sequence = 0;    ///< after the synchronisation before
    uint64_t enqueue_start_ns = 0;  ///< CLOCK_MONOTONIC, of the range's first collective
    uint64_t arrival_ns = 0;        ///< the same of its last: before it no rank can have left
    uint32_t arrival_tid = 0;       ///< of the thread that made that call
    /// Until then it waited itself for a stream or its device, behind an earlier collective of theirs, which no rank
    /// had left sooner: no device can have been further by then. 0: not known.
    uint64_t free_from_ns = 0;
    uint64_t sync_start_ns = 0;
    uint64_t sync_end_ns = 0;
    uint64_t wait_ns = 0;      ///< in the synchronisation, less the time it could run and had no CPU
    uint64_t lateness_ns = 0;  ///< the longest wait of the range's ranks less its own
    OpId sync_op = 0;
    uint64_t sync_call = 0;             ///< sequences in the store
    uint64_t arrival_call = 0;          ///< of the last collective's
    OpId arrival_op = 0;                ///< of the last collective
    std::optional<uint32_t> root = {};  ///< of that, where it is a broadcast or a reduction to one rank
};

/// When the ranks put one collective on their streams.
struct EnqueueSkew {
    uint64_t hash = 0;
    uint32_t sequence = 0;
    struct Enqueue {
        ProcessKey process;
        uint64_t communicator = 0;  ///< CommunicatorRow::id within the process
        std::optional<uint32_t> rank;
        uint64_t start_ns = 0;  ///< CLOCK_MONOTONIC
        uint64_t late_ns = 0;   ///< after the first
        uint32_t tid = 0;
        OpId op = 0;
        uint64_t bytes = 0;  ///< 0: not known
        uint64_t call = 0;   ///< its sequence in the store
        std::optional<uint32_t> root = {};
        uint64_t free_from_ns = 0;  ///< as RankWait has it
    };
    std::vector<Enqueue> ranks;  ///< in order of time
    uint64_t skew_ns() const { return ranks.empty() ? 0 : ranks.back().late_ns; }
};

/// The collectives that the ranks of one communicator put on streams between two synchronisations, up to the one that
/// each has as its last.
struct CollectiveRange {
    uint64_t hash = 0;  ///< of the communicator
    uint32_t first_sequence = 0;
    uint32_t last_sequence = 0;
    std::optional<uint32_t> ranks;  ///< of the communicator, on whichever hosts
    std::vector<RankWait> waits;    ///< of those that synchronised with it, by rank
    /// Who was the last to enter the last one, whether it synchronised there or not; nothing: not known.
    std::optional<EnqueueSkew::Enqueue> last_to_enter = {};
    size_t entered = 0;            ///< ranks of this host that entered it
    uint64_t root_entered_ns = 0;  ///< the root, where it is a broadcast; 0: it is none, or that is not known

    size_t local_ranks() const { return std::max(waits.size(), entered); }
};

struct CollectiveWaits {
    std::vector<CollectiveRange> ranges;  ///< in order of their first synchronisation's end
    std::vector<EnqueueSkew> skews;       ///< by communicator and sequence; only where several ranks were seen
};

/// Collectives of one rank on one stream that no synchronisation with a stream or device has waited for yet.
struct OpenCollectives {
    ProcessKey process;
    uint64_t hash = 0;
    uint64_t communicator = 0;
    uint32_t first_sequence = 0, last_sequence = 0;
    /// Its thread has since waited for an event, which need not be behind them.
    bool event_waited = false;
};

/// Derives them call by call. Bounded: of a communicator it keeps the latest 4,096 ranges.
class CollectiveWaitsDeriver {
  public:
    /// `communicators` must outlive it.
    explicit CollectiveWaitsDeriver(const Communicators& communicators);
    CollectiveWaitsDeriver(const CollectiveWaitsDeriver& other);
    CollectiveWaitsDeriver(CollectiveWaitsDeriver&& other) noexcept;
    ~CollectiveWaitsDeriver();

    static bool wants(const Op& op);
    /// Of calls of these ops: whether it says anything.
    static bool wants(const Event& event);
    /// What was waited for need not be all that was put on a stream before.
    static bool is_event_wait(OpId op);
    /// The order in which calls are to be taken: of start.
    static bool before(const Event& a, const Event& b);
    void take(const Event& event);
    CollectiveWaits finish() const;
    /// The ranges of which some rank left before `until_ns`, in order of that. They are then forgotten, as skews of
    /// before are.
    std::vector<CollectiveRange> take_ranges(uint64_t until_ns);

    /// Whether what the thread waited for in its call that began then was also, or instead, a collective of another
    /// communicator than that of this hash, or a message: other ranks, so that it need not have been its device.
    /// Nothing where that is forgotten.
    std::optional<bool> waits_for_others(const ProcessKey& process, uint32_t tid, uint64_t call_start_ns,
                                         uint64_t hash) const;
    std::vector<OpenCollectives> open() const;
    /// Who entered what, by sequence; one rank alone too. Empty where the communicator has none.
    std::map<uint32_t, EnqueueSkew> entered(uint64_t hash) const;
    /// From when on the rank used its communicator no more; UINT64_MAX where it may.
    uint64_t released_ns(const ProcessKey& process, uint64_t communicator) const;

    /// Of processes and communicators that are known no more.
    void forget_gone();
    /// The same, and keeps of each communicator what shows which rank has not come: the last collective that all ranks
    /// on this host have entered, some that follow it, and each rank's last. Forgets ranges, and whatever is of no rank
    /// any more.
    void forget_past();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// The deriver for calls as they are read: nearly in order. Those of processes without communicators are passed over.
class CollectiveFeed {
  public:
    explicit CollectiveFeed(const Communicators& communicators);
    bool empty() const { return processes_.empty(); }
    bool has(const ProcessKey& process) const { return processes_.contains(process); }
    /// To be called when there are others than before.
    void communicators_changed();
    void take(const Event& event);
    /// All that were taken.
    const CollectiveWaitsDeriver& derived();
    /// As CollectiveWaitsDeriver has it, of calls that began before; later ones wait for what may come before them.
    void forget_past(uint64_t settled_ns = UINT64_MAX);
    /// Without those.
    const CollectiveWaitsDeriver& settled() const { return deriver_; }

  private:
    void pass_on(size_t count);

    const Communicators& communicators_;

    std::set<ProcessKey> processes_;
    std::vector<Event> waiting_;
    CollectiveWaitsDeriver deriver_;
};

/// What ranks did before the time of which detectors are shown all calls.
struct PastCollectives {
    CollectiveFeed feed;
    uint64_t from_ns = 0;   ///< CLOCK_MONOTONIC: of processes that began since then it has all; 0: of none
    uint64_t first_ns = 0;  ///< CLOCK_MONOTONIC, of its first collective, or when ranks could enter one and did not
    /// The hashes of those communicators alone of which that is so; nothing: all of them.
    std::optional<std::set<uint64_t>> hashes = {};

    bool has(uint64_t hash) const { return !hashes || hashes->contains(hash); }
};

/// `events` are one boot's, in any order; what is none of collectives, synchronisations and waits of streams for events
/// is passed over. A collective is waited for by who synchronises with its stream or device, or with a stream that
/// waits for an event behind it, and by the thread's own wait for an event; a copy to the host that waits for its
/// stream is such a synchronisation. Collectives of communicators without a hash, which were made before they were
/// traced, are left out: which of their ranks belong together is not known. Sends and receives are too, since two ranks
/// alone leave them together.
CollectiveWaits collective_waits(std::span<const Event> events, const Communicators& communicators);

}  // namespace ingero
