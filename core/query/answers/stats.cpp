#include "core/query/answers/stats.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <optional>

#include "core/model/call_time.h"
#include "core/model/figures/log_buckets.h"
#include "core/model/figures/quantile_sketch.h"
#include "core/model/op.h"
#include "core/query/event_filter.h"
#include "core/query/kernel_names.h"
#include "core/query/key_index.h"
#include "core/query/launch_queue.h"
#include "core/query/op_lookup.h"
#include "core/query/sampler.h"
#include "core/query/segment_columns.h"

namespace ingero {

namespace {

// Bounds on memory: 32 MiB of durations a key, 128 MiB in all, and keys that a store of pids made up could multiply.
constexpr size_t max_exact_rows_per_key = 4'000'000;
constexpr size_t max_exact_rows = 16'000'000;
constexpr size_t small_key_rows = 65'536;
constexpr size_t max_keys = 65'536;
constexpr size_t enough_for_a_median = 8;

struct Key {
    ProcessKey process;  ///< a pid alone may have been two programs
    OpId op = 0;
    uint32_t kernel = 0;  ///< 0: not distinguished, or not known
    bool operator==(const Key&) const = default;
    uint64_t hash() const {
        return hash_words(static_cast<uint64_t>(process.pid) << 16 | op, process.start_ns, kernel);
    }
};

/// Durations, exact until there are too many of them, then a sketch: in buckets of at most 1 % error, of which a kind
/// of call has few.
class Durations {
  public:
    /// Of a call that stands for several the number counts, not each one: those are folded.
    void add(uint64_t duration_ns, uint32_t weight, size_t& exact_rows) {
        if (!folded_ && weight != 1) fold(exact_rows);
        if (!folded_) {
            exact_.push_back(duration_ns);
            ++exact_rows;
            fold_if_crowded(exact_rows);
            return;
        }
        folded_->add(duration_ns, weight);
    }

    /// Of calls that stand for themselves only.
    void add(std::span<const uint64_t> durations_ns, size_t& exact_rows) {
        if (folded_) {
            for (const uint64_t duration : durations_ns) folded_->add(duration);
            return;
        }
        exact_.insert(exact_.end(), durations_ns.begin(), durations_ns.end());
        exact_rows += durations_ns.size();
        fold_if_crowded(exact_rows);
    }

    void add(const QuantileSketch& sketch, size_t& exact_rows) {
        if (!folded_) fold(exact_rows);
        folded_->add(sketch);
    }

    bool approximate() const { return folded_.has_value(); }

    /// Nearest rank. `percents` ascend.
    template <size_t n>
    std::array<uint64_t, n> percentiles(const std::array<unsigned, n>& percents) {
        std::array<uint64_t, n> values{}, ranks{};
        const uint64_t count = folded_ ? folded_->count() : exact_.size();
        if (count == 0) return values;
        for (size_t i = 0; i < n; ++i) ranks[i] = std::max<uint64_t>(share_of(count, percents[i]), 1);
        if (folded_) {
            for (size_t i = 0; i < n; ++i) values[i] = folded_->value_at_rank(ranks[i]);
            return values;
        }
        if (count < worth_counting) {
            size_t sorted_up_to = 0;
            for (size_t i = 0; i < n; ++i) {
                values[i] = select(exact_, ranks[i], sorted_up_to);
                sorted_up_to = ranks[i] - 1;
            }
            return values;
        }
        // Which bucket each is in takes one pass; then only those of that bucket are to be ordered.
        std::vector<uint32_t> counts(log_buckets::count);
        for (const uint64_t duration : exact_) ++counts[log_buckets::index_of(duration)];
        std::vector<uint64_t> bucket;
        size_t index = 0, bucket_of = log_buckets::count;
        uint64_t before = 0;
        for (size_t i = 0; i < n; ++i) {
            while (before + counts[index] < ranks[i]) before += counts[index++];
            if (bucket_of != index) {
                bucket.clear();
                std::copy_if(exact_.begin(), exact_.end(), std::back_inserter(bucket),
                             [index](uint64_t duration) { return log_buckets::index_of(duration) == index; });
                bucket_of = index;
            }
            values[i] = select(bucket, ranks[i] - before, 0);
        }
        return values;
    }

  private:
    static constexpr size_t worth_counting = 16'384;

    /// count × percent ÷ 100, rounded up, for any count.
    static uint64_t share_of(uint64_t count, unsigned percent) {
        return count / 100 * percent + (count % 100 * percent + 99) / 100;
    }

    static uint64_t select(std::vector<uint64_t>& values, uint64_t rank, size_t sorted_up_to) {
        const auto nth = values.begin() + static_cast<std::ptrdiff_t>(rank - 1);
        std::nth_element(values.begin() + static_cast<std::ptrdiff_t>(sorted_up_to), nth, values.end());
        return *nth;
    }

    void fold_if_crowded(size_t& exact_rows) {
        const bool crowded = exact_rows > max_exact_rows && exact_.size() > small_key_rows;
        if (exact_.size() > max_exact_rows_per_key || crowded) fold(exact_rows);
    }

    void fold(size_t& exact_rows) {
        folded_.emplace();
        for (const uint64_t duration : exact_) folded_->add(duration);
        exact_rows -= exact_.size();
        exact_ = {};
    }

    std::vector<uint64_t> exact_;
    std::optional<QuantileSketch> folded_;
};

/// A launch that finds the queue full spins until there is room: what its time on the CPU has over the usual is
/// waiting. The usual is the median of the launches that had room, or of all where fewer than eight had.
class LaunchTimes {
  public:
    /// `times`: how often it counts, as in Event::times().
    void add(uint64_t sequence, uint64_t on_cpu_ns, uint64_t times, bool queue_full) {
        const auto hash = static_cast<uint32_t>(mix_bits(sequence));
        (queue_full ? crowded_ : roomy_).add(hash, {on_cpu_ns, static_cast<uint32_t>(times)});
        if (queue_full) spinning_.add(on_cpu_ns, times);
    }

    uint64_t device_wait_ns() const {
        if (spinning_.buckets().empty()) return 0;
        std::vector<Weighted<uint64_t>> usual;
        for (const auto& kept : roomy_.kept()) usual.push_back(kept.value);
        if (usual.size() < enough_for_a_median) {
            for (const auto& kept : crowded_.kept()) usual.push_back(kept.value);
        }
        return spinning_.sum_above(quantile_of(usual, 0.5));
    }

  private:
    Sampler<Weighted<uint64_t>> roomy_;
    Sampler<Weighted<uint64_t>> crowded_;
    QuantileSketch spinning_;
};

struct Group {
    OpStats stats;
    Durations durations;
    std::unique_ptr<LaunchTimes> launches;
    bool waits_for_device = false;
    bool moves_bytes = false;
};

class StatsQuery {
  public:
    /// `kernels`: by kernel, else nullptr.
    StatsQuery(const Filter& filter, const std::vector<Process>& processes, const KernelNames* kernels, bool outermost)
        : filter_(filter, processes), kernels_(kernels), outermost_(outermost) {}

    /// The block's rows that overlap the window. Errors: corrupt; limit: more keys than one answer can hold.
    Result<void> add(BlockView& block, Window window) {
        if (!filter_.may_match(block.header())) return {};
        whole_ = lies_within(block.header(), window);
        if (auto observed = observe_queues(block, window); !observed) return observed;
        for (size_t segment = 0; segment < block.ops().size(); ++segment) {
            if (kernels_ && !is_launch(block.ops()[segment].op)) continue;
            columns_.open(block, segment);
            if (auto added = add_segment(block, segment, window); !added) return added;
        }
        return {};
    }

    /// Errors: limit.
    Result<void> add(const RollupRow& row) {
        if (row.calls == 0 || !filter_.matches(row)) return {};
        Group* group = group_of(Key{row.process, row.op, 0});
        if (!group) return too_many_kinds();
        OpStats& stats = group->stats;
        stats.count = saturating_add(stats.count, row.calls);
        stats.errors = saturating_add(stats.errors, row.errors);
        stats.max_ns = std::max(stats.max_ns, row.max_ns);
        stats.total_ns = saturating_add(stats.total_ns, row.total_ns);
        stats.runnable_ns = saturating_add(stats.runnable_ns, row.runnable_ns);
        stats.blocked_ns = saturating_add(stats.blocked_ns, row.blocked_ns);
        stats.bytes = saturating_add(stats.bytes, row.bytes);
        uint64_t& on_cpu = group->waits_for_device ? stats.device_wait_ns : stats.on_cpu_ns;
        on_cpu = saturating_add(on_cpu, row.on_cpu_ns);
        group->durations.add(row.durations, exact_rows_);
        return {};
    }

    std::vector<OpStats> finish(const std::map<OpId, uint64_t>& lost) {
        std::vector<OpStats> ops;
        ops.reserve(groups_.size());
        for (Group& group : groups_) ops.push_back(finish(group, lost));
        std::sort(ops.begin(), ops.end(), [](const OpStats& a, const OpStats& b) {
            if (a.total_ns != b.total_ns) return a.total_ns > b.total_ns;
            return std::pair(a.op, a.pid) < std::pair(b.op, b.pid);
        });
        return ops;
    }

  private:
    bool is_launch(OpId id) {
        const Op* op = op_of_(id);
        return op && op->op_class == OpClass::launch;
    }

    static tl::unexpected<Error> too_many_kinds() {
        return fail(ErrorCode::limit, "the window has more than 65536 kinds of calls",
                    "ask for a shorter window, or for one process with --pid");
    }

    /// Which rows of the open segment overlap the window; empty where all do.
    Result<void> select_rows(Window window) {
        in_window_.clear();
        if (whole_) return {};
        if (auto decoded = columns_.decode(ColumnId::start, ColumnId::duration); !decoded) return decoded;
        const auto starts = columns_[ColumnId::start], durations = columns_[ColumnId::duration];
        in_window_.resize(starts.size());
        for (size_t row = 0; row < starts.size(); ++row) {
            const bool instant = durations[row] == 0;
            const uint64_t end = saturating_add(starts[row], durations[row]);
            in_window_[row] =
                instant ? window.contains(starts[row]) : starts[row] < window.to_ns && end > window.from_ns;
        }
        return {};
    }
    bool is_in_window(size_t row) const { return in_window_.empty() || in_window_[row] != 0; }

    /// Launches of all processes count: the stream distinguishes whose queue is whose.
    Result<void> observe_queues(BlockView& block, Window window) {
        using enum ColumnId;
        queue_calls_.clear();
        first_queue_call_.assign(block.ops().size(), none);
        for (size_t segment = 0; segment < block.ops().size(); ++segment) {
            const OpId op = block.ops()[segment].op;
            if (!LaunchQueues::matters(op)) continue;
            columns_.open(block, segment);
            if (auto selected = select_rows(window); !selected) return selected;
            if (auto decoded = columns_.decode(start, stream, process_start, tgid, weight, depth); !decoded)
                return decoded;
            first_queue_call_[segment] = queue_calls_.size();
            for (size_t row = 0; row < block.ops()[segment].rows; ++row) {
                if (!is_in_window(row)) continue;
                const ProcessKey process{static_cast<uint32_t>(columns_[tgid][row]), columns_[process_start][row]};
                queue_calls_.push_back({columns_[start][row], columns_[stream][row], process,
                                        static_cast<uint32_t>(columns_[weight][row]), op,
                                        static_cast<uint8_t>(columns_[depth][row])});
            }
        }
        queue_full_ = queue_calls_.empty() ? nullptr : &queues_.observe(std::span<const QueueCall>(queue_calls_));
        return {};
    }

    Result<void> add_segment(BlockView& block, size_t segment, Window window) {
        using enum ColumnId;
        const OpSummary& summary = block.ops()[segment];
        if (auto selected = select_rows(window); !selected) return selected;
        if (auto decoded = columns_.decode(duration, process_start, tgid); !decoded) return decoded;
        const ProcessKey process{static_cast<uint32_t>(columns_[tgid][0]), columns_[process_start][0]};
        const auto all_are = [](std::span<const uint64_t> values, uint64_t value) {
            return std::all_of(values.begin(), values.end(), [value](uint64_t other) { return other == value; });
        };
        const bool alike = !kernels_ && columns_.is_default(weight) && columns_.is_default(time_weight) &&
                           (!outermost_ || columns_.is_default(depth)) &&
                           all_are(columns_[process_start], process.start_ns) && all_are(columns_[tgid], process.pid);
        return alike && whole_ ? add_whole(summary, process, segment) : add_rows(summary, segment);
    }

    /// All rows are of one process and stand for themselves: the header has counted them.
    Result<void> add_whole(const OpSummary& summary, const ProcessKey& process, size_t segment) {
        using enum ColumnId;
        if (!filter_.matches(process)) return {};
        Group* group = group_of(Key{process, summary.op, 0});
        if (!group) return too_many_kinds();
        OpStats& stats = group->stats;
        stats.count = saturating_add(stats.count, summary.rows);
        stats.max_ns = std::max(stats.max_ns, summary.max_ns);
        stats.total_ns = saturating_add(stats.total_ns, summary.duration_ns);
        group->durations.add(columns_[duration], exact_rows_);
        if (summary.errors != 0) {
            if (auto decoded = columns_.decode(return_code); !decoded) return decoded;
            for (const uint64_t code : columns_[return_code]) add_error(stats, static_cast<int32_t>(code), 1);
        }
        if (group->moves_bytes) {
            if (auto decoded = columns_.decode(argument_0); !decoded) return decoded;
            const auto bytes = columns_[argument_0];
            for (size_t row = 0; row < bytes.size(); ++row)
                if (summary.errors == 0 || columns_[return_code][row] == 0)
                    stats.bytes = saturating_add(stats.bytes, bytes[row]);
        }
        uint64_t& on_cpu = group->waits_for_device ? stats.device_wait_ns : stats.on_cpu_ns;
        const bool ran = columns_.is_default(runnable) && columns_.is_default(blocked);
        if (ran && !group->launches) {
            on_cpu = saturating_add(on_cpu, summary.duration_ns);
            return {};
        }
        if (auto decoded = columns_.decode(runnable, blocked); !decoded) return decoded;
        if (group->launches)
            if (auto decoded = columns_.decode(sequence); !decoded) return decoded;
        for (size_t row = 0; row < summary.rows; ++row) {
            const CallTime time = split_time(columns_[duration][row], columns_[runnable][row], columns_[blocked][row]);
            stats.runnable_ns = saturating_add(stats.runnable_ns, time.runnable_ns);
            stats.blocked_ns = saturating_add(stats.blocked_ns, time.blocked_ns);
            on_cpu = saturating_add(on_cpu, time.on_cpu_ns);
            if (group->launches)
                group->launches->add(columns_[sequence][row], time.on_cpu_ns, 1, is_queue_full(segment, row));
        }
        return {};
    }

    /// The n-th row of the segment that is in the window.
    bool is_queue_full(size_t segment, size_t n) const {
        return first_queue_call_[segment] != none && (*queue_full_)[first_queue_call_[segment] + n] != 0;
    }

    Result<void> add_rows(const OpSummary& summary, size_t segment) {
        using enum ColumnId;
        if (auto decoded = columns_.decode(runnable, blocked, weight, time_weight, return_code, argument_0); !decoded)
            return decoded;
        if (is_launch(summary.op))
            if (auto decoded = columns_.decode(sequence); !decoded) return decoded;
        if (outermost_)
            if (auto decoded = columns_.decode(depth); !decoded) return decoded;
        size_t n = 0;
        for (size_t row = 0; row < summary.rows; ++row) {
            if (!is_in_window(row)) continue;
            const bool queue_full = is_queue_full(segment, n++);
            if (outermost_ && columns_[depth][row] != 0) continue;
            const ProcessKey process{static_cast<uint32_t>(columns_[tgid][row]), columns_[process_start][row]};
            if (!filter_.matches(process)) continue;
            Group* group =
                group_of(Key{process, summary.op, kernels_ ? kernels_->number(process, columns_[argument_0][row]) : 0});
            if (!group) return too_many_kinds();
            add_row(*group, row, queue_full);
        }
        return {};
    }

    Group* group_of(const Key& key) {
        if (last_ < groups_.size() && key == last_key_) return &groups_[last_];
        last_ = keys_.find_or_add(key);
        if (last_ == KeyIndex<Key>::none) return nullptr;
        last_key_ = key;
        if (last_ == groups_.size()) groups_.push_back(make_group(key));
        return &groups_[last_];
    }

    Group make_group(const Key& key) const {
        Group group;
        if (kernels_) group.stats.kernel = kernels_->text(key.kernel);
        group.stats.op = key.op;
        group.stats.pid = key.process.pid;
        if (const Op* op = find_op(key.op)) {
            group.waits_for_device = op->waits_for_device;
            group.moves_bytes =
                op->op_class == OpClass::alloc || op->op_class == OpClass::copy || op->op_class == OpClass::collective;
            if (op->op_class == OpClass::launch) group.launches = std::make_unique<LaunchTimes>();
        }
        return group;
    }

    static void add_error(OpStats& stats, int32_t code, uint64_t calls) {
        if (code == 0) return;
        stats.errors = saturating_add(stats.errors, calls);
        if (stats.error_codes.size() >= max_error_codes && !stats.error_codes.contains(code)) return;
        uint64_t& times = stats.error_codes[code];
        times = saturating_add(times, calls);
    }

    void add_row(Group& group, size_t row, bool queue_full) {
        using enum ColumnId;
        const CallTime time = split_time(columns_[duration][row], columns_[runnable][row], columns_[blocked][row]);
        OpStats& stats = group.stats;
        const uint64_t calls = columns_[weight][row];
        const uint64_t times = columns_[time_weight][row] != 0 ? columns_[time_weight][row] : calls;
        stats.count = saturating_add(stats.count, calls);
        add_error(stats, static_cast<int32_t>(columns_[return_code][row]), calls);
        stats.max_ns = std::max(stats.max_ns, time.duration_ns);
        stats.total_ns = saturating_add(stats.total_ns, saturating_multiply(time.duration_ns, times));
        stats.runnable_ns = saturating_add(stats.runnable_ns, saturating_multiply(time.runnable_ns, times));
        stats.blocked_ns = saturating_add(stats.blocked_ns, saturating_multiply(time.blocked_ns, times));
        uint64_t& on_cpu = group.waits_for_device ? stats.device_wait_ns : stats.on_cpu_ns;
        on_cpu = saturating_add(on_cpu, saturating_multiply(time.on_cpu_ns, times));
        if (group.moves_bytes && columns_[return_code][row] == 0)
            stats.bytes = saturating_add(stats.bytes, saturating_multiply(columns_[argument_0][row], calls));
        if (group.launches) group.launches->add(columns_[sequence][row], time.on_cpu_ns, times, queue_full);
        group.durations.add(time.duration_ns, static_cast<uint32_t>(calls), exact_rows_);
    }

    static OpStats finish(Group& group, const std::map<OpId, uint64_t>& lost) {
        OpStats& stats = group.stats;
        const auto percentiles = group.durations.percentiles<3>({50, 95, 99});
        // A bucket's middle may be past all that is in it.
        stats.p50_ns = std::min(percentiles[0], stats.max_ns);
        stats.p95_ns = std::min(percentiles[1], stats.max_ns);
        stats.p99_ns = std::min(percentiles[2], stats.max_ns);
        stats.approximate = group.durations.approximate();
        if (group.launches) {
            stats.device_wait_ns = std::min(group.launches->device_wait_ns(), stats.on_cpu_ns);
            stats.on_cpu_ns -= stats.device_wait_ns;
        }
        const auto found = lost.find(stats.op);
        stats.lost = found == lost.end() ? 0 : found->second;
        return stats;
    }

    EventFilter filter_;
    const KernelNames* kernels_;
    const bool outermost_;
    OpLookup op_of_;
    LaunchQueues queues_;
    KeyIndex<Key> keys_{max_keys};
    std::vector<Group> groups_;
    Key last_key_;
    uint32_t last_ = KeyIndex<Key>::none;
    size_t exact_rows_ = 0;

    static constexpr size_t none = ~size_t{0};
    SegmentColumns columns_;
    bool whole_ = false;  ///< all rows of the block are in the window
    std::vector<uint8_t> in_window_;
    std::vector<QueueCall> queue_calls_;
    std::vector<size_t> first_queue_call_;  ///< of each segment; `none` where its op does not matter
    const std::vector<uint8_t>* queue_full_ = nullptr;
};

}  // namespace

namespace {

/// Whether the part of a minute that rollups record counts as in the window: where its middle is, so that as many
/// minutes count as the window is long.
bool counts_in(const RollupRow& row, const RolledUp& boot, Window realtime) {
    const uint64_t from = std::max(row.minute_ns, boot.monotonic.from_ns);
    const uint64_t to = std::max(from, std::min(row.minute_ns + rollup_minute_ns, boot.monotonic.to_ns));
    return realtime.contains(boot.clock.to_realtime(from + (to - from) / 2));
}

Result<void> add_rollups(const StoreSnapshot& snapshot, Window realtime, const GapFilter& gaps, StatsQuery& query,
                         std::map<OpId, uint64_t>& lost, Coverage& coverage) {
    const auto boots = rolled_up(snapshot, realtime, gaps);
    if (!boots) return tl::unexpected(boots.error());
    for (const RolledUp& boot : *boots) {
        const Window window{boot.clock.to_monotonic(realtime.from_ns), boot.clock.to_monotonic(realtime.to_ns)};
        const auto rows = snapshot.rollups(boot.boot_index, window);
        if (!rows) return tl::unexpected(rows.error());
        for (const RollupRow& row : *rows) {
            if (!counts_in(row, boot, realtime)) continue;
            if (auto added = query.add(row); !added) return added;
            lost[row.op] = saturating_add(lost[row.op], row.lost);
            coverage.lost = saturating_add(coverage.lost, row.lost);
            if (!gaps.uid) coverage.sampled_out = saturating_add(coverage.sampled_out, row.thinned);
        }
    }
    return {};
}

}  // namespace

// Every op stands for itself, with its own layer: a driver call inside a runtime call has its own row, and neither is
// added to the other.
Result<StatsAnswer> compute_stats(const StoreSnapshot& snapshot, const Filter& filter, const StatsOptions& options) {
    StatsAnswer answer;
    answer.window = filter.window;
    answer.by = options.by;
    const bool by_kernel = options.by == StatsBy::kernel, has_rollups = !by_kernel && !options.outermost;
    const GapFilter gaps{.uid = filter.uid, .pid = filter.pid, .by_rollups = has_rollups};
    auto covered = coverage(snapshot, filter.window, gaps);
    if (!covered) return tl::unexpected(covered.error());
    answer.coverage = std::move(*covered);
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());

    const auto kernels = by_kernel ? KernelNames::read(snapshot) : Result<KernelNames>();
    if (!kernels) return tl::unexpected(kernels.error());

    StatsQuery query(filter, *processes, by_kernel ? &*kernels : nullptr, options.outermost);
    std::map<OpId, uint64_t> lost;
    for (const BootWindow& boot : boot_windows(snapshot, filter.window)) {
        Result<void> added;
        const auto scanned = snapshot.scan_blocks(boot.boot_index, boot.monotonic, [&](BlockView& block) {
            added = query.add(block, boot.monotonic);
            return added.has_value();
        });
        if (!added) return tl::unexpected(added.error());
        if (!scanned) return tl::unexpected(scanned.error());
        const auto losses = snapshot.losses(boot.boot_index, boot.monotonic);
        if (!losses) return tl::unexpected(losses.error());
        for (const LossRow& row : *losses) {
            const uint64_t frames_and_ring = saturating_add(row.lost_ring, row.lost_frames);
            lost[row.op] = saturating_add(lost[row.op], saturating_add(frames_and_ring, row.lost_depth));
        }
    }
    if (has_rollups) {
        const auto added = add_rollups(snapshot, filter.window, gaps, query, lost, answer.coverage);
        if (!added) return tl::unexpected(added.error());
    }
    answer.ops = query.finish(lost);
    return answer;
}

}  // namespace ingero
