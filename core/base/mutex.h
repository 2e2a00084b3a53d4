// Mutexes that Clang checks: a source that uses what one guards without holding it does not compile. Other compilers
// check nothing. Clang knows nothing of the standard library's mutexes, so only this file uses them. Constructors and
// destructors are not checked, nor what is used through a pointer or reference that was made under the lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define INGERO_CHECKED(...) __attribute__((__VA_ARGS__))
#else
#define INGERO_CHECKED(...)
#endif

/// On a member: the mutex to hold for each use.
#define INGERO_GUARDED_BY(mutex) INGERO_CHECKED(guarded_by(mutex))
/// On a function: the mutex that its callers hold. On a lambda too, which for Clang is a function of its own; there it
/// does not check whoever calls it, so such a lambda must run at once.
#define INGERO_REQUIRES(mutex) INGERO_CHECKED(requires_capability(mutex))

namespace ingero {

class INGERO_CHECKED(capability("mutex")) Mutex {
  private:
    friend class Lock;
    std::mutex mutex_;
};

/// Holds the mutex while it exists, but not between unlock() and lock().
class INGERO_CHECKED(scoped_lockable) Lock {
  public:
    explicit Lock(Mutex& mutex) INGERO_CHECKED(acquire_capability(mutex)) : lock_(mutex.mutex_) {}
    ~Lock() INGERO_CHECKED(release_capability()) = default;

    void unlock() INGERO_CHECKED(release_capability()) { lock_.unlock(); }
    void lock() INGERO_CHECKED(acquire_capability()) { lock_.lock(); }

  private:
    friend class Condition;
    std::unique_lock<std::mutex> lock_;
};

/// Wait in a loop that checks what is waited for: a wait may also end without a notice.
class Condition {
  public:
    void wait(Lock& lock) { condition_.wait(lock.lock_); }
    /// Returns false when `time` has come.
    bool wait_until(Lock& lock, std::chrono::steady_clock::time_point time) {
        return condition_.wait_until(lock.lock_, time) == std::cv_status::no_timeout;
    }

    void notify_one() { condition_.notify_one(); }
    void notify_all() { condition_.notify_all(); }

  private:
    std::condition_variable condition_;
};

}  // namespace ingero
