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

/// What a thread of `process` slept in. Of whoever ended that only the holder of a lock is named, another process's:
/// others may have brought what a third had kept it waiting for.
MeanwhilePart slept(const Event& wait, const ProcessKey& process) {
    MeanwhilePart part{std::string(kind_of_sleep(wait.blocked_reason)), std::string(to_string(wait.blocked_reason))};
    const uint32_t holder = visible_pid(wait.waker_tgid);
    if (part.kind != "lock-wait" || wait.waker_kind != WakerKind::task || holder == 0) return part;
    if (wait.waker_tgid == process.pid || to_string_view(wait.waker_comm).empty()) return part;
    part.name = to_string_view(wait.waker_comm);
    part.pid = holder;
    return part;
}

MeanwhilePart had_no_cpu(const Event& wait) {
    if (is_throttled(wait)) return {"cpu-quota", "its cgroup had used up its quota"};
    const bool known = wait.preemptor_tgid != 0 && wait.preemptor_ns != 0;
    if (!known && wait.preemptor_ns == 0 && wait.preempted_ns != 0) return {"cpu-contention", std::string(other_tasks)};
    if (!known) return {"wake-up", ""};
    return {"cpu-contention", std::string(to_string_view(wait.preemptor_comm)), visible_pid(wait.preemptor_tgid)};
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

/// What a thread did in a time, told in order: whatever a store claims, each nanosecond once.
class Account {
  public:
    explicit Account(const Window& time) : time_(time), told_until_ns_(time.from_ns) {}

    /// Between calls.
    void tell_wait(const Event& wait, const ProcessKey& process) {
        const uint64_t end_ns = saturating_end_ns(wait);
        const uint64_t woken_ns = std::min(saturating_add(wait.start_ns, wait.blocked_ns), end_ns);
        if (wait.split_uncertain()) return tell({"not-known", ""}, wait.start_ns, end_ns);
        tell(slept(wait, process), wait.start_ns, woken_ns);
        tell(had_no_cpu(wait), woken_ns, end_ns);
    }

    /// With the waits inside it, of which the call says what they were for in the main.
    void tell_call(const Event& call, const ProcessKey& process) {
        const uint64_t from_ns = std::max(call.start_ns, told_until_ns_), end_ns = saturating_end_ns(call);
        const uint64_t both_ns = overlap(from_ns, end_ns, time_.from_ns, time_.to_ns);
        const CallTime time = call_time(call);
        // When in the call each was is not known.
        const auto share = [&](uint64_t ns) {
            return static_cast<uint64_t>(static_cast<unsigned __int128>(both_ns) * ns / time.duration_ns);
        };
        if (both_ns != 0 && !call.split_uncertain()) {
            const Op* op = find_op(call.op);
            const bool waits_for_device = op && op->waits_for_device;
            const MeanwhilePart on_cpu{waits_for_device ? "device-wait" : "own-work", op_name(call.op)};
            put(waits_for_device ? on_cpu : slept(call, process), share(time.blocked_ns));
            put(had_no_cpu(call), share(time.runnable_ns));
            put(on_cpu, share(time.on_cpu_ns));
        } else if (both_ns != 0) {
            put({"not-known", ""}, both_ns);
        }
        told_until_ns_ = std::max(told_until_ns_, end_ns);
    }

    /// The largest first; the rest of the time is `rest`.
    std::vector<MeanwhilePart> finish(MeanwhilePart rest) {
        put(std::move(rest), saturating_subtract(time_.length_ns(), told_ns_));
        sort_parts(parts_);
        return std::move(parts_);
    }

  private:
    void tell(MeanwhilePart part, uint64_t from_ns, uint64_t to_ns) {
        put(std::move(part), overlap(std::max(from_ns, told_until_ns_), to_ns, time_.from_ns, time_.to_ns));
        told_until_ns_ = std::max(told_until_ns_, to_ns);
    }
    void put(MeanwhilePart part, uint64_t ns) {
        part.ns = ns;
        told_ns_ += ns;
        add(parts_, std::move(part));
    }

    Window time_;
    std::vector<MeanwhilePart> parts_;
    uint64_t told_until_ns_ = 0, told_ns_ = 0;
};

}  // namespace

std::string meanwhile_text(const MeanwhilePart& part) {
    const std::string who = part.name + (part.pid != 0 ? " (pid " + std::to_string(part.pid) + ")" : "");
    if (part.kind == "cpu-contention") return "waiting for a CPU that " + who + " had";
    if (part.kind == "cpu-quota") return "without a CPU: " + part.name;
    if (part.kind == "wake-up") return "waiting for a CPU";
    if (part.kind == "own-io-wait")
        return "waiting for " + std::string(part.name == "disk" ? "the disk" : "a network file system");
    if (part.kind == "lock-wait") return "waiting for a lock" + (part.pid != 0 ? " of " + who : "");
    if (part.kind == "memory-reclaim") return "waiting for pages of memory";
    if (part.kind == "network") return "waiting for the network";
    if (part.kind == "driver-wait") return "waiting in the driver";
    if (part.kind == "sleep") return "asleep until a " + part.name + " ran out";
    if (part.kind == "own-work") return part.name.empty() ? "at work between its calls" : "at work in " + part.name;
    if (part.kind == "device-wait") return "waiting for its device in " + part.name;
    if (part.name == "pipe") return "waiting for a pipe";
    if (part.name == "poll") return "waiting in poll";
    if (part.name == "child") return "waiting for a process that it started";
    if (part.kind == "wait") return "waiting, for what is not known";
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
    // Of one inside a call the call tells.
    if (event.op == op_waits_summed || event.depth != 0) return;
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
    Account account(time);
    for (const Event& wait : waits)
        if (wait.depth == 0) account.tell_wait(wait, process);
    return account.finish({"not-known", ""});
}

std::vector<MeanwhilePart> ThreadHistory::parts(const ProcessKey& process, uint32_t tid, const Window& time) const {
    std::vector<const Event*> of_time;
    if (const auto thread = threads_.find({process, tid}); thread != threads_.end()) {
        for (const Event& event : thread->second) {
            if (overlap(event.start_ns, saturating_end_ns(event), time.from_ns, time.to_ns) != 0)
                of_time.push_back(&event);
        }
    }
    std::stable_sort(of_time.begin(), of_time.end(),
                     [](const Event* a, const Event* b) { return a->start_ns < b->start_ns; });
    Account account(time);
    for (const Event* event : of_time)
        event->op == op_wait ? account.tell_wait(*event, process) : account.tell_call(*event, process);
    return account.finish({watched_.contains(process) ? "own-work" : "not-known", ""});
}

void add_parts(std::vector<MeanwhilePart>& sum, const std::vector<MeanwhilePart>& more) {
    for (const MeanwhilePart& part : more) add(sum, part);
    sort_parts(sum);
}

}  // namespace ingero
