#include "daemon/ingerod/discovery/bounded_calls.h"

#include <condition_variable>
#include <map>
#include <mutex>
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
    bool done = false;
    bool given_up = false;
};

}  // namespace

struct BoundedCalls::Shared {
    std::mutex mutex;
    std::condition_variable work, done;
    std::shared_ptr<Job> next;
    bool has_thread = false;  ///< one that waits for work, or does it for a caller who still waits
    bool ended = false;
    std::set<Subject> stuck;
    std::map<std::pair<uint32_t, uint64_t>, size_t> stuck_by_user;  ///< in one place

    static void serve(const std::shared_ptr<Shared>& shared) {
        std::unique_lock lock(shared->mutex);
        for (;;) {
            shared->work.wait(lock, [&] { return shared->ended || shared->next; });
            if (!shared->next) return;
            const std::shared_ptr<Job> job = std::exchange(shared->next, nullptr);
            lock.unlock();
            job->call();
            job->call = nullptr;
            lock.lock();
            job->done = true;
            shared->done.notify_all();
            if (!job->given_up) continue;
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
    const std::lock_guard lock(shared_->mutex);
    shared_->ended = true;
    shared_->work.notify_all();
}

bool BoundedCalls::make(const Subject& subject, uint32_t uid, std::function<void()> call) {
    const std::lock_guard one_caller(caller_);
    std::unique_lock lock(shared_->mutex);
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
    const bool done =
        shared_->done.wait_for(lock, is_late ? limits_.patience_late : limits_.patience, [&] { return job->done; });
    const uint64_t to_ns = monotonic_now_ns();
    // What just takes long is not held up.
    if (to_ns - from_ns > usual_ns) held_up_.charge(uid, to_ns, (to_ns - from_ns - usual_ns) / 1'000);
    if (done) return true;
    // Not even begun: the machine is busy, and nothing is known of what it is about.
    if (shared_->next == job) {
        shared_->next = nullptr;
        return false;
    }
    job->given_up = true;
    shared_->has_thread = false;
    shared_->stuck.insert(subject);
    ++shared_->stuck_by_user[{uid, subject.place}];
    return false;
}

size_t BoundedCalls::left_behind() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->stuck.size();
}

}  // namespace ingero
