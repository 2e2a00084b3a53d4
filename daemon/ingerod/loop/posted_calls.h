// Calls that other threads want made on the loop's thread. They are made in order, in turns of a bounded length:
// however many there are, the loop's clients, timers and watchdog have their turns between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "core/base/mutex.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/loop/wake_fd.h"

namespace ingero {

class PostedCalls {
  public:
    static constexpr uint64_t usual_turn_ns = 5'000'000;

    /// A turn begins no call after `turn_ns`, and makes one at least. The loop must outlive it.
    explicit PostedCalls(EventLoop& loop, uint64_t turn_ns = usual_turn_ns);

    /// Any thread.
    void post(std::function<void()> call);
    /// What is left, on the loop's thread, until `limit_ns` have passed; how many calls were not made.
    size_t run_rest(uint64_t limit_ns);

  private:
    void turn();
    void take_posted();
    void run_until(uint64_t until_ns);

    const uint64_t turn_ns_;
    WakeFd wake_;
    EventLoop::Source source_;
    std::deque<std::function<void()>> calls_;  ///< loop thread only

    Mutex mutex_;
    std::vector<std::function<void()>> posted_ INGERO_GUARDED_BY(mutex_);
};

}  // namespace ingero
