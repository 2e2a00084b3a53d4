// A disk without room, for tests.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstdint>

namespace ingero {

/// Limits how large a file this process may make, until it goes away. Works without root, unlike a small disk.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(uint64_t bytes) {
        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() {
        setrlimit(RLIMIT_FSIZE, &before_);
        signal(SIGXFSZ, SIG_DFL);
    }

  private:
    rlimit before_{};
};

}  // namespace ingero
