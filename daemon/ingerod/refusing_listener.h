// A socket that systemd holds for us and that this version does not serve: clients are let in and shown out at once,
// rather than left to wait in the backlog. Loop thread only.
#pragma once

#include <string>

#include "core/model/unique_fd.h"
#include "daemon/ingerod/event_loop.h"

namespace ingero {

class RefusingListener {
  public:
    /// Takes over the listening socket; `name` is for the log.
    RefusingListener(EventLoop& loop, int listening_fd, std::string name);

  private:
    void wait_for_clients();
    void refuse();

    EventLoop& loop_;
    UniqueFd fd_;
    std::string name_;
    EventLoop::Source source_;
    EventLoop::Source retry_;
    bool told_ = false;
};

}  // namespace ingero
