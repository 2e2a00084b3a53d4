// A private copy of a SQLite trace, mapped: the original is only read, and nothing is made beside it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/model/result.h"

namespace ingero {

class TraceCopy {
  public:
    /// Copies `path` into an unnamed file in `scratch_directory`; where a write-ahead log with content lies beside it,
    /// that too, and it is worked in. Errors: not_found, denied, bad_request (no regular file, no SQLite), internal
    /// (errno in the message), corrupt.
    static Result<TraceCopy> make(const std::string& path, const std::string& scratch_directory);
    /// Of bytes in memory.
    static Result<TraceCopy> of_bytes(std::span<const std::byte> bytes);

    TraceCopy(TraceCopy&& other) noexcept;
    TraceCopy& operator=(TraceCopy&& other) noexcept;
    ~TraceCopy();

    /// The file's bytes, in memory that is ours to change.
    std::span<std::byte> bytes() const { return bytes_; }
    /// 32 hex digits: the same for the same content.
    std::string hash() const;

  private:
    explicit TraceCopy(std::span<std::byte> bytes) : bytes_(bytes) {}
    static Result<TraceCopy> map(int fd);

    std::span<std::byte> bytes_;
};

}  // namespace ingero
