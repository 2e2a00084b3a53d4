#include "core/query/stats.h"

#include <algorithm>
#include <map>
#include <memory>

#include "core/model/call_time.h"
#include "core/model/op.h"
#include "core/query/event_filter.h"
#include "core/query/kernel_names.h"
#include "core/query/key_index.h"
#include "core/query/launch_queue.h"
#include "core/query/log_histogram.h"
#include "core/query/op_lookup.h"
#include "core/query/sampler.h"

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
    uint32_t kernel = 0;  ///< 0: not told apart, or not known
    bool operator==(const Key&) const = default;
    uint64_t hash() const {
        return hash_words(static_cast<uint64_t>(process.pid) << 16 | op, process.start_ns, kernel);
    }
};

/// Durations, exact until there are too many of them, then counted in buckets of at most 1 % error.
class Durations {
  public:
    /// Of a call that stands for several the number counts, not each one: those are folded.
    void add(uint64_t duration_ns, uint32_t weight, size_t& exact_rows) {
        if (!folded_ && weight != 1) fold(exact_rows);
        if (!folded_) {
            exact_.push_back(duration_ns);
            ++exact_rows;
            const bool crowded = exact_rows > max_exact_rows && exact_.size() > small_key_rows;
            if (exact_.size() > max_exact_rows_per_key || crowded) fold(exact_rows);
            return;
        }
        folded_->add(duration_ns, weight);
    }

    void add(const QuantileSketch& sketch, size_t& exact_rows) {
        if (!folded_) fold(exact_rows);
        for (const QuantileSketch::Bucket& bucket : sketch.buckets())
            folded_->add(log_buckets::middle_of(bucket.index), bucket.count);
    }

    bool approximate() const { return folded_ != nullptr; }

    /// Nearest rank, in order of ascending shares; each call starts where the one before it ended.
    uint64_t percentile(unsigned percent) {
        const uint64_t count = folded_ ? folded_->count() : exact_.size();
        if (count == 0) return 0;
        const uint64_t rank = std::max<uint64_t>((count * percent + 99) / 100, 1);
        if (folded_) return folded_->value_at_rank(rank);
        const auto nth = exact_.begin() + static_cast<std::ptrdiff_t>(rank - 1);
        std::nth_element(exact_.begin() + static_cast<std::ptrdiff_t>(sorted_up_to_), nth, exact_.end());
        sorted_up_to_ = rank - 1;
        return *nth;
    }

  private:
    void fold(size_t& exact_rows) {
        folded_ = std::make_unique<LogHistogram>();
        for (const uint64_t duration : exact_) folded_->add(duration);
        exact_rows -= exact_.size();
        exact_ = {};
    }

    std::vector<uint64_t> exact_;
    std::unique_ptr<LogHistogram> folded_;
    size_t sorted_up_to_ = 0;
};

/// A launch that finds the queue full spins until there is room: what its time on the CPU has over the usual is
/// waiting. The usual is the median of the launches that had room, or of all where fewer than eight had.
class LaunchTimes {
  public:
    void add(const Event& event, uint64_t on_cpu_ns, bool queue_full) {
        const auto hash = static_cast<uint32_t>(mix_bits(event.sequence));
        (queue_full ? crowded_ : roomy_).add(hash, on_cpu_ns);
        if (!queue_full) return;
        if (!spinning_) spinning_ = std::make_unique<LogHistogram>();
        spinning_->add(on_cpu_ns);
    }

    uint64_t device_wait_ns() const {
        if (!spinning_) return 0;
        std::vector<uint64_t> usual;
        for (const auto& kept : roomy_.kept()) usual.push_back(kept.value);
        if (usual.size() < enough_for_a_median) {
            for (const auto& kept : crowded_.kept()) usual.push_back(kept.value);
        }
        return spinning_->sum_above(median_of(usual));
    }

  private:
    Sampler<uint64_t> roomy_;
    Sampler<uint64_t> crowded_;
    std::unique_ptr<LogHistogram> spinning_;
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
    StatsQuery(const Filter& filter, const std::vector<Process>& processes, const KernelNames* kernels)
        : filter_(filter, processes), kernels_(kernels) {}

    /// False once there are more keys than one answer can hold.
    bool add(std::span<const Event> block) {
        const std::vector<uint8_t>& queue_full = queues_.observe(block);
        for (size_t row = 0; row < block.size(); ++row) {
            if (!filter_.matches(block[row]) || (kernels_ && !is_launch(block[row].op))) continue;
            Group* group = group_of(block[row]);
            if (!group) return false;
            add(*group, block[row], queue_full[row]);
        }
        return true;
    }

    /// False as above.
    bool add(const RollupRow& row) {
        if (row.calls == 0 || !filter_.matches(row)) return true;
        Group* group = group_of(Key{row.process, row.op, 0});
        if (!group) return false;
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
        return true;
    }

    bool overflowed() const { return overflowed_; }

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

    Group* group_of(const Event& event) {
        return group_of(
            Key{event.process(), event.op, kernels_ ? kernels_->number(event.process(), event.args[0]) : 0});
    }

    Group* group_of(const Key& key) {
        if (last_ < groups_.size() && key == last_key_) return &groups_[last_];
        last_ = keys_.find_or_add(key);
        if (last_ == KeyIndex<Key>::none) {
            overflowed_ = true;
            return nullptr;
        }
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
            group.moves_bytes = op->op_class == OpClass::alloc || op->op_class == OpClass::copy;
            if (op->op_class == OpClass::launch) group.launches = std::make_unique<LaunchTimes>();
        }
        return group;
    }

    void add(Group& group, const Event& event, bool queue_full) {
        const CallTime time = call_time(event);
        OpStats& stats = group.stats;
        const uint64_t weight = event.weight;
        stats.count = saturating_add(stats.count, weight);
        if (event.return_code != 0) {
            stats.errors++;
            if (stats.error_codes.size() < max_error_codes || stats.error_codes.contains(event.return_code))
                stats.error_codes[event.return_code]++;
        }
        stats.max_ns = std::max(stats.max_ns, time.duration_ns);
        stats.total_ns = saturating_add(stats.total_ns, saturating_multiply(time.duration_ns, weight));
        stats.runnable_ns = saturating_add(stats.runnable_ns, time.runnable_ns);
        stats.blocked_ns = saturating_add(stats.blocked_ns, time.blocked_ns);
        uint64_t& on_cpu = group.waits_for_device ? stats.device_wait_ns : stats.on_cpu_ns;
        on_cpu = saturating_add(on_cpu, saturating_multiply(time.on_cpu_ns, weight));
        if (group.moves_bytes) stats.bytes = saturating_add(stats.bytes, saturating_multiply(event.args[0], weight));
        if (group.launches) group.launches->add(event, time.on_cpu_ns, queue_full);
        group.durations.add(time.duration_ns, event.weight, exact_rows_);
    }

    static OpStats finish(Group& group, const std::map<OpId, uint64_t>& lost) {
        OpStats& stats = group.stats;
        // A bucket's middle may be past all that is in it.
        stats.p50_ns = std::min(group.durations.percentile(50), stats.max_ns);
        stats.p95_ns = std::min(group.durations.percentile(95), stats.max_ns);
        stats.p99_ns = std::min(group.durations.percentile(99), stats.max_ns);
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
    OpLookup op_of_;
    LaunchQueues queues_;
    KeyIndex<Key> keys_{max_keys};
    std::vector<Group> groups_;
    Key last_key_;
    uint32_t last_ = KeyIndex<Key>::none;
    size_t exact_rows_ = 0;
    bool overflowed_ = false;
};

}  // namespace

namespace {

auto too_many_kinds() {
    return fail(ErrorCode::limit, "the window has more than 65536 kinds of calls",
                "ask for a shorter window, or for one process with --pid");
}

/// Whether the part of a minute that rollups tell of counts as in the window: where its middle is, so that as many
/// minutes count as the window is long.
bool counts_in(const RollupRow& row, const RolledUp& boot, Window realtime) {
    const uint64_t from = std::max(row.minute_ns, boot.monotonic.from_ns);
    const uint64_t to = std::max(from, std::min(row.minute_ns + rollup_minute_ns, boot.monotonic.to_ns));
    return realtime.contains(boot.clock.to_realtime(from + (to - from) / 2));
}

Result<void> add_rollups(const StoreSnapshot& snapshot, Window realtime, StatsQuery& query,
                         std::map<OpId, uint64_t>& lost, Coverage& coverage) {
    for (const RolledUp& boot : rolled_up(snapshot, realtime)) {
        const Window window{boot.clock.to_monotonic(realtime.from_ns), boot.clock.to_monotonic(realtime.to_ns)};
        const auto rows = snapshot.rollups(boot.boot_index, window);
        if (!rows) return tl::unexpected(rows.error());
        for (const RollupRow& row : *rows) {
            if (!counts_in(row, boot, realtime)) continue;
            if (!query.add(row)) return too_many_kinds();
            lost[row.op] = saturating_add(lost[row.op], row.lost);
            coverage.lost = saturating_add(coverage.lost, row.lost);
            coverage.sampled_out = saturating_add(coverage.sampled_out, row.thinned);
        }
    }
    return {};
}

}  // namespace

// Every op stands for itself, with its own layer: a driver call inside a runtime call has its own row, and neither is
// added to the other.
Result<StatsAnswer> compute_stats(const StoreSnapshot& snapshot, const Filter& filter, StatsBy by) {
    StatsAnswer answer;
    answer.window = filter.window;
    answer.by = by;
    auto covered =
        coverage(snapshot, filter.window, {.uid = filter.uid, .pid = filter.pid, .by_rollups = by == StatsBy::op});
    if (!covered) return tl::unexpected(covered.error());
    answer.coverage = std::move(*covered);
    const auto processes = snapshot.processes();
    if (!processes) return tl::unexpected(processes.error());

    const auto kernels = by == StatsBy::kernel ? KernelNames::read(snapshot) : Result<KernelNames>();
    if (!kernels) return tl::unexpected(kernels.error());

    StatsQuery query(filter, *processes, by == StatsBy::kernel ? &*kernels : nullptr);
    std::map<OpId, uint64_t> lost;
    for (const BootWindow& boot : boot_windows(snapshot, filter.window)) {
        const auto scanned = snapshot.scan(boot.boot_index, boot.monotonic,
                                           [&](std::span<const Event> block) { return query.add(block); });
        if (!scanned) return tl::unexpected(scanned.error());
        if (query.overflowed()) return too_many_kinds();
        const auto losses = snapshot.losses(boot.boot_index, boot.monotonic);
        if (!losses) return tl::unexpected(losses.error());
        for (const LossRow& row : *losses) {
            const uint64_t frames_and_ring = saturating_add(row.lost_ring, row.lost_frames);
            lost[row.op] = saturating_add(lost[row.op], saturating_add(frames_and_ring, row.lost_depth));
        }
    }
    if (by == StatsBy::op) {
        const auto added = add_rollups(snapshot, filter.window, query, lost, answer.coverage);
        if (!added) return tl::unexpected(added.error());
    }
    answer.ops = query.finish(lost);
    return answer;
}

}  // namespace ingero
