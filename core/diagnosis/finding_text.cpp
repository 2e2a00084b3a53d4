#include "core/diagnosis/finding_text.h"

#include <algorithm>

#include "core/model/time.h"

namespace ingero {

namespace {

template <class Map>
typename Map::key_type most_of(const Map& map) {
    const auto most =
        std::max_element(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == map.end() ? typename Map::key_type{} : most->first;
}

std::string ops_text(const KindLedger& kind) {
    std::string text = op_name(most_of(kind.by_op));
    if (kind.by_op.size() == 2) text += " and another call";
    if (kind.by_op.size() > 2) text += " and " + std::to_string(kind.by_op.size() - 1) + " other calls";
    return text;
}

/// "in cudaLaunchKernel and another call and between its calls": where the time was lost.
std::string place_text(const KindLedger& kind) {
    if (kind.by_op.empty()) return "between its calls";
    return "in " + ops_text(kind) + (kind.between_calls_ns == 0 ? "" : " and between its calls");
}

/// `who` waited on them.
std::string cpus_text(const KindLedger& kind, const std::string& who) {
    const std::string most = "CPU " + std::to_string(most_of(kind.by_cpu));
    if (kind.by_cpu.size() == 1) return most;
    return "the CPUs that " + who + " uses (mostly " + most + ")";
}

std::string culprit_text(const Culprit& culprit) {
    if (culprit.pid == 0) return culprit.name;
    return culprit.name + " (pid " + std::to_string(culprit.pid) + ")";
}

std::string calls_text(uint64_t calls) {
    return std::to_string(calls) + (calls == 1 ? " call" : " calls");
}

/// The first culprit with the word for the rest, as the subject of a sentence.
const Culprit& first_culprit(const Finding& finding) {
    static const Culprit nobody{"another task", 0, 0};
    return finding.culprits.empty() ? nobody : finding.culprits[0];
}

/// What the waits cost the process, as a sentence of its own after another.
std::string cost_text(const Finding& finding) {
    if (finding.hidden && finding.lost_high_ns == 0) return "; no time lost: these calls took their usual time";
    if (finding.lost_high_ns == 0) return "; no time lost: the program's loop iterations took no longer";
    const std::string cost = "; that cost the program ";
    if (finding.lost_ns == 0) return cost + "at most " + format_duration(finding.lost_high_ns);
    std::string text = cost + format_duration(finding.lost_ns);
    if (finding.lost_low_ns != finding.lost_high_ns)
        text += " (" + format_duration(finding.lost_low_ns) + " to " + format_duration(finding.lost_high_ns) + ")";
    return text + ", " + percent_text(finding.window_share) + " of the window";
}

void write_contention(Finding& finding, const KindLedger& kind) {
    const Culprit& culprit = first_culprit(finding);
    const std::string who = process_text(finding);
    const bool is_most = culprit.ns >= finding.waited_ns - std::min(culprit.ns, finding.waited_ns);
    const bool own = culprit.pid != 0 && culprit.pid == finding.pid;
    const std::string waited = format_duration(finding.waited_ns);
    const std::string taker = (own ? "its other threads" : culprit.name) + (is_most ? "" : " and others");
    const std::string for_ns = is_most ? " for " + format_duration(culprit.ns) : " meanwhile";
    if (kind.between_calls_ns > finding.waited_ns / 50)
        finding.summary = (own ? "threads of " : "") + who + " waited " + waited + " for a CPU, " +
                          percent_text(share_of(kind.between_calls_ns, finding.waited_ns)) + " of it between calls; " +
                          taker + " had it" + for_ns;
    else
        finding.summary = "while " + ops_text(kind) + " in " + who + " waited " + waited + " to run, " + taker +
                          " had the CPU" + (is_most ? for_ns : "");
    finding.summary += cost_text(finding);
    if (culprit.name == quota_name && culprit.pid == 0) {
        finding.summary = "the quota of its control group kept " + who + " off the CPU for " +
                          format_duration(culprit.ns) + " " + place_text(kind) + cost_text(finding);
        finding.fix =
            "Raise CPUQuota= of its unit, or the container's CPU limit; or give it fewer threads: together they use up "
            "the quota before each of its periods ends (cpu.stat: nr_throttled).";
    } else if (finding.kind == to_string(Cause::noisy_neighbour)) {
        finding.fix =
            culprit_text(culprit) +
            " is in another cgroup. Limit that cgroup: CPUQuota= or CPUWeight= of its unit, or the container's CPU "
            "limit. Or keep it off " +
            cpus_text(kind, who) + " with AllowedCPUs= of its unit.";
    } else if (culprit.name == other_tasks && culprit.pid == 0) {
        finding.fix =
            "No single task took most of the time; the system's top shows which tasks run there. Raise CPUWeight= of "
            "the unit of " +
            who + ", or set AllowedCPUs= on the other units so that they leave " + cpus_text(kind, who) + " free.";
    } else if (own) {
        finding.fix =
            "Its own threads compete: give " + who +
            " fewer threads (OMP_NUM_THREADS, data loader workers), or more CPUs than it has now (AllowedCPUs= of its "
            "unit).";
    } else {
        finding.fix =
            "Keep " + culprit_text(culprit) + " off " + cpus_text(kind, who) + ": set AllowedCPUs= on its unit" +
            (culprit.pid == 0 ? ""
                              : ", or give it other CPUs: 'taskset -cp CPUS " + std::to_string(culprit.pid) + "'") +
            ". Or raise CPUWeight= of the unit of " + who + ".";
    }
    finding.confirm = "Run explain again over a window of the same length: the runnable time of " + who +
                      " should be under 1 % of the window";
    if (is_call(finding.worst.event.op) && !finding.hidden)
        finding.confirm += ", and " + op_name(finding.worst.event.op) + " should take about " +
                           format_duration(finding.worst.expected_ns);
    finding.confirm += ".";
}

/// The kinds of sleep differ in words only.
void write_sleep(Finding& finding, const KindLedger& kind, const std::string& what, const std::string& fix) {
    finding.summary = ops_text(kind) + " in " + process_text(finding) + " slept " + format_duration(finding.waited_ns) +
                      " in " + calls_text(kind.calls) + " waiting for " + what + cost_text(finding);
    finding.fix = fix;
    finding.confirm = "Run explain again over a window of the same length: " + op_name(finding.worst.event.op) +
                      " should take about " + format_duration(finding.worst.expected_ns) + " and not sleep for " +
                      what + ".";
}

void write_lock_wait(Finding& finding, const KindLedger& kind) {
    const Culprit& culprit = first_culprit(finding);
    const bool own = culprit.pid == finding.pid;
    std::string what = "a lock that " + (own ? "its own threads" : culprit_text(culprit)) + " released";
    if (culprit.pid == 0) what = "a lock";
    write_sleep(
        finding, kind, what,
        "Find out why the lock was held so long: 'ingeroctl waits' follows the chain of waits. Within one process "
        "the holder is usually in another CUDA call of the same context: allocate from a pool, load modules "
        "before serving, and keep calls that synchronise the GPU off the launching thread.");
}

/// `until`: how the sleeps ended, or what for.
void write_sleep_between_calls(Finding& finding, const KindLedger& kind, const std::string& until,
                               const std::string& fix) {
    finding.summary = process_text(finding) + " slept " + format_duration(finding.waited_ns) + " in " +
                      std::to_string(kind.waits) + (kind.waits == 1 ? " wait" : " waits") +
                      " between its calls while its GPU still had work, " + until + cost_text(finding);
    finding.fix = fix;
    finding.confirm =
        "Run explain again over a window of the same length: these waits should take under 1 % of the window.";
}

void write_lock_between_calls(Finding& finding, const KindLedger& kind) {
    write_sleep_between_calls(
        finding, kind,
        "for a lock that it did not get within 5 ms, as Python's threads wait for their interpreter (GIL)",
        "Move Python work of its other threads to another process, or to code that releases the GIL. 'ingeroctl "
        "stacks' shows where it calls from; a Python profiler shows what those threads run.");
}

void write_io_between_calls(Finding& finding, const KindLedger& kind) {
    const bool network = first_culprit(finding).name == to_string(BlockedReason::network_fs);
    write_sleep_between_calls(
        finding, kind, network ? "for a network file system" : "for the disk",
        "Read ahead and write behind, in another thread or process, or keep the files on faster storage. iostat -x 1 "
        "shows whether the disk is busy with other work.");
}

void write_io_wait(Finding& finding, const KindLedger& kind) {
    const bool network = first_culprit(finding).name == to_string(BlockedReason::network_fs);
    write_sleep(
        finding, kind, network ? "a network file system" : "the disk",
        "Have the data in memory before the call: read ahead in another thread, copy from a pinned buffer and "
        "not from a mapped file, or keep the files on faster storage. iostat -x 1 shows whether the disk is busy with "
        "other work.");
}

void write_resent(Finding& finding, const KindLedger& kind) {
    write_sleep(finding, kind, "retransmissions to " + first_culprit(finding).name, std::string(resent_fix));
}

}  // namespace

void write_text(Finding& finding, Cause cause, const KindLedger& kind) {
    switch (cause) {
        case Cause::cpu_contention:
        case Cause::noisy_neighbour:
            write_contention(finding, kind);
            break;
        case Cause::own_io_wait:
            write_io_wait(finding, kind);
            break;
        case Cause::io_between_calls:
            write_io_between_calls(finding, kind);
            break;
        case Cause::lock_wait:
            write_lock_wait(finding, kind);
            break;
        case Cause::lock_between_calls:
            write_lock_between_calls(finding, kind);
            break;
        case Cause::network_retransmit:
            write_resent(finding, kind);
            break;
        default:
            write_sleep(finding, kind, "memory pages",
                        "Where /proc/pressure/memory shows that memory is short: raise MemoryHigh= and MemoryMax= of "
                        "its unit, or move what fills the memory elsewhere; pin the buffers that you copy from "
                        "(cudaHostAlloc, mlock). Where memory is not short, the pages came from mapped files, such as "
                        "libraries at first use: read those files once beforehand.");
    }
    if (finding.verdict == Verdict::insufficient_evidence) {
        finding.summary += "; too few calls like these to say what is usual";
        finding.confirm = "Run explain over a window with more such calls: " + std::to_string(enough_calls + 1) +
                          " of them are enough.";
    }
}

}  // namespace ingero
