// The daemon's one loop: sd-event with callbacks as std::function. Main thread only. A Source stops when it is
// destroyed.
#pragma once

#include <systemd/sd-event.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace ingero {

class EventLoop {
  public:
    class Source {
      public:
        Source() = default;
        bool active() const { return static_cast<bool>(impl_); }
        void reset() { impl_.reset(); }

      private:
        friend class EventLoop;
        struct Impl;
        struct Deleter {
            void operator()(Impl* impl) const;
        };
        std::unique_ptr<Impl, Deleter> impl_;
    };

    EventLoop();
    ~EventLoop();
    EventLoop(const EventLoop&) = delete;
    EventLoop& operator=(const EventLoop&) = delete;

    /// `events` and the callback's argument are EPOLLIN, EPOLLOUT and so on. The fd stays the caller's.
    Source add_io(int fd, uint32_t events, std::function<void(uint32_t)> callback);
    /// Changes what an I/O source waits for.
    void set_io_events(const Source& source, uint32_t events);
    /// Dispatched before all other sources that are ready.
    void make_urgent(const Source& source);
    /// Once, `after_us` from now; `accuracy_us` lets wake-ups be shared (0: exact).
    Source add_timer(uint64_t after_us, std::function<void()> callback, uint64_t accuracy_us = 0);
    /// Again and again, every `period_us`.
    Source add_periodic(uint64_t period_us, std::function<void()> callback, uint64_t accuracy_us = 0);
    /// A timer that set_alarm() sets; off until then and after each ring.
    Source add_alarm(std::function<void()> callback);
    /// When it rings, in CLOCK_MONOTONIC µs; UINT64_MAX: never.
    void set_alarm(const Source& source, uint64_t at_us);
    /// Called before each wait of the loop, so that what the source waits for can be brought up to date. It must not
    /// destroy the source.
    void set_prepare(const Source& source, std::function<void()> callback);
    /// The signal is blocked and delivered through the loop. Call before any thread is started.
    Source add_signal(int signal_number, std::function<void()> callback);
    /// In the next iteration, once.
    Source defer(std::function<void()> callback);

    int run();  ///< the exit code given to exit()
    void exit(int code);
    sd_event* get() const { return event_; }

  private:
    sd_event* event_ = nullptr;
    std::optional<int> exit_code_;
};

}  // namespace ingero
