#include "daemon/ingerod/discovery/process_walk.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/model/time.h"

namespace ingero {

namespace {

/// Of the loop, before others have theirs.
constexpr uint64_t walk_turn_ns = 5'000'000;
/// A host that starts processes all the time has new ones in each list.
constexpr size_t most_lists = 4;

}  // namespace

ProcessWalk::ProcessWalk(EventLoop& loop, const ProcFs& proc, std::function<void(uint32_t)> visit,
                         std::function<void()> done)
    : loop_(loop), proc_(proc), visit_(std::move(visit)), done_(std::move(done)) {}

void ProcessWalk::begin() {
    stop();
    turn_ = loop_.defer([this] { go_on(); });
}

void ProcessWalk::stop() {
    left_.clear();
    listed_.clear();
    lists_ = 0;
    turn_.reset();
}

void ProcessWalk::go_on() {
    if (left_.empty() && !list()) {
        stop();
        return done_();
    }
    const uint64_t until_ns = monotonic_now_ns() + walk_turn_ns;
    while (!left_.empty() && monotonic_now_ns() < until_ns) {
        const uint32_t pid = left_.back();
        left_.pop_back();
        visit_(pid);
    }
    if (turn_.active()) turn_ = loop_.defer([this] { go_on(); });
}

// Once more in the end: a process that ended before it was visited may have left a child, which maps what it did.
bool ProcessWalk::list() {
    if (lists_++ == most_lists) return false;
    std::vector<uint32_t> pids = proc_.pids();
    std::sort(pids.begin(), pids.end());
    std::set_difference(pids.begin(), pids.end(), listed_.begin(), listed_.end(), std::back_inserter(left_));
    listed_ = std::move(pids);
    return !left_.empty();
}

}  // namespace ingero
