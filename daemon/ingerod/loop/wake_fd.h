// By which a thread wakes another, or the loop: an event descriptor that is readable from a ring until it is drained.
// ring() from any thread.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "core/model/unique_fd.h"

namespace ingero {

class WakeFd {
  public:
    int get() const { return fd_.get(); }
    /// Many before it is drained are one.
    void ring() const {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof(one));
    }
    void drain() const {
        uint64_t rings = 0;
        [[maybe_unused]] const ssize_t got = read(fd_.get(), &rings, sizeof(rings));
    }

  private:
    UniqueFd fd_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace ingero
