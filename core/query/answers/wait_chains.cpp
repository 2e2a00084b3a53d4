#include "core/query/answers/wait_chains.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "core/model/call_time.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/query/coverage.h"
#include "core/query/event_filter.h"

namespace ingero {

namespace {

constexpr size_t max_waits = 400'000;  // about 100 MB
constexpr size_t max_links = 16;
constexpr size_t max_kinds = 65'536;

/// A thread, whoever else has its number: the process distinguishes them.
using ThreadKey = std::pair<ProcessKey, uint32_t>;

/// All waits of a boot by thread, and where each ended that one.
class Waits {
  public:
    Waits(const std::vector<Process>& processes, EventFilter& visible) : visible_(visible) {
        for (const Process& process : processes) {
            names_[process.key] = process.comm;
            by_pid_[process.key.pid].push_back(&process);
        }
        for (auto& [pid, all] : by_pid_)
            std::sort(all.begin(), all.end(), [](const Process* a, const Process* b) { return b->key < a->key; });
    }

    /// False where there are too many.
    bool add(const Event& event) {
        if (!visible_.matches(event)) return true;
        if (count_ == max_waits) return false;
        ++count_;
        Thread& thread = threads_[{event.process(), event.tid}];
        (event.op == op_wait ? thread.waits : thread.summed).push_back(event);
        return true;
    }

    void finish() {
        const auto earlier = [](const Event& a, const Event& b) { return a.start_ns < b.start_ns; };
        for (auto& [key, thread] : threads_) {
            std::sort(thread.waits.begin(), thread.waits.end(), earlier);
            std::sort(thread.summed.begin(), thread.summed.end(), earlier);
        }
    }

    WaitChain chain(const Event& wait, const ClockTriple& clock) const;

  private:
    struct Thread {
        std::vector<Event> waits;
        std::vector<Event> summed;  ///< many short ones each
    };

    std::string name_of(const ProcessKey& process) const {
        const auto found = names_.find(process);
        return found != names_.end() ? found->second : std::string();
    }
    /// Of those that had the pid, the one that had it then: the latest that had not ended before.
    const Process* find_process(uint32_t pid, uint64_t time_ns) const {
        const auto found = by_pid_.find(pid);
        if (found == by_pid_.end()) return nullptr;
        for (const Process* process : found->second)
            if (process->exited_ns == 0 || process->exited_ns >= time_ns) return process;
        return nullptr;
    }
    WaitLink look_at(const Event& waited, uint64_t from, uint64_t to, const ClockTriple& clock) const;

    EventFilter& visible_;
    std::map<ThreadKey, Thread> threads_;
    std::map<ProcessKey, std::string> names_;
    std::map<uint32_t, std::vector<const Process*>> by_pid_;  ///< the latest first
    size_t count_ = 0;
};

uint64_t overlap(uint64_t begin, uint64_t end, uint64_t from, uint64_t to) {
    begin = std::max(begin, from);
    end = std::min(end, to);
    return end > begin ? end - begin : 0;
}

LinkKind kind_of(const Event& wait) {
    return wait.blocked_ns >= wait.runnable_ns ? LinkKind::slept : LinkKind::no_cpu;
}

/// When it was woken: a sleep comes before what it then waited for a CPU.
uint64_t woken_ns(const Event& wait) {
    return wait.start_ns + wait.blocked_ns;
}

/// Of a wait, within [from, to): asleep, and without a CPU.
struct Parts {
    uint64_t blocked_ns = 0, runnable_ns = 0;
    uint64_t sum() const { return blocked_ns + runnable_ns; }
};
Parts parts_within(const Event& wait, uint64_t from, uint64_t to) {
    return {overlap(wait.start_ns, woken_ns(wait), from, to), overlap(woken_ns(wait), wait.end_ns(), from, to)};
}

/// What the one that ended `waited` did in [from, to).
WaitLink Waits::look_at(const Event& waited, uint64_t from, uint64_t to, const ClockTriple& clock) const {
    WaitLink link;
    link.process.pid = waited.waker_tgid;
    link.tid = wait_place(waited).waker_tid;
    link.comm = to_string_view(waited.waker_comm);
    link.from_ns = clock.to_realtime(from);
    link.duration_ns = to - from;
    const Process* process = find_process(waited.waker_tgid, to);
    if (!process) return link;
    link.process = process->key;
    if (!visible_.matches(process->key)) {
        link.kind = LinkKind::hidden;
        return link;
    }
    if (!wait_place(waited).waker_watched) return link;
    const auto found = threads_.find({process->key, link.tid});
    // By what each was for: a thread that reads a file piece by piece waits for the disk, however short each wait is.
    std::map<BlockedReason, uint64_t> slept;
    std::map<BlockedReason, const Event*> longest;
    uint64_t no_cpu = 0, off = 0, summed = 0, most_no_cpu = 0;
    const Event* longest_no_cpu = nullptr;
    if (found != threads_.end()) {
        // One thread's waits follow each other: those that end after `from` are behind all that do not.
        const std::vector<Event>& waits = found->second.waits;
        auto wait =
            std::partition_point(waits.begin(), waits.end(), [&](const Event& one) { return one.end_ns() <= from; });
        for (; wait != waits.end() && wait->start_ns < to; ++wait) {
            const Parts parts = parts_within(*wait, from, to);
            off += parts.sum();
            no_cpu += parts.runnable_ns;
            if (parts.runnable_ns > most_no_cpu) {
                most_no_cpu = parts.runnable_ns;
                longest_no_cpu = &*wait;
            }
            if (parts.blocked_ns == 0) continue;
            slept[wait->blocked_reason] += parts.blocked_ns;
            const Event*& known = longest[wait->blocked_reason];
            if (!known || parts_within(*known, from, to).blocked_ns < parts.blocked_ns) known = &*wait;
        }
        // Of short ones it is known in which time they were, and how long together.
        for (const Event& one : found->second.summed)
            summed +=
                std::min(one.duration_ns, overlap(one.start_ns, saturating_add(one.start_ns, one.args[1]), from, to));
    }
    const uint64_t rest = to - from - std::min(off, to - from), ran = rest - std::min(summed, rest);
    const Event* chosen = longest_no_cpu;
    uint64_t most = no_cpu;
    for (const auto& [reason, time] : slept) {
        if (time <= most) continue;
        most = time;
        chosen = longest[reason];
    }
    if (ran >= std::max(most, summed) || (!chosen && summed == 0)) {
        link.kind = LinkKind::ran;
        link.duration_ns = ran;
        return link;
    }
    if (!chosen || most < summed) return link;  // mostly in waits of which only the sum is known
    link.kind = chosen == longest_no_cpu && most == no_cpu ? LinkKind::no_cpu : LinkKind::slept;
    link.wait = *chosen;
    link.from_ns = clock.to_realtime(std::max(chosen->start_ns, from));
    link.duration_ns = most;
    return link;
}

WaitChain Waits::chain(const Event& wait, const ClockTriple& clock) const {
    WaitChain chain;
    WaitLink first;
    first.kind = kind_of(wait);
    first.process = wait.process();
    first.tid = wait.tid;
    first.comm = name_of(first.process);
    first.from_ns = clock.to_realtime(wait.start_ns);
    first.duration_ns = first.kind == LinkKind::slept ? wait.blocked_ns : wait.runnable_ns;
    first.wait = wait;
    chain.links.push_back(first);
    uint64_t from = wait.start_ns, to = woken_ns(wait);
    while (chain.links.size() < max_links) {
        const WaitLink& last = chain.links.back();
        if (last.kind != LinkKind::slept || !last.wait || last.wait->waker_kind != WakerKind::task || to <= from) break;
        WaitLink next = look_at(*last.wait, from, to, clock);
        if (next.wait) {
            from = std::max(from, next.wait->start_ns);
            to = std::min(to, woken_ns(*next.wait));
        }
        chain.links.push_back(std::move(next));
    }
    return chain;
}

struct AskedWait {
    Event wait;
    size_t boot = 0;
    uint64_t waits = 1, total_ns = 0;
    std::optional<bool> calls{};
};

bool is_longer(const AskedWait& a, const AskedWait& b) {
    return a.wait.duration_ns > b.wait.duration_ns;
}

/// Those asked about, one by one or by thread, of which it keeps what the answer has room for.
class AskedWaits {
  public:
    AskedWaits(const WaitsQuery& query, EventFilter& wanted) : query_(query), wanted_(wanted) {}

    /// False where there are too many threads or kinds.
    bool add(const Event& event, size_t boot) {
        const bool is_wait = event.op == op_wait;
        if (query_.tid && event.tid != *query_.tid) return true;
        // A call that has not returned has no row, but waits in it.
        if (query_.by_thread && (is_wait ? event.depth != 0 : is_call(event.op)) && !add_caller(event, boot))
            return false;
        if (!is_wait || !wanted_.matches(event) || (query_.between_calls && event.depth != 0)) return true;
        ++count_;
        if (query_.by_thread) return add_to_kind(event, boot);
        kept_.push_back({event, boot, 1, event.duration_ns});
        std::push_heap(kept_.begin(), kept_.end(), is_longer);
        if (kept_.size() <= query_.limit) return true;
        std::pop_heap(kept_.begin(), kept_.end(), is_longer);
        kept_.pop_back();
        return true;
    }

    uint64_t count() const { return count_; }
    uint64_t kinds() const { return kinds_.size(); }

    std::vector<AskedWait> finish() {
        if (!query_.by_thread) {
            std::sort_heap(kept_.begin(), kept_.end(), is_longer);
            return std::move(kept_);
        }
        for (auto& [kind, one] : kinds_) {
            one.calls = callers_.contains(std::get<Thread>(kind));
            kept_.push_back(std::move(one));
        }
        const auto comes_first = [](const AskedWait& a, const AskedWait& b) {
            if (a.calls != b.calls) return a.calls > b.calls;
            return a.total_ns != b.total_ns ? a.total_ns > b.total_ns : is_longer(a, b);
        };
        const size_t shown = std::min(kept_.size(), query_.limit);
        std::partial_sort(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(shown), kept_.end(), comes_first);
        kept_.resize(shown);
        return std::move(kept_);
    }

  private:
    using Thread = std::tuple<size_t, ProcessKey, uint32_t>;  ///< of a boot
    /// Whose, in a call or not, and what for: a sleep, or why it had no CPU.
    using Kind = std::tuple<Thread, bool, LinkKind, BlockedReason, uint16_t, bool>;

    bool add_caller(const Event& event, size_t boot) {
        // Calls come in runs of one thread.
        const Thread thread{boot, event.process(), event.tid};
        if (thread == last_caller_ || !wanted_.matches(event)) return true;
        callers_.insert(thread);
        last_caller_ = thread;
        return callers_.size() <= max_kinds;
    }

    bool add_to_kind(const Event& event, size_t boot) {
        const bool slept = kind_of(event) == LinkKind::slept;
        const Kind kind{{boot, event.process(), event.tid},
                        event.depth != 0,
                        kind_of(event),
                        slept ? event.blocked_reason : BlockedReason(),
                        slept ? event.blocked_syscall : Event().blocked_syscall,
                        !slept && is_throttled(event)};
        AskedWait& one = kinds_.try_emplace(kind, AskedWait{.wait = {}, .boot = boot, .waits = 0}).first->second;
        if (one.waits == 0 || event.duration_ns > one.wait.duration_ns) one.wait = event;
        ++one.waits;
        one.total_ns = saturating_add(one.total_ns, event.duration_ns);
        return kinds_.size() <= max_kinds;
    }

    const WaitsQuery& query_;
    EventFilter& wanted_;
    uint64_t count_ = 0;
    std::vector<AskedWait> kept_;  ///< one by one: a heap, the shortest on top
    std::map<Kind, AskedWait> kinds_;
    std::set<Thread> callers_;
    std::optional<Thread> last_caller_;
};

/// Errors: those of the store, limit.
Result<std::vector<AskedWait>> find_asked(const StoreSnapshot& snapshot, const WaitsQuery& query,
                                          const std::vector<BootWindow>& boots, EventFilter& wanted,
                                          WaitsAnswer& ret_answer) {
    AskedWaits asked(query, wanted);
    bool overflowed = false;
    for (size_t boot = 0; boot < boots.size(); ++boot) {
        const auto scanned =
            snapshot.scan(boots[boot].boot_index, boots[boot].monotonic, [&](std::span<const Event> block) {
                for (const Event& event : block) overflowed = overflowed || !asked.add(event, boot);
                return !overflowed;
            });
        if (!scanned) return tl::unexpected(scanned.error());
    }
    if (overflowed)
        return fail(ErrorCode::limit, "the window has waits of more than 65,536 threads or kinds",
                    "ask for a shorter window, for one process with --pid, or with --by wait");
    ret_answer.waits = asked.count();
    ret_answer.kinds = asked.kinds();
    return asked.finish();
}

/// Times in which there is something, in order and apart from each other.
std::vector<Window> union_of(std::vector<Window> times) {
    std::sort(times.begin(), times.end(), [](const Window& a, const Window& b) { return a.from_ns < b.from_ns; });
    std::vector<Window> merged;
    for (const Window& time : times) {
        if (!merged.empty() && time.from_ns <= merged.back().to_ns)
            merged.back().to_ns = std::max(merged.back().to_ns, time.to_ns);
        else
            merged.push_back(time);
    }
    return merged;
}

/// What all threads waited for in the times of those asked about. Errors: those of the store, limit.
Result<void> load_beside(const StoreSnapshot& snapshot, const BootWindow& boot, const std::vector<Window>& times,
                         Waits& waits) {
    const auto is_beside = [&](const Event& event) {
        const uint64_t end = saturating_add(event.start_ns, event.op == op_wait ? event.duration_ns : event.args[1]);
        const auto next = std::partition_point(times.begin(), times.end(),
                                               [&](const Window& time) { return time.to_ns <= event.start_ns; });
        return next != times.end() && next->from_ns < end;
    };
    bool overflowed = false;
    const auto scanned =
        snapshot.scan(boot.boot_index, {boot.monotonic.from_ns, times.back().to_ns}, [&](std::span<const Event> block) {
            for (const Event& event : block) {
                if (event.op != op_wait && event.op != op_waits_summed) continue;
                if (is_beside(event)) overflowed = overflowed || !waits.add(event);
            }
            return !overflowed;
        });
    if (!scanned) return tl::unexpected(scanned.error());
    if (overflowed)
        return fail(ErrorCode::limit, "more than 400,000 waits overlap the requested ones",
                    "ask for a shorter window, or fewer waits with --limit");
    waits.finish();
    return {};
}

}  // namespace

std::string_view to_string(LinkKind kind) {
    switch (kind) {
        case LinkKind::slept:
            return "slept";
        case LinkKind::no_cpu:
            return "no_cpu";
        case LinkKind::ran:
            return "ran";
        case LinkKind::hidden:
            return "hidden";
        case LinkKind::not_known:
            break;
    }
    return "not_known";
}

Result<WaitsAnswer> compute_waits(const StoreSnapshot& snapshot, const WaitsQuery& query) {
    WaitsAnswer answer;
    answer.window = query.filter.window;
    answer.by_thread = query.by_thread;
    auto covered = coverage(snapshot, query.filter.window, {.uid = query.filter.uid, .pid = query.filter.pid});
    if (!covered) return tl::unexpected(covered.error());
    answer.coverage = std::move(*covered);
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());
    const auto boots = boot_windows(snapshot, query.filter.window);
    EventFilter wanted({.window = {}, .uid = query.filter.uid, .pid = query.filter.pid}, *processes);
    const auto asked = find_asked(snapshot, query, boots, wanted, answer);
    if (!asked) return tl::unexpected(asked.error());
    // Whom a thread waited for may be of any process that the caller may see, whichever is asked about.
    EventFilter visible({.window = {}, .uid = query.filter.uid, .pid = {}}, *processes);
    std::vector<std::unique_ptr<Waits>> waits(boots.size());
    for (size_t boot = 0; boot < boots.size(); ++boot) {
        waits[boot] = std::make_unique<Waits>(*processes, visible);
        std::vector<Window> times;
        for (const AskedWait& one : *asked)
            if (one.boot == boot) times.push_back({one.wait.start_ns, saturating_end_ns(one.wait)});
        if (times.empty()) continue;
        if (auto loaded = load_beside(snapshot, boots[boot], union_of(std::move(times)), *waits[boot]); !loaded)
            return tl::unexpected(loaded.error());
    }
    for (const AskedWait& one : *asked) {
        WaitChain chain = waits[one.boot]->chain(one.wait, boots[one.boot].clock);
        chain.waits = one.waits;
        chain.total_ns = one.total_ns;
        chain.calls = one.calls;
        answer.chains.push_back(std::move(chain));
    }
    return answer;
}

}  // namespace ingero
