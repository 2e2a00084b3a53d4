// The event store: one LMDB environment in a directory, with events as versioned, checksummed column blocks.
//
// StoreWriter belongs to one thread of ingerod (the ingest thread). StoreReader is for workers and for closed stores:
// it never writes to the data file. Format: docs/store-format.md and block.h, where reader and writer stand side by
// side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/model/call_time.h"
#include "core/model/event.h"
#include "core/model/process/process.h"
#include "core/model/result.h"
#include "core/model/stack.h"
#include "core/model/time.h"
#include "core/store/block/block_view.h"
#include "core/store/file/page_check.h"
#include "core/store/rows/history.h"

namespace ingero {

/// Raised when an older program could misread what this one writes.
inline constexpr uint32_t store_layout_version = 3;

/// A run of the daemon. [first_covered_ns, last_covered_ns] is what it can answer for; between sessions is a gap.
struct Session {
    std::string id;  ///< 32 hex digits, random
    std::string boot_id;
    std::string node;  ///< host name
    std::string machine_id;
    std::string version;            ///< of ingerod
    std::string kernel;             ///< release
    std::string attach_method;      ///< "uprobe-session", "uprobe-multi", "perf-uprobe"
    uint32_t boot_index = 0;        ///< assigned by the store: sessions of one boot share it; it orders boots
    ClockTriple clock;              ///< at start
    ClockTriple latest_clock;       ///< at the latest commit
    uint64_t first_covered_ns = 0;  ///< CLOCK_MONOTONIC; 0 until the first probe is attached
    uint64_t last_covered_ns = 0;   ///< CLOCK_MONOTONIC
    bool ended_cleanly = false;
    /// Only rollups record calls from here to first_covered_ns; 0: nothing does. Where nothing is left of the
    /// session's own rows, first_covered_ns is last_covered_ns.
    uint64_t rolled_up_from_ns = 0;
};

/// What was lost in one interval, by op. Rows with all counts 0 are not stored.
struct LossRow {
    uint64_t from_ns = 0;  ///< CLOCK_MONOTONIC
    uint64_t to_ns = 0;
    OpId op = 0;
    uint64_t lost_ring = 0;
    uint64_t lost_frames = 0;
    uint64_t lost_depth = 0;
    uint64_t uncertain = 0;
    /// Not lost: other records of the op stand for these calls, or an imported trace counted them and left them out.
    uint64_t thinned = 0;
    bool is_empty() const { return lost() == 0 && uncertain == 0 && thinned == 0; }
    uint64_t lost() const { return lost_ring + lost_frames + lost_depth; }
    /// Of the same op: what was lost in both, and the time of both.
    void add(const LossRow& other) {
        from_ns = std::min(from_ns, other.from_ns);
        to_ns = std::max(to_ns, other.to_ns);
        lost_ring = saturating_add(lost_ring, other.lost_ring);
        lost_frames = saturating_add(lost_frames, other.lost_frames);
        lost_depth = saturating_add(lost_depth, other.lost_depth);
        uncertain = saturating_add(uncertain, other.uncertain);
        thinned = saturating_add(thinned, other.thinned);
    }
};

/// Why calls of some process were not seen although the daemon ran. Numbers are stored: never used again for another.
enum class GapReason : uint16_t {
    late_attach = 1,  ///< its library was mapped and not yet attached
    refused = 2,      ///< its library could not be attached
    turned_off = 3,   ///< a set of probes was turned off
    excluded = 4,     ///< [capture] leaves the process out
    too_many = 5,     ///< more gaps of one user than are kept: any process of theirs
    imported = 6,     ///< the trace it was imported from does not say in full what it left out
    gave_way = 7,  ///< the user had most of the store, and their oldest calls went for room: what is left are rollups
    sliced = 8,    ///< some calls of the process cost too much: they were seen in slices of the time only
    not_kept = 9,  ///< written by a version that knows more reasons
};
/// As answers name it: "late-attach", "refused" and so on.
std::string_view to_string(GapReason reason);

/// An interval in which calls of one process, or of all of them, may have been made unseen. A row with the same
/// from_ns, process and reason replaces the one before: that is how an open gap is closed.
struct GapRow {
    ProcessKey process;    ///< pid 0: any process, of `uid` where that or start_ns is not 0
    uint32_t uid = 0;      ///< of the process
    uint64_t from_ns = 0;  ///< CLOCK_MONOTONIC
    uint64_t to_ns = 0;    ///< 0: it lasts
    GapReason reason = GapReason::late_attach;
    std::string subject;  ///< what is not seen: a library's base name, a probe set
};
inline bool is_of_anyone(const GapRow& row) {
    return row.process == ProcessKey{} && row.uid == 0;
}

/// The name behind a function handle that launches carry.
struct FunctionRow {
    ProcessKey process;
    uint64_t handle = 0;
    uint64_t seen_ns = 0;  ///< CLOCK_MONOTONIC, when the name was recorded; a handle may be given out again
    std::string name;      ///< mangled, as the target has it
};

/// How a process came to a communicator. Numbers are stored: never used again for another.
enum class CommunicatorOrigin : uint8_t { found = 0, init_rank = 1, init_all = 2, split = 3, not_kept = 4 };
/// As answers name it: "found", "init-rank", "init-all", "split"; "unknown" where written by a version that knows more.
std::string_view to_string(CommunicatorOrigin origin);

/// One rank's NCCL communicator, as its process has it. core/query/communicators.h works out the ranks after a split.
struct CommunicatorRow {
    ProcessKey process;
    uint64_t id = 0;           ///< the second argument of the calls that use it; never another's in its process
    uint64_t handle = 0;       ///< ncclComm_t; 0: the split gave this rank none, or the handle was given out later
    uint64_t hash = 0;         ///< the same for all ranks; 0: not known
    uint64_t parent = 0;       ///< id of what it was split from; 0: none
    uint64_t parent_hash = 0;  ///< 0: none, or not known
    uint64_t seen_ns = 0;      ///< CLOCK_MONOTONIC, when it was made, or first used
    int32_t rank = -1;         ///< -1: not known, as after a split
    uint32_t ranks = 0;        ///< 0: not known
    int32_t color = 0;         ///< of a split; below 0: this rank is in no part
    int32_t key = 0;           ///< of a split
    uint32_t split = 0;        ///< number of this split among the parent's, from 1; 0: none
    CommunicatorOrigin origin = CommunicatorOrigin::found;
    /// CLOCK_MONOTONIC, from when on collectives of this rank may not have been seen, so that its numbers are no longer
    /// those of the other ranks; 0: never.
    uint64_t interrupted_ns = 0;
};

struct StoreOptions {
    uint64_t max_size_bytes = 10ULL << 30;  ///< of the data file; at least 16 MiB is taken
    bool create = true;                     ///< false: a missing store is not_found
    uint64_t max_age_ns = 0;                ///< of calls, spans and states; 0: as long as there is room
    uint64_t max_rollup_age_ns = 0;         ///< of rollups and clocks; 0: as long as there is room
    uint64_t compress_after_ns = 24 * 3'600'000'000'000ULL;  ///< tidy() compresses blocks this long after their end
    std::function<ClockTriple()> clock = ClockTriple::now;   ///< what latest_clock is read from; tests set their own
    /// Of open() alone, which reads all pages of a store.
    PageProgress progress = {};
    /// The user as whose a uid's calls count where room has to be made: who has most gives way. Asked by the writer's
    /// thread. Empty: all calls count as one user's.
    std::function<uint32_t(uint32_t uid)> owner_of = {};
};

/// What one commit writes, all in one transaction.
struct Batch {
    std::vector<Event> events;       ///< any order; sequence already assigned, ascending
    std::vector<Process> processes;  ///< new or changed; replaces the row of the same key
    std::vector<LossRow> losses;
    std::vector<GapRow> gaps;
    std::vector<FunctionRow> functions;          ///< the latest name of a handle stays
    std::vector<CommunicatorRow> communicators;  ///< replaces the row of the same process and id
    std::vector<StackRow> stacks;
    std::vector<FileRow> files;  ///< replaces the row of the same id
    std::vector<SymbolRow> symbols;
    std::vector<SpanRow> spans;  ///< those that the boot has already are stored once
    std::vector<IncidentRow> incidents;
    std::vector<StateRow> states;
    std::vector<RollupRow> rollups;  ///< added to those there are; only what copies a store has any
    /// Of the running session, which is then written as their own. Only what copies a store has any: from the first
    /// commit that does, the writer adds none of the clock it reads.
    std::vector<ClockRow> clocks;
    uint64_t covered_until_ns = 0;  ///< CLOCK_MONOTONIC; everything before it was read from the rings
};

struct StoreFigures {
    uint64_t bytes = 0;  ///< of the data file, up to the last page in use; what is allocated ahead does not count
    uint64_t cap_bytes = 0;
    uint64_t blocks = 0;
    uint64_t last_sequence = 0;
    uint32_t last_stack = 0;  ///< the highest ids there are; the next new one comes after
    uint32_t last_file = 0;
    uint64_t oldest_realtime_ns = 0;        ///< 0 when empty
    uint64_t events_dropped_for_space = 0;  ///< since this writer opened
    uint64_t spans_dropped_for_space = 0;   ///< the same, before the calls of their time
    uint64_t states_dropped_for_space = 0;  ///< as of spans
};

class StoreWriter {
  public:
    /// Opens or creates the store in `directory` (which must exist) and takes its lock. Errors: busy (another daemon
    /// has it), version (written by a newer ingero), corrupt, internal (errno in the message); each with a hint. Busy
    /// too where options.progress said stop; the store is then as it was.
    static Result<std::unique_ptr<StoreWriter>> open(const std::string& directory, const StoreOptions& options);
    virtual ~StoreWriter() = default;

    /// Starts the session row; fills boot_index. Call once, before the first commit.
    virtual Result<void> begin_session(Session session) = 0;
    /// Sets first_covered_ns of the running session where it is still 0. Stored with the next commit.
    virtual void set_first_covered(uint64_t monotonic_ns) = 0;
    /// One synchronous transaction; when it returns, the batch survives kill -9 and power loss. At 85 % of the map, and
    /// past the age they may reach, the oldest blocks are rolled up and deleted first, and what they covered is no
    /// longer claimed as covered. On failure nothing of
    /// the batch is stored and the store stays usable. Errors: limit (the map is full while a reader holds old pages,
    /// or the batch is more than a quarter of the cap), internal (a full disk, no session), not_found (the data file
    /// was removed: that lasts).
    virtual Result<void> commit(const Batch& batch) = 0;
    /// Whether the batch is not more than a quarter of the cap. Takes as long as preparing it for a commit.
    virtual bool fits(const Batch& batch) = 0;
    /// Marks the session as ended cleanly.
    virtual Result<void> end_session() = 0;
    virtual StoreFigures figures() const = 0;
    /// One bounded piece of upkeep, in a synchronous transaction of its own: merges the blocks of small batches into a
    /// full one, or compresses old ones. Reads and writes at most some 20,000 rows. True where there is more to do.
    /// Call it when nothing waits to be committed, or every so many commits. Whatever happens to it, each row stays
    /// stored exactly once. Errors: as of commit(); the store stays usable, and it is tried again some commits later.
    virtual Result<bool> tidy() = 0;
};

/// One consistent view. Hold it for one query only: a held snapshot makes the file grow.
class StoreSnapshot {
  public:
    virtual ~StoreSnapshot() = default;

    virtual const std::vector<Session>& sessions() const = 0;  ///< in order of start
    virtual Result<std::vector<Process>> processes() const = 0;
    /// The boot of each process; one that is not there, of a snapshot that does not know.
    virtual Result<std::map<ProcessKey, uint32_t>> process_boots() const { return std::map<ProcessKey, uint32_t>(); }
    /// Loss rows that overlap the window. The window is CLOCK_MONOTONIC of the given boot.
    virtual Result<std::vector<LossRow>> losses(uint32_t boot_index, Window window) const = 0;
    /// Gaps that overlap the window; an open one reaches to the end of the boot's last session.
    virtual Result<std::vector<GapRow>> gaps(uint32_t boot_index, Window window) const = 0;
    virtual Result<std::vector<FunctionRow>> functions() const = 0;
    /// Nothing where the handle has no known name.
    virtual Result<std::optional<FunctionRow>> function(const ProcessKey& process, uint64_t handle) const = 0;
    /// Of all boots, in order of process and id.
    virtual Result<std::vector<CommunicatorRow>> communicators() const { return std::vector<CommunicatorRow>(); }
    /// Of these ids, those there are.
    virtual Result<std::map<uint32_t, StackRow>> stacks(const std::set<uint32_t>& ids) const = 0;
    virtual Result<std::map<uint32_t, FileRow>> files() const = 0;
    /// Of these places, those that were looked up.
    virtual Result<std::map<StackFrame, SymbolRow>> symbols(const std::set<StackFrame>& places) const = 0;
    /// Spans that overlap the window and that `wanted` says yes to, all where there is none, in order of start.
    virtual Result<std::vector<SpanRow>> spans(uint32_t boot_index, Window window,
                                               const std::function<bool(const SpanRow&)>& wanted = {}) const = 0;
    /// The spans of this id, in order of boot and start: of these boots, of all where there are none.
    virtual Result<std::vector<SpanRow>> spans_of(std::string_view id, const std::set<uint32_t>& boots) const = 0;
    /// What happened to incidents within the window, in order of time.
    virtual Result<std::vector<IncidentRow>> incidents(uint32_t boot_index, Window window) const = 0;
    virtual Result<std::vector<StateRow>> states(uint32_t boot_index, Window window) const = 0;
    /// The same one by one, in order of time, undecoded: a day of them is more than a query has memory for. Return
    /// false from `visit` to stop. Errors: corrupt.
    virtual Result<void> scan_states(uint32_t boot_index, Window window,
                                     const std::function<bool(const StateHead&)>& visit) const = 0;
    /// Rollups of the minutes that overlap the window, in order of minute, op and process. No call is in one of them
    /// and in a block too.
    virtual Result<std::vector<RollupRow>> rollups(uint32_t boot_index, Window window) const = 0;
    /// One a minute and session at most.
    virtual Result<std::vector<ClockRow>> clocks(uint32_t boot_index, Window window) const = 0;
    /// Calls `visit` with each block's matching events, blocks in order of start. An event matches when its
    /// [start, end) overlaps the window. Return false from `visit` to stop. Errors: corrupt, with the block's key.
    virtual Result<void> scan(uint32_t boot_index, Window window,
                              const std::function<bool(std::span<const Event>)>& visit) const = 0;
    /// The same blocks undecoded: calls `visit` with each block that can hold a matching event, in order of first
    /// start. Only headers are read and checked, so that a visit that asks for no column costs about 100 ns. The view
    /// is the snapshot's and is opened anew for the next block, but the view's bytes() stay valid as long as the
    /// snapshot: keep those to come back to a block. Whether each row of a block matches is said by lies_within().
    /// Return false from `visit` to stop. Errors: corrupt, with the block's key.
    virtual Result<void> scan_blocks(uint32_t boot_index, Window window,
                                     const std::function<bool(BlockView&)>& visit) const = 0;
    virtual StoreFigures figures() const = 0;
};

struct StoreVerification;
struct StoreDescription;

/// Of scan_states(), while the snapshot is held. Errors: corrupt.
Result<StateRow> read_state(const StateHead& head);

class StoreReader {
  public:
    /// Opens an existing store read-only and checks its pages. Opens all files snapshots will need, and maps the
    /// store's whole cap: address space that a limit such as RLIMIT_AS must leave room for. Errors: not_found, version,
    /// corrupt, denied, internal.
    ///
    /// With PageCheck::headers, for workers of the process that holds the store's lock, a page that was damaged since
    /// then is found only as it is read: seals and checksums make that an error, or the process dies in LMDB. So read
    /// such a store in a process whose death is an answer. verify() does not check pages either.
    static Result<std::unique_ptr<StoreReader>> open(const std::string& directory, PageCheck check = PageCheck::all);
    virtual ~StoreReader() = default;
    /// What was committed last. A snapshot may outlive the reader. Errors: corrupt; busy (the store outgrew its map
    /// while other snapshots of this reader are held); limit (too many readers).
    virtual Result<std::unique_ptr<StoreSnapshot>> snapshot() = 0;
    /// All of what was committed last, checked, or described: core/store/verify.h.
    virtual Result<StoreVerification> verify() = 0;
    virtual Result<StoreDescription> describe() = 0;
    /// What was committed last as a data file, written to an empty file from 0 on; its bytes. core/store/copy.h has the
    /// errors.
    virtual Result<uint64_t> copy_to(int fd) = 0;
};

}  // namespace ingero
