#include "helper.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "clock.h"

namespace ingero::standin {

namespace {

std::atomic<Helper*> current{nullptr};
std::mutex creation;

constexpr uint64_t never = ~uint64_t(0);

// Both pipes and sockets, and the reader may be gone: no signal for that.
void write_byte(int descriptor) {
    if (send(descriptor, "x", 1, MSG_NOSIGNAL) < 0) static_cast<void>(write(descriptor, "x", 1) < 0);
    close(descriptor);
}

}  // namespace

Helper::Helper() {
    // Signals are for the program's own threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_.native_handle(), "standin-helper");
}

void Helper::write_later(int descriptor, uint64_t ns) {
    const std::lock_guard guard(lock_);
    tasks_.push_back({now_ns() + ns, descriptor});
    changed_.notify_one();
}

void Helper::wait_for_mutex(uint64_t ns) {
    const std::lock_guard turn(callers_);
    {
        std::unique_lock guard(lock_);
        hold_ns_ = std::max<uint64_t>(ns, 1);
        changed_.notify_one();
        // Not until it is held: by the time that we run again it may no longer be.
        held_.wait(guard, [this] { return hold_ns_ == 0; });
    }
    contended_.lock();
    contended_.unlock();
}

void Helper::finish_due() {
    const uint64_t now = now_ns();
    std::erase_if(tasks_, [now](const Task& task) {
        if (task.due_ns > now) return false;
        write_byte(task.descriptor);
        return true;
    });
    if (holding_ && hold_until_ns_ <= now) {
        holding_ = false;
        contended_.unlock();
    }
    if (hold_ns_ != 0) {
        contended_.lock();
        holding_ = true;
        hold_until_ns_ = now_ns() + hold_ns_;
        hold_ns_ = 0;
        held_.notify_one();
    }
}

uint64_t Helper::next_due() const {
    uint64_t next = holding_ ? hold_until_ns_ : never;
    for (const Task& task : tasks_) next = std::min(next, task.due_ns);
    return next;
}

void Helper::run() {
    std::unique_lock guard(lock_);
    for (;;) {
        finish_due();
        const uint64_t due = next_due();
        if (due == never) {
            changed_.wait(guard);
        } else {
            using namespace std::chrono;
            changed_.wait_until(guard, steady_clock::time_point(nanoseconds(due)));
        }
    }
}

Helper& helper() {
    if (Helper* made = current.load(std::memory_order_acquire)) return *made;
    const std::lock_guard guard(creation);
    if (current.load(std::memory_order_relaxed) == nullptr) {
        current.store(std::make_unique<Helper>().release(), std::memory_order_release);
    }
    return *current.load(std::memory_order_relaxed);
}

void replace_helper() {
    current.store(nullptr, std::memory_order_release);
}

}  // namespace ingero::standin
