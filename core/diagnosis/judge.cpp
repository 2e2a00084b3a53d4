#include "core/diagnosis/judge.h"

#include <algorithm>

#include "core/diagnosis/assign.h"

namespace ingero {

namespace {

bool slower(const SlowCall& a, const SlowCall& b) {
    if (a.excess_ns != b.excess_ns) return a.excess_ns > b.excess_ns;
    return a.event.sequence < b.event.sequence;
}

}  // namespace

void SlowCalls::add(SlowCall call) {
    heap_.push_back(std::move(call));
    std::push_heap(heap_.begin(), heap_.end(), slower);
    if (heap_.size() <= limit_) return;
    std::pop_heap(heap_.begin(), heap_.end(), slower);
    heap_.pop_back();
}

std::vector<SlowCall> SlowCalls::take() {
    std::sort(heap_.begin(), heap_.end(), slower);
    return std::move(heap_);
}

Judge::Judge(const ExplainOptions& options, const Window& monotonic, const ClockTriple& clock, EventFilter filter,
             SlowCalls& slow, JudgedTotals& totals)
    : filter_(std::move(filter)), clock_(clock), ledger_(options, monotonic, clock), slow_(slow), totals_(totals) {}

void Judge::learn(std::span<const Event> block) {
    for (const Event& event : block)
        if (event.depth == 0 && is_call(event.op) && !event.split_uncertain() && filter_.matches(event))
            expected_.add(event, ops_(event.op));
}

void Judge::finish_learning() {
    expected_.finish();
}

void Judge::forget_samples() {
    expected_ = ExpectedTimes();
}

void Judge::judge(std::span<const Event> block) {
    const std::vector<uint8_t>& queue_full = queues_.observe(block);
    for (size_t row = 0; row < block.size(); ++row) {
        ++totals_.rows;
        if (block[row].depth == 0 && is_call(block[row].op) && filter_.matches(block[row]))
            judge(block[row], queue_full[row]);
    }
}

void Judge::judge(const Event& event, bool queue_full) {
    ++totals_.calls;
    totals_.uncertain += event.split_uncertain();
    ledger_.saw(event);
    const Op* op = ops_(event.op);
    const auto [baseline, first_use] = expected_.of(event, op);
    if (baseline && event.duration_ns <= baseline->expected_ns()) return;
    const CallTime time = call_time(event);
    if (!baseline) {
        // A first call of its kind is always unlike what is known: no sign of anything.
        if (!first_use && !event.split_uncertain()) ledger_.add_unjudged(event, time, op);
        return;
    }
    Assignment assignment;
    if (event.split_uncertain()) {
        // How long it took is known, what it did meanwhile is not: it counts, and is no evidence.
        assignment.expected_ns = baseline->expected_ns();
        assignment.excess_ns = time.duration_ns - assignment.expected_ns;
    } else {
        assignment = assign(event, time, op, *baseline, first_use, queue_full);
        ledger_.add(event, time, op, assignment);
    }
    totals_.excess_ns = saturating_add(totals_.excess_ns, assignment.excess_ns);
    totals_.explained_ns = saturating_add(totals_.explained_ns, assignment.explained_ns());
    if (slow_.wants(assignment.excess_ns)) slow_.add(make_slow_call(event, time, op, assignment, clock_));
}

}  // namespace ingero
