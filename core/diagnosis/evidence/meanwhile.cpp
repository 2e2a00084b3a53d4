#include "core/diagnosis/evidence/meanwhile.h"

#include <algorithm>

#include "core/diagnosis/assign.h"
#include "core/model/call_time.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/time.h"

namespace ingero {

namespace {

constexpr size_t max_threads = 4'096;
constexpr size_t max_events = 2'048;  ///< a thread
constexpr size_t max_parts = 64;
constexpr uint64_t long_call_ns = 200'000;

struct Reason {
    BlockedReason reason;
    std::string_view kind;
};

std::string_view kind_of_sleep(BlockedReason reason) {
    static constexpr Reason reasons[] = {
        {BlockedReason::disk, "own-io-wait"}, {BlockedReason::network_fs, "own-io-wait"},
        {BlockedReason::futex, "lock-wait"},  {BlockedReason::page_fault, "memory-reclaim"},
        {BlockedReason::socket, "network"},   {BlockedReason::ioctl, "driver-wait"},
        {BlockedReason::timer, "sleep"},
    };
    for (const Reason& one : reasons)
        if (one.reason == reason) return one.kind;
    return "wait";
}

/// Whom it waited for, where that says more than what it waited in.
MeanwhilePart slept(const Event& wait, uint64_t ns) {
    MeanwhilePart part{std::string(kind_of_sleep(wait.blocked_reason)), std::string(to_string(wait.blocked_reason)), 0,
                       ns};
    const bool of_a_task = wait.waker_kind == WakerKind::task && part.kind != "own-io-wait" && part.kind != "sleep";
    if (of_a_task && visible_pid(wait.waker_tgid) != 0 && !to_string_view(wait.waker_comm).empty()) {
        part.name = to_string_view(wait.waker_comm);
        part.pid = visible_pid(wait.waker_tgid);
    }
    return part;
}

MeanwhilePart had_no_cpu(const Event& wait, uint64_t ns) {
    if (is_throttled(wait)) return {"cpu-quota", "its cgroup had used up its quota", 0, ns};
    const bool known = wait.preemptor_tgid != 0 && wait.preemptor_ns != 0;
    if (!known && wait.preemptor_ns == 0 && wait.preempted_ns != 0)
        return {"cpu-contention", std::string(other_tasks), 0, ns};
    if (!known) return {"wake-up", "", 0, ns};
    return {"cpu-contention", std::string(to_string_view(wait.preemptor_comm)), visible_pid(wait.preemptor_tgid), ns};
}

uint64_t overlap(uint64_t from, uint64_t to, uint64_t begin, uint64_t end) {
    return saturating_subtract(std::min(to, end), std::max(from, begin));
}

void add(std::vector<MeanwhilePart>& parts, MeanwhilePart part) {
    if (part.ns == 0) return;
    for (MeanwhilePart& one : parts) {
        if (one.kind != part.kind || one.name != part.name || one.pid != part.pid) continue;
        one.ns = saturating_add(one.ns, part.ns);
        return;
    }
    if (parts.size() < max_parts) parts.push_back(std::move(part));
}

void sort_parts(std::vector<MeanwhilePart>& parts) {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const MeanwhilePart& a, const MeanwhilePart& b) { return a.ns > b.ns; });
}

}  // namespace

std::string meanwhile_text(const MeanwhilePart& part) {
    const std::string who = part.name + (part.pid != 0 ? " (pid " + std::to_string(part.pid) + ")" : "");
    if (part.kind == "cpu-contention") return "waiting for a CPU that " + who + " had";
    if (part.kind == "cpu-quota") return "without a CPU: " + part.name;
    if (part.kind == "wake-up") return "waiting for a CPU";
    if (part.kind == "own-io-wait")
        return "waiting for " + std::string(part.name == "disk" ? "the disk" : "a network file system");
    // Of a task, or named by what the thread slept in.
    const bool is_of_a_task = part.pid != 0;
    if (part.kind == "lock-wait") return "waiting for a lock" + (is_of_a_task ? " of " + who : "");
    if (part.kind == "memory-reclaim") return "waiting for pages of memory";
    if (part.kind == "network") return "waiting for the network" + (is_of_a_task ? ": " + who : "");
    if (part.kind == "driver-wait") return "waiting in the driver";
    if (part.kind == "sleep") return "asleep until a " + part.name + " ran out";
    if (part.kind == "own-work") return part.name.empty() ? "at work between its calls" : "at work in " + part.name;
    if (part.kind == "device-wait") return "waiting for its device in " + part.name;
    if (part.kind == "wait") return is_of_a_task ? "waiting for " + who : "waiting in " + who;
    return "doing something that was not recorded";
}

bool ThreadHistory::wants(const Event& event) {
    if (event.op == op_wait || event.op == op_waits_summed) return true;
    return is_call(event.op) && event.depth == 0 && event.duration_ns >= long_call_ns;
}

void ThreadHistory::take(const Event& event) {
    if (!wants(event)) return;
    if (!is_call(event.op)) {
        if (watched_.size() >= max_threads) watched_.clear();
        watched_.insert(event.process());
    }
    if (event.op == op_waits_summed) return;
    const auto key = std::pair(event.process(), event.tid);
    if (threads_.size() >= max_threads && !threads_.contains(key)) threads_.erase(threads_.begin());
    std::deque<Event>& events = threads_[key];
    events.push_back(event);
    const uint64_t oldest_ns = saturating_subtract(saturating_end_ns(event), keep_ns_);
    while (events.size() > max_events || saturating_end_ns(events.front()) < oldest_ns) events.pop_front();
}

void ThreadHistory::forget(const ProcessKey& process) {
    watched_.erase(process);
    std::erase_if(threads_, [&](const auto& one) { return one.first.first == process; });
}

std::vector<MeanwhilePart> meanwhile_parts(std::span<const Event> waits, const ProcessKey& process,
                                           const Window& time) {
    std::vector<MeanwhilePart> parts;
    // Whatever a store claims, each nanosecond is told once.
    uint64_t told_until_ns = time.from_ns, told_ns = 0;
    const auto tell = [&](MeanwhilePart part, uint64_t from_ns, uint64_t to_ns) {
        part.ns = overlap(std::max(from_ns, told_until_ns), to_ns, time.from_ns, time.to_ns);
        told_until_ns = std::max(told_until_ns, to_ns);
        told_ns += part.ns;
        add(parts, std::move(part));
    };
    for (const Event& wait : waits) {
        if (wait.depth != 0) continue;
        const uint64_t end_ns = saturating_end_ns(wait),
                       woken_ns = std::min(saturating_add(wait.start_ns, wait.blocked_ns), end_ns);
        MeanwhilePart asleep = slept(wait, 0);
        if (asleep.kind != "lock-wait" || wait.waker_tgid == process.pid) {
            asleep.pid = 0;
            asleep.name = to_string(wait.blocked_reason);
        }
        tell(std::move(asleep), wait.start_ns, woken_ns);
        tell(had_no_cpu(wait, 0), woken_ns, end_ns);
    }
    add(parts, {"not-known", "", 0, time.length_ns() - std::min(told_ns, time.length_ns())});
    sort_parts(parts);
    return parts;
}

std::vector<MeanwhilePart> ThreadHistory::parts(const ProcessKey& process, uint32_t tid, uint64_t from_ns,
                                                uint64_t to_ns) const {
    std::vector<MeanwhilePart> parts;
    const uint64_t whole_ns = saturating_subtract(to_ns, from_ns);
    uint64_t told_ns = 0;
    const auto tell = [&](MeanwhilePart part) {
        part.ns = std::min(part.ns, whole_ns - told_ns);
        told_ns += part.ns;
        add(parts, std::move(part));
    };
    static const std::deque<Event> none;
    const auto found = threads_.find({process, tid});
    const std::deque<Event>& events = found == threads_.end() ? none : found->second;
    const bool watched = watched_.contains(process);
    for (const Event& event : events) {
        if (event.op != op_wait) continue;
        const CallTime time = call_time(event);
        const uint64_t woken_ns = event.start_ns + time.blocked_ns;
        tell(slept(event, overlap(event.start_ns, woken_ns, from_ns, to_ns)));
        tell(had_no_cpu(event, overlap(woken_ns, saturating_end_ns(event), from_ns, to_ns)));
    }
    for (const Event& event : events) {
        if (event.op == op_wait) continue;
        const uint64_t both_ns = overlap(event.start_ns, saturating_end_ns(event), from_ns, to_ns);
        const CallTime time = call_time(event);
        if (both_ns == 0 || time.duration_ns == 0) continue;
        const auto part_of = [&](uint64_t ns) {
            return static_cast<uint64_t>(static_cast<unsigned __int128>(both_ns) * ns / time.duration_ns);
        };
        // Where the waits inside it are not rows of their own, the call says what it slept for in the main.
        if (!watched) {
            tell(slept(event, part_of(time.blocked_ns)));
            tell(had_no_cpu(event, part_of(time.runnable_ns)));
        }
        const Op* op = find_op(event.op);
        tell({op && op->waits_for_device ? "device-wait" : "own-work", op_name(event.op), 0, part_of(time.on_cpu_ns)});
    }
    tell({watched ? "own-work" : "not-known", "", 0, whole_ns - told_ns});
    sort_parts(parts);
    return parts;
}

void add_parts(std::vector<MeanwhilePart>& sum, const std::vector<MeanwhilePart>& more) {
    for (const MeanwhilePart& part : more) add(sum, part);
    sort_parts(sum);
}

}  // namespace ingero
