// From the ingest thread to the store: batches wait here and are committed by a thread of their own, so that a slow
// disk never holds back draining.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "core/store/store.h"

namespace ingero {

/// Sums since start.
struct CommitFigures {
    uint64_t committed_sequence = 0;  ///< the last that survives a crash
    uint64_t failed_commits = 0;
    uint64_t dropped = 0;     ///< events given up because commits kept failing
    std::string store_error;  ///< the latest failure, empty while the store works
    StoreFigures store;
};

class CommitQueue {
  public:
    using Call = std::function<void()>;

    /// `post` runs a call on the loop thread.
    CommitQueue(std::unique_ptr<StoreWriter> store, std::function<void(Call)> post);
    ~CommitQueue();

    void start();
    /// Commits what waits, ends the session and joins.
    void finish();

    /// A row for the next batch, dropped where too many wait already. Of a process, the latest row waits. Any thread.
    void put(Process process);
    void put(GapRow gap);
    void put(FunctionRow function);
    void put(CommunicatorRow communicator);
    void put(StackRow stack);
    void put(FileRow file);
    void put(SymbolRow symbol);
    void put(StateRow state);
    void put(IncidentRow incident);
    /// Commits them, with what else was put, and does not wait for a batch. `done` is posted once all were stored
    /// (true) or some given up (false). Any thread.
    void put(std::vector<SpanRow> spans, std::function<void(bool)> done);
    /// Coverage begins; the first time counts. Any thread.
    void set_covered_since(uint64_t monotonic_ns);
    bool is_covering() const;

    /// Ingest thread. With `covered_until_ns` 0 the batch says nothing of coverage. `requests` are posted when it was
    /// committed, or given up. Waits while too much is queued, until stop_waiting().
    void push(std::vector<Event> events, std::vector<LossRow> losses, uint64_t covered_until_ns,
              std::vector<Call> requests);
    /// push() waits no more. Any thread.
    void stop_waiting();
    /// push() waits for the store.
    bool is_waiting() const { return waits_for_store_; }

    CommitFigures figures() const;

  private:
    /// A batch and who waits for it to be committed.
    struct Queued {
        Batch batch;
        std::vector<Call> requests;
        std::vector<std::function<void(bool)>> done;  ///< gets whether it was stored

        size_t events() const { return batch.events.size(); }
        void append(Queued&& next);
    };

    void run();
    /// What was put up to now, without events.
    Queued take_put() INGERO_REQUIRES(mutex_);
    /// Nothing once the queue is closed and empty.
    std::optional<Queued> take(Lock& lock) INGERO_REQUIRES(mutex_);
    enum class Outcome { stored, failed, too_large };
    Outcome commit(const Batch& batch);
    /// What could not be stored stays in the batch.
    void store(Batch& batch);
    bool store_in_parts(Batch& batch);
    void give_up(Batch&& batch) INGERO_REQUIRES(mutex_);
    void carry_loss(const LossRow& row) INGERO_REQUIRES(mutex_);
    void tidy();

    std::unique_ptr<StoreWriter> store_;
    std::function<void(Call)> post_;
    std::thread thread_;
    std::atomic<bool> stopping_{false};
    std::atomic<bool> waits_for_store_{false};
    size_t untidied_batches_ = 0;  ///< the queue's thread only

    mutable Mutex mutex_;
    Condition wake_;
    std::deque<Queued> queue_ INGERO_GUARDED_BY(mutex_);
    size_t queued_events_ INGERO_GUARDED_BY(mutex_) = 0;
    bool closed_ INGERO_GUARDED_BY(mutex_) = false;
    Batch next_ INGERO_GUARDED_BY(mutex_);  ///< what is put; its events, losses and coverage stay empty
    std::vector<std::function<void(bool)>> next_done_ INGERO_GUARDED_BY(mutex_);
    std::map<OpId, LossRow> carried_losses_ INGERO_GUARDED_BY(mutex_);  ///< of batches that could not be stored
    uint64_t covered_since_ INGERO_GUARDED_BY(mutex_) = 0;
    CommitFigures figures_ INGERO_GUARDED_BY(mutex_);
};

}  // namespace ingero
