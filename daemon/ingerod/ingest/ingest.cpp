#include "daemon/ingerod/ingest/ingest.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <unordered_map>
#include <utility>

#include "core/base/mutex.h"
#include "core/model/call_time.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/ingest/bystanders.h"
#include "daemon/ingerod/ingest/commit_queue.h"
#include "daemon/ingerod/ingest/name_budget.h"
#include "daemon/ingerod/loop/log_throttle.h"
#include "daemon/ingerod/loop/posted_calls.h"
#include "daemon/ingerod/loop/wake_fd.h"

namespace ingero {

namespace {

constexpr size_t batch_events = 8192;
constexpr uint64_t batch_age_ns = 1'000'000'000;
/// With nothing to store, how often the session's last covered instant is moved on.
constexpr uint64_t idle_commit_ns = 5'000'000'000;
constexpr long poll_period_ns = 1'500'000;
/// Empty rings are looked at half as often. The smallest ring holds what a storm writes in this time.
constexpr long idle_poll_period_ns = 3'000'000;
/// A record that wakes the reader costs the traced thread some 80 µs. An engine that waits for its device meanwhile,
/// ten or a hundred times a second, is not to pay that each time: empty rings are slept on only after a while.
constexpr uint64_t stay_awake_ns = 250'000'000;
constexpr size_t max_sockets_a_turn = 1'000;
constexpr size_t stacks_a_call = 16;
/// Of what was read last: a part of what the unit gives for stopping.
constexpr uint64_t stop_within_ns = 10'000'000'000;
constexpr size_t max_put_events = 8'192;

/// Those for which all is put that was read.
struct Ready {
    std::vector<std::function<void()>> requests;
    uint64_t events = 0;  ///< of all that were ever read, so many are to be committed
    uint64_t covered_until_ns = 0;
};

}  // namespace

struct Ingest::Impl {
    Impl(EventLoop& loop, CallProbes& probes, std::unique_ptr<StoreWriter> writer, Callbacks callbacks)
        : probes(probes),
          callbacks(std::move(callbacks)),
          posted(loop),
          answers(loop),
          commits(std::move(writer), [this](std::function<void()> call) { answers.post(std::move(call)); }) {
        next_sequence = commits.figures().store.last_sequence + 1;
        last_counters.resize(all_ops().size());
        probes.set_record_callback([this](std::span<const std::byte> record) { take_record(record); });
    }

    // Ingest thread.
    void ingest_loop();
    void take_record(std::span<const std::byte> record);
    void merge_activity();
    void merge_calls();
    uint64_t next_hand_over_ns() const {
        return filling_since_ns == 0 ? last_hand_over_ns + idle_commit_ns : filling_since_ns + batch_age_ns;
    }
    void hand_over(std::vector<std::function<void()>> requests, uint64_t covered_until);
    void hand_over_when_put(std::vector<std::function<void()>> requests, uint64_t covered_until);
    void hand_over_first(Ready first);
    void sleep_until_record(uint64_t until_ns);
    void wait_before_polling(size_t read);
    std::vector<LossRow> read_losses(uint64_t now);

    void take_wait(WaitRow& row);
    void add_event(Event& event);
    void take_put_events();
    void log_names_refused(const ProcessKey& process, uint64_t now_ns) INGERO_REQUIRES(mutex);

    void post(std::function<void()> call) { posted.post(std::move(call)); }

    // Loop thread.
    void join_reader();

    CallProbes& probes;
    Callbacks callbacks;
    PostedCalls posted;   ///< about what was read
    PostedCalls answers;  ///< to those who asked for a commit
    WakeFd ingest_wake;
    std::thread ingest_thread;
    std::atomic<bool> stopping{false};
    std::atomic<uint64_t> turns{0};  ///< of the ingest thread
    uint64_t turns_seen = 0;         ///< loop thread only

    // Ingest thread only.
    std::vector<Event> pending;
    /// Of the first event since a batch last had losses and coverage; batches that fill earlier have neither. 0: none.
    uint64_t filling_since_ns = 0;
    uint64_t last_hand_over_ns = 0;
    uint64_t handed_over = 0;  ///< events
    uint64_t last_read_ns = 0;
    uint64_t next_sequence = 1;
    OpCounters last_counters;
    OverheadMeter meter{OpCounters(all_ops().size()), monotonic_now_ns()};
    uint64_t last_loss_ns = 0;
    uint64_t fresh_events = 0;
    std::unordered_map<ProcessKey, ProcessActivity, ProcessKeyHash> fresh_activity;
    std::vector<ingero_process_record> changes;
    std::vector<ingero_stack_record> new_stacks;
    std::vector<std::pair<FunctionRow, uint64_t>> unread_names;  ///< and where they are
    std::vector<SocketRow> sockets;
    std::vector<ProcessKey> ranked;
    std::vector<StormReport> storms;
    Bystanders bystanders;
    uint64_t fresh_waits = 0;

    Mutex mutex;
    NameBudget names INGERO_GUARDED_BY(mutex);
    uint64_t names_refused INGERO_GUARDED_BY(mutex) = 0;
    uint64_t names_lost INGERO_GUARDED_BY(mutex) = 0;
    uint64_t waits_lost INGERO_GUARDED_BY(mutex) = 0;
    LogThrottle names_refused_log INGERO_GUARDED_BY(mutex);
    std::vector<std::function<void()>> commit_requests INGERO_GUARDED_BY(mutex);  // for the ingest thread
    Ready ready INGERO_GUARDED_BY(mutex);
    std::unordered_map<ProcessKey, ProcessActivity, ProcessKeyHash> activity INGERO_GUARDED_BY(mutex);
    std::vector<Event> put_events INGERO_GUARDED_BY(mutex);  // for the ingest thread
    uint64_t recorded INGERO_GUARDED_BY(mutex) = 0;
    uint64_t waits INGERO_GUARDED_BY(mutex) = 0;
    uint64_t lost INGERO_GUARDED_BY(mutex) = 0;
    uint64_t uncertain INGERO_GUARDED_BY(mutex) = 0;
    uint64_t thinned INGERO_GUARDED_BY(mutex) = 0;
    OverheadFigures overhead INGERO_GUARDED_BY(mutex);

    CommitQueue commits;  // last: its thread posts here
};

void Ingest::Impl::join_reader() {
    if (!ingest_thread.joinable()) return;
    stopping = true;
    ingest_wake.ring();
    commits.stop_waiting();
    ingest_thread.join();
}

void Ingest::Impl::take_record(std::span<const std::byte> record) {
    Event event;
    if (decode_call(record, event)) {
        if (filling_since_ns == 0) filling_since_ns = monotonic_now_ns();
        event.sequence = next_sequence++;
        ProcessActivity& seen = fresh_activity[event.process()];
        seen.calls += event.weight;
        fresh_events++;
        meter.note_thread(event.tid);
        seen.latest_ns = std::max(seen.latest_ns, event.end_ns());
        if (callbacks.hide_names) callbacks.hide_names(event);
        if (callbacks.on_call) callbacks.on_call(event);
        bystanders.note_preemptor(event);
        pending.push_back(event);
        if (pending.size() >= batch_events) hand_over({}, 0);
        return;
    }
    WaitRow wait;
    if (decode_wait(record, wait)) return take_wait(wait);
    SocketRow socket;
    if (decode_socket(record, socket)) {
        if (sockets.size() < max_sockets_a_turn) sockets.push_back(socket);
        return;
    }
    StormReport storm;
    if (decode_storm(record, storm)) {
        storms.push_back(std::move(storm));
        return;
    }
    FunctionRow function;
    uint64_t name_address = 0;
    if (decode_function(record, function, name_address)) {
        const uint64_t now = monotonic_now_ns();
        const Lock lock(mutex);
        if (!names.take(function.process, now)) {
            ++names_refused;
            return log_names_refused(function.process, now);
        }
        if (name_address == 0) return commits.put(std::move(function));
        unread_names.emplace_back(std::move(function), name_address);
        return;
    }
    CommunicatorRow communicator;
    if (decode_communicator(record, communicator)) {
        const uint64_t now = monotonic_now_ns();
        {
            const Lock lock(mutex);
            if (!names.take(communicator.process, now)) {
                ++names_refused;
                return log_names_refused(communicator.process, now);
            }
        }
        if (communicator.rank >= 0 && (ranked.empty() || ranked.back() != communicator.process))
            ranked.push_back(communicator.process);
        if (!callbacks.on_communicator) return commits.put(communicator);
        return callbacks.on_communicator(communicator);
    }
    ingero_stack_record stack;
    uint32_t type = 0;
    if (record.size() >= sizeof(type)) memcpy(&type, record.data(), sizeof(type));
    if (type == INGERO_RECORD_STACK && record.size() >= sizeof(stack)) {
        memcpy(&stack, record.data(), sizeof(stack));
        new_stacks.push_back(stack);
        return;
    }
    ingero_process_record change;
    if (record.size() < sizeof(change)) return;
    memcpy(&change, record.data(), sizeof(change));
    if (change.type == INGERO_RECORD_PROCESS) changes.push_back(change);
}

void Ingest::Impl::take_wait(WaitRow& row) {
    if (filling_since_ns == 0) filling_since_ns = monotonic_now_ns();
    bystanders.note(row);
    add_event(row.event);
    if (Event request; request_of_wait(row.event, request)) add_event(request);
    if (pending.size() >= batch_events) hand_over({}, 0);
}

void Ingest::Impl::add_event(Event& event) {
    event.sequence = next_sequence++;
    if (callbacks.hide_names) callbacks.hide_names(event);
    pending.push_back(event);
    ++fresh_waits;
}

void Ingest::Impl::take_put_events() {
    std::vector<Event> taken;
    {
        const Lock lock(mutex);
        taken.swap(put_events);
    }
    if (!taken.empty() && filling_since_ns == 0) filling_since_ns = monotonic_now_ns();
    for (Event& event : taken) add_event(event);
}

void Ingest::Impl::log_names_refused(const ProcessKey& process, uint64_t now_ns) {
    if (const auto unsaid = names_refused_log.take(now_ns))
        spdlog::warn(
            "process {} and others of its user have more functions and communicators than ingerod keeps names of: some "
            "appear as handles only{}",
            process.pid, *unsaid);
}

// Posts first what a process did, then that it ended, also where one drain brought both.
void Ingest::Impl::merge_activity() {
    merge_calls();
    if (!ranked.empty())
        post([this, keys = std::exchange(ranked, {})] {
            for (const ProcessKey& key : keys)
                if (callbacks.on_ranked) callbacks.on_ranked(key);
        });
    // Few at a time, since each may take a while: others have their turns between.
    for (size_t from = 0; callbacks.on_stack && from < new_stacks.size(); from += stacks_a_call) {
        const auto first = new_stacks.begin() + static_cast<std::ptrdiff_t>(from);
        const auto count = static_cast<std::ptrdiff_t>(std::min(stacks_a_call, new_stacks.size() - from));
        post([this, stacks = std::vector(first, first + count)] {
            for (const ingero_stack_record& stack : stacks) callbacks.on_stack(stack);
        });
    }
    new_stacks.clear();
    if (!unread_names.empty())
        post([this, names = std::exchange(unread_names, {})]() mutable {
            for (auto& [function, address] : names)
                if (callbacks.on_unread_name) callbacks.on_unread_name(std::move(function), address);
        });
    if (auto wakers = bystanders.take_wakers(); !wakers.empty())
        post([this, rows = std::move(wakers)] {
            for (const WaitRow& row : rows)
                if (callbacks.on_bystander) callbacks.on_bystander(row);
        });
    if (auto preemptors = bystanders.take_preemptors(); !preemptors.empty())
        post([this, pids = std::move(preemptors)] {
            if (callbacks.on_preemptors) callbacks.on_preemptors(pids);
        });
    if (!sockets.empty())
        post([this, rows = std::exchange(sockets, {})] {
            for (const SocketRow& row : rows)
                if (callbacks.on_socket) callbacks.on_socket(row);
        });
    if (!storms.empty())
        post([this, reports = std::exchange(storms, {})] {
            for (const StormReport& report : reports)
                if (callbacks.on_storm) callbacks.on_storm(report);
        });
    take_put_events();
    if (fresh_waits != 0) {
        const Lock lock(mutex);
        waits += std::exchange(fresh_waits, 0);
    }
    for (const ingero_process_record& change : changes) post([this, change] { callbacks.on_process_change(change); });
    changes.clear();
    if (callbacks.on_drained) callbacks.on_drained();
}

void Ingest::Impl::merge_calls() {
    if (fresh_activity.empty()) return;
    std::vector<ProcessKey> unknown;
    {
        const Lock lock(mutex);
        for (const auto& [key, fresh] : fresh_activity) {
            auto [known, added] = activity.try_emplace(key);
            if (added) unknown.push_back(key);
            known->second.key = key;
            known->second.calls += fresh.calls;
            known->second.latest_ns = std::max(known->second.latest_ns, fresh.latest_ns);
        }
        recorded += std::exchange(fresh_events, 0);
    }
    fresh_activity.clear();
    for (const ProcessKey& key : unknown) post([this, key] { callbacks.on_new_process(key); });
}

std::vector<LossRow> Ingest::Impl::read_losses(uint64_t now) {
    std::vector<LossRow> rows;
    OpCounters counters = sum_by_op(probes.counters());
    const uint64_t counted_ns = std::max(now, monotonic_now_ns());  // what was lost by then may be of after `now`
    const auto ops = all_ops();
    uint64_t lost_now = 0, uncertain_now = 0, thinned_now = 0;
    for (size_t i = 0; i < counters.size(); ++i) {
        ingero_call_counters& now_count = counters[i];
        const ingero_call_counters& before = last_counters[i];
        // A lost record takes those that it stood for back from the thinned ones: later ones make up for it.
        now_count.thinned = std::max(now_count.thinned, before.thinned);
        LossRow row{.from_ns = last_loss_ns, .to_ns = counted_ns, .op = ops[i].id};
        row.lost_ring = now_count.lost_ring - before.lost_ring;
        row.lost_frames = now_count.lost_frames - before.lost_frames;
        row.lost_depth = now_count.lost_depth - before.lost_depth;
        row.uncertain = now_count.uncertain - before.uncertain;
        row.thinned = now_count.thinned - before.thinned;
        lost_now += now_count.lost_ring + now_count.lost_frames + now_count.lost_depth;
        uncertain_now += now_count.uncertain;
        thinned_now += now_count.thinned;
        if (!row.is_empty()) rows.push_back(row);
    }
    last_counters = counters;
    const uint64_t since = std::exchange(last_loss_ns, now);
    std::optional<OverheadFigures> measured;
    if (meter.is_due(now)) measured = meter.measure(now, counters, probes.cost(), probes.stack_cost_ns());
    const Lock lock(mutex);
    std::string not_kept;  // in one row: a gap is known by when it began and why
    const auto add_not_kept = [&](uint64_t& known, uint64_t count, const char* what) {
        const uint64_t before = std::exchange(known, count);
        if (count != before) not_kept += (not_kept.empty() ? "" : "; ") + std::to_string(count - before) + what;
    };
    add_not_kept(names_lost, probes.names_lost() + names_refused, " names of functions were not kept");
    add_not_kept(waits_lost, probes.host().lost(), " waits of threads, or events of their sockets, were not kept");
    if (!not_kept.empty())
        commits.put(GapRow{.process = {},
                           .uid = 0,
                           .from_ns = since,
                           .to_ns = now,
                           .reason = GapReason::too_many,
                           .subject = std::move(not_kept)});
    if (measured) overhead = std::move(*measured);
    thinned = thinned_now;
    lost = lost_now;
    uncertain = uncertain_now;
    return rows;
}

// What was read for a request is put by the loop thread, the stacks of its calls too: then only it is committed,
// without what is read meanwhile.
void Ingest::Impl::hand_over_when_put(std::vector<std::function<void()>> requests, uint64_t covered_until) {
    post([this, requests = std::move(requests), events = handed_over + pending.size(), covered_until] {
        {
            const Lock lock(mutex);
            ready.requests.insert(ready.requests.end(), requests.begin(), requests.end());
            ready.events = std::max(ready.events, events);
            ready.covered_until_ns = std::max(ready.covered_until_ns, covered_until);
        }
        ingest_wake.ring();
    });
}

void Ingest::Impl::hand_over_first(Ready first) {
    const size_t count = std::min<size_t>(saturating_subtract(first.events, handed_over), pending.size());
    std::vector<Event> later(pending.begin() + static_cast<std::ptrdiff_t>(count), pending.end());
    pending.resize(count);
    // What is covered grows only.
    hand_over(std::move(first.requests),
              first.covered_until_ns == 0 ? 0 : std::max(first.covered_until_ns, last_loss_ns));
    pending.insert(pending.end(), later.begin(), later.end());
    if (pending.empty()) filling_since_ns = 0;
}

/// With `covered_until` 0 the batch says nothing of coverage: it is one of several within a drain.
void Ingest::Impl::hand_over(std::vector<std::function<void()>> requests, uint64_t covered_until) {
    std::vector<LossRow> losses;
    if (covered_until != 0) losses = read_losses(covered_until);
    last_hand_over_ns = monotonic_now_ns();
    handed_over += pending.size();
    if (callbacks.on_events && !(pending.empty() && losses.empty())) callbacks.on_events(pending, losses);
    commits.push(std::exchange(pending, {}), std::move(losses), covered_until, std::move(requests));
    pending.reserve(batch_events);
}

void Ingest::Impl::sleep_until_record(uint64_t until_ns) {
    probes.announce_sleep();
    if (probes.consume() != 0) {
        last_read_ns = monotonic_now_ns();
        return;
    }
    const uint64_t now = monotonic_now_ns();
    const int timeout_ms = until_ns > now ? static_cast<int>((until_ns - now) / 1'000'000 + 1) : 0;
    pollfd fds[] = {{probes.wake_fd(), POLLIN, 0}, {ingest_wake.get(), POLLIN, 0}};
    if (poll(fds, 2, timeout_ms) > 0 && (fds[1].revents & POLLIN)) ingest_wake.drain();
}

void Ingest::Impl::wait_before_polling(size_t read) {
    const uint64_t now = monotonic_now_ns();
    if (read != 0) last_read_ns = now;
    if (now - last_read_ns > stay_awake_ns) return sleep_until_record(next_hand_over_ns());
    const timespec period{0, read != 0 ? poll_period_ns : idle_poll_period_ns};
    pollfd asked{ingest_wake.get(), POLLIN, 0};
    if (ppoll(&asked, 1, &period, nullptr) > 0) ingest_wake.drain();
}

void Ingest::Impl::ingest_loop() {
    last_loss_ns = last_hand_over_ns = monotonic_now_ns();
    while (!stopping) {
        turns++;
        std::vector<std::function<void()>> requests;
        Ready first;
        {
            const Lock lock(mutex);
            requests.swap(commit_requests);
            std::swap(first, ready);
        }
        const bool covered = commits.is_covering();
        // Whoever asked before this instant gets all that was recorded before it.
        const uint64_t before = monotonic_now_ns();
        const size_t count = probes.consume();
        merge_activity();
        if (!requests.empty()) hand_over_when_put(std::move(requests), covered ? before : 0);
        if (monotonic_now_ns() >= next_hand_over_ns()) {
            filling_since_ns = 0;
            hand_over(std::move(first.requests), covered ? before : 0);
        } else if (!first.requests.empty()) {
            hand_over_first(std::move(first));
        }
        wait_before_polling(count);
    }
    const uint64_t before = monotonic_now_ns();
    probes.consume();
    merge_activity();
    hand_over({}, before);
}

Ingest::Ingest(EventLoop& loop, CallProbes& probes, std::unique_ptr<StoreWriter> store, Callbacks callbacks)
    : impl_(std::make_unique<Impl>(loop, probes, std::move(store), std::move(callbacks))) {}

// Does not answer those who wait for a commit: they may be gone.
void Ingest::stop_reading() {
    if (!impl_->ingest_thread.joinable()) return;
    impl_->join_reader();
    if (const size_t left = impl_->posted.run_rest(stop_within_ns); left != 0)
        spdlog::warn("{} changes of processes and stacks were not stored: no time was left before the stop", left);
    impl_->hand_over({}, 0);
}

Ingest::~Ingest() {
    impl_->join_reader();
    impl_->commits.finish();
}

void Ingest::start() {
    impl_->ingest_thread = std::thread([this] { impl_->ingest_loop(); });
    impl_->commits.start();
    pthread_setname_np(impl_->ingest_thread.native_handle(), "ingerod-ingest");
}

void Ingest::put_process(Process process) {
    {
        const uint32_t user = impl_->callbacks.owner_of ? impl_->callbacks.owner_of(process.uid) : process.uid;
        const Lock lock(impl_->mutex);
        if (process.exited_ns == 0)
            impl_->names.set_owner(process.key, user);
        else
            impl_->names.forget(process.key);
    }
    impl_->commits.put(std::move(process));
}

void Ingest::put_gap(GapRow gap) {
    impl_->commits.put(std::move(gap));
}

void Ingest::put_stack(StackRow stack) {
    impl_->commits.put(std::move(stack));
}

void Ingest::put_file(FileRow file) {
    impl_->commits.put(std::move(file));
}

void Ingest::put_symbol(SymbolRow symbol) {
    impl_->commits.put(std::move(symbol));
}

void Ingest::put_function(FunctionRow function) {
    impl_->commits.put(std::move(function));
}

void Ingest::lose_name() {
    const Lock lock(impl_->mutex);
    ++impl_->names_refused;
}

void Ingest::put_event(Event event) {
    const Lock lock(impl_->mutex);
    if (impl_->put_events.size() < max_put_events) impl_->put_events.push_back(event);
}

void Ingest::put_state(StateRow state) {
    impl_->commits.put(std::move(state));
}

void Ingest::put_incident(IncidentRow incident) {
    impl_->commits.put(std::move(incident));
}

void Ingest::put_communicator(CommunicatorRow communicator) {
    impl_->commits.put(std::move(communicator));
}

void Ingest::put_spans(std::vector<SpanRow> spans, std::function<void(bool)> done) {
    impl_->commits.put(std::move(spans), std::move(done));
}

void Ingest::set_covered_since(uint64_t monotonic_ns) {
    impl_->commits.set_covered_since(monotonic_ns);
}

void Ingest::commit_now(std::function<void()> done) {
    {
        const Lock lock(impl_->mutex);
        impl_->commit_requests.push_back(std::move(done));
    }
    impl_->ingest_wake.ring();
}

// Behind a disk that stands still the thread waits, and rightly: killing the daemon would not bring the disk back.
bool Ingest::made_progress() {
    const uint64_t turns = impl_->turns;
    return std::exchange(impl_->turns_seen, turns) != turns || impl_->commits.is_waiting();
}

IngestFigures Ingest::figures() const {
    CommitFigures commits = impl_->commits.figures();
    const Lock lock(impl_->mutex);
    return {.recorded = impl_->recorded,
            .lost = impl_->lost,
            .uncertain = impl_->uncertain,
            .thinned = impl_->thinned,
            .waits = impl_->waits,
            .names_lost = impl_->names_lost,
            .overhead = impl_->overhead,
            .commits = std::move(commits)};
}

void Ingest::forget(const ProcessKey& key) {
    const Lock lock(impl_->mutex);
    impl_->activity.erase(key);
    impl_->names.forget(key);
}

std::vector<ProcessActivity> Ingest::activity() const {
    const Lock lock(impl_->mutex);
    std::vector<ProcessActivity> result;
    for (const auto& [key, one] : impl_->activity) result.push_back(one);
    return result;
}

}  // namespace ingero
