#include "core/diagnosis/live_window.h"

#include <algorithm>
#include <deque>
#include <mutex>

#include "core/diagnosis/judge.h"

namespace ingero {

namespace {

/// One call lost in ten: what is missing could have told otherwise.
constexpr uint64_t lossy_from = 10;

struct Block {
    std::vector<Event> events;
    uint64_t lost = 0;
    uint64_t latest_end_ns = 0;
    uint64_t last_sequence = 0;
};

size_t bytes_of(const Block& block) {
    return block.events.size() * sizeof(Event);
}

}  // namespace

struct LiveWindow::Impl {
    std::string boot_id;
    LiveWindowOptions options;

    mutable std::mutex mutex;
    // Below: guarded by mutex. Blocks do not change, so a pass works on those it found without holding it.
    std::deque<std::shared_ptr<const Block>> blocks;
    size_t bytes = 0;
    uint64_t last_sequence = 0;
    uint64_t seen_sequence = 0;  ///< by passes

    void drop_first() {
        bytes -= bytes_of(*blocks.front());
        blocks.pop_front();
    }
};

LiveWindow::LiveWindow(std::string boot_id, LiveWindowOptions options) : impl_(std::make_unique<Impl>()) {
    impl_->boot_id = std::move(boot_id);
    impl_->options = options;
}

LiveWindow::~LiveWindow() = default;

void LiveWindow::add(std::vector<Event> events, uint64_t lost) {
    if (events.empty()) return;
    auto block = std::make_shared<Block>();
    for (const Event& event : events) block->latest_end_ns = std::max(block->latest_end_ns, saturating_end_ns(event));
    block->last_sequence = events.back().sequence;
    block->lost = lost;
    block->events = std::move(events);

    const std::lock_guard lock(impl_->mutex);
    impl_->bytes += bytes_of(*block);
    impl_->last_sequence = block->last_sequence;
    impl_->blocks.push_back(std::move(block));
    while (impl_->bytes > impl_->options.max_bytes && impl_->blocks.size() > 1) impl_->drop_first();
}

void LiveWindow::trim(uint64_t now_monotonic_ns) {
    const uint64_t oldest = saturating_subtract(now_monotonic_ns, impl_->options.history_ns);
    const std::lock_guard lock(impl_->mutex);
    while (!impl_->blocks.empty() && impl_->blocks.front()->latest_end_ns < oldest) impl_->drop_first();
}

bool LiveWindow::has_new() const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->last_sequence > impl_->seen_sequence;
}

bool LiveWindow::empty() const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->blocks.empty();
}

size_t LiveWindow::bytes() const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->bytes;
}

std::vector<Finding> LiveWindow::pass(const ClockTriple& now, const std::vector<Process>& processes) {
    std::vector<std::shared_ptr<const Block>> blocks;
    ExplainOptions options;
    options.slow_calls = 0;
    {
        const std::lock_guard lock(impl_->mutex);
        blocks.assign(impl_->blocks.begin(), impl_->blocks.end());
        options.new_from_sequence = impl_->seen_sequence + 1;
        impl_->seen_sequence = impl_->last_sequence;
    }
    const uint64_t judged_ns = impl_->options.judged_ns;
    const Window window{saturating_subtract(now.monotonic_ns, judged_ns), now.monotonic_ns};
    SlowCalls slow(0);
    JudgedTotals totals;
    Judge judge(options, window, now, EventFilter(Filter{}, processes), slow, totals);
    for (const auto& block : blocks) judge.learn(block->events);
    judge.finish_learning();
    uint64_t lost = 0;
    std::vector<Event> part;
    for (const auto& block : blocks) {
        if (block->latest_end_ns < window.from_ns) continue;
        lost += block->lost;
        part.clear();
        std::copy_if(block->events.begin(), block->events.end(), std::back_inserter(part),
                     [&](const Event& event) { return saturating_end_ns(event) >= window.from_ns; });
        judge.judge(part);
    }
    // Shares are of the whole window also where calls are known for less: little time is little evidence.
    return judge.ledger().findings(
        processes, {.covered_ns = judged_ns, .boot_id = impl_->boot_id, .lossy = lost > totals.rows / lossy_from});
}

}  // namespace ingero
