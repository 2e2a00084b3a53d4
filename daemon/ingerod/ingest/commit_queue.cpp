#include "daemon/ingerod/ingest/commit_queue.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace ingero {

namespace {

/// Events that share a transaction, at most; a batch has up to 8,192.
constexpr size_t max_commit_events = 65'536;
/// What may wait for a slow disk, about 28 MB; beyond it the rings fill and the kernel side counts what it drops.
constexpr size_t max_waiting_events = 131'072;
/// Names that wait for a commit, at most 512 bytes each.
constexpr size_t max_waiting_functions = 16'384;
constexpr size_t max_waiting_gaps = 65'536;
/// Stacks, and names of places in files, that wait for a commit: some 20 MB of each.
constexpr size_t max_waiting_stacks = 32'768;
/// Measurements of hosts and devices: some minutes of a host with many.
constexpr size_t max_waiting_states = 16'384;
constexpr size_t max_waiting_incidents = 4'096;
/// As many as are watched, each with a command line and what else is known of it.
constexpr size_t max_waiting_processes = 16'384;
/// More than a stored event takes, whatever is in it.
constexpr size_t row_bytes = 200;
/// Batches committed without a pause between them before small blocks are merged and old ones compressed all the same.
constexpr size_t tidy_every_batches = 64;

/// What the daemon stores, the names that events refer to before the events.
constexpr std::tuple row_kinds(&Batch::processes, &Batch::files, &Batch::symbols, &Batch::stacks, &Batch::functions,
                               &Batch::communicators, &Batch::gaps, &Batch::spans, &Batch::states, &Batch::incidents,
                               &Batch::losses, &Batch::events);

template <class Visit>
void for_each_kind(Visit visit) {
    std::apply([&](auto... kind) { (visit(kind), ...); }, row_kinds);
}

size_t count_rows(const Batch& batch) {
    size_t rows = 0;
    for_each_kind([&](auto kind) { rows += (batch.*kind).size(); });
    return rows;
}

template <class Row>
void append(std::vector<Row>& rows, std::vector<Row>&& more) {
    if (rows.empty())
        rows = std::move(more);
    else
        std::move(more.begin(), more.end(), std::back_inserter(rows));
}

void append(Batch& batch, Batch&& more) {
    for_each_kind([&](auto kind) { append(batch.*kind, std::move(more.*kind)); });
    batch.covered_until_ns = std::max(batch.covered_until_ns, more.covered_until_ns);
}

/// The first `most` rows. What the batch says of coverage stays with its last row.
Batch take_first(Batch& batch, size_t most) {
    Batch first;
    for_each_kind([&](auto kind) {
        auto& rows = batch.*kind;
        const auto end = rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), most));
        (first.*kind).assign(std::make_move_iterator(rows.begin()), std::make_move_iterator(end));
        rows.erase(rows.begin(), end);
        most -= (first.*kind).size();
    });
    return first;
}

Batch take_events(Batch& batch) {
    Batch events;
    events.events = std::exchange(batch.events, {});
    events.losses = std::exchange(batch.losses, {});
    events.covered_until_ns = std::exchange(batch.covered_until_ns, 0);
    return events;
}

/// Rows of a batch that could not be stored, before those put meanwhile, while there is room.
template <class Row>
void put_back(std::vector<Row>&& failed, std::vector<Row>& waiting, size_t most) {
    if (failed.size() + waiting.size() > most) return;
    append(failed, std::move(waiting));
    waiting = std::move(failed);
}

/// The last row of each process. Of more than `most`, those of processes that have ended go before others, the first
/// ones first.
void keep_latest(std::vector<Process>& rows, size_t most) {
    std::unordered_set<ProcessKey, ProcessKeyHash> seen;
    std::vector<Process> latest;
    for (auto row = rows.rbegin(); row != rows.rend(); ++row)
        if (seen.insert(row->key).second) latest.push_back(std::move(*row));
    std::reverse(latest.begin(), latest.end());
    size_t excess = latest.size() - std::min(latest.size(), most);
    for (const bool has_ended : {true, false})
        std::erase_if(latest, [&](const Process& row) {
            return excess != 0 && (row.exited_ns != 0) == has_ended && excess-- != 0;
        });
    rows = std::move(latest);
}

template <class Row>
void put_row(Row&& row, std::vector<std::remove_cvref_t<Row>>& waiting, size_t most) {
    if (waiting.size() < most) waiting.push_back(std::forward<Row>(row));
}

}  // namespace

void CommitQueue::Queued::append(Queued&& next) {
    ingero::append(batch, std::move(next.batch));
    ingero::append(requests, std::move(next.requests));
    ingero::append(done, std::move(next.done));
}

CommitQueue::CommitQueue(std::unique_ptr<StoreWriter> store, std::function<void(Call)> post)
    : store_(std::move(store)), post_(std::move(post)) {
    figures_.store = store_->figures();
    figures_.committed_sequence = figures_.store.last_sequence;
}

CommitQueue::~CommitQueue() {
    finish();
}

void CommitQueue::start() {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "ingerod-store");
}

void CommitQueue::finish() {
    if (!thread_.joinable()) return;
    {
        const Lock lock(mutex_);
        closed_ = true;
    }
    wake_.notify_all();
    thread_.join();
    if (const auto ended = store_->end_session(); !ended)
        spdlog::error("cannot end the session in the store: {}", ended.error().message);
}

void CommitQueue::stop_waiting() {
    stopping_ = true;
    const Lock lock(mutex_);
    wake_.notify_all();
}

void CommitQueue::put(Process process) {
    const Lock lock(mutex_);
    next_.processes.push_back(std::move(process));
    // That goes through all of them: done seldom, and where the store works never.
    if (next_.processes.size() >= 2 * max_waiting_processes) keep_latest(next_.processes, max_waiting_processes);
}

void CommitQueue::put(GapRow gap) {
    const Lock lock(mutex_);
    put_row(std::move(gap), next_.gaps, max_waiting_gaps);
}

// A store that refuses for long, or a target that registers without end: the oldest names go first.
void CommitQueue::put(FunctionRow function) {
    const Lock lock(mutex_);
    next_.functions.push_back(std::move(function));
    if (next_.functions.size() > max_waiting_functions) next_.functions.erase(next_.functions.begin());
}

void CommitQueue::put(CommunicatorRow communicator) {
    const Lock lock(mutex_);
    put_row(std::move(communicator), next_.communicators, max_waiting_functions);
}

void CommitQueue::put(StackRow stack) {
    const Lock lock(mutex_);
    put_row(std::move(stack), next_.stacks, max_waiting_stacks);
}

void CommitQueue::put(FileRow file) {
    const Lock lock(mutex_);
    put_row(std::move(file), next_.files, max_waiting_stacks);
}

void CommitQueue::put(SymbolRow symbol) {
    const Lock lock(mutex_);
    put_row(std::move(symbol), next_.symbols, max_waiting_stacks);
}

void CommitQueue::put(StateRow state) {
    const Lock lock(mutex_);
    put_row(std::move(state), next_.states, max_waiting_states);
}

void CommitQueue::put(IncidentRow incident) {
    const Lock lock(mutex_);
    put_row(std::move(incident), next_.incidents, max_waiting_incidents);
}

void CommitQueue::put(std::vector<SpanRow> spans, std::function<void(bool)> done) {
    const Lock lock(mutex_);
    append(next_.spans, std::move(spans));
    next_done_.push_back(std::move(done));
    wake_.notify_all();
}

void CommitQueue::set_covered_since(uint64_t monotonic_ns) {
    const Lock lock(mutex_);
    if (covered_since_ == 0) covered_since_ = monotonic_ns;
}

bool CommitQueue::is_covering() const {
    const Lock lock(mutex_);
    return covered_since_ != 0;
}

void CommitQueue::push(std::vector<Event> events, std::vector<LossRow> losses, uint64_t covered_until_ns,
                       std::vector<Call> requests) {
    Lock lock(mutex_);
    // A disk that cannot keep up stops the draining here; what then finds no room is counted by the kernel side.
    waits_for_store_ = true;
    while (queued_events_ >= max_waiting_events && !stopping_) wake_.wait(lock);
    waits_for_store_ = false;
    // Only now: what is put may be committed meanwhile, and a newer row must not come before an older one.
    Queued queued = take_put();
    queued.requests = std::move(requests);
    queued.batch.events = std::move(events);
    queued.batch.losses = std::move(losses);
    queued.batch.covered_until_ns = covered_until_ns;
    for (const auto& [op, row] : carried_losses_) queued.batch.losses.push_back(row);
    carried_losses_.clear();
    queued_events_ += queued.events();
    queue_.push_back(std::move(queued));
    wake_.notify_all();
}

CommitQueue::Queued CommitQueue::take_put() {
    return {std::exchange(next_, {}), {}, std::exchange(next_done_, {})};
}

CommitQueue::Outcome CommitQueue::commit(const Batch& batch) {
    const auto result = store_->commit(batch);
    const bool too_large = !result && !store_->fits(batch);
    const Lock lock(mutex_);
    figures_.store = store_->figures();
    if (result) {
        figures_.committed_sequence = figures_.store.last_sequence;
        figures_.store_error.clear();
        return Outcome::stored;
    }
    if (too_large) return Outcome::too_large;
    figures_.failed_commits++;
    if (figures_.store_error != result.error().message)
        spdlog::error("cannot store events: {} ({})", result.error().message, result.error().hint);
    figures_.store_error = result.error().message;
    return Outcome::failed;
}

// A failed commit stores nothing of its batch: once more, then the events alone. Names wait for the next batch, and are
// not to take its events along if it is they that find no room.
void CommitQueue::store(Batch& batch) {
    Outcome outcome = commit(batch);
    if (outcome == Outcome::failed) outcome = commit(batch);
    if (outcome == Outcome::stored) {
        batch = {};
        return;
    }
    Batch events = take_events(batch);
    if (outcome == Outcome::too_large) store_in_parts(batch);
    if (outcome == Outcome::too_large || count_rows(batch) > 0) store_in_parts(events);
    append(batch, std::move(events));
}

/// Until a part fails that is not too large.
bool CommitQueue::store_in_parts(Batch& batch) {
    const size_t rows = count_rows(batch);
    const bool is_empty = rows == 0 && batch.covered_until_ns == 0;
    const Outcome outcome = is_empty ? Outcome::stored : commit(batch);
    if (outcome == Outcome::failed) return false;
    if (outcome == Outcome::too_large && rows > 1) {
        Batch first = take_first(batch, rows / 2);
        const bool stored = store_in_parts(first) && store_in_parts(batch);
        append(first, std::move(batch));
        batch = std::move(first);
        return stored;
    }
    if (outcome == Outcome::too_large)
        spdlog::error("a row was dropped: it is too large for the store (raise [store] max_size)");
    batch = {};
    return true;
}

// Behind a slow disk, several batches share one transaction and one synchronisation; a small store takes small ones.
// Rows that somebody waits for are committed once no batch is left, since the next may be a second away.
std::optional<CommitQueue::Queued> CommitQueue::take(Lock& lock) {
    while (queue_.empty() && next_done_.empty() && !closed_) wake_.wait(lock);
    if (queue_.empty() && next_done_.empty()) return std::nullopt;
    Queued queued;
    const size_t most = std::min<size_t>(max_commit_events, figures_.store.cap_bytes / 4 / row_bytes);
    while (!queue_.empty() && (queued.events() == 0 || queued.events() + queue_.front().events() <= most)) {
        queued.append(std::move(queue_.front()));
        queue_.pop_front();
    }
    if (queue_.empty() && !next_done_.empty()) queued.append(take_put());
    if (covered_since_ != 0) store_->set_first_covered(covered_since_);
    return queued;
}

void CommitQueue::carry_loss(const LossRow& row) {
    auto [carried, added] = carried_losses_.try_emplace(row.op, row);
    if (!added) carried->second.add(row);
}

// Events that are left are gone, and the store will say so; who the processes are is stored with the next batch.
void CommitQueue::give_up(Batch&& batch) {
    std::map<OpId, LossRow> rows;
    for (const Event& event : batch.events) {
        LossRow& row = rows[event.op];
        row.op = event.op;
        row.from_ns = row.lost_ring == 0 ? event.start_ns : std::min(row.from_ns, event.start_ns);
        row.to_ns = std::max(row.to_ns, event.end_ns());
        row.lost_ring += event.weight;
        figures_.dropped += event.weight;
    }
    // One row an op, however long the store refuses: what is carried stays small.
    for (const auto& [op, row] : rows) carry_loss(row);
    for (const LossRow& row : batch.losses) carry_loss(row);
    // Rows that were put meanwhile are newer and come later, those of a batch that waits already first of all.
    Batch& next = queue_.empty() ? next_ : queue_.front().batch;
    append(batch.processes, std::move(next.processes));
    keep_latest(batch.processes, max_waiting_processes);
    next.processes = std::move(batch.processes);
    put_back(std::move(batch.gaps), next.gaps, max_waiting_gaps);
    put_back(std::move(batch.functions), next.functions, max_waiting_functions);
    put_back(std::move(batch.communicators), next.communicators, max_waiting_functions);
    put_back(std::move(batch.stacks), next.stacks, max_waiting_stacks);
    put_back(std::move(batch.states), next.states, max_waiting_states);
    put_back(std::move(batch.incidents), next.incidents, max_waiting_incidents);
    put_back(std::move(batch.files), next.files, max_waiting_stacks);
    put_back(std::move(batch.symbols), next.symbols, max_waiting_stacks);
}

// Between batches; where there never is a moment between them, every so often all the same.
void CommitQueue::tidy() {
    {
        const Lock lock(mutex_);
        const bool is_awaited = !queue_.empty() || !next_done_.empty();
        if (closed_ || (is_awaited && ++untidied_batches_ < tidy_every_batches)) return;
    }
    untidied_batches_ = 0;
    const auto tidied = store_->tidy();
    const Lock lock(mutex_);
    figures_.store = store_->figures();
    // A full disk or a held snapshot: the next commit says so, and until then nothing is lost.
    if (!tidied) spdlog::debug("cannot clean up the store: {}", tidied.error().message);
}

void CommitQueue::run() {
    for (;;) {
        Lock lock(mutex_);
        std::optional<Queued> queued = take(lock);
        if (!queued) return;
        lock.unlock();
        const size_t events = queued->events();
        store(queued->batch);
        const bool stored = count_rows(queued->batch) == 0;
        const bool spans_stored = queued->batch.spans.empty();
        lock.lock();
        queued_events_ -= events;
        if (!stored) give_up(std::move(queued->batch));
        wake_.notify_all();
        lock.unlock();
        for (Call& call : queued->requests) post_(std::move(call));
        for (auto& done : queued->done) post_([done = std::move(done), spans_stored] { done(spans_stored); });
        if (stored) tidy();
    }
}

CommitFigures CommitQueue::figures() const {
    const Lock lock(mutex_);
    return figures_;
}

}  // namespace ingero
