#include "core/import/call_nesting.h"

#include <algorithm>

#include "core/model/call_time.h"

namespace ingero {

void CallNesting::call(const Event& event) {
    if (open_ >= max_open) finish();
    Thread& thread = threads_[event.tid];
    close_until(thread, event.start_ns);
    Event opened = event;
    const auto encloses = [&](const Event& outer) { return outer.end_ns() >= event.end_ns(); };
    const auto depth = std::count_if(thread.open.begin(), thread.open.end(), encloses);
    opened.depth = static_cast<uint8_t>(std::min<std::ptrdiff_t>(depth, UINT8_MAX));
    thread.open.push_back(opened);
    ++open_;
}

uint8_t CallNesting::off_cpu(uint32_t tid, uint64_t from_ns, uint64_t to_ns) {
    const auto found = threads_.find(tid);
    if (found == threads_.end()) return 0;
    size_t calls = 0;
    for (Event& event : found->second.open) {
        const uint64_t from = std::max(from_ns, event.start_ns), to = std::min(to_ns, event.end_ns());
        if (from >= to) continue;
        event.blocked_ns += to - from;
        event.longest_sleep_ns = std::max(event.longest_sleep_ns, to - from);
        ++event.waits;
        calls += event.start_ns <= from_ns ? 1 : 0;
    }
    return static_cast<uint8_t>(std::min<size_t>(calls, UINT8_MAX));
}

void CallNesting::finish() {
    for (auto& [tid, thread] : threads_) close_all(thread);
    threads_.clear();
    open_ = 0;
}

void CallNesting::close_until(Thread& thread, uint64_t time_ns) {
    // A call of no length may share its start with the next.
    const auto over = [time_ns](const Event& event) { return event.end_ns() <= time_ns; };
    for (Event& event : thread.open)
        if (over(event)) emit(event);
    open_ -= std::erase_if(thread.open, over);
}

void CallNesting::close_all(Thread& thread) {
    for (Event& event : thread.open) emit(event);
    thread.open.clear();
}

void CallNesting::emit(Event& event) {
    event.blocked_ns = std::min(event.blocked_ns, event.duration_ns);
    // Why it was off the CPU was not recorded: it may have slept, or been kept waiting.
    if (event.blocked_ns != 0) event.blocked_reason = BlockedReason::other;
    if (!switched_.contains(event.tid)) event.flags |= INGERO_CALL_SPLIT_UNCERTAIN;
    emit_(event);
}

}  // namespace ingero
