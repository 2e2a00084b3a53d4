// What threads waited for longest in a window, each followed from who waited to whoever ended the wait, and on to what
// that one waited for meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/event.h"
#include "core/query/answers/stats.h"

namespace ingero {

struct WaitsQuery {
    Filter filter;
    std::optional<uint32_t> tid;
    bool between_calls = false;  ///< only waits outside of traced calls
    /// Waits of a thread of one kind count as one: for a lock, a disk and so on, in one system call, in or between
    /// traced calls.
    bool by_thread = false;
    size_t limit = 20;  ///< in the answer: the longest, or the kinds that took the most time, those of threads that
                        ///< call before all others
};

/// What a thread did for most of the time in which another waited for it.
enum class LinkKind : uint8_t {
    slept,      ///< for what `wait` says; the next link is who ended that
    no_cpu,     ///< it could run: `wait` says who had its CPU, or that its cgroup had used up its quota
    ran,        ///< it was on a CPU: the wait is for its work
    not_known,  ///< it was not being recorded then
    hidden,     ///< it is another user's
};
std::string_view to_string(LinkKind kind);

struct WaitLink {
    LinkKind kind = LinkKind::not_known;
    ProcessKey process;
    uint32_t tid = 0;
    std::string comm;
    uint64_t from_ns = 0;       ///< start of the time that the link describes, CLOCK_REALTIME
    uint64_t duration_ns = 0;   ///< of [from_ns, end of the wait that it ended), what it was `kind`
    std::optional<Event> wait;  ///< where it slept or had no CPU
};

struct WaitChain {
    std::vector<WaitLink> links;  ///< the first is who waited; slept ones but for the last
    uint64_t waits = 1;           ///< by thread: it, and shorter ones of that kind
    uint64_t total_ns = 0;        ///< of these
    std::optional<bool> calls;    ///< by thread: whether a call of the thread was recorded in the window
};

struct WaitsAnswer {
    Window window;
    Coverage coverage;
    bool by_thread = false;
    uint64_t waits = 0;  ///< that the query asks about
    uint64_t kinds = 0;  ///< by thread: of these, before the limit
    std::vector<WaitChain> chains;
};

/// Errors: those of the store; limit (too many waits in the window).
Result<WaitsAnswer> compute_waits(const StoreSnapshot& snapshot, const WaitsQuery& query);

}  // namespace ingero
