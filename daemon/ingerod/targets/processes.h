// The processes that map GPU libraries: found by their mappings and calls, watched for their end, traced or left out by
// [capture], and what is not seen of each. Loop thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bpf/event.h"
#include "core/model/process/process.h"
#include "core/model/unique_fd.h"
#include "core/query/communicators.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/discovery/process_walk.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/probes/capture_gate.h"
#include "daemon/ingerod/targets/capture_policy.h"
#include "daemon/ingerod/targets/coverage_gaps.h"
#include "daemon/ingerod/targets/ended_processes.h"
#include "daemon/ingerod/targets/late_looks.h"
#include "daemon/ingerod/targets/libraries.h"
#include "daemon/ingerod/targets/unexamined_processes.h"
#include "daemon/ingerod/targets/unreadable_processes.h"

namespace ingero {

struct ProcessEntry {
    Process process;
    UniqueFd pidfd;
    EventLoop::Source exit_source;
    std::set<LibraryKey> libraries;
    std::set<FileId> refused;             ///< those of its libraries that are not attached to
    uint32_t owner = 0;                   ///< whose share its descriptor is, see UidOwners
    uint64_t number = 0;                  ///< in which order it was found
    std::optional<std::string> excluded;  ///< by [capture], and why: it is watched for its end only
    std::optional<uint64_t> spared_ns;    ///< since when it is under a seccomp filter that tracing might end it for
    bool has_facts = false;               ///< of the program that it runs
    uint64_t program_since_ns = 0;        ///< that it runs it; 0: the first that was seen
    uint64_t calls_before = 0;            ///< at the last rate measurement
    double calls_per_s = 0;
};

struct ProcessLimits {
    /// Those that are watched for their end, each with a descriptor.
    uint64_t total = 16'384;
    uint64_t of_a_user = 1'024;
    /// To look at a process that called for the first time, or runs another program, takes up to some ms. Of one user
    /// so many at once, a job that starts, and then one a period.
    uint64_t look_burst = 512;
    uint64_t look_period_ns = 20'000'000;

    /// Half of the descriptors that this process may have.
    static ProcessLimits of_descriptors();
};

class Processes {
  public:
    struct Callbacks {
        std::function<void()> on_change;
        std::function<void(const Process&)> put_process;  ///< a new or changed row
        /// As the NCCL communicators have it that it made since then.
        std::function<std::optional<JobRank>(const ProcessKey&, uint64_t since_ns)> rank_of =
            [](const auto&, uint64_t) { return std::nullopt; };
        std::function<void(const ProcessKey&)> on_not_traced;  ///< gone, or left out: its figures are of no use
        std::function<void(GapRow)> put_gap;
        /// Code of a process that a scan came across: on_program() is called where it is to be traced.
        std::function<void(uint32_t pid, const Mapping&, uint64_t time_ns)> look_at_program;
        std::function<void(const ProcessKey&)> on_exec;     ///< it runs another program: what it maps is to be read
        std::function<void(const ProcessKey&)> on_evicted;  ///< it lives, but nothing says when it ends
        /// Collectives of the process, or of all of them, may be made unseen in that time (CLOCK_MONOTONIC): from then
        /// on their numbers are not those of other ranks.
        std::function<void(std::optional<ProcessKey>, const Window&)> on_interrupted = [](const auto&, const Window&) {
        };
    };
    /// `proc`, `libraries`, `gate` and `owners` must outlive it.
    Processes(EventLoop& loop, const ProcFs& proc, Libraries& libraries, CaptureGate& gate, const UidOwners& owners,
              const ProcessLimits& limits, Callbacks callbacks);

    /// Looks at all processes of the host. What is found mapped may have been so since `since_ns` (CLOCK_MONOTONIC), or
    /// since the process began.
    void scan(uint64_t since_ns);
    /// The same bit by bit, with turns for others between; once more when it has ended where that goes on already.
    void scan_in_turns(uint64_t since_ns);
    /// A library is mapped, at `time_ns`. `recorded`: what the process called since then is seen all the same, if the
    /// library has its probes.
    void on_mapping(uint32_t pid, const Mapping& mapping, uint64_t time_ns, bool recorded = false);
    /// The process's program has the CUDA runtime inside.
    void on_program(uint32_t pid, const Mapping& mapping, uint64_t time_ns);
    /// Whether the program that the process runs, or ran, has it inside is not known.
    void on_unexamined(uint32_t pid, const Mapping& mapping, uint64_t time_ns, const std::string& why);
    /// A call was recorded of a process that may not be known: a forked child maps a library without a record of it.
    void on_call(const ProcessKey& key);
    /// It made a communicator: its rank may be another now.
    void on_ranked(const ProcessKey& key);
    void on_change(const ingero_process_record& change);
    void on_settled(const LibraryKey& library);
    void on_let_go(const LibraryKey& library);
    /// It had its probes, and is attached to anew.
    void on_missed(const LibraryKey& library);
    /// So long after they were let go probes are attached again, unless the host is in trouble.
    static constexpr uint64_t reattached_ns = 10'000'000'000;
    /// All libraries are let go and found anew.
    void look_again();
    void set_policy(CapturePolicy policy);
    /// Why a process is not to be traced; nothing where it is.
    std::optional<std::string> excluded_by(const Process& process) const { return policy_.excluded_by(process); }
    /// What is kept of processes that are found from now on, and of programs that they run.
    void set_facts(FactsOptions options) { facts_options_ = std::move(options); }

    /// Calls that nobody's probes see, from now on and until it is turned on again.
    void probe_set_turned(const std::string& set, size_t number, bool on);
    /// From now on calls of these ops are seen in slices only; of none: all its calls are seen again.
    void in_slices(const ProcessKey& key, const std::string& ops);
    /// Some of its libraries' functions are not attached to for it; since then they are.
    void is_late(const ProcessKey& key, uint64_t since_ns);
    void is_attached(const ProcessKey& key, uint64_t since_ns);
    /// Nothing is seen from now on.
    void close_gaps();

    const std::map<uint32_t, ProcessEntry>& all() const { return processes_; }
    ProcessEntry* find(const ProcessKey& key);
    /// One of the latest few thousand that were known and have ended: of what is recorded of them later only how they
    /// ended is of use, where that is not known.
    bool has_ended(const ProcessKey& key) const { return ended_.contains(key); }
    /// Its row is kept here: what is known of it elsewhere is not to be put over it.
    bool has_row(const ProcessKey& key) const;
    /// One that is known has the library mapped, or had.
    bool has_library(const LibraryKey& library) const;
    /// Of the known processes that have the library mapped, each uid once.
    std::vector<uint32_t> uids_of(const LibraryKey& library) const;
    /// Those that called or began another program and are still to be looked at.
    size_t late() const { return late_.size(); }
    /// Without those that [capture] leaves out.
    size_t traced() const;
    /// "tracing", "attaching", "failed".
    std::string state_of(const ProcessEntry& entry) const;

  private:
    void scan_process(uint32_t pid, uint64_t since_ns, bool recorded = false);
    void end_scan();
    void trace(uint32_t pid, const Mapping& mapping, TracedFile file, uint64_t time_ns, bool recorded);
    void trace(ProcessEntry& process, const Mapping& mapping, TracedFile file, uint64_t time_ns, bool recorded);
    /// Null where it is gone, its user has no share left, or it is held up, since `since_ns`.
    ProcessEntry* observe(uint32_t pid, uint64_t since_ns);
    void make_room(uint32_t owner);
    bool is_beyond_share(uint32_t pid);
    void report_crowd(uint32_t owner, uint32_t uid);
    void evict(std::map<uint32_t, ProcessEntry>::iterator process);
    void drop(std::map<uint32_t, ProcessEntry>::iterator process);
    void look_later(uint32_t owner, const ProcessKey& key, uint64_t since_ns);
    void look(const ProcessKey& key, uint64_t since_ns);
    void look_at_caller(const ProcessKey& key);
    void look_at_new_program(const ProcessKey& key, uint64_t since_ns);
    void take_over(ProcessEntry& entry, Process now);
    void read_facts(ProcessEntry& entry);
    void on_pidfd(uint32_t pid);
    void forget(uint32_t pid, uint64_t exited_ns, int exit_code);
    void on_exec(ProcessEntry& entry, uint64_t time_ns);
    void on_exec_of_unknown(const ProcessKey& key, const ingero_process_record& change);
    void refuse(ProcessEntry& process, FileId file, const std::string& name, uint64_t time_ns, const std::string& why);
    void warn_not_traced(const std::string& what, uint32_t pid, const std::string& why);
    void on_spared(const ProcessKey& key, uint64_t time_ns);
    /// Opens the gap of a process that is spared.
    void open_spared_gap(const ProcessEntry& entry, uint64_t from_ns);
    void drop_libraries(ProcessEntry& entry);
    void decide(ProcessEntry& entry);
    void apply_policy(ProcessEntry& entry);
    void read_undecided();
    /// Gone before it could be looked at: it called, or `ended` as the row says. Once both are known, so is it.
    void put_gone(const ProcessKey& key, const std::optional<Process>& ended);
    /// With its end as the record has it.
    void put_end(Process row, const ingero_process_record& change);
    void on_end_of_unknown(const ProcessKey& key, const ingero_process_record& change);

    EventLoop& loop_;
    const ProcFs& proc_;
    Libraries& libraries_;
    CaptureGate& gate_;
    const UidOwners& owners_;
    Callbacks callbacks_;
    CoverageGaps gaps_;
    CapturePolicy policy_;
    FactsOptions facts_options_;
    std::map<uint32_t, ProcessEntry> processes_;
    Shares watched_;
    /// Oldest first, of each user: number to pid.
    std::map<uint32_t, std::map<uint64_t, uint32_t>> in_order_;
    uint64_t last_number_ = 0;
    std::set<uint32_t> crowded_;             ///< users who have a gap, since they had too many
    std::map<ProcessKey, Process> evicted_;  ///< the latest few thousand
    std::deque<ProcessKey> evicted_order_;
    UnreadableProcesses unreadable_;
    LateLooks late_;
    UnexaminedProcesses unexamined_;
    uint64_t scan_since_ns_ = 0;
    uint64_t next_scan_since_ns_ = UINT64_MAX;  ///< of the scan that begins when the one under way has ended
    /// From then on what was reported as mapped may not have been looked at, for want of room.
    uint64_t dropped_since_ns_ = UINT64_MAX;
    ProcessWalk walk_{loop_, proc_, [this](uint32_t pid) { scan_process(pid, scan_since_ns_); },
                      [this] { end_scan(); }};
    /// Gone before they could be looked at: the record of the end says who it was, and may come before or after that of
    /// the first call. Nothing: it called, and that record is still to come.
    std::map<ProcessKey, std::optional<Process>> gone_unseen_;
    EndedProcesses ended_;  ///< one that [capture] left out has no row
    EventLoop::Source undecided_timer_;
    uint64_t refusal_logged_ns_ = 0;
};

}  // namespace ingero
