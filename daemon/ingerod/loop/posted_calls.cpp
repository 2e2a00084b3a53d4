#include "daemon/ingerod/loop/posted_calls.h"

#include <sys/epoll.h>

#include <iterator>
#include <utility>

#include "core/model/time.h"

namespace ingero {

PostedCalls::PostedCalls(EventLoop& loop, uint64_t turn_ns) : turn_ns_(turn_ns) {
    source_ = loop.add_io(wake_.get(), EPOLLIN, [this](uint32_t) { turn(); });
}

void PostedCalls::post(std::function<void()> call) {
    {
        const Lock lock(mutex_);
        posted_.push_back(std::move(call));
    }
    wake_.ring();
}

void PostedCalls::take_posted() {
    std::vector<std::function<void()>> taken;
    {
        const Lock lock(mutex_);
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
    wake_.drain();
    take_posted();
    run_until(monotonic_now_ns() + turn_ns_);
    if (!calls_.empty()) wake_.ring();
}

size_t PostedCalls::run_rest(uint64_t limit_ns) {
    take_posted();
    run_until(monotonic_now_ns() + limit_ns);
    return calls_.size();
}

}  // namespace ingero
