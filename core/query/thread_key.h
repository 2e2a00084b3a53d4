// What a KeyIndex of threads is looked up by.
#pragma once

#include <cstdint>

#include "core/model/event.h"
#include "core/query/key_index.h"

namespace ingero {

/// One thread of one process: both numbers are reused.
struct ThreadKey {
    ProcessKey process;
    uint32_t tid = 0;
    bool operator==(const ThreadKey&) const = default;
    uint64_t hash() const { return hash_words(process.start_ns, process.pid, tid); }
};

}  // namespace ingero
