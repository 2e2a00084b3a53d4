// A copy of a store in a directory of its own, which has its name only when it is whole, checked and on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "core/model/result.h"

namespace ingero::ctl {

struct StoreCopy {
    uint64_t bytes = 0;   ///< of its data file
    uint64_t events = 0;  ///< in it
};

/// Makes `directory`, which must not exist or be empty. `write` gets an empty file to write the store's data to.
/// Errors: its own; busy (the directory has something); corrupt (what was copied is damaged: `ingeroctl db verify` of
/// the original says where); internal.
Result<StoreCopy> make_store_copy(const std::string& directory, const std::function<Result<void>(int fd)>& write);

}  // namespace ingero::ctl
