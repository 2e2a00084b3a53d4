// Names for the frames of new stacks: places are collected a file at a time and given to a worker, off the ingest path.
// What comes back goes to the store, so that a copy of it needs the files no more. Loop thread only.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "core/model/stack.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/stacks/mapped_files.h"
#include "daemon/ingerod/workers/turn_queue.h"
#include "daemon/ingerod/workers/worker_pool.h"

namespace ingero {

class FrameNames {
  public:
    struct Sink {
        std::function<void(FileRow)> put_file;
        std::function<void(SymbolRow)> put_symbol;
    };
    /// Where debug files are installed by build-id, and beside the paths of their files by name.
    static constexpr const char* system_debug_root = "/usr/lib/debug";

    FrameNames(EventLoop& loop, WorkerPool& workers, Sink sink, std::string debug_root = system_debug_root);
    ~FrameNames();

    /// The place will be named, once. `deleted_state`: what to call a file whose path does not name it any more.
    void want(const MappedFilePtr& file, uint64_t offset);
    /// Runs `then` when all places that were wanted have their names, as far as they have any; after some seconds in
    /// any case, and at once where many wait already.
    void when_named(std::function<void()> then);

  private:
    struct Batch;
    bool is_done() const { return waiting_.empty() && !asking_; }
    void ask_next();
    void take_answer(const std::shared_ptr<Batch>& batch, const Result<nlohmann::json>& answer);
    bool ask_debug_file(const std::shared_ptr<Batch>& batch);
    void finish(const std::shared_ptr<Batch>& batch);
    void give_up(const std::shared_ptr<Batch>& batch);

    EventLoop& loop_;
    WorkerPool& workers_;
    Sink sink_;
    const std::string debug_root_;
    TurnQueue<uint32_t, MappedFilePtr> waiting_;  ///< by user; each with places pending
    bool asking_ = false;
    EventLoop::Source timer_;
    struct Waiter {
        std::function<void()> then;
        EventLoop::Source timer;
    };
    std::list<Waiter> until_named_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ingero
