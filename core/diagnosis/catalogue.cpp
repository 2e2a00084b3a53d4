#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>

#include "core/diagnosis/detector.h"
#include "core/diagnosis/detectors/detectors.h"

namespace ingero {

namespace {

constexpr double proven_from = 0.8;
constexpr double partial_from = 0.3;
constexpr double high_from = 0.10;
constexpr double medium_from = 0.02;

constexpr auto entries = std::to_array<CatalogueEntry>({
    {"cpu-contention", "Another task has the CPU",
     "the time in which a call's thread could run and did not, and which task ran on its CPU meanwhile; of a thread "
     "that keeps waiting for its device, also between its calls",
     "calls with their time split (kernel's scheduler); waits between calls",
     "why the other task ran; waits between calls that are too short to be recorded one by one", nullptr},
    {"noisy-neighbour", "A task of another container or service has the CPU",
     "as for cpu-contention, where the task that ran belongs to another cgroup",
     "as for cpu-contention; the cgroup of the other task, which is read while it runs",
     "as for cpu-contention; memory and caches", nullptr},
    {"own-io-wait", "The thread waits for a disk or a network file system",
     "the time in which a call's thread slept for disk or network file system I/O; between calls while the device "
     "still had work, where the thread's loop iterations took longer for it; and the same time as for "
     "data-starvation, as far as the thread waited for a disk to write or sync what is no checkpoint, and then neither "
     "slept by choice nor waited to be asked",
     "calls with their time split; waits",
     "which file; reads while the device had nothing to do, which are data-starvation", make_own_io_wait},
    {"lock-wait", "The thread waits for a lock",
     "the time in which a call's thread slept on a futex until another thread woke it, and which one; between calls "
     "only in steps of 5 ms, as Python's threads wait for the GIL, while the device still had work, and where the "
     "thread's loop iterations took longer for it",
     "calls with their time split; waits",
     "what the holder did with the lock; between calls, other locks, and any lock while another thread waits for the "
     "device",
     nullptr},
    {"memory-reclaim", "The thread waits for memory pages",
     "the time in which a call's thread slept in a page fault, and came back from it", "calls with their time split",
     "who filled the memory", nullptr},
    {"cold-start", "First use of functions",
     "what the first call of each function took beyond what is usual for its process and op",
     "calls; for launches the function that each names",
     "what the driver did meanwhile; functions used before the recording began; first uses of less than 5 ms in all",
     make_cold_start},
    {"gpu-oom", "Out of device memory",
     "an allocation that returned out of memory, with what its process and others on the device held then; low where "
     "the same thread then got as much within ten seconds, or half of it or more within one",
     "allocations and frees since the process began, for exact figures",
     "memory of processes that are not traced; how the free memory is laid out: that it is fragmented is inferred from "
     "what was held before",
     make_gpu_oom},
    {"gpu-leak", "Device memory that is never freed",
     "allocations held at least four times as long as any freed one of their place, made throughout the inspected time",
     "allocations and frees with their addresses; stacks name the place",
     "what is kept from the start, like weights; a cache, or a model that is still being loaded, looks the same as "
     "long as it grows",
     make_gpu_leak},
    {"graph-recapture", "Graphs captured again and again",
     "the time of capturing and instantiating graphs after the first replay, against the number of replays",
     "graph calls", "why the program captured again", make_graph_recapture},
    {"device-fault", "Illegal access, assert, or another fault on the device",
     "the first return code after which a context accepts no more work, and the launches not known to have completed "
     "by then",
     "calls with return codes; launches with their functions",
     "which of several launches under way was at fault; launches of graphs and libraries by function; what was "
     "launched more than ten seconds before on streams that did nothing since",
     make_device_fault},
    {"collective-wait", "A rank waits for a late rank",
     "the time from when a rank began to wait for its collectives to when the last rank of this host entered them, "
     "where it then went on within as long again, or the late rank had waited most of that time for something else "
     "than its device; proven where it went on at once; low where the late rank waited for ranks of another "
     "communicator",
     "collectives, synchronisations, communicators made while traced; two ranks on the host",
     "ranks of other hosts; a device that is slow while its host runs ahead; a rank that is late by less time than the "
     "devices then need; ranks that wait by polling; a root that comes last to its own broadcast",
     make_late_ranks},
    {"straggler", "One rank keeps coming last",
     "most of the latest 50 rounds of collectives (those between two synchronisations), or of those of ten seconds, in "
     "which the same rank entered last, each time late by the same measure as a collective wait",
     "as for collective-wait, of eight rounds or more; ingero-relay for what of its GPU is worse than of the others'",
     "as for collective-wait; whether what is worse is why; GPUs that ranks share", nullptr},
    {"nccl-hang", "A collective that cannot end",
     "a collective that some ranks entered and wait for, while another has ended, waits for one of them elsewhere, or "
     "entered another; partial where it may still come, low where it is the root of a broadcast, in which others wait "
     "for work, or goes on with other work, up to five minutes, or where it ended inside of it and it is not known "
     "how, up to two minutes",
     "collectives and synchronisations of all ranks on the host since the process began, or since before the hang",
     "ranks of other hosts; why a rank does not come; hangs inside NCCL or the network", make_nccl_hang},
    {"data-starvation", "The device waits for data",
     "the time from a synchronisation that leaves nothing enqueued to the next call that enqueues, as far as the "
     "thread "
     "that makes it was on the CPU, read, or waited for workers that did",
     "launches, copies and synchronisations; waits between calls (wait_floor), of workers from their second batch on",
     "what the thread computes; programs that wait for events only, keep several streams busy, or are recorded in "
     "slices; of several devices that one thread feeds, all but the first; waits shorter than wait_floor, except for "
     "their sum",
     make_data_starvation},
    {"idle-in-tool-call", "The device waits for a tool",
     "the same time as for data-starvation, as far as the thread waited for a program that it had started, or for the "
     "other end of a connection that it had asked for",
     "as for data-starvation",
     "for whom a thread waits in poll, which is most of what waits asynchronously; programs that are recorded in "
     "slices",
     make_idle_in_tool_call},
    {"network-retransmit", "Packets are lost and have to be retransmitted",
     "the time in which a thread, in a call or between calls as for data-starvation, slept for a socket on "
     "which nothing that was sent had arrived, up to when the kernel retransmitted it",
     "calls with their time split; waits between calls (wait_floor); the kernel's retransmits",
     "where packets are lost; what the other end has to retransmit; for whom a thread waits in poll",
     make_network_retransmit},
    {"checkpoint-stall", "Steps wait for a checkpoint",
     "the same time as for data-starvation, after copies from the device, as far as the thread waited for a disk to "
     "write or sync",
     "as for data-starvation",
     "why writing failed; checkpoints that another thread writes while steps go on; programs that are recorded in "
     "slices",
     make_checkpoint_stall},
    {"throttling", "The GPU is throttled",
     "steps that are slower while the GPU reports that it throttles than at other times of the window, as far as its "
     "clock was lower then",
     "GPU measurements of ingero-relay (throttle reasons, clocks); steps that end with a synchronisation",
     "throttling all the time, with nothing to compare; which kernels were slower; programs that are recorded in "
     "slices",
     make_throttling},
    {"slow-request", "Requests that stall",
     "requests that took twice the usual or more, as far as one thread of their scope was held up inside of them, by "
     "more than a millisecond each time",
     "spans of requests or steps, 20 or more; calls with their time split, waits between calls",
     "why a request takes longer that only has more to do; stalls of processes outside of the scope; what several "
     "threads lost one after another",
     make_slow_request},
});

}  // namespace

std::span<const CatalogueEntry> catalogue() {
    return entries;
}

void Evidence::add(Heap& heap, uint64_t ns, uint64_t sequence) {
    heap.emplace_back(ns, sequence);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (heap.size() <= max_evidence) return;
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
}

void Evidence::add(uint64_t ns, uint64_t sequence) {
    add(first_, ns, sequence);
}

void Evidence::add_last(uint64_t ns, uint64_t sequence) {
    add(last_, ns, sequence);
}

std::vector<uint64_t> Evidence::sequences() const {
    std::vector<uint64_t> sequences;
    for (Heap sorted : {first_, last_}) {
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        for (const auto& [ns, sequence] : sorted) {
            const bool is_known = std::find(sequences.begin(), sequences.end(), sequence) != sequences.end();
            if (!is_known && sequences.size() < max_evidence) sequences.push_back(sequence);
        }
    }
    return sequences;
}

std::string finding_id(std::string_view kind, const ProcessKey& process, std::string_view subject,
                       const std::string& boot_id) {
    std::string text(kind);
    for (const std::string& part :
         {std::to_string(process.pid), std::to_string(process.start_ns), std::string(subject), boot_id}) {
        text += '\0';
        text += part;
    }
    char hex[17];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH64(text.data(), text.size(), 0)));
    return hex;
}

uint64_t JudgementContext::learnt_from(const ProcessKey& process) const {
    return processes ? std::max(learnt_from_ns, processes->dropped_until_ns(process)) : learnt_from_ns;
}

bool JudgementContext::knows_from_start(const ProcessKey& process) const {
    return learnt_from_ns != 0 && started_ns(process, clock) >= learnt_from(process);
}

uint64_t JudgementContext::time_of(const ProcessKey& process) const {
    constexpr uint64_t least_ns = 10'000'000'000;
    const Process* const known = processes ? processes->find(process) : nullptr;
    if (!known || window.length_ns() == 0) return covered_ns;
    const uint64_t from_ns = std::max(window.from_ns, known->first_seen_ns);
    const uint64_t to_ns = std::min(window.to_ns, processes->exited_ns(process));
    return std::min(std::max(saturating_subtract(to_ns, from_ns), least_ns), covered_ns);
}

uint64_t JudgementContext::known_until_ns(const ProcessKey& process, const Window& window) const {
    const uint64_t exited_ns = processes ? processes->exited_ns(process) : UINT64_MAX;
    return std::min({window.to_ns, recorded_until_ns, exited_ns});
}

uint64_t JudgementContext::lost_calls(uint64_t from_ns, uint64_t to_ns, std::initializer_list<OpClass> classes) const {
    uint64_t lost = 0;
    for (const LossRow& row : losses) {
        if (row.to_ns <= from_ns || row.from_ns >= to_ns) continue;
        const Op* op = find_op(row.op);
        const bool counts =
            row.op == 0 || (op && std::find(classes.begin(), classes.end(), op->op_class) != classes.end());
        if (counts) lost = saturating_add(lost, row.lost());
    }
    return lost;
}

Finding make_finding(std::string_view kind, const ProcessKey& process, std::string_view subject,
                     const JudgementContext& context) {
    Finding finding;
    finding.kind = kind;
    finding.id = finding_id(kind, process, subject, context.boot_id);
    finding.pid = process.pid;
    if (context.processes) finding.comm = context.processes->name(process);
    finding.worst.event.tgid = process.pid;
    finding.worst.event.process_start_ns = process.start_ns;
    // All that is lost, where its detector knows no less.
    finding.lost_low_ns = UINT64_MAX;
    return finding;
}

Verdict verdict_of(double explained, bool lossy) {
    if (explained >= proven_from) return lossy ? Verdict::partial : Verdict::proven;
    return explained >= partial_from ? Verdict::partial : Verdict::unexplained;
}

Severity severity_of(double share) {
    if (share >= high_from) return Severity::high;
    return share >= medium_from ? Severity::medium : Severity::low;
}

double share_of(uint64_t part, uint64_t whole) {
    if (whole == 0) return part ? 1.0 : 0.0;
    return std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
}

std::string process_text(const Finding& finding) {
    const std::string pid = "pid " + std::to_string(finding.pid);
    return finding.comm.empty() ? pid : finding.comm + " (" + pid + ")";
}

std::string percent_text(double share) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f %%", share * 100);
    return text;
}

std::string loss_text(const Finding& finding, bool at_most) {
    const std::string least = format_duration(std::min(finding.lost_low_ns, finding.lost_ns)),
                      most = format_duration(std::max(finding.lost_high_ns, finding.lost_ns));
    return "; that cost the program " +
           (at_most         ? "at most " + most
            : least == most ? most
                            : least + " to " + most) +
           ", " + percent_text(finding.window_share) + " of the window";
}

}  // namespace ingero
