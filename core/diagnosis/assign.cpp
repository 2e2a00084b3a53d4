#include "core/diagnosis/assign.h"

#include <algorithm>
#include <numeric>

namespace ingero {

namespace {

using Parts = std::array<uint64_t, cause_count>;

uint64_t& part(Parts& parts, Cause cause) {
    return parts[static_cast<size_t>(cause)];
}

bool names_suspect(const Event& event) {
    return event.preemptor_tgid != 0 && event.preemptor_ns != 0 && suspect_exclusion(event.preemptor_comm).empty();
}

/// A thread that lost its CPU while it could run lost it to another task, whether that one is known or not. Of the
/// other waits for a CPU it is known what the preemptor named, the task that had the most of them, was seen to take.
/// Where that is at least half, the rest went to others like it or to the way back on.
void add_runnable(const Event& event, const CallTime& time, Assignment& assignment) {
    const uint64_t named_ns = time.preemptor_ns;
    const uint64_t lost_cpu_ns = std::min(event.preempted_ns, time.runnable_ns);
    const bool most = named_ns >= time.runnable_ns - named_ns;
    uint64_t excluded_ns = 0;
    if (named_ns == 0) {
        assignment.contended_ns = lost_cpu_ns;
    } else if (names_suspect(event)) {
        assignment.contended_ns = most ? time.runnable_ns : std::max(named_ns, lost_cpu_ns);
        assignment.preemptors = {{event.preemptor_comm, event.preemptor_tgid, named_ns}};
    } else {
        // The idle task, in whose time no other had the CPU, or one that is never a suspect.
        if (event.preemptor_tgid != 0) excluded_ns = named_ns;
        assignment.contended_ns = most ? 0 : saturating_subtract(lost_cpu_ns, named_ns);
    }
    assignment[Cause::cpu_contention] = assignment.contended_ns;
    assignment[Cause::excluded_task] = excluded_ns;
    assignment[Cause::wake_up] = time.runnable_ns - assignment.contended_ns - excluded_ns;
}

/// Whoever sleeps has to come back, which takes a moment even on a CPU that is idle: without the sleep there is none.
/// What takes longer is a wake-up that came late; and what is longer than the sleeps themselves is no part of them.
void add_way_back(const Event& event, uint64_t slept_ns, Cause cause, Parts& parts) {
    constexpr uint64_t way_back_ns = 200'000;
    if (slept_ns == 0 || static_cast<size_t>(cause) >= finding_causes) return;
    uint64_t& woken_ns = part(parts, Cause::wake_up);
    const uint64_t ns = std::min({woken_ns, slept_ns, saturating_multiply(event.waits, way_back_ns)});
    woken_ns -= ns;
    part(parts, cause) += ns;
}

/// Cuts the parts down to `limit` in all, each in proportion.
void fit(Parts& parts, uint64_t limit, uint64_t unexplained) {
    const uint64_t sum = std::accumulate(parts.begin(), parts.end(), unexplained);
    if (sum <= limit) return;
    for (uint64_t& ns : parts) {
        ns = static_cast<uint64_t>(static_cast<unsigned __int128>(ns) * limit / sum);
    }
}

}  // namespace

Cause cause_of_sleep(BlockedReason reason, const Op* op, bool usually_sleeps) {
    switch (reason) {
        case BlockedReason::disk:
        case BlockedReason::network_fs:
            return Cause::own_io_wait;
        case BlockedReason::page_fault:
            return Cause::memory_reclaim;
        case BlockedReason::socket:
            return Cause::network;
        case BlockedReason::ioctl:
            return Cause::driver_wait;
        case BlockedReason::stopped:
            return Cause::other_wait;
        // An op that waits for the device and usually sleeps does so for the device, whatever the driver sleeps on.
        case BlockedReason::futex:
            return op && op->waits_for_device && usually_sleeps ? Cause::device_wait : Cause::lock_wait;
        default:
            return op && op->waits_for_device && usually_sleeps ? Cause::device_wait : Cause::other_wait;
    }
}

std::string_view to_string(Cause cause) {
    switch (cause) {
        case Cause::cpu_contention:
            return "cpu-contention";
        case Cause::noisy_neighbour:
            return "noisy-neighbour";
        case Cause::own_io_wait:
            return "own-io-wait";
        case Cause::lock_wait:
            return "lock-wait";
        case Cause::memory_reclaim:
            return "memory-reclaim";
        case Cause::network_retransmit:
            return "network-retransmit";
        case Cause::lock_between_calls:
            return "lock-wait";
        case Cause::io_between_calls:
            return "own-io-wait";
        case Cause::excluded_task:
            return "kernel or ingerod work";
        case Cause::wake_up:
            return "wake-up latency";
        case Cause::network:
            return "network";
        case Cause::driver_wait:
            return "waiting in the driver";
        case Cause::other_wait:
            return "waiting for a timer, child or pipe";
        case Cause::device_wait:
            return "device wait";
        case Cause::first_use:
            return "first use";
    }
    return "unknown";
}

uint64_t Assignment::explained_ns() const {
    return std::accumulate(ns.begin(), ns.end(), uint64_t{0});
}

uint64_t Assignment::host_excess_ns() const {
    return excess_ns - (*this)[Cause::device_wait] - (*this)[Cause::driver_wait] - (*this)[Cause::first_use];
}

uint64_t Assignment::host_explained_ns() const {
    return explained_ns() - (*this)[Cause::device_wait] - (*this)[Cause::driver_wait] - (*this)[Cause::first_use];
}

std::string_view suspect_exclusion(const Comm& comm) {
    struct Excluded {
        std::string_view prefix;
        std::string_view name;
    };
    static constexpr std::array excluded = std::to_array<Excluded>({
        {"ingerod", "cpu-contention by ingerod"},
        {"ingero-worker", "cpu-contention by ingero-worker"},
        {"ingero-relay", "cpu-contention by ingero-relay"},
        {"ksoftirqd/", "cpu-contention by kernel threads (ksoftirqd)"},
        {"kworker/", "cpu-contention by kernel threads (kworker)"},
        {"migration/", "cpu-contention by kernel threads (migration)"},
        {"rcu_", "cpu-contention by kernel threads (rcu)"},
        {"rcuc/", "cpu-contention by kernel threads (rcu)"},
        {"rcuog/", "cpu-contention by kernel threads (rcu)"},
        {"rcuop/", "cpu-contention by kernel threads (rcu)"},
        {"kdamond.", "cpu-contention by kernel threads (kdamond)"},
        {"khugepaged", "cpu-contention by kernel threads (khugepaged)"},
        {"kcompactd", "cpu-contention by kernel threads (kcompactd)"},
        {"swapper", "cpu-contention by the idle task"},
    });
    const std::string_view text = to_string_view(comm);
    for (const auto& [prefix, name] : excluded) {
        if (text.substr(0, prefix.size()) == prefix) return name;
    }
    return {};
}

void stand_for_all(const Event& event, Assignment& assignment) {
    assignment.calls = event.weight;
    assignment.times = event.times();
}

Assignment assign(const Event& event, const CallTime& time, const Op* op, const Baseline& baseline, bool first_use,
                  bool queue_full) {
    Assignment assignment;
    // A function has one first use: the calls that such a row stands for besides are others.
    if (!first_use) stand_for_all(event, assignment);
    assignment.expected_ns = baseline.expected_ns();
    assignment.excess_ns = saturating_subtract(time.duration_ns, assignment.expected_ns);
    if (assignment.excess_ns == 0) return assignment;

    Parts& parts = assignment.ns;
    add_runnable(event, time, assignment);
    const uint64_t usual_sleep = sleep_may_be_purpose(event.blocked_reason, op) ? baseline.blocked_ns : 0;
    const uint64_t slept = saturating_subtract(time.blocked_ns, usual_sleep);
    const uint64_t ran = saturating_subtract(time.on_cpu_ns, baseline.on_cpu_ns);
    uint64_t unexplained = 0;
    const bool waits_for_device = op && op->waits_for_device;
    if (first_use && !waits_for_device) {
        // Loading code runs, reads files and takes the driver's locks: all of it is the first use. Not being let run is
        // not, and stands for itself above.
        part(parts, Cause::first_use) = slept + ran;
    } else {
        const Cause cause = cause_of_sleep(event.blocked_reason, op, baseline.blocked_ns > 0);
        part(parts, cause) += slept;
        add_way_back(event, slept, cause, parts);
        if (queue_full || waits_for_device) {
            part(parts, Cause::device_wait) += ran;
        } else {
            unexplained = ran;
        }
    }
    fit(parts, assignment.excess_ns, unexplained);
    return assignment;
}

Assignment assign_hidden(const Event& event, const CallTime& time, const Baseline& baseline) {
    Assignment assignment;
    stand_for_all(event, assignment);
    assignment.expected_ns = baseline.expected_ns();
    add_runnable(event, time, assignment);
    assignment[Cause::wake_up] = assignment[Cause::excluded_task] = 0;
    return assignment;
}

Assignment assign_unjudged(const Event& event, const CallTime& time, const Op* op) {
    Assignment assignment;
    stand_for_all(event, assignment);
    assignment.expected_ns = time.on_cpu_ns;
    assignment.excess_ns = time.duration_ns - time.on_cpu_ns;
    add_runnable(event, time, assignment);
    // Not knowing whether the op usually sleeps, one that waits for the device is taken to.
    const Cause cause = cause_of_sleep(event.blocked_reason, op, true);
    part(assignment.ns, cause) += time.blocked_ns;
    add_way_back(event, time.blocked_ns, cause, assignment.ns);
    return assignment;
}

Assignment assign_between_calls(const Event& wait, const CallTime& time) {
    Assignment assignment;
    assignment.excess_ns = time.runnable_ns;
    add_runnable(wait, time, assignment);
    return assignment;
}

Assignment assign_sleep_between_calls(const Event& wait, const CallTime& time) {
    Assignment assignment;
    const bool is_lock = wait.blocked_reason == BlockedReason::futex;
    assignment.excess_ns = time.blocked_ns;
    assignment[is_lock ? Cause::lock_between_calls : Cause::io_between_calls] = time.blocked_ns;
    return assignment;
}

std::pair<Comm, uint32_t> suspect_of(Cause cause, const Event& event) {
    if (cause == Cause::cpu_contention || cause == Cause::noisy_neighbour) {
        if (!names_suspect(event)) return {to_comm(other_tasks), 0};
        return {event.preemptor_comm, visible_pid(event.preemptor_tgid)};
    }
    if (cause != Cause::lock_wait) return {to_comm(to_string(event.blocked_reason)), 0};
    if (event.waker_kind == WakerKind::task) return {event.waker_comm, visible_pid(event.waker_tgid)};
    return {to_comm(to_string(event.waker_kind)), 0};
}

}  // namespace ingero
