#include "daemon/ingerod/probes/attach/attach_thread.h"

#include <pthread.h>

#include <utility>

namespace ingero {

AttachThread::AttachThread(EventLoop& loop, Attach attach)
    : attach_(std::move(attach)), posted_(loop), thread_([this] { work(); }) {
    pthread_setname_np(thread_.native_handle(), "ingerod-attach");
}

AttachThread::~AttachThread() {
    {
        const Lock lock(mutex_);
        ends_ = true;
    }
    asked_.notify_one();
    thread_.join();
}

AttachThread::Pending AttachThread::attach(std::shared_ptr<UniqueFd> fd, std::vector<ProbeSite> sites, Done done) {
    const auto job = std::make_shared<Job>(std::move(fd), std::move(sites), std::move(done));
    ask([this, job] {
        attach_for(*job);
        posted_.post([job] { deliver(*job); });
    });
    return {*this, job};
}

void AttachThread::attach_for(Job& job) {
    std::shared_ptr<UniqueFd> fd;
    std::vector<ProbeSite> sites;
    {
        const Lock lock(mutex_);
        if (ends_) return;
    }
    {
        const Lock lock(job.mutex);
        if (job.given_up) return;
        fd = job.fd;
        sites = std::move(job.sites);
    }
    auto result = sites.empty() ? Result<Attached>() : attach_(fd->get(), sites);
    const Lock lock(job.mutex);
    if (!job.given_up) job.result = std::move(result);
}

// On the loop.
void AttachThread::deliver(Job& job) {
    std::optional<Result<Attached>> result;
    Done done;
    {
        const Lock lock(job.mutex);
        result.swap(job.result);
        done.swap(job.done);
    }
    if (result) done(std::move(*result));
}

void AttachThread::detach(Attached library) {
    if (library) ask([held = std::make_shared<Attached>(std::move(library))] { held->reset(); });
}

void AttachThread::ask(std::function<void()> work) {
    {
        const Lock lock(mutex_);
        waiting_.push_back(std::move(work));
    }
    asked_.notify_one();
}

void AttachThread::work() {
    Lock lock(mutex_);
    for (;;) {
        while (!ends_ && waiting_.empty()) asked_.wait(lock);
        if (waiting_.empty()) return;
        auto next = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        next();
        next = nullptr;
        lock.lock();
    }
}

AttachThread::Pending& AttachThread::Pending::operator=(Pending&& other) noexcept {
    give_up();
    thread_ = other.thread_;
    job_ = std::move(other.job_);
    return *this;
}

void AttachThread::Pending::give_up() {
    const auto job = std::exchange(job_, nullptr);
    if (!job) return;
    std::optional<Result<Attached>> result;
    std::shared_ptr<UniqueFd> fd;
    Done done;
    {
        const Lock lock(job->mutex);
        job->given_up = true;
        result.swap(job->result);
        fd.swap(job->fd);
        done.swap(job->done);
    }
    if (result && *result) thread_->detach(std::move(**result));
}

}  // namespace ingero
