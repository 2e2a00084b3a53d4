// The waits of a window by thread, and where a thread's time between its calls went: followed from who slept to
// whoever ended the sleep, on and on while that one slept too. Each nanosecond counts once.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/diagnosis/assign.h"
#include "core/diagnosis/incidents/known_processes.h"
#include "core/model/event.h"
#include "core/model/time.h"
#include "core/query/event_filter.h"
#include "core/query/key_index.h"

namespace ingero {

/// What a thread did with a time, as far as its waits show.
enum class Spent : uint8_t {
    ran,          ///< on a CPU
    read,         ///< waited for a disk or a network file system to give
    wrote,        ///< the same to take: in a system call that writes or syncs
    peer,         ///< waited for the other end of a connection that it had asked for
    resent,       ///< waited for a connection on which nothing arrived, and what was sent had to be sent again
    child,        ///< waited for a process that it had started to end
    timer,        ///< slept for a time of its own choice, or until a wait timed out
    clients,      ///< waited for whoever may ask something of it
    no_cpu,       ///< could run, and had no CPU
    short_waits,  ///< off the CPU, each time too short to be recorded one by one
    unknown,
};

struct SpentPart {
    Spent spent = Spent::unknown;
    ProcessKey process;  ///< whose thread
    uint32_t tid = 0;
    Comm comm{};  ///< of the thread, as whoever it woke had it; empty: the thread that was asked about
    uint64_t ns = 0;
    uint64_t longest_ns = 0;         ///< of one wait
    const Event* longest = nullptr;  ///< that wait; nullptr where it ran
};

/// Bounded: where there are more waits than it keeps, the short ones are summed.
class WaitTable {
  public:
    static constexpr size_t max_waits = 65'536;
    /// A segment that is missing while others arrive is sent again at once.
    static constexpr uint64_t shortest_stall_ns = 1'000'000;

    /// `processes` must outlive it; may be null. What threads that are not `visible` did is not known.
    WaitTable(const KnownProcesses* processes, EventFilter visible)
        : processes_(processes),
          visible_(std::move(visible)),
          stall_floor_ns_(shortest_stall_ns),
          dropped_index_(max_waits) {}

    static bool wants(OpId op);
    void add(const Event& event);
    /// Of a wait that is too short nothing but what add_short() takes will be asked for, and of one shorter than that
    /// never again.
    bool is_short(uint64_t duration_ns) const { return duration_ns < floor_ns_; }
    void add_short(const ProcessKey& process, uint32_t tid, const Window& time);
    /// Once all are added; before anything is asked.
    void finish();
    bool empty() const { return waits_.empty() && summed_.empty(); }

    /// Whether waits of this process's threads were recorded.
    bool knows(const ProcessKey& process) const { return known_.contains(process); }
    /// Waits of a thread that overlap `time`, in calls too, in order of start; at most so many. Live as long as the
    /// table.
    std::span<const Event> waits_of(const ProcessKey& process, uint32_t tid, const Window& time, size_t most) const;
    /// How a thread spent `time`, calls left out of account: time in a call counts as `ran`. Adds up to its length.
    std::vector<SpentPart> split(const ProcessKey& process, uint32_t tid, const Window& time) const;
    bool has_throttled() const { return has_throttled_; }
    /// Of what the thread could run and did not within `time`, what its control group's quota forbade.
    uint64_t throttled_ns(const ProcessKey& process, uint32_t tid, const Window& time) const;
    /// The tasks that had the CPU while the thread could run within `time`, each wait's main one; the most time first.
    /// Who ran while a quota kept the thread off is left out: that is not the reason.
    std::vector<Preemptor> preemptors(const ProcessKey& process, uint32_t tid, const Window& time) const;
    struct ResentWait {
        uint64_t ns = 0;
        const Event* longest = nullptr;  ///< of these waits; lives as long as the table
    };
    /// Of what the thread waited for connections within `time`, that in which nothing arrived and was sent again.
    ResentWait resent(const ProcessKey& process, uint32_t tid, const Window& time) const;
    bool has_resent() const { return !stalls_.empty(); }

  private:
    struct Asker {
        ProcessKey process;  ///< at the root: whose workers are followed out of a poll
        std::vector<SpentPart> parts;
        size_t looked_at = 0;
    };
    std::span<const Event> of_thread(const std::vector<Event>& rows, uint32_t tgid, uint32_t tid) const;
    void split(Asker& asker, ProcessKey process, uint32_t tid, const Comm& comm, Window time, unsigned depth) const;
    void slept(Asker& asker, const ProcessKey& process, const Comm& comm, const Event& wait, Window time,
               unsigned depth) const;
    uint64_t resent_ns(const Event& wait, const Window& time) const;
    void drop_short();
    void know(const ProcessKey& process);
    void drop(uint32_t tgid, uint32_t tid, const Window& time, uint64_t ns);
    bool is_of(const ProcessKey& asker, uint32_t waker_tgid, uint64_t at_ns) const;

    const KnownProcesses* processes_;
    mutable EventFilter visible_;
    /// What of a thread there was no room for.
    struct Dropped {
        uint64_t from_ns = UINT64_MAX;
        uint64_t until_ns = 0;
        uint64_t ns = 0;
    };

    std::vector<Event> waits_, summed_;  ///< each by process id, thread and start, once finished
    /// A process's connection on which nothing that was sent arrived, up to when it was sent again.
    struct Stall {
        uint32_t tgid = 0;
        std::array<uint64_t, 2> peer{};
        uint64_t ports = 0;
        Window time;
        auto place() const { return std::tuple(tgid, peer, ports, time.to_ns); }
    };
    void drop_short_stalls();
    std::vector<Stall> stalls_;  ///< by connection and end, once finished
    uint64_t stall_floor_ns_;    ///< shorter ones are dropped
    struct ThreadKey {
        uint32_t tgid = 0, tid = 0;
        bool operator==(const ThreadKey&) const = default;
        uint64_t hash() const { return hash_words(tgid, tid); }
    };
    KeyIndex<ThreadKey> dropped_index_;
    std::vector<Dropped> dropped_;
    uint64_t floor_ns_ = 0;  ///< shorter ones are dropped
    std::set<ProcessKey> known_;
    ProcessKey last_known_;
    bool has_throttled_ = false;
    uint64_t longest_sum_ns_ = 0;  ///< of the time that one sum is of
};

}  // namespace ingero
