#include "daemon/ingerod/loop/posted_calls.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <iterator>
#include <utility>

#include "core/model/time.h"

namespace ingero {

namespace {

void ring(int event_fd) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof(one));
}

}  // namespace

PostedCalls::PostedCalls(EventLoop& loop, uint64_t turn_ns) : turn_ns_(turn_ns) {
    wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    source_ = loop.add_io(wake_.get(), EPOLLIN, [this](uint32_t) { turn(); });
}

void PostedCalls::post(std::function<void()> call) {
    {
        const std::lock_guard lock(mutex_);
        posted_.push_back(std::move(call));
    }
    ring(wake_.get());
}

void PostedCalls::take_posted() {
    std::vector<std::function<void()>> taken;
    {
        const std::lock_guard lock(mutex_);
        taken.swap(posted_);
    }
    calls_.insert(calls_.end(), std::make_move_iterator(taken.begin()), std::make_move_iterator(taken.end()));
}

void PostedCalls::run_until(uint64_t until_ns) {
    while (!calls_.empty()) {
        const std::function<void()> call = std::move(calls_.front());
        calls_.pop_front();
        call();
        if (monotonic_now_ns() >= until_ns) return;
    }
}

void PostedCalls::turn() {
    uint64_t rung = 0;
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &rung, sizeof(rung));
    take_posted();
    run_until(monotonic_now_ns() + turn_ns_);
    if (!calls_.empty()) ring(wake_.get());
}

size_t PostedCalls::run_rest(uint64_t limit_ns) {
    take_posted();
    run_until(monotonic_now_ns() + limit_ns);
    return calls_.size();
}

}  // namespace ingero
