#include "core/diagnosis/evidence/meanwhile.h"

#include <algorithm>
#include <tuple>

#include "core/diagnosis/assign.h"
#include "core/model/call_time.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/time.h"

namespace ingero {

namespace {

constexpr size_t max_threads = 4'096;
constexpr size_t max_events = 2'048;  ///< a thread
constexpr size_t max_rows = 262'144;  ///< of all threads, some 70 MB
constexpr size_t max_parts = 64;
constexpr size_t max_sums = 64;  ///< a thread
constexpr uint64_t long_call_ns = 200'000;
/// For so long after their last sum, short waits are assumed to take as much: sums are recorded once a second.
constexpr uint64_t sums_hold_ns = 3'000'000'000;

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
    const bool ran_out = wait.blocked_reason == BlockedReason::futex || wait.blocked_reason == BlockedReason::pipe;
    if (ran_out && wait.waker_kind == WakerKind::interrupt)
        return {"sleep", std::string(to_string(BlockedReason::timer))};
    const uint32_t holder = visible_pid(wait.waker_tgid);
    if (part.kind != "lock-wait") return part;
    // A futex may be a lock, or how one thread of a program gives another work.
    if (wait.waker_kind != WakerKind::task || holder == 0 || wait.waker_tgid == process.pid) return {"wait", "thread"};
    if (to_string_view(wait.waker_comm).empty()) return part;
    part.name = to_string_view(wait.waker_comm);
    part.pid = holder;
    return part;
}

uint64_t overlap(uint64_t from, uint64_t to, uint64_t begin, uint64_t end) {
    return saturating_subtract(std::min(to, end), std::max(from, begin));
}

uint64_t portion_of(uint64_t ns, uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<uint64_t>(static_cast<unsigned __int128>(ns) * std::min(part, whole) / whole);
}

/// Of what there is no room for it is not known what it was.
void add(std::vector<MeanwhilePart>& parts, MeanwhilePart part) {
    if (part.ns == 0) return;
    const auto is_like = [&](const MeanwhilePart& one) {
        return one.kind == part.kind && one.name == part.name && one.pid == part.pid;
    };
    auto like = std::find_if(parts.begin(), parts.end(), is_like);
    if (like == parts.end() && parts.size() + 1 >= max_parts) {
        part = {"not-known", "", 0, part.ns};
        like = std::find_if(parts.begin(), parts.end(), is_like);
    }
    if (like == parts.end())
        parts.push_back(std::move(part));
    else
        like->ns = saturating_add(like->ns, part.ns);
}

void sort_parts(std::vector<MeanwhilePart>& parts) {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const MeanwhilePart& a, const MeanwhilePart& b) { return a.ns > b.ns; });
}

/// Too short, or too many, to be recorded one by one.
const MeanwhilePart short_waits{"wait", "short"};

/// What a thread did in a time, added in order: whatever a store claims, each nanosecond counts once.
class Account {
  public:
    Account(const ProcessKey& process, const Window& time, ThreadHistory::WaitsForOthers waits_for_others = {})
        : process_(process),
          time_(time),
          waits_for_others_(std::move(waits_for_others)),
          counted_until_ns_(time.from_ns) {}

    /// Between calls.
    void add_wait(const Event& wait) { add_wait(wait, slept(wait, process_), UINT64_MAX); }

    /// `waits` are those inside it that are rows of their own, in order of start: all that are not short, where
    /// `is_watched`.
    void add_call(const Event& call, std::span<const Event* const> waits, bool is_watched) {
        const Op* op = find_op(call.op);
        const MeanwhilePart device_wait = wait_for_device(call);
        const MeanwhilePart on_cpu =
            op && op->waits_for_device ? device_wait : MeanwhilePart{"own-work", op_name(call.op)};
        // In a call that waits for the device a thread sleeps for that, in whatever the driver sleeps.
        const auto slept_in = [&](const Event& row) {
            const bool for_device = op && cause_of_sleep(row.blocked_reason, op, true) == Cause::device_wait;
            return for_device ? device_wait : slept(row, process_);
        };
        const uint64_t end_ns = saturating_end_ns(call), counted_before_ns = counted_ns_;
        const uint64_t both_ns =
            overlap(std::max(call.start_ns, counted_until_ns_), end_ns, time_.from_ns, time_.to_ns);
        const CallTime time = call_time(call);
        if (both_ns == 0 || call.split_uncertain())
            return put({"not-known", op_name(call.op)}, take(call.start_ns, end_ns));
        uint64_t short_ns = time.blocked_ns + time.runnable_ns;
        for (const Event* wait : waits) {
            add_wait(*wait, slept_in(*wait), end_ns);
            short_ns = saturating_subtract(short_ns, wait->duration_ns);
        }
        uint64_t left_ns = both_ns - std::min(counted_ns_ - counted_before_ns, both_ns);
        const auto put_left = [&](const MeanwhilePart& part, uint64_t ns) {
            put(part, std::min(ns, left_ns));
            left_ns -= std::min(ns, left_ns);
        };
        if (is_watched || !waits.empty()) {
            put_left(short_waits, short_ns);
            put_left(on_cpu, left_ns);
        } else {
            // Where in the call each lay is not known: what is beyond the time that is asked for may be any of them.
            const uint64_t beyond_ns = time.duration_ns - both_ns;
            put_left(slept_in(call), saturating_subtract(time.blocked_ns, beyond_ns));
            const uint64_t runnable_ns = std::min(saturating_subtract(time.runnable_ns, beyond_ns), left_ns);
            put_runnable(call, runnable_ns);
            left_ns -= runnable_ns;
            put_left(on_cpu, saturating_subtract(time.on_cpu_ns, beyond_ns));
            put_left({"not-known", ""}, left_ns);
        }
        counted_until_ns_ = std::max(counted_until_ns_, end_ns);
    }

    /// So much of what is not yet counted, at most.
    void add_left(MeanwhilePart part, uint64_t ns) {
        put(std::move(part), std::min(ns, saturating_subtract(time_.length_ns(), counted_ns_)));
    }

    /// The largest first; what is not yet counted is `rest`.
    std::vector<MeanwhilePart> finish(MeanwhilePart rest) {
        add_left(std::move(rest), time_.length_ns());
        sort_parts(parts_);
        return std::move(parts_);
    }

  private:
    /// Of which what it slept for is `sleep`, up to `until_ns`.
    void add_wait(const Event& wait, MeanwhilePart sleep, uint64_t until_ns) {
        const uint64_t end_ns = std::min(saturating_end_ns(wait), until_ns);
        const uint64_t woken_ns = std::min(saturating_add(wait.start_ns, wait.blocked_ns), end_ns);
        if (wait.split_uncertain()) return put({"not-known", ""}, take(wait.start_ns, end_ns));
        put(std::move(sleep), take(wait.start_ns, woken_ns));
        put_runnable(wait, take(woken_ns, end_ns));
    }

    MeanwhilePart wait_for_device(const Event& call) const {
        return device_wait_part(waits_for_others_ ? waits_for_others_(call) : std::optional(false), call.op);
    }

    /// `ns` of the time in which the thread of the row could run and had no CPU.
    void put_runnable(const Event& row, uint64_t ns) {
        if (is_throttled(row)) return put({"cpu-quota", "its cgroup had used up its quota"}, ns);
        const CallTime time = call_time(row);
        const Assignment assignment = assign_between_calls(row, time);
        const uint64_t contended_ns = portion_of(ns, assignment.contended_ns, time.runnable_ns);
        uint64_t named_ns = 0;
        if (!assignment.preemptors.empty()) {
            const Preemptor& one = assignment.preemptors.front();
            named_ns = assignment.has_main_preemptor()
                           ? contended_ns
                           : std::min(portion_of(ns, one.ns, time.runnable_ns), contended_ns);
            put({"cpu-contention", std::string(to_string_view(one.comm)), visible_pid(one.tgid)}, named_ns);
        }
        put({"cpu-contention", std::string(other_tasks)}, contended_ns - named_ns);
        put({"wake-up", ""}, ns - contended_ns);
    }

    /// Of that time what is asked for and was not yet counted.
    uint64_t take(uint64_t from_ns, uint64_t to_ns) {
        const uint64_t ns = overlap(std::max(from_ns, counted_until_ns_), to_ns, time_.from_ns, time_.to_ns);
        counted_until_ns_ = std::max(counted_until_ns_, to_ns);
        return ns;
    }
    void put(MeanwhilePart part, uint64_t ns) {
        part.ns = ns;
        counted_ns_ += ns;
        add(parts_, std::move(part));
    }

    ProcessKey process_;
    Window time_;
    ThreadHistory::WaitsForOthers waits_for_others_;
    std::vector<MeanwhilePart> parts_;
    uint64_t counted_until_ns_ = 0, counted_ns_ = 0;
};

/// The end of the time in which its waits were summed.
uint64_t sum_end_ns(const Event& sum) {
    return saturating_add(sum.start_ns, sum.args[1]);
}

/// Of `time` what waits took that were too short, or too many, for rows of their own; by `sums`, in order of time.
uint64_t summed_ns(const std::deque<Event>& sums, const Window& time) {
    uint64_t ns = 0;
    for (const Event& sum : sums) {
        const uint64_t both_ns = overlap(sum.start_ns, sum_end_ns(sum), time.from_ns, time.to_ns);
        ns = saturating_add(ns, portion_of(both_ns, sum.duration_ns, sum.args[1]));
    }
    if (sums.empty()) return ns;
    const uint64_t until_ns = sum_end_ns(sums.back());
    if (until_ns >= time.to_ns || time.to_ns - until_ns > sums_hold_ns) return ns;
    const uint64_t after_ns = time.to_ns - std::max(until_ns, time.from_ns);
    return saturating_add(ns, portion_of(after_ns, sums.back().duration_ns, sums.back().args[1]));
}

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
    if (part.kind == "rank-wait") return "waiting for other ranks or for its device";
    if (part.name == "pipe") return "waiting for a pipe";
    if (part.name == "poll") return "waiting in poll";
    if (part.name == "thread") return "waiting for another thread, or a lock";
    if (part.name == "child") return "waiting for a process that it started";
    if (part.name == "short") return "in short waits";
    if (part.kind == "wait") return "waiting, reason unknown";
    return part.name.empty() ? "doing something that was not recorded" : "in " + part.name + ", activity unknown";
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
    const auto key = std::pair(event.process(), event.tid);
    if (threads_.size() >= max_threads && !threads_.contains(key)) make_room();
    if (rows_ >= max_rows) make_room_for_rows();
    const auto [place, is_new] = threads_.try_emplace(key);
    Thread& thread = place->second;
    if (is_new && made_room_) thread.known_from_ns = event.start_ns;
    ++rows_;
    if (event.op == op_waits_summed) {
        thread.sums.push_back(event);
        if (thread.sums.size() <= max_sums) return;
        thread.sums.pop_front();
        --rows_;
        return;
    }
    const uint64_t oldest_ns = saturating_subtract(saturating_end_ns(event), keep_ns_);
    thread.rows.push_back(event);
    while (thread.rows.size() > max_events || saturating_end_ns(thread.rows.front()) < oldest_ns) drop_row(thread);
}

// A thread itself stays: how long nothing was recorded of it says what it did, however long that was.
void ThreadHistory::trim(uint64_t now_ns) {
    const uint64_t oldest_ns = saturating_subtract(now_ns, keep_ns_);
    for (auto& [key, thread] : threads_) {
        while (!thread.rows.empty() && saturating_end_ns(thread.rows.front()) < oldest_ns) drop_row(thread);
        if (thread.latest_ns() >= oldest_ns) continue;
        while (!thread.sums.empty()) drop_sum(thread);
    }
}

void ThreadHistory::drop_row(Thread& thread) {
    thread.known_from_ns = std::max(thread.known_from_ns, saturating_end_ns(thread.rows.front()));
    thread.rows.pop_front();
    --rows_;
}

void ThreadHistory::drop_sum(Thread& thread) {
    thread.known_from_ns = std::max(thread.known_from_ns, sum_end_ns(thread.sums.front()));
    thread.sums.pop_front();
    --rows_;
}

ThreadHistory::Threads::iterator ThreadHistory::erase(Threads::iterator thread) {
    rows_ -= thread->second.size();
    return threads_.erase(thread);
}

uint64_t ThreadHistory::Thread::latest_ns() const {
    uint64_t latest_ns = known_from_ns;
    if (!rows.empty()) latest_ns = std::max(latest_ns, saturating_end_ns(rows.back()));
    if (!sums.empty()) latest_ns = std::max(latest_ns, sum_end_ns(sums.back()));
    return latest_ns;
}

/// A quarter of the threads goes, those of which there was nothing for longest: programs make some for each request.
void ThreadHistory::make_room() {
    std::vector<std::pair<uint64_t, std::pair<ProcessKey, uint32_t>>> by_latest;
    for (const auto& [key, thread] : threads_) by_latest.emplace_back(thread.latest_ns(), key);
    const auto some = by_latest.begin() + static_cast<std::ptrdiff_t>(by_latest.size() / 4);
    std::nth_element(by_latest.begin(), some, by_latest.end());
    for (auto one = by_latest.begin(); one != some; ++one) erase(threads_.find(one->second));
    made_room_ = true;
}

/// Processes that have most of all, or half as much, lose the older half of each of their threads. They take no other's
/// room, and what goes at once is much, since all threads were looked at.
void ThreadHistory::make_room_for_rows() {
    std::map<ProcessKey, size_t> sizes;
    size_t most = 0;
    for (const auto& [key, thread] : threads_) most = std::max(most, sizes[key.first] += thread.size());
    for (auto& [key, thread] : threads_) {
        if (sizes[key.first] < most - most / 2) continue;
        for (size_t left = (thread.rows.size() + 1) / 2; left != 0; --left) drop_row(thread);
        for (size_t left = (thread.sums.size() + 1) / 2; left != 0; --left) drop_sum(thread);
    }
}

void ThreadHistory::forget(const ProcessKey& process) {
    watched_.erase(process);
    for (auto one = threads_.lower_bound({process, 0}); one != threads_.end() && one->first.first == process;)
        one = erase(one);
}

std::vector<MeanwhilePart> meanwhile_parts(std::span<const Event> waits, const ProcessKey& process,
                                           const Window& time) {
    Account account(process, time);
    for (const Event& wait : waits)
        if (wait.depth == 0) account.add_wait(wait);
    return account.finish({"not-known", ""});
}

std::vector<MeanwhilePart> ThreadHistory::parts(const ProcessKey& process, uint32_t tid, const Window& time,
                                                const WaitsForOthers& waits_for_others) const {
    static const Thread nothing;
    const auto found = threads_.find({process, tid});
    const Thread& thread = found == threads_.end() ? nothing : found->second;
    const bool is_watched = watched_.contains(process);
    // All of the calls that lie within the time in part.
    Window whole = time;
    for (const Event& row : thread.rows) {
        if (overlap(row.start_ns, saturating_end_ns(row), time.from_ns, time.to_ns) == 0) continue;
        whole = {std::min(whole.from_ns, row.start_ns), std::max(whole.to_ns, saturating_end_ns(row))};
    }
    std::vector<const Event*> rows;
    for (const Event& row : thread.rows)
        if (overlap(row.start_ns, saturating_end_ns(row), whole.from_ns, whole.to_ns) != 0) rows.push_back(&row);
    const auto comes_before = [](const Event* a, const Event* b) {
        return std::tuple(a->start_ns, a->depth) < std::tuple(b->start_ns, b->depth);
    };
    std::stable_sort(rows.begin(), rows.end(), comes_before);
    Account account(process, time, waits_for_others);
    for (auto row = rows.begin(); row != rows.end();) {
        const Event& first = **row++;
        if (is_call(first.op)) {
            const uint64_t end_ns = saturating_end_ns(first);
            const auto inside = row;
            while (row != rows.end() && (*row)->op == op_wait && (*row)->depth != 0 && (*row)->start_ns < end_ns) ++row;
            account.add_call(first, {inside, row}, is_watched);
        } else if (first.depth == 0) {
            account.add_wait(first);
        }
        // Of a wait inside a call that is no row it is not known what it was for.
    }
    if (!is_watched) return account.finish({"not-known", ""});
    account.add_left(short_waits, summed_ns(thread.sums, time));
    account.add_left({"not-known", ""}, overlap(0, thread.known_from_ns, time.from_ns, time.to_ns));
    return account.finish({"own-work", ""});
}

MeanwhilePart device_wait_part(std::optional<bool> for_others, OpId op) {
    if (!for_others) return {"not-known", op_name(op)};
    return *for_others ? MeanwhilePart{"rank-wait", ""} : MeanwhilePart{"device-wait", op_name(op)};
}

uint64_t waited_elsewhere_ns(const std::vector<MeanwhilePart>& parts) {
    uint64_t ns = 0;
    for (const MeanwhilePart& part : parts)
        if (part.is_known() && part.kind != "own-work" && part.kind != "device-wait" && part.kind != "rank-wait")
            ns = saturating_add(ns, part.ns);
    return ns;
}

uint64_t ns_of_kind(const std::vector<MeanwhilePart>& parts, std::string_view kind) {
    uint64_t ns = 0;
    for (const MeanwhilePart& part : parts)
        if (part.kind == kind) ns = saturating_add(ns, part.ns);
    return ns;
}

void add_parts(std::vector<MeanwhilePart>& sum, const std::vector<MeanwhilePart>& more) {
    for (const MeanwhilePart& part : more) add(sum, part);
    sort_parts(sum);
}

}  // namespace ingero
