// Several stores as one: each node, boot and process stays what it was, and numbers that two of them share are given
// out anew. The sources are only read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/import/session_copies.h"
#include "core/model/time.h"
#include "core/store/store.h"

namespace ingero {

struct MergeSource {
    std::string directory;  ///< a closed store
    std::string node;       ///< of sessions that name none
    std::string name;       ///< what errors call it
};

struct MergeSummary {
    struct Node {
        uint64_t sessions = 0;
        uint64_t events = 0;
        Window window;  ///< CLOCK_REALTIME, from the first to the last covered instant
    };
    std::map<std::string, Node> nodes;
    uint64_t sessions = 0;
    uint64_t repeated_sessions = 0;  ///< of a source, that another has too
    uint64_t events = 0;
    uint64_t processes = 0;
    uint64_t stacks = 0;
    uint64_t spans = 0;
    uint64_t incidents = 0;  ///< events in the lives of incidents
    uint64_t states = 0;
    uint64_t rollups = 0;
};

/// Writes all sessions of the sources to a new store in `directory`, which exists and is empty. A session that several
/// have is written once, with all that any of them has of it. Stacks that no event has are left out. Errors: those of
/// the stores, with the source's name; limit.
Result<MergeSummary> merge_stores(const std::vector<MergeSource>& sources, const std::string& directory);

/// A store's sessions, by id, with what of each is covered. Errors: those of the store; limit.
Result<std::map<std::string, SessionCopy>> stored_sessions(const std::string& directory);

}  // namespace ingero
