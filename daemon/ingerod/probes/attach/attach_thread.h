// Attaches to libraries and detaches from them in a thread of its own: the kernel waits meanwhile for the memory lock
// of each process that maps the file, which its threads may keep for as long as they like. One thing at a time, in the
// order in which it is asked for: so what is attached after something was detached replaces it. All calls from the loop
// thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/loop/posted_calls.h"
#include "daemon/ingerod/probes/call_probes.h"

namespace ingero {

class AttachThread {
  public:
    using Attached = std::unique_ptr<AttachedLibrary>;
    /// As CallProbes::attach(). Called in the thread.
    using Attach = std::function<Result<Attached>(int fd, std::span<const ProbeSite> sites)>;
    using Done = std::function<void(Result<Attached>)>;
    class Pending;

    /// The loop must outlive it, and so must what `attach` uses.
    AttachThread(EventLoop& loop, Attach attach);
    /// Waits until all is detached that was to be; what has not begun to be attached never is.
    ~AttachThread();

    /// `done` is called by the loop, while the answer is there. What is attached is to be given to detach(). Without
    /// any site it is nothing, once all that was asked for before is attached.
    [[nodiscard]] Pending attach(std::shared_ptr<UniqueFd> fd, std::vector<ProbeSite> sites, Done done);
    void detach(Attached library);

  private:
    struct Job {
        Job(std::shared_ptr<UniqueFd> fd, std::vector<ProbeSite> sites, Done done)
            : fd(std::move(fd)), sites(std::move(sites)), done(std::move(done)) {}

        Mutex mutex;
        bool given_up INGERO_GUARDED_BY(mutex) = false;
        std::shared_ptr<UniqueFd> fd INGERO_GUARDED_BY(mutex);
        std::vector<ProbeSite> sites INGERO_GUARDED_BY(mutex);
        Done done INGERO_GUARDED_BY(mutex);
        std::optional<Result<Attached>> result INGERO_GUARDED_BY(mutex);
    };

    void ask(std::function<void()> work);
    void work();
    void attach_for(Job& job);
    static void deliver(Job& job);

    const Attach attach_;
    PostedCalls posted_;
    Mutex mutex_;
    Condition asked_;
    std::deque<std::function<void()>> waiting_ INGERO_GUARDED_BY(mutex_);
    bool ends_ INGERO_GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

/// Of what is being attached. Once it is gone nothing is, and what is asked for afterwards finds the place free;
/// the file is held no more, unless it is just being attached to. It must not outlive the thread.
class AttachThread::Pending {
  public:
    Pending() = default;
    Pending(Pending&& other) noexcept : thread_(other.thread_), job_(std::move(other.job_)) {}
    Pending& operator=(Pending&& other) noexcept;
    ~Pending() { give_up(); }
    explicit operator bool() const { return job_ != nullptr; }

  private:
    friend class AttachThread;
    Pending(AttachThread& thread, std::shared_ptr<Job> job) : thread_(&thread), job_(std::move(job)) {}
    void give_up();

    AttachThread* thread_ = nullptr;
    std::shared_ptr<Job> job_;
};

}  // namespace ingero
