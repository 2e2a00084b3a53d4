#include "daemon/ingerod/live/live_diagnosis.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "core/base/mutex.h"
#include "core/model/call_time.h"
#include "daemon/ingerod/live/remembered_processes.h"
#include "daemon/ingerod/loop/wake_fd.h"

namespace ingero {

namespace {

constexpr std::chrono::nanoseconds pass_period = std::chrono::seconds(1);
/// Passes take a share of a core of at most one by this: after one that took long comes a longer pause...
constexpr int64_t pause_by_pass = 60;
/// ...but none in which calls are forgotten before they were judged.
constexpr std::chrono::nanoseconds longest_pause = std::chrono::seconds(3);
/// After its exit, a process can still be in the window.
constexpr uint64_t remembered_ns = 60'000'000'000;
constexpr size_t max_processes = 16'384;
/// Ranks that wait for one that does not come make no calls: passes go on for so long to find them. One that lives is
/// reported after two minutes, or later where its ranks have been far apart.
constexpr uint64_t silence_ns = 600'000'000'000;
constexpr size_t max_communicators = 65'536;
constexpr ptrdiff_t max_communicators_of_process = 1'024;
/// Calls and waits of ranks, between two passes.
constexpr size_t max_of_ranks = 262'144;
/// Calls come in order of their end, but for those of a turn of the rings.
constexpr uint64_t settled_after_ns = 500'000'000;

std::chrono::nanoseconds thread_time() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

struct LiveDiagnosis::Impl {
    Impl(EventLoop& loop, const std::string& boot_id, const StragglerOptions& options, OnPass callback)
        : window(boot_id, {.since_ns = monotonic_now_ns()}),
          on_pass(std::move(callback)),
          straggler_options(options),
          stragglers(ranked, options, boot_id) {
        source = loop.add_io(wake.get(), EPOLLIN, [this](uint32_t) { deliver(); });
        thread = std::thread([this] { run(); });
        pthread_setname_np(thread.native_handle(), "ingerod-diag");
    }

    ~Impl() {
        {
            const Lock lock(mutex);
            stopping = true;
        }
        condition.notify_all();
        thread.join();
    }

    // Its own thread: asleep for good while there is nothing to judge, to wait for or to let go.
    void run() {
        Lock lock(mutex);
        std::chrono::nanoseconds pause = pass_period;
        for (;;) {
            while (!stopping && !awake && window.empty() && !may_hang(monotonic_now_ns())) condition.wait(lock);
            const auto until = std::chrono::steady_clock::now() + pause;
            while (!stopping && condition.wait_until(lock, until)) {
            }
            if (stopping) return;
            const uint64_t begun_ns = monotonic_now_ns();
            window.trim(begun_ns);
            forget_exited(begun_ns);
            if (window.has_new()) latest_ns = begun_ns;
            if (!awake && !window.has_new() && !may_hang(begun_ns)) continue;
            const std::vector<Process> known = processes.all();
            std::optional<std::vector<CommunicatorRow>> rows;
            if (std::exchange(communicators_changed, false)) {
                rows.emplace();
                for (const auto& [key, row] : communicators) rows->push_back(row);
            }
            const std::vector<Event> calls = std::exchange(of_ranks, {});
            const uint64_t settled_ns = latest_end_ns - std::min(latest_end_ns, settled_after_ns);
            stragglers.set_options(straggler_options);
            lock.unlock();
            if (rows) {
                ranked = Communicators(std::move(*rows));
                stragglers.communicators_changed();
                window.set_communicators(ranked);
            }
            const std::chrono::nanoseconds before = thread_time();
            stragglers.take(calls);
            // As late as can be: what is added between it and the pass is of no pass's time, nor new to the next.
            const ClockTriple now = ClockTriple::now();
            DiagnosisPass pass{window.pass(now, known), stragglers.settle(settled_ns), {}, now};
            for (StragglerChange& change : stragglers.quiet(now.monotonic_ns))
                pass.stragglers.push_back(std::move(change));
            pass.late_now = stragglers.open();
            add_conditions_to(pass, known);
            pause = std::clamp((thread_time() - before) * pause_by_pass, pass_period, longest_pause);
            lock.lock();
            // A loop that is behind gets the latest, with what the one before had newly lost.
            if (finished) carry(*finished, pass);
            finished = std::move(pass);
            wake.ring();
        }
    }

    void add_conditions_to(DiagnosisPass& pass, const std::vector<Process>& known) const {
        if (pass.stragglers.empty() && pass.late_now.empty()) return;
        const std::vector<GpuStates> gpus = window.gpus_since(0);
        if (gpus.empty()) return;
        const KnownProcesses processes(known);
        for (auto& [resolved, episode] : pass.stragglers) add_conditions(episode, stragglers.totals(), gpus, processes);
        for (StragglerEpisode& episode : pass.late_now) add_conditions(episode, stragglers.totals(), gpus, processes);
    }

    bool may_hang(uint64_t now_ns) const INGERO_REQUIRES(mutex) {
        return !communicators.empty() && saturating_subtract(now_ns, latest_ns) < silence_ns;
    }

    void keep_of_ranks(const std::vector<Event>& events) INGERO_REQUIRES(mutex) {
        for (const Event& event : events) {
            latest_end_ns = std::max(latest_end_ns, saturating_end_ns(event));
            if (ranks.empty() || of_ranks.size() >= max_of_ranks) continue;
            if (ranks.contains(event.process()) && StragglerWatch::wants(event)) of_ranks.push_back(event);
        }
    }

    bool has_communicators(const ProcessKey& process) const INGERO_REQUIRES(mutex) {
        const auto first = communicators.lower_bound({process, 0});
        return first != communicators.end() && first->first.first == process;
    }

    ptrdiff_t communicators_of(const ProcessKey& process) const INGERO_REQUIRES(mutex) {
        const auto first = communicators.lower_bound({process, 0});
        return std::distance(first, communicators.upper_bound({process, UINT64_MAX}));
    }

    /// For one more of the process. Its first ones are of the whole job, and its latest are in use.
    void make_room_for_communicator(const ProcessKey& process) INGERO_REQUIRES(mutex) {
        const ptrdiff_t count = communicators_of(process);
        if (count >= max_communicators_of_process)
            communicators.erase(std::next(communicators.lower_bound({process, 0}), count / 2));
        if (communicators.size() < max_communicators) return;
        ProcessKey most = process;
        ptrdiff_t most_count = count;
        for (auto one = communicators.begin(); one != communicators.end();) {
            const ProcessKey other = one->first.first;
            const ptrdiff_t its = communicators_of(other);
            if (its > most_count) std::tie(most, most_count) = std::tuple(other, its);
            std::advance(one, its);
        }
        // Many at once, since all were looked at.
        const auto first = communicators.lower_bound({most, 0});
        communicators.erase(std::next(first, most_count / 4),
                            std::next(first, std::max(most_count / 4 + 1, most_count - most_count / 4)));
        if (!has_communicators(most)) ranks.erase(most);
    }

    void forget_communicators(const ProcessKey& process) INGERO_REQUIRES(mutex) {
        const auto first = communicators.lower_bound({process, 0});
        const auto end = communicators.upper_bound({process, UINT64_MAX});
        if (first != end) communicators_changed = true;
        communicators.erase(first, end);
        ranks.erase(process);
    }

    /// Of one that was made in such a time: what it enters first may not have been seen.
    uint64_t interrupted_ns(const CommunicatorRow& row) const INGERO_REQUIRES(mutex) {
        const uint64_t made_ns = row.id & ~uint64_t{0xfff};  // bpf/communicators.h, new_communicator_id()
        const auto own = interrupted.find(row.process);
        for (const Window& time : {all_interrupted, own == interrupted.end() ? Window() : own->second})
            if (made_ns < time.to_ns) return std::max(made_ns, time.from_ns);
        return 0;
    }

    /// Called for each process that begins or ends, thousands of times a second beside a build: it scans nothing.
    void put(const Process& process, ProcessRole role) INGERO_REQUIRES(mutex) {
        processes.forget_ended(monotonic_now_ns());
        if (process.exited_ns != 0) interrupted.erase(process.key);
        const bool is_rank = has_communicators(process.key);
        const std::optional<Process> dropped = processes.put(process, is_rank ? ProcessRole::rank : role);
        // A rank of which nothing is known would pass for one that lives.
        if (dropped && dropped->exited_ns != 0) forget_communicators(dropped->key);
    }

    void interrupt(const ProcessKey& process, const Window& time) INGERO_REQUIRES(mutex) {
        if (interrupted.size() < max_communicators || interrupted.contains(process)) interrupted[process] = time;
    }

    void forget_interrupted(uint64_t now_ns) INGERO_REQUIRES(mutex) {
        std::erase_if(interrupted, [&](const auto& one) INGERO_REQUIRES(mutex) {
            const Process* process = processes.find(one.first);
            const bool has_ended = process && process->exited_ns != 0;
            return has_ended || one.second.to_ns < saturating_subtract(now_ns, remembered_ns);
        });
    }

    /// Of ranks that others still wait for it is to be known that they have ended.
    void forget_exited(uint64_t now_ns) INGERO_REQUIRES(mutex) {
        forget_interrupted(now_ns);
        processes.forget_ended(now_ns);
        const std::vector<ProcessKey> ended = processes.long_ended_ranks(now_ns);
        if (ended.empty()) return;
        std::set<uint64_t> in_use;
        for (const auto& [key, row] : communicators) {
            const Process* process = processes.find(row.process);
            if (process && process->exited_ns == 0) in_use.insert(row.hash);
        }
        std::set<ProcessKey> waited_for;
        for (const auto& [key, row] : communicators)
            if (row.hash != 0 && in_use.contains(row.hash)) waited_for.insert(row.process);
        for (const ProcessKey& process : ended) {
            if (waited_for.contains(process)) continue;
            forget_communicators(process);
            processes.erase(process);
        }
    }

    static void carry(DiagnosisPass& earlier, DiagnosisPass& later) {
        earlier.stragglers.insert(earlier.stragglers.end(), later.stragglers.begin(), later.stragglers.end());
        later.stragglers = std::move(earlier.stragglers);
        for (Finding& finding : later.findings)
            for (const Finding& before : earlier.findings)
                if (before.id == finding.id) {
                    finding.newly_lost_ns += before.newly_lost_ns;
                    finding.newly_waited_ns += before.newly_waited_ns;
                }
    }

    void deliver() {
        wake.drain();
        std::optional<DiagnosisPass> pass;
        {
            const Lock lock(mutex);
            pass.swap(finished);
        }
        if (pass) on_pass(*pass);
    }

    LiveWindow window;
    OnPass on_pass;
    WakeFd wake;
    EventLoop::Source source;
    Mutex mutex;
    Condition condition;
    bool stopping INGERO_GUARDED_BY(mutex) = false;
    bool awake INGERO_GUARDED_BY(mutex) = false;
    RememberedProcesses processes INGERO_GUARDED_BY(mutex){max_processes, remembered_ns};
    /// By process and id.
    std::map<std::pair<ProcessKey, uint64_t>, CommunicatorRow> communicators INGERO_GUARDED_BY(mutex);
    bool communicators_changed INGERO_GUARDED_BY(mutex) = false;
    /// When calls of NCCL may not have been seen, of late.
    std::map<ProcessKey, Window> interrupted INGERO_GUARDED_BY(mutex);
    Window all_interrupted INGERO_GUARDED_BY(mutex);       ///< the same of all processes
    std::set<ProcessKey> ranks INGERO_GUARDED_BY(mutex);   ///< with communicators
    std::vector<Event> of_ranks INGERO_GUARDED_BY(mutex);  ///< since the latest pass
    uint64_t latest_end_ns INGERO_GUARDED_BY(mutex) = 0;
    StragglerOptions straggler_options INGERO_GUARDED_BY(mutex);
    std::optional<DiagnosisPass> finished INGERO_GUARDED_BY(mutex);
    // Of the thread alone.
    Communicators ranked;
    StragglerWatch stragglers;
    uint64_t latest_ns = 0;  ///< when there was something new
    std::thread thread;
};

LiveDiagnosis::LiveDiagnosis(EventLoop& loop, const std::string& boot_id, const StragglerOptions& stragglers,
                             OnPass on_pass)
    : impl_(std::make_unique<Impl>(loop, boot_id, stragglers, std::move(on_pass))) {}

LiveDiagnosis::~LiveDiagnosis() = default;

void LiveDiagnosis::add(std::vector<Event> events, std::span<const LossRow> losses) {
    {
        // Under the lock, so that the thread cannot miss it between looking and falling asleep.
        const Lock lock(impl_->mutex);
        impl_->keep_of_ranks(events);
        impl_->window.add(std::move(events), losses);
    }
    impl_->condition.notify_one();
}

void LiveDiagnosis::add_spans(const std::vector<SpanRow>& spans) {
    impl_->window.add_spans(spans);
}

void LiveDiagnosis::add_state(const StateRow& state) {
    impl_->window.add_state(state);
}

void LiveDiagnosis::put_process(const Process& process) {
    const Lock lock(impl_->mutex);
    impl_->put(process, ProcessRole::traced);
}

void LiveDiagnosis::put_bystander(const Process& process) {
    const Lock lock(impl_->mutex);
    impl_->put(process, ProcessRole::bystander);
}

std::optional<Process> LiveDiagnosis::process(const ProcessKey& key) const {
    const Lock lock(impl_->mutex);
    const Process* known = impl_->processes.find(key);
    return known ? std::optional(*known) : std::nullopt;
}

std::optional<JobRank> LiveDiagnosis::rank_of(const ProcessKey& process, uint64_t since_ns) const {
    std::vector<CommunicatorRow> rows;
    {
        const Lock lock(impl_->mutex);
        const auto& all = impl_->communicators;
        for (auto one = all.lower_bound({process, 0}); one != all.end() && one->first.first == process; ++one)
            if (one->second.seen_ns >= since_ns) rows.push_back(one->second);
    }
    return rank_in_largest(rows);
}

void LiveDiagnosis::put_communicator(CommunicatorRow row, const StoreCommunicator& store) {
    const Lock lock(impl_->mutex);
    auto& all = impl_->communicators;
    const auto key = std::pair(row.process, row.id);
    // One of a group is reported once more when its handle is known.
    const auto known = all.find(key);
    row.interrupted_ns = known != all.end() ? known->second.interrupted_ns : impl_->interrupted_ns(row);
    if (known == all.end()) impl_->make_room_for_communicator(row.process);
    all[key] = row;
    impl_->processes.set_rank(row.process);
    if (row.hash != 0) impl_->ranks.insert(row.process);
    impl_->communicators_changed = true;
    store(row);
}

void LiveDiagnosis::interrupt_communicators(std::optional<ProcessKey> process, const Window& time,
                                            const StoreCommunicator& store) {
    const Lock lock(impl_->mutex);
    if (!process)
        impl_->all_interrupted = time;
    else
        impl_->interrupt(*process, time);
    for (auto& [key, row] : impl_->communicators) {
        if ((process && row.process != *process) || row.hash == 0 || row.interrupted_ns != 0) continue;
        const Process* owner = impl_->processes.find(row.process);
        if (owner && owner->exited_ns != 0) continue;
        row.interrupted_ns = time.from_ns;
        impl_->communicators_changed = true;
        store(row);
    }
}

void LiveDiagnosis::set_straggler_options(const StragglerOptions& options) {
    const Lock lock(impl_->mutex);
    impl_->straggler_options = options;
}

void LiveDiagnosis::keep_awake(bool awake) {
    {
        const Lock lock(impl_->mutex);
        impl_->awake = awake;
    }
    impl_->condition.notify_one();
}

}  // namespace ingero
