// [spans] hash_ids: request ids that are kept as keyed hashes only.
#pragma once

#include <string>
#include <string_view>

#include "core/model/result.h"

namespace ingero {

class SpanHash {
  public:
    /// With the key in the file, 32 bytes that only the daemon's user may read; makes it where there is none. Errors:
    /// denied (others may read it), corrupt (another length), internal.
    static Result<SpanHash> open(const std::string& key_file);

    /// 16 hexadecimal digits: the first 8 bytes of the HMAC-SHA-256 of the id.
    std::string operator()(std::string_view id) const;

  private:
    explicit SpanHash(std::string key) : key_(std::move(key)) {}
    std::string key_;
};

}  // namespace ingero
