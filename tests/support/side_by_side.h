// What the stand-ins logged of their calls beside what was recorded of them: every call of a traced function that
// returned, and the event of it.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "core/model/event.h"
#include "tests/standin/ground_truth_reader.h"
#include "tests/support/daemon.h"

namespace ingero::test {

/// One process's, each list by thread and start.
struct SideBySide {
    std::vector<const standin::Record*> calls;  ///< of traced functions, that returned
    std::vector<unsigned> depths;               ///< how many calls of traced functions each of them lies in
    std::vector<const standin::Record*> left;   ///< of traced functions, that never returned
    std::vector<Event> events;
};

/// `logged_pid`: where the program sees another id of itself than the daemon does; 0: the same. Lives as long as the
/// log.
SideBySide lay_side_by_side(const standin::GroundTruth& truth, const std::vector<Event>& events,
                            const ProcessKey& process, uint32_t logged_pid = 0);

/// Op, arguments, stream, return code, depth and weight; that the thread is the same is for the caller to say.
void expect_same(const standin::Record& call, std::string_view name, unsigned depth, const Event& event);

/// Every call has its event and no event is without a call. Devices too: a thread's may be unknown up to the first
/// event that has one. Stops at the first call that differs.
void expect_all_the_same(const standin::GroundTruth& truth, const SideBySide& trace);

/// The rows of a pid, by start.
std::vector<Process> rows_of(const StoreContents& store, uint32_t pid);

}  // namespace ingero::test
