// Import of SQLite traces that the earlier agent, written in Go, recorded: every published generation, distinguished
// by the columns there are. docs/import.md says what of a trace becomes what in a store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/time.h"
#include "core/store/store.h"

namespace ingero {

struct ImportOptions {
    std::string node;                     ///< of rows that name none; empty: what the trace says elsewhere
    std::string fallback_node = "trace";  ///< where it says it nowhere
    std::chrono::seconds time_limit{600};
};

struct ImportSummary {
    struct Node {
        std::string name;
        uint64_t events = 0;
        Window window;  ///< CLOCK_REALTIME
    };
    bool already_there = false;  ///< nothing was changed, and nothing below is known
    std::vector<Node> nodes;
    uint64_t events = 0;
    uint64_t unreadable = 0;  ///< rows that cannot be events
    uint64_t processes = 0;
    uint64_t stacks = 0;
    uint64_t unused_stacks = 0;      ///< no event has them any more
    uint64_t unreadable_stacks = 0;  ///< kept without frames
    uint64_t lost_stacks = 0;        ///< events have them, the trace does not: kept without frames
    uint64_t sampled_out = 0;        ///< that the agent counted and did not keep: a lower bound
    uint64_t snapshots = 0;          ///< of the host
    uint64_t annotations = 0;
    uint64_t chains = 0;            ///< what the agent found, which nothing here trusts
    uint64_t rollups = 0;           ///< sums of what the agent counted and did not keep: a minute, op and process each
    uint64_t unreadable_texts = 0;  ///< JSON of annotations and chains, which are kept without it
    std::map<std::string, uint64_t> left_out;  ///< rows that a store has no place for, or that cannot be read
};

/// Imports the file into the store in `directory`, which is made where it is missing. A trace that is there already
/// changes nothing. The source is only read. Errors: not_found, denied, bad_request (no trace), corrupt, limit, busy (a
/// daemon has the store), internal; a store made for it is removed again.
Result<ImportSummary> import_trace(const std::string& path, const std::string& directory, const ImportOptions& options);

/// The same from bytes in memory, which are changed, into any store. `hash`: 32 hex digits, the same for the same
/// trace. `clock`: what the store takes for now; it is set to the end of the trace.
Result<ImportSummary> import_bytes(std::span<std::byte> bytes, const std::string& hash, const ImportOptions& options,
                                   const std::shared_ptr<ClockTriple>& clock,
                                   const std::function<Result<StoreWriter*>()>& open_store);

enum class ImportState { absent, whole, cut_off };
/// Whether the sessions are those of a trace with this hash.
ImportState find_import(const std::vector<Session>& sessions, const std::string& hash);

}  // namespace ingero
