#include "daemon/ingerod/discovery/bounded_calls.h"

#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "core/model/time.h"

namespace ingero {

namespace {

constexpr uint64_t usual_ns = 2'000'000;

struct Job {
    Subject subject;
    uint32_t uid = 0;
    std::function<void()> call;
};

}  // namespace

struct BoundedCalls::Shared {
    Mutex mutex;
    Condition work, done;
    std::shared_ptr<Job> next INGERO_GUARDED_BY(mutex);
    std::shared_ptr<Job> running INGERO_GUARDED_BY(mutex);  ///< until it is done or given up
    /// One that waits for work, or does it for a caller who still waits.
    bool has_thread INGERO_GUARDED_BY(mutex) = false;
    bool ended INGERO_GUARDED_BY(mutex) = false;
    std::set<Subject> stuck INGERO_GUARDED_BY(mutex);
    /// In one place.
    std::map<std::pair<uint32_t, uint64_t>, size_t> stuck_by_user INGERO_GUARDED_BY(mutex);

    bool is_done(const std::shared_ptr<Job>& job) const INGERO_REQUIRES(mutex) { return next != job && running != job; }

    static void serve(const std::shared_ptr<Shared>& shared) {
        Lock lock(shared->mutex);
        for (;;) {
            while (!shared->ended && !shared->next) shared->work.wait(lock);
            if (!shared->next) return;
            const std::shared_ptr<Job> job = std::exchange(shared->next, nullptr);
            shared->running = job;
            lock.unlock();
            job->call();
            job->call = nullptr;
            lock.lock();
            if (shared->running == job) {
                shared->running = nullptr;
                shared->done.notify_all();
                continue;
            }
            shared->stuck.erase(job->subject);
            const auto user = shared->stuck_by_user.find({job->uid, job->subject.place});
            if (--user->second == 0) shared->stuck_by_user.erase(user);
            return;  // another has taken its place
        }
    }
};

BoundedCalls::BoundedCalls(const BoundedCallsLimits& limits)
    : limits_(limits), held_up_(limits.held_up_us, limits.held_up_period_ns), shared_(std::make_shared<Shared>()) {}

BoundedCalls::~BoundedCalls() {
    const Lock lock(shared_->mutex);
    shared_->ended = true;
    shared_->work.notify_all();
}

bool BoundedCalls::make(const Subject& subject, uint32_t uid, std::function<void()> call) {
    const Lock one_caller(caller_);
    Lock lock(shared_->mutex);
    const size_t stuck = shared_->stuck.size();
    const auto of_user = shared_->stuck_by_user.find({uid, subject.place});
    const size_t most = subject.place == 0 ? limits_.left_behind_of_user : limits_.left_behind_of_users_files;
    if (stuck >= limits_.left_behind || shared_->stuck.contains(subject)) return false;
    if (of_user != shared_->stuck_by_user.end() && of_user->second >= most) return false;
    if (!shared_->has_thread) try {
            std::thread(Shared::serve, shared_).detach();
            shared_->has_thread = true;
        } catch (const std::system_error&) {
            return false;
        }
    const auto job = std::make_shared<Job>(Job{subject, uid, std::move(call)});
    shared_->next = job;
    shared_->work.notify_one();
    const uint64_t from_ns = monotonic_now_ns();
    const bool is_late = stuck >= limits_.late || !held_up_.take(uid, from_ns);
    const auto until = std::chrono::steady_clock::now() + (is_late ? limits_.patience_late : limits_.patience);
    while (!shared_->is_done(job) && shared_->done.wait_until(lock, until)) {
    }
    const bool done = shared_->is_done(job);
    const uint64_t to_ns = monotonic_now_ns();
    // What just takes long is not held up.
    if (to_ns - from_ns > usual_ns) held_up_.charge(uid, to_ns, (to_ns - from_ns - usual_ns) / 1'000);
    if (done) return true;
    // Not even begun: the machine is busy, and nothing is known of what it is about.
    if (shared_->next == job) {
        shared_->next = nullptr;
        return false;
    }
    shared_->running = nullptr;
    shared_->has_thread = false;
    shared_->stuck.insert(subject);
    ++shared_->stuck_by_user[{uid, subject.place}];
    return false;
}

size_t BoundedCalls::left_behind() const {
    const Lock lock(shared_->mutex);
    return shared_->stuck.size();
}

}  // namespace ingero
