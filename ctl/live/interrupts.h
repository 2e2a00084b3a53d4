// While it lives SIGINT and SIGTERM are only noted: what is recorded gets its end.
#pragma once

#include <signal.h>

#include <cstdint>
#include <ctime>

namespace ingero::ctl {

class Interrupts {
  public:
    Interrupts() {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGINT);
        sigaddset(&signals_, SIGTERM);
        sigprocmask(SIG_BLOCK, &signals_, &before_);
    }
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;
    ~Interrupts() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

    /// The signal mask of whoever is not to note them.
    const sigset_t& before() const { return before_; }

    /// True where one came within the time.
    bool wait(uint64_t ns) const {
        constexpr uint64_t second_ns = 1'000'000'000;
        const timespec time{static_cast<time_t>(ns / second_ns), static_cast<long>(ns % second_ns)};
        return sigtimedwait(&signals_, nullptr, &time) > 0;
    }

  private:
    sigset_t signals_{};
    sigset_t before_{};
};

}  // namespace ingero::ctl
