#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace ingero::test {

/// The kernel's own accounts of what a thread waited for (Documentation/accounting/taskstats.rst).
struct DelayAccounts {
    uint64_t reclaims = 0, reclaim_ns = 0;
};

/// Lets the kernel keep them for threads that start while this lives. usable() is false where it cannot.
class DelayAccounting {
  public:
    DelayAccounting();
    ~DelayAccounting();
    DelayAccounting(const DelayAccounting&) = delete;
    DelayAccounting& operator=(const DelayAccounting&) = delete;
    bool usable() const { return family_ != 0; }
    /// Of a thread that lives. Nothing where the kernel does not answer.
    std::optional<DelayAccounts> of(pid_t tid);

  private:
    int socket_ = -1;
    uint16_t family_ = 0;
    char before_ = 0;
};

}  // namespace ingero::test
