// The way to the system bus: connects and takes the name in a thread of its own, since both block, then lives on the
// daemon's loop; comes back by itself when the bus goes and comes. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "core/model/unique_fd.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "dbus/sdbus.h"

namespace ingero {

class BusConnection {
  public:
    struct Callbacks {
        /// The name is ours and nothing has been processed yet: register what there is, then call begin().
        std::function<void()> connected;
        /// Drop all that uses the bus: it goes when this returns.
        std::function<void()> lost;
        /// What had been written and did not leave has left.
        std::function<void()> drained;
    };

    /// Begins to connect; `retry` after each failure it tries again. The loop must outlive it.
    BusConnection(EventLoop& loop, std::string name, std::chrono::milliseconds retry, Callbacks callbacks);
    ~BusConnection();
    BusConnection(const BusConnection&) = delete;
    BusConnection& operator=(const BusConnection&) = delete;

    /// Between connected() and lost() only.
    sdbus::IConnection& bus() { return *bus_; }
    bool up() const { return static_cast<bool>(bus_); }
    /// Begins to read and answer.
    void begin();
    /// What was written waits in our memory since the bus does not read: write no more until drained().
    bool output_waits();
    /// Gives the connection up, in the next turn of the loop.
    void fail(const std::string& why);

  private:
    struct Attempt;

    void connect();
    void on_attempt_done();
    void retry_later(const std::string& why);
    void prepare();
    void process();
    void close();

    EventLoop& loop_;
    const std::string name_;
    const std::chrono::milliseconds retry_;
    const Callbacks callbacks_;
    std::unique_ptr<Attempt> attempt_;
    EventLoop::Source attempt_done_;
    EventLoop::Source retry_timer_;
    UniqueFd io_fd_;
    EventLoop::Source io_;
    EventLoop::Source alarm_;    ///< for what was read and waits, and for calls that nobody answers
    EventLoop::Source failure_;  ///< a failure that is still to be dealt with
    std::unique_ptr<sdbus::IConnection> bus_;
    bool waits_for_output_ = false;
    uint64_t stalled_at_us_ = 0;  ///< CLOCK_MONOTONIC: when to give up a bus that does not read
    std::string logged_;          ///< the failure last logged, so that it is logged once
};

}  // namespace ingero
