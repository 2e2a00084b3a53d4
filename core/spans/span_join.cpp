#include "core/spans/span_join.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <utility>

namespace ingero {

namespace {

Window at_least_1_ns(Window window) {
    if (window.to_ns <= window.from_ns)
        window.to_ns = window.from_ns == UINT64_MAX ? window.from_ns : window.from_ns + 1;
    return window;
}

/// Calls open at one time that are looked at for a span.
constexpr size_t most_across = 256;

/// The largest of each stretch of a list, so that the leftmost entry over a bound is found in O(log n).
class MaximumTree {
  public:
    explicit MaximumTree(const std::vector<uint64_t>& values)
        : leaves_(std::bit_ceil(std::max<size_t>(values.size(), 1))), largest_(2 * leaves_) {
        std::copy(values.begin(), values.end(), largest_.begin() + static_cast<std::ptrdiff_t>(leaves_));
        for (size_t i = leaves_ - 1; i > 0; --i) largest_[i] = std::max(largest_[2 * i], largest_[2 * i + 1]);
    }

    /// The first entry greater than `bound` among the first `count`.
    std::optional<size_t> first_over(uint64_t bound, size_t count) const {
        if (largest_[1] <= bound) return std::nullopt;
        size_t node = 1;
        while (node < leaves_) node = 2 * node + (largest_[2 * node] > bound ? 0 : 1);
        const size_t found = node - leaves_;
        return found < count ? std::optional(found) : std::nullopt;
    }

    void clear(size_t entry) {
        size_t node = entry + leaves_;
        largest_[node] = 0;
        while ((node /= 2) > 0) largest_[node] = std::max(largest_[2 * node], largest_[2 * node + 1]);
    }

  private:
    size_t leaves_;
    std::vector<uint64_t> largest_;
};

}  // namespace

SpanJoin::SpanJoin(std::vector<Window> spans) : spans_(std::move(spans)) {
    for (Window& span : spans_) {
        span = at_least_1_ns(span);
        starts_.push_back(span.from_ns);
        ends_.push_back(span.to_ns);
    }
    std::sort(starts_.begin(), starts_.end());
    std::sort(ends_.begin(), ends_.end());
    // One more: calls after the last end, or that end after the last start.
    began_.resize(spans_.size() + 1);
    ended_.resize(spans_.size() + 1);
}

size_t SpanJoin::ended_before_or_at(uint64_t time) const {
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), time) - ends_.begin());
}

size_t SpanJoin::started_before(uint64_t time) const {
    return static_cast<size_t>(std::lower_bound(starts_.begin(), starts_.end(), time) - starts_.begin());
}

uint64_t SpanJoin::add(const Window& call, CallSums sums) {
    const Window window = at_least_1_ns(call);
    const size_t ended = ended_before_or_at(window.from_ns), started = started_before(window.to_ns);
    if (started <= ended) return 0;
    const uint64_t overlapped = started - ended;
    sums[CallSums::fair_share_ns] = sums[CallSums::duration_ns] / overlapped;
    began_[ended] += sums;
    ended_[started] += sums;
    return overlapped;
}

void SpanJoin::add_stall(const Window& call, uint64_t stalled_ns, size_t tag) {
    if (stalled_ns != 0) stalls_.push_back({stalled_ns, at_least_1_ns(call), tag});
}

std::vector<size_t> SpanJoin::prune_stalls() {
    std::vector<bool> wanted(stalls_.size());
    for (const Longest& longest : longest_stalls())
        if (longest.ns != 0) wanted[longest.stall] = true;
    std::vector<size_t> tags;
    for (size_t i = 0; i < stalls_.size(); ++i) {
        if (!wanted[i]) continue;
        Stall stall = stalls_[i];
        tags.push_back(std::exchange(stall.tag, tags.size()));
        stalls_[stall.tag] = stall;
    }
    stalls_.resize(tags.size());
    return tags;
}

std::vector<JoinedSpan> SpanJoin::finish() {
    for (auto* sums : {&began_, &ended_})
        for (size_t i = 1; i < sums->size(); ++i) (*sums)[i] += (*sums)[i - 1];
    std::vector<JoinedSpan> joined(spans_.size());
    for (size_t i = 0; i < spans_.size(); ++i) {
        const Window& span = spans_[i];
        // Calls that began before the span ended: added at the ends up to this one. Likewise those that ended.
        joined[i].sums = began_[ended_before_or_at(span.to_ns) - 1];
        joined[i].sums -= ended_[started_before(span.from_ns)];
        joined[i].co_resident = started_before(span.to_ns) - ended_before_or_at(span.from_ns) - 1;
    }
    const std::vector<Longest> longest = longest_stalls();
    for (size_t i = 0; i < spans_.size(); ++i) {
        joined[i].stall_ns = longest[i].ns;
        if (longest[i].ns != 0) joined[i].longest_stall = stalls_[longest[i].stall].tag;
    }
    return joined;
}

uint64_t SpanJoin::possible_ns(const Stall& stall, const Window& span) {
    const uint64_t from = std::max(stall.call.from_ns, span.from_ns), to = std::min(stall.call.to_ns, span.to_ns);
    return to <= from ? 0 : std::min(stall.ns, to - from);
}

std::vector<SpanJoin::Longest> SpanJoin::longest_stalls() {
    std::stable_sort(stalls_.begin(), stalls_.end(), [](const Stall& a, const Stall& b) { return a.ns > b.ns; });
    std::vector<Longest> longest(spans_.size());
    find_inside(longest);
    find_across(longest);
    return longest;
}

/// From the longest on, each stall goes to the spans that it lies in and that have none yet.
void SpanJoin::find_inside(std::vector<Longest>& longest) const {
    std::vector<size_t> order(spans_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return spans_[a].from_ns < spans_[b].from_ns; });
    std::vector<uint64_t> ends;
    ends.reserve(order.size());
    for (const size_t span : order) ends.push_back(spans_[span].to_ns);
    MaximumTree waiting(ends);
    for (size_t i = 0; i < stalls_.size(); ++i) {
        const Window& call = stalls_[i].call;
        const size_t started = started_before(call.from_ns + 1);
        while (const auto found = waiting.first_over(call.to_ns - 1, started)) {
            longest[order[*found]] = {possible_ns(stalls_[i], spans_[order[*found]]), i};
            waiting.clear(*found);
        }
    }
}

/// What goes on over a span's start or its end, of which there are no more at a time than threads: looked at from the
/// longest on.
void SpanJoin::find_across(std::vector<Longest>& longest) const {
    std::vector<std::pair<uint64_t, size_t>> points;
    for (size_t i = 0; i < spans_.size(); ++i)
        for (const uint64_t time : {spans_[i].from_ns, spans_[i].to_ns}) points.emplace_back(time, i);
    std::sort(points.begin(), points.end());
    std::vector<size_t> by_start(stalls_.size()), by_end(stalls_.size());
    for (auto* order : {&by_start, &by_end}) std::iota(order->begin(), order->end(), size_t{0});
    const auto call = [&](size_t i) { return stalls_[i].call; };
    std::sort(by_start.begin(), by_start.end(), [&](size_t a, size_t b) { return call(a).from_ns < call(b).from_ns; });
    std::sort(by_end.begin(), by_end.end(), [&](size_t a, size_t b) { return call(a).to_ns < call(b).to_ns; });
    std::set<size_t> open;  // by place, which is by length
    auto next = by_start.begin(), ended = by_end.begin();
    for (const auto& [time, span] : points) {
        for (; next != by_start.end() && call(*next).from_ns < time; ++next) open.insert(*next);
        for (; ended != by_end.end() && call(*ended).to_ns <= time; ++ended) open.erase(*ended);
        size_t looked = 0;
        for (auto stall = open.begin(); stall != open.end() && looked < most_across; ++stall, ++looked) {
            if (stalls_[*stall].ns <= longest[span].ns) break;
            const uint64_t ns = possible_ns(stalls_[*stall], spans_[span]);
            if (ns > longest[span].ns) longest[span] = {ns, *stall};
        }
    }
}

}  // namespace ingero
