// All processes of the host, visited bit by bit: with thousands of them, to read what each maps takes a second, and the
// loop has others to serve. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero {

class ProcessWalk {
  public:
    /// `visit` gets each process once, in no order; then `done` is called. Either may begin or stop the walk. `loop`
    /// and `proc` must outlive it.
    ProcessWalk(
        EventLoop& loop, const ProcFs& proc, std::function<void(uint32_t pid)> visit,
        std::function<void()> done = [] {});

    /// From the next turn of the loop on; anew where it is under way.
    void begin();
    /// `done` is not called.
    void stop();
    bool active() const { return turn_.active(); }

  private:
    void go_on();
    bool list();

    EventLoop& loop_;
    const ProcFs& proc_;
    const std::function<void(uint32_t)> visit_;
    const std::function<void()> done_;
    std::vector<uint32_t> left_;    ///< pids
    std::vector<uint32_t> listed_;  ///< sorted
    size_t lists_ = 0;
    EventLoop::Source turn_;
};

}  // namespace ingero
