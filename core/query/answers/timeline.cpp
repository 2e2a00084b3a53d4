#include "core/query/answers/timeline.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "core/model/call_time.h"
#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/query/event_filter.h"
#include "core/query/key_index.h"
#include "core/query/op_lookup.h"

namespace ingero {

namespace {

/// Bounds on memory: 28 KiB a thread with a grid, 200 bytes a lane.
constexpr size_t max_lanes = 65'536;
constexpr size_t max_grids = 1'024;
constexpr size_t cells = 1'024;

/// In imported traces, op::sched_switch records that a thread left its CPU.
bool is_wait(OpId op) {
    return op == op_wait || op == op_waits_summed || op == op::sched_switch;
}

struct LaneKey {
    ProcessKey process;
    uint64_t number = 0;  ///< of the thread, or a stream
    bool operator==(const LaneKey&) const = default;
    uint64_t hash() const { return hash_words(process.start_ns, process.pid, number); }
};

/// The calls of a thread on a grid of equal cells: of each the first start and the last end in it, and how many calls
/// reach into the next. A gap that crosses a border of cells is found exactly, and a longer one than a cell does.
class Grid {
  public:
    void add(Window window, uint64_t start_ns, uint64_t end_ns, OpId op) {
        const size_t first = cell_of(window, start_ns), last = cell_of(window, end_ns);
        Cell& begins = cells_[first];
        if (start_ns < begins.first_start_ns) begins.first_start_ns = start_ns, begins.first_op = op;
        Cell& ends = cells_[last];
        if (!ends.has_end || end_ns > ends.last_end_ns) ends.last_end_ns = end_ns, ends.last_op = op;
        ends.has_end = true;
        ++begins.reach_on;
        --ends.reach_on;
    }

    /// Calls `visit` with each gap: from, to, after, before.
    template <class Visit>
    void gaps(const Visit& visit) const {
        int64_t reaching = 0;
        bool has_ended = false;
        uint64_t end_ns = 0;
        OpId op = 0;
        for (const Cell& cell : cells_) {
            if (reaching == 0 && has_ended && cell.first_start_ns != no_start && cell.first_start_ns > end_ns)
                visit(end_ns, cell.first_start_ns, op, cell.first_op);
            reaching += cell.reach_on;
            if (cell.has_end && (!has_ended || cell.last_end_ns > end_ns)) end_ns = cell.last_end_ns, op = cell.last_op;
            has_ended |= cell.has_end;
        }
    }

  private:
    static constexpr uint64_t no_start = std::numeric_limits<uint64_t>::max();
    struct Cell {
        uint64_t first_start_ns = no_start;
        uint64_t last_end_ns = 0;
        int32_t reach_on = 0;
        OpId first_op = 0, last_op = 0;
        bool has_end = false;
    };

    static size_t cell_of(Window window, uint64_t time_ns) {
        const double share = static_cast<double>(time_ns - window.from_ns) / static_cast<double>(window.length_ns());
        return std::min(cells - 1, static_cast<size_t>(share * cells));
    }

    std::array<Cell, cells> cells_{};
};

struct Lane {
    uint64_t calls = 0, rows = 0;
    uint64_t in_calls_ns = 0, runnable_ns = 0, blocked_ns = 0;
    uint64_t launches = 0, copies = 0, syncs = 0, bytes_copied = 0;
    uint64_t first_ns = std::numeric_limits<uint64_t>::max(), last_ns = 0;  ///< CLOCK_MONOTONIC
    bool has_waits = false;
    std::unique_ptr<Grid> grid;

    /// Where recording was thinned, calls were made in a time without rows: it is a gap where it lasts so many times
    /// what passes from row to row that chance leaves out none. The time in calls is the least that passes.
    uint64_t shortest_gap_ns() const {
        constexpr uint64_t by_chance = 8;
        return calls <= rows ? 0 : saturating_multiply(in_calls_ns / rows, by_chance);
    }
};

/// Keeps the first so many by an order.
template <class T, class Before>
class Best {
  public:
    Best(size_t most, Before before) : most_(most), before_(std::move(before)) {}

    void add(T value) {
        if (most_ == 0) return;
        if (heap_.size() == most_) {
            if (!before_(value, heap_.front())) return;
            std::pop_heap(heap_.begin(), heap_.end(), before_);
            heap_.back() = std::move(value);
        } else {
            heap_.push_back(std::move(value));
        }
        std::push_heap(heap_.begin(), heap_.end(), before_);
    }
    std::vector<T> take() {
        std::sort_heap(heap_.begin(), heap_.end(), before_);
        return std::move(heap_);
    }

  private:
    size_t most_;
    Before before_;
    std::vector<T> heap_;
};

bool is_longer(const TimelineGap& a, const TimelineGap& b) {
    return std::pair(b.length_ns(), a.from_ns) < std::pair(a.length_ns(), b.from_ns);
}

/// One boot: its clock is one.
class Collector {
  public:
    Collector(const TimelineQuery& query, const std::vector<Process>& processes, const BootWindow& boot)
        : filter_(query.filter, processes), boot_(boot) {}

    /// False where there are too many threads.
    template <class Calls>
    bool add(std::span<const Event> events, Calls& ret_calls) {
        for (const Event& event : events) {
            const bool wait = is_wait(event.op);
            if (!wait && (!is_call(event.op) || event.depth != 0)) continue;
            if (!filter_.matches(event)) continue;
            const uint32_t thread = threads_.find_or_add({event.process(), event.tid});
            if (thread == KeyIndex<LaneKey>::none) return false;
            lanes_.resize(threads_.size());
            if (wait) {
                lanes_[thread].has_waits = true;
                continue;
            }
            add_call(event, lanes_[thread], ret_calls);
        }
        return true;
    }

    template <class Gaps>
    void add_gaps(Gaps& ret_gaps) const {
        for (uint32_t i = 0; i < lanes_.size(); ++i) {
            if (!lanes_[i].grid) continue;
            const LaneKey& key = threads_.key(i);
            const uint64_t shortest_ns = lanes_[i].shortest_gap_ns();
            lanes_[i].grid->gaps([&](uint64_t from, uint64_t to, OpId after, OpId before) {
                if (to - from < shortest_ns) return;
                ret_gaps.add({.process = key.process,
                              .tid = static_cast<uint32_t>(key.number),
                              .from_ns = boot_.clock.to_realtime(from),
                              .to_ns = boot_.clock.to_realtime(to),
                              .after = after,
                              .before = before,
                              .off_cpu_ns = lanes_[i].has_waits ? std::optional<uint64_t>(0) : std::nullopt});
            });
        }
    }

    /// All gaps at least so long were seen.
    uint64_t gap_floor_ns() const {
        uint64_t floor_ns = boot_.monotonic.length_ns() / cells;
        for (const Lane& lane : lanes_) floor_ns = std::max(floor_ns, lane.shortest_gap_ns());
        return floor_ns;
    }

    void add_lanes(TimelineAnswer& ret_answer) const {
        for (uint32_t i = 0; i < lanes_.size(); ++i) {
            const Lane& lane = lanes_[i];
            if (lane.calls == 0) continue;
            ++ret_answer.all_threads;
            ret_answer.all_calls = saturating_add(ret_answer.all_calls, lane.calls);
            ret_answer.threads.push_back({.process = threads_.key(i).process,
                                          .tid = static_cast<uint32_t>(threads_.key(i).number),
                                          .calls = lane.calls,
                                          .in_calls_ns = lane.in_calls_ns,
                                          .runnable_ns = lane.runnable_ns,
                                          .blocked_ns = lane.blocked_ns,
                                          .first_ns = boot_.clock.to_realtime(lane.first_ns),
                                          .last_ns = boot_.clock.to_realtime(lane.last_ns)});
        }
        for (uint32_t i = 0; i < stream_lanes_.size(); ++i) {
            const Lane& lane = stream_lanes_[i];
            const uint64_t stream = streams_.key(i).number;
            ret_answer.streams.push_back({.process = streams_.key(i).process,
                                          .stream = stream == unknown_stream ? std::nullopt : std::optional(stream),
                                          .calls = lane.calls,
                                          .launches = lane.launches,
                                          .copies = lane.copies,
                                          .syncs = lane.syncs,
                                          .bytes_copied = lane.bytes_copied,
                                          .first_ns = boot_.clock.to_realtime(lane.first_ns),
                                          .last_ns = boot_.clock.to_realtime(lane.last_ns)});
        }
    }

  private:
    template <class Calls>
    void add_call(const Event& event, Lane& thread, Calls& ret_calls) {
        const CallTime time = call_time(event);
        const uint64_t start_ns = std::max(event.start_ns, boot_.monotonic.from_ns);
        const uint64_t end_ns = std::min(saturating_end_ns(event), boot_.monotonic.to_ns);
        if (end_ns < start_ns) return;
        const uint64_t weight = std::max<uint32_t>(event.weight, 1), times = std::max<uint32_t>(event.times(), 1);
        count(thread, weight, start_ns, end_ns);
        thread.in_calls_ns = saturating_add(thread.in_calls_ns, saturating_multiply(time.duration_ns, times));
        thread.runnable_ns = saturating_add(thread.runnable_ns, saturating_multiply(time.runnable_ns, times));
        thread.blocked_ns = saturating_add(thread.blocked_ns, saturating_multiply(time.blocked_ns, times));
        if (!thread.grid && grids_ < max_grids) thread.grid = std::make_unique<Grid>(), ++grids_;
        if (thread.grid) thread.grid->add(boot_.monotonic, start_ns, end_ns, event.op);
        add_to_stream(event, weight, start_ns, end_ns);
        ret_calls.add({event, boot_.clock.to_realtime(event.start_ns)});
    }

    void add_to_stream(const Event& event, uint64_t weight, uint64_t start_ns, uint64_t end_ns) {
        const Op* op = find_op_(event.op);
        const OpClass kind = op ? op->op_class : OpClass::other;
        const uint32_t number = streams_.find_or_add({event.process(), event.stream});
        if (number == KeyIndex<LaneKey>::none) return;
        stream_lanes_.resize(streams_.size());
        Lane& stream = stream_lanes_[number];
        count(stream, weight, start_ns, end_ns);
        if (kind == OpClass::launch) stream.launches = saturating_add(stream.launches, weight);
        if (kind == OpClass::sync) stream.syncs = saturating_add(stream.syncs, weight);
        if (kind == OpClass::copy) {
            stream.copies = saturating_add(stream.copies, weight);
            stream.bytes_copied = saturating_add(stream.bytes_copied, saturating_multiply(event.args[0], weight));
        }
    }

    static void count(Lane& lane, uint64_t weight, uint64_t start_ns, uint64_t end_ns) {
        lane.calls = saturating_add(lane.calls, weight);
        ++lane.rows;
        lane.first_ns = std::min(lane.first_ns, start_ns);
        lane.last_ns = std::max(lane.last_ns, end_ns);
    }

    EventFilter filter_;
    const BootWindow boot_;
    OpLookup find_op_;
    KeyIndex<LaneKey> threads_{max_lanes};
    std::vector<Lane> lanes_;
    KeyIndex<LaneKey> streams_{max_lanes};
    std::vector<Lane> stream_lanes_;
    size_t grids_ = 0;
};

/// Adds what of each gap its thread was off the CPU.
Result<void> add_waits(const StoreSnapshot& snapshot, const BootWindow& boot, std::vector<TimelineGap>& gaps) {
    Window around{std::numeric_limits<uint64_t>::max(), 0};
    for (const TimelineGap& gap : gaps) {
        if (!gap.off_cpu_ns) continue;
        around.from_ns = std::min(around.from_ns, boot.clock.to_monotonic(gap.from_ns));
        around.to_ns = std::max(around.to_ns, boot.clock.to_monotonic(gap.to_ns));
    }
    around.from_ns = std::max(around.from_ns, boot.monotonic.from_ns);
    around.to_ns = std::min(around.to_ns, boot.monotonic.to_ns);
    if (around.from_ns >= around.to_ns) return {};
    return snapshot.scan(boot.boot_index, around, [&](std::span<const Event> events) {
        for (const Event& event : events) {
            if (!is_wait(event.op)) continue;
            const uint64_t from_ns = boot.clock.to_realtime(event.start_ns);
            const uint64_t to_ns = saturating_add(from_ns, event.duration_ns);
            for (TimelineGap& gap : gaps) {
                if (gap.tid != event.tid || gap.process != event.process() || !gap.off_cpu_ns) continue;
                const uint64_t overlap = Window{std::max(from_ns, gap.from_ns), std::min(to_ns, gap.to_ns)}.length_ns();
                gap.off_cpu_ns = std::min(gap.length_ns(), saturating_add(*gap.off_cpu_ns, overlap));
            }
        }
        return true;
    });
}

template <class Lanes>
void keep_busiest(Lanes& lanes, size_t most) {
    std::stable_sort(lanes.begin(), lanes.end(), [](const auto& a, const auto& b) { return a.calls > b.calls; });
    if (lanes.size() > most) lanes.resize(most);
}

}  // namespace

Result<TimelineAnswer> compute_timeline(const StoreSnapshot& snapshot, const TimelineQuery& query) {
    TimelineAnswer answer;
    answer.window = query.filter.window;
    auto covered = coverage(snapshot, answer.window, {.uid = query.filter.uid, .pid = query.filter.pid});
    if (!covered) return tl::unexpected(covered.error());
    answer.coverage = std::move(*covered);
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());

    const auto is_first = [longest = query.longest_first](const TimelineCall& a, const TimelineCall& b) {
        if (longest && a.event.duration_ns != b.event.duration_ns) return a.event.duration_ns > b.event.duration_ns;
        return std::pair(a.start_realtime_ns, a.event.sequence) < std::pair(b.start_realtime_ns, b.event.sequence);
    };
    Best<TimelineCall, decltype(is_first)> calls(query.calls_before + query.calls, is_first);
    Best<TimelineGap, decltype(&is_longer)> gaps(query.gaps, is_longer);
    const auto boots = boot_windows(snapshot, answer.window);
    for (const BootWindow& boot : boots) {
        Collector collector(query, *processes, boot);
        bool fits = true;
        const auto scanned = snapshot.scan(boot.boot_index, boot.monotonic, [&](std::span<const Event> events) {
            return fits = collector.add(events, calls);
        });
        if (!scanned) return tl::unexpected(scanned.error());
        if (!fits)
            return fail(ErrorCode::limit, "the window has more than " + std::to_string(max_lanes) + " threads",
                        "ask for a shorter window, or one pid");
        collector.add_gaps(gaps);
        collector.add_lanes(answer);
        answer.gap_floor_ns = std::max(answer.gap_floor_ns, collector.gap_floor_ns());
    }
    answer.gaps = gaps.take();
    for (const BootWindow& boot : boots)
        if (auto added = add_waits(snapshot, boot, answer.gaps); !added) return tl::unexpected(added.error());
    answer.calls = calls.take();
    answer.calls.erase(answer.calls.begin(), answer.calls.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                        query.calls_before, answer.calls.size())));
    keep_busiest(answer.threads, query.lanes);
    keep_busiest(answer.streams, query.lanes);
    return answer;
}

}  // namespace ingero
