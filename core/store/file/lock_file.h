// The mark of the one writer of a store.
#pragma once

#include <string>

#include "core/model/result.h"

namespace ingero {

/// Held until destroyed or the process ends, however it ends. The file stays: removing it would race with the next.
class LockFile {
  public:
    /// Errors: busy (names the holder's pid), not_found (no such directory), denied, internal.
    static Result<LockFile> take(const std::string& directory);
    LockFile(LockFile&& other) noexcept;
    LockFile& operator=(LockFile&& other) noexcept;
    ~LockFile();

  private:
    explicit LockFile(int fd) : fd_(fd) {}
    int fd_;
};

}  // namespace ingero
