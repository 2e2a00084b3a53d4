// What a merge reads, and what it takes from where: core/import/merge.cpp writes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/import/merge.h"
#include "core/import/session_copies.h"
#include "core/store/store.h"

namespace ingero::merging {

/// One store, and which numbers its rows get.
struct Source {
    std::string name;
    std::unique_ptr<StoreSnapshot> snapshot;
    std::vector<Session> sessions;
    std::map<ProcessKey, Process> processes;
    std::map<ProcessKey, uint32_t> boots;
    std::map<ProcessKey, std::vector<FunctionRow>> functions;
    std::map<ProcessKey, std::vector<CommunicatorRow>> communicators;
    std::map<uint32_t, FileRow> files;
    uint64_t first_sequence = 0;  ///< what is added to its own
    std::map<uint32_t, uint32_t> stack_ids;
    std::map<uint32_t, uint32_t> file_ids;
    std::set<StackFrame> named;  ///< places whose names are written
};

/// Names it in the message.
tl::unexpected<Error> of_source(const Source& source, Error error);

/// Errors: those of the store, with its name.
Result<Source> open_source(const MergeSource& from);

/// When calls were made that gave way while others of their time stayed, one a gap's row. Errors: corrupt; limit.
Result<std::vector<Window>> gave_way_in(const StoreSnapshot& snapshot, const Session& session);

/// What one source gives of a session: all that began in `starts`.
struct Slice {
    Source* source = nullptr;
    uint32_t boot_index = 0;       ///< the source's
    Window starts;                 ///< CLOCK_MONOTONIC
    uint64_t last_covered_ns = 0;  ///< where the copy ends: what was stored later it lacks
    uint64_t next_session_ns = 0;  ///< where that of the source begins
};

/// A session to be written.
struct Part {
    Session session;
    std::vector<Slice> slices;  ///< in order of time; one where one source has all
    std::vector<Window> holes;  ///< of which no source has the calls
};

/// A boot of one node, in the store that is written.
using Boot = std::pair<std::string, std::string>;  // node, boot id

/// All sessions, in the order of boots, and in a boot of sessions. The parts point into the sources. Errors: those of
/// the stores; limit.
Result<std::vector<Part>> plan(std::vector<Source>& sources);

/// Of each slice, the times of which its source gives these rows.
struct HistoryWindows {
    std::vector<Window> spans, incidents, states;
};

/// The oldest spans and states may have gone without the calls of their time: a copy has none before its first, so up
/// to there those of the copy before are taken. Errors: those of the stores.
Result<HistoryWindows> history_windows(const Part& part);

}  // namespace ingero::merging
