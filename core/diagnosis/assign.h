// Divides what a call took too long among its causes: each nanosecond to one, by the call's own time split.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/diagnosis/evidence/expected.h"
#include "core/model/call_time.h"
#include "core/model/event.h"
#include "core/model/op.h"

namespace ingero {

/// The first eight are of findings; the rest explain time and accuse nobody.
enum class Cause : uint8_t {
    cpu_contention,
    noisy_neighbour,  ///< the same, by a task of another control group
    own_io_wait,
    lock_wait,
    memory_reclaim,
    network_retransmit,  ///< the wait for a socket on which what was sent had to be sent again
    lock_between_calls,  ///< for Python's interpreter, between calls and with work under way for the device
    io_between_calls,    ///< own_io_wait, the same
    excluded_task,       ///< runnable while one of `suspect_exclusion` had the CPU
    wake_up,             ///< runnable, and no other task had its CPU: the scheduler's own delay
    network,
    driver_wait,
    other_wait,  ///< a timer, a child, a pipe, another poll, a stop
    device_wait,
    first_use,
};
inline constexpr size_t cause_count = static_cast<size_t>(Cause::first_use) + 1;
inline constexpr size_t finding_causes = 8;
/// Who had the CPU, so to speak, where the quota of the thread's own control group forbade it to run.
inline constexpr std::string_view quota_name = "cgroup quota";

/// Who has the lock of Python's interpreter, for which a thread waited.
inline constexpr std::string_view interpreter_name = "the thread that has the interpreter";

/// Who had the CPU where no task is known to have had it.
inline constexpr std::string_view other_tasks = "other tasks";

/// A task that had the CPU while a call could run.
struct Preemptor {
    Comm comm{};
    uint32_t tgid = 0;
    uint64_t ns = 0;                      ///< of the call's runnable time
    Cause cause = Cause::cpu_contention;  ///< or noisy_neighbour
};

/// "cpu-contention" and so on: the kind of a finding, or the hypothesis in a list of rejected ones.
std::string_view to_string(Cause cause);

struct Assignment {
    uint64_t expected_ns = 0;
    uint64_t excess_ns = 0;
    std::array<uint64_t, cause_count> ns{};  ///< sums to explained_ns() <= excess_ns, but for assign_hidden()
    uint64_t calls = 1;                      ///< that its row stands for; all else is of one
    uint64_t times = 1;                      ///< how often these count, as in Event::times()
    const Event* resent = nullptr;           ///< of network_retransmit, the longest wait
    uint64_t contended_ns = 0;               ///< in which others had the CPU, were it too much or not
    std::vector<Preemptor> preemptors;       ///< those of them that are known; together at most contended_ns

    uint64_t operator[](Cause cause) const { return ns[static_cast<size_t>(cause)]; }
    /// One task had at least half of the time: what is not known went to others like it.
    bool has_main_preemptor() const {
        return !preemptors.empty() && preemptors[0].ns >= contended_ns - preemptors[0].ns;
    }
    uint64_t& operator[](Cause cause) { return ns[static_cast<size_t>(cause)]; }
    /// A call speaks for a cause that took a tenth of its excess. Below that the call was slow for another reason, and
    /// counting it would make every finding of a jittery program look unexplained; above, one cause in a mixture still
    /// shows.
    bool speaks_for(Cause cause) const { return (*this)[cause] != 0 && (*this)[cause] >= excess_ns / 10; }
    uint64_t explained_ns() const;
    /// What `of_one_ns` comes to in all calls that the row stands for.
    uint64_t of_all(uint64_t of_one_ns) const { return saturating_multiply(of_one_ns, times); }
    /// What the host may have to answer for: the excess without waiting for the device or its driver, and first use.
    uint64_t host_excess_ns() const;
    /// What of that has a cause.
    uint64_t host_explained_ns() const;
};

/// What to say of a task that is never a suspect; empty for one that is. Ingero's own programs, and kernel threads that
/// do what other tasks asked for.
std::string_view suspect_exclusion(const Comm& comm);

/// A call may sleep more than once and says only of its longest sleep what it waited for; the sleeps of one call are
/// nearly always of one kind (the reads of one copy), so it speaks for all of them.
Cause cause_of_sleep(BlockedReason reason, const Op* op, bool usually_sleeps);

/// For the calls that the row stands for.
void stand_for_all(const Event& event, Assignment& assignment);

/// `queue_full`: a launch that may have waited for room in the device's queue. Divisions are proportional where the
/// parts together exceed the excess, which they do when the call made up for it elsewhere.
Assignment assign(const Event& event, const CallTime& time, const Op* op, const Baseline& baseline, bool first_use,
                  bool queue_full);

/// For a wait for the device that took no longer than is usual: what others had the CPU for meanwhile, which the work
/// of the device hid. Its excess is 0.
Assignment assign_hidden(const Event& event, const CallTime& time, const Baseline& baseline);

/// Whether a sleep between calls may be reported: one for a lock or for files.
constexpr bool may_hold_up(BlockedReason reason) {
    return reason == BlockedReason::futex || reason == BlockedReason::disk || reason == BlockedReason::network_fs;
}
/// For a wait between calls: the part of it in which the thread could run. All of that is too much.
Assignment assign_between_calls(const Event& wait, const CallTime& time);
/// The same of what it slept for a lock or for files.
Assignment assign_sleep_between_calls(const Event& wait, const CallTime& time);
constexpr bool is_between_calls(Cause cause) {
    return cause == Cause::lock_between_calls || cause == Cause::io_between_calls;
}

/// Who is to be named for a cause: a task, or what was waited for. An empty name: nobody is known; pid 0: no process.
std::pair<Comm, uint32_t> suspect_of(Cause cause, const Event& event);

/// For a call whose like is not known: its off-CPU time by cause, as if all of it were too much.
Assignment assign_unjudged(const Event& event, const CallTime& time, const Op* op);

}  // namespace ingero
