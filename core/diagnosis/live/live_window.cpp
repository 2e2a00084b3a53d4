#include "core/diagnosis/live/live_window.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "core/base/mutex.h"
#include "core/diagnosis/evidence/collective_waits.h"
#include "core/diagnosis/incidents/incidents.h"
#include "core/diagnosis/judge.h"
#include "core/model/op.h"
#include "core/store/block/block.h"

namespace ingero {

namespace {

/// One call lost in ten: the missing ones could have shown otherwise.
constexpr uint64_t lossy_from = 10;
constexpr size_t max_spans = 16'384;
constexpr size_t max_registered = 4'096;
constexpr size_t max_samples = 4'096;
constexpr size_t max_losses = 256;              ///< of one op
constexpr uint64_t loss_slot_ns = 250'000'000;  ///< those of so long are one: together, of more than the window

/// What one process did in a block.
struct Part {
    ProcessKey process;
    std::vector<Event> rows;
    uint64_t latest_end_ns = 0;

    /// With what it takes to find it, where a process has no more than one.
    size_t bytes() const { return sizeof(*this) + 256 + rows.size() * sizeof(Event); }
};

/// What was added at once.
struct Block {
    std::vector<std::shared_ptr<const Part>> parts;  ///< by process; null where they were dropped
    uint64_t earliest_start_ns = UINT64_MAX;
    uint64_t latest_end_ns = 0;
    uint64_t last_sequence = 0;  ///< of calls
    uint64_t last_row = 0;
};

std::vector<std::shared_ptr<const Part>> parts_of(const std::vector<Event>& rows) {
    std::map<ProcessKey, size_t> counts;
    for (const Event& row : rows) ++counts[row.process()];
    std::map<ProcessKey, std::shared_ptr<Part>> by_process;
    for (const auto& [process, count] : counts) {
        auto& part = by_process[process] = std::make_shared<Part>();
        part->process = process;
        part->rows.reserve(count);
    }
    for (const Event& row : rows) {
        Part& part = *by_process[row.process()];
        part.rows.push_back(row);
        part.latest_end_ns = std::max(part.latest_end_ns, saturating_end_ns(row));
    }
    std::vector<std::shared_ptr<const Part>> parts;
    for (auto& [process, part] : by_process) parts.push_back(std::move(part));
    return parts;
}

/// A collective that cannot end, as the pass before found it.
struct KnownHang {
    uint64_t lost_ns = 0;
    unsigned severe_passes = 0;  ///< in which it was severe enough for an incident; from passes_to_open on it has one
};

/// Such a one loses time as long as it lasts, and not by calls: what it has lost since the pass before is new, and all
/// of it when an incident of it may begin.
void note_hangs(std::vector<Finding>& findings, std::map<std::string, KnownHang>& ret_known) {
    const IncidentOptions options;
    std::map<std::string, KnownHang> now;
    for (Finding& finding : findings) {
        if (finding.ranks.empty()) continue;
        const bool is_severe = finding.severity >= options.open_from;
        const auto before = ret_known.find(finding.id);
        unsigned severe_passes = before == ret_known.end() ? 0 : before->second.severe_passes;
        const bool begins = before == ret_known.end() || (is_severe && severe_passes == 0);
        if (!begins)
            finding.newly_lost_ns = finding.newly_waited_ns =
                saturating_subtract(finding.lost_ns, before->second.lost_ns);
        if (is_severe)
            ++severe_passes;
        else if (severe_passes < options.passes_to_open)
            severe_passes = 0;
        now[finding.id] = {finding.lost_ns, severe_passes};
    }
    ret_known = std::move(now);
}

}  // namespace

struct LiveWindow::Impl {
    struct Place {
        uint64_t block = 0;
        size_t part = 0;
    };
    /// Of one process.
    struct Kept {
        std::vector<Place> places;  ///< in order of block; of many processes each has few
        size_t bytes = 0;
        uint64_t dropped_until_ns = 0;  ///< when the last of its calls that were dropped to make room returned
    };

    std::string boot_id;
    LiveWindowOptions options;

    Mutex mutex;
    /// Parts do not change, so a pass works on those it found without holding the mutex.
    std::deque<Block> blocks INGERO_GUARDED_BY(mutex);
    uint64_t first_block INGERO_GUARDED_BY(mutex) = 0;  ///< the number of blocks.front()
    std::map<ProcessKey, Kept> kept INGERO_GUARDED_BY(mutex);
    /// Whoever has anything in `kept`.
    std::set<std::pair<size_t, ProcessKey>> by_size INGERO_GUARDED_BY(mutex);
    std::deque<SpanRow> spans INGERO_GUARDED_BY(mutex);  ///< in order of arrival
    size_t new_spans INGERO_GUARDED_BY(mutex) = 0;       ///< the latest so many of `spans` no pass has seen
    std::vector<SpanRow> registered INGERO_GUARDED_BY(mutex);
    std::deque<GpuSample> samples INGERO_GUARDED_BY(mutex);  ///< of GPUs
    /// The thread that makes passes sets it with the mutex held, and reads it without. Others read it by `forgotten`.
    Communicators communicators;
    /// What ranks had done in calls that are no longer kept.
    CollectiveFeed forgotten INGERO_GUARDED_BY(mutex){communicators};
    /// In order of time; of one op the oldest are one.
    std::map<OpId, std::deque<LossRow>> losses INGERO_GUARDED_BY(mutex);
    std::map<std::string, KnownHang> hangs;  ///< by finding; of the thread that makes passes
    size_t bytes INGERO_GUARDED_BY(mutex) = 0;
    uint64_t last_sequence INGERO_GUARDED_BY(mutex) = 0;     ///< of calls
    uint64_t last_row INGERO_GUARDED_BY(mutex) = 0;          ///< of waits too
    uint64_t seen_sequence INGERO_GUARDED_BY(mutex) = 0;     ///< of calls, by passes
    uint64_t seen_row INGERO_GUARDED_BY(mutex) = 0;          ///< the same of all rows
    uint64_t dropped_until_ns INGERO_GUARDED_BY(mutex) = 0;  ///< when the last call that is too old to be kept returned

    void resize(const ProcessKey& process, Kept& own, size_t to) INGERO_REQUIRES(mutex) {
        by_size.erase({own.bytes, process});
        bytes = bytes - own.bytes + to;
        own.bytes = to;
        if (to != 0) by_size.emplace(to, process);
    }

    void add(Block block) INGERO_REQUIRES(mutex) {
        for (size_t number = 0; number < block.parts.size(); ++number) {
            const Part& part = *block.parts[number];
            Kept& own = kept[part.process];
            own.places.push_back({first_block + blocks.size(), number});
            resize(part.process, own, own.bytes + part.bytes());
        }
        blocks.push_back(std::move(block));
    }

    void drop_first_of(const ProcessKey& process, Kept& own) INGERO_REQUIRES(mutex) {
        const Place place = own.places.front();
        own.places.erase(own.places.begin());
        auto& part = blocks[place.block - first_block].parts[place.part];
        own.dropped_until_ns = std::max(own.dropped_until_ns, part->latest_end_ns);
        resize(process, own, own.bytes - part->bytes());
        if (forgotten.has(process)) {
            for (const Event& row : part->rows)
                if (const Op* op = find_op(row.op); op && CollectiveWaitsDeriver::wants(*op)) forgotten.take(row);
        }
        part.reset();
    }

    /// Of whoever has most: who calls all the time crowds out nobody but itself.
    void make_room() INGERO_REQUIRES(mutex) {
        while (bytes > options.max_bytes && blocks.size() > 1) {
            const ProcessKey process = by_size.rbegin()->second;
            drop_first_of(process, kept.at(process));
            const auto is_dropped = [](const auto& part) { return !part; };
            while (blocks.size() > 1 &&
                   std::all_of(blocks.front().parts.begin(), blocks.front().parts.end(), is_dropped))
                drop_first();
        }
    }

    void drop_first() INGERO_REQUIRES(mutex) {
        for (const auto& part : blocks.front().parts)
            if (part) drop_first_of(part->process, kept.at(part->process));
        blocks.pop_front();
        ++first_block;
    }

    /// Emitters register the same processes again and again.
    void add_registration(const SpanRow& span) INGERO_REQUIRES(mutex) {
        std::erase_if(registered, [&](const SpanRow& one) {
            return std::tie(one.scope, one.process) == std::tie(span.scope, span.process);
        });
        if (registered.size() >= max_registered) registered.erase(registered.begin());
        registered.push_back(span);
    }

    void add(const LossRow& row) INGERO_REQUIRES(mutex) {
        std::deque<LossRow>& rows = losses[row.op];
        if (!rows.empty() && saturating_subtract(row.to_ns, rows.back().from_ns) <= loss_slot_ns)
            return rows.back().add(row);
        rows.push_back(row);
        if (rows.size() <= max_losses) return;
        rows[1].add(rows[0]);
        rows.pop_front();
    }

    void drop_before(uint64_t oldest_ns) INGERO_REQUIRES(mutex) {
        while (!blocks.empty() && blocks.front().latest_end_ns < oldest_ns) {
            dropped_until_ns = std::max(dropped_until_ns, blocks.front().latest_end_ns);
            drop_first();
        }
        std::erase_if(kept, [this](const auto& one) INGERO_REQUIRES(mutex) {
            return one.second.bytes == 0 && one.second.dropped_until_ns <= dropped_until_ns;
        });
    }
};

LiveWindow::LiveWindow(std::string boot_id, LiveWindowOptions options) : impl_(std::make_unique<Impl>()) {
    impl_->boot_id = std::move(boot_id);
    impl_->options = options;
}

LiveWindow::~LiveWindow() = default;

void LiveWindow::add(std::vector<Event> events, std::span<const LossRow> losses) {
    // Of what the kernel did detectors ask for waits only.
    std::erase_if(events, [](const Event& event) { return !is_call(event.op) && !WaitTable::wants(event.op); });
    Block block;
    for (const Event& event : events) {
        if (is_call(event.op)) block.last_sequence = event.sequence;  // without calls there is nothing new to judge
        block.last_row = std::max(block.last_row, event.sequence);
        block.earliest_start_ns = std::min(block.earliest_start_ns, event.start_ns);
        block.latest_end_ns = std::max(block.latest_end_ns, saturating_end_ns(event));
    }
    block.parts = parts_of(events);

    const Lock lock(impl_->mutex);
    for (const LossRow& row : losses)
        if (row.lost() != 0) impl_->add(row);
    if (events.empty()) return;
    impl_->last_sequence = std::max(impl_->last_sequence, block.last_sequence);
    impl_->last_row = std::max(impl_->last_row, block.last_row);
    impl_->add(std::move(block));
    impl_->make_room();
}

void LiveWindow::add_spans(const std::vector<SpanRow>& spans) {
    const Lock lock(impl_->mutex);
    for (const SpanRow& span : spans) {
        if (span.kind == SpanKind::scope) impl_->add_registration(span);
        if (span.kind != SpanKind::request && span.kind != SpanKind::step) continue;
        impl_->spans.push_back(span);
        if (impl_->spans.size() > max_spans) impl_->spans.pop_front();
        impl_->new_spans = std::min(impl_->new_spans + 1, impl_->spans.size());
    }
}

void LiveWindow::set_communicators(Communicators communicators) {
    const Lock lock(impl_->mutex);
    impl_->communicators = std::move(communicators);
    impl_->forgotten.communicators_changed();
}

void LiveWindow::add_state(const StateRow& state) {
    auto sample = gpu_sample(state);
    if (!sample) return;
    const Lock lock(impl_->mutex);
    impl_->samples.push_back(std::move(*sample));
    if (impl_->samples.size() > max_samples) impl_->samples.pop_front();
}

std::vector<GpuStates> LiveWindow::gpus_since(uint64_t from_ns) const {
    std::vector<GpuSample> samples;
    {
        const Lock lock(impl_->mutex);
        std::copy_if(impl_->samples.begin(), impl_->samples.end(), std::back_inserter(samples),
                     [&](const GpuSample& sample) { return sample.measurement.time_ns >= from_ns; });
    }
    return gpu_states(samples);
}

void LiveWindow::trim(uint64_t now_monotonic_ns) {
    const uint64_t oldest = saturating_subtract(now_monotonic_ns, impl_->options.history_ns);
    const Lock lock(impl_->mutex);
    impl_->drop_before(oldest);
    while (!impl_->spans.empty() && impl_->spans.front().end_ns < oldest) impl_->spans.pop_front();
    impl_->new_spans = std::min(impl_->new_spans, impl_->spans.size());
    while (!impl_->samples.empty() && impl_->samples.front().measurement.time_ns < oldest) impl_->samples.pop_front();
}

bool LiveWindow::has_new() const {
    const Lock lock(impl_->mutex);
    return impl_->last_sequence > impl_->seen_sequence || impl_->new_spans != 0;
}

bool LiveWindow::empty() const {
    const Lock lock(impl_->mutex);
    return impl_->blocks.empty();
}

size_t LiveWindow::bytes() const {
    const Lock lock(impl_->mutex);
    return impl_->bytes;
}

std::vector<Finding> LiveWindow::pass(const ClockTriple& now, const std::vector<Process>& processes) {
    std::vector<Block> blocks;
    std::map<ProcessKey, uint64_t> dropped_until;
    std::optional<PastCollectives> collectives;
    JudgementContext context;
    std::vector<SpanRow> spans;
    const uint64_t judged_from_ns = saturating_subtract(now.monotonic_ns, impl_->options.judged_ns);
    ExplainOptions options;
    options.slow_calls = 0;
    // Calls that return after the last one dropped are all kept: a process that began since is known whole.
    uint64_t kept_from_ns = 0;
    {
        const Lock lock(impl_->mutex);
        blocks.assign(impl_->blocks.begin(), impl_->blocks.end());
        options.new_from_sequence = impl_->seen_row + 1;
        impl_->seen_sequence = impl_->last_sequence;
        impl_->seen_row = impl_->last_row;
        kept_from_ns = std::max(impl_->options.since_ns, impl_->dropped_until_ns);
        impl_->forgotten.forget_past();
        collectives.emplace(PastCollectives{impl_->forgotten, impl_->options.since_ns});
        for (const auto& [op, losses] : impl_->losses)
            context.losses.insert(context.losses.end(), losses.begin(), losses.end());
        for (const auto& [process, own] : impl_->kept)
            if (own.dropped_until_ns != 0) dropped_until.emplace(process, own.dropped_until_ns);
        const auto is_judged = [&](const SpanRow& span) { return span.end_ns > judged_from_ns; };
        const auto first_new = impl_->spans.end() - static_cast<std::ptrdiff_t>(impl_->new_spans);
        std::copy_if(impl_->spans.begin(), first_new, std::back_inserter(spans), is_judged);
        context.new_spans_from = spans.size();
        std::copy_if(first_new, impl_->spans.end(), std::back_inserter(spans), is_judged);
        impl_->new_spans = 0;
        if (!spans.empty()) spans.insert(spans.end(), impl_->registered.begin(), impl_->registered.end());
    }
    if (kept_from_ns == 0) {
        kept_from_ns = UINT64_MAX;
        for (const Block& block : blocks) kept_from_ns = std::min(kept_from_ns, block.earliest_start_ns);
    }
    const uint64_t judged_ns = impl_->options.judged_ns;
    const Window window{saturating_subtract(now.monotonic_ns, judged_ns), now.monotonic_ns};
    SlowCalls slow(0);
    JudgedTotals totals;
    const KnownProcesses known(processes, std::move(dropped_until), now);
    Judge judge({.options = options,
                 .window = window,
                 .clock = now,
                 .processes = &known,
                 .communicators = &impl_->communicators,
                 .collectives = &*collectives},
                EventFilter(Filter{}, processes), slow, totals);
    std::vector<Event> rows;
    const auto rows_of = [&](const Block& block, const Window& wanted) -> std::span<const Event> {
        const bool is_inside = block.earliest_start_ns >= wanted.from_ns && block.latest_end_ns <= wanted.to_ns;
        if (is_inside && block.parts.size() == 1 && block.parts[0]) return block.parts[0]->rows;
        rows.clear();
        for (const auto& part : block.parts) {
            if (!part) continue;
            if (is_inside)
                rows.insert(rows.end(), part->rows.begin(), part->rows.end());
            else
                std::copy_if(part->rows.begin(), part->rows.end(), std::back_inserter(rows),
                             [&](const Event& row) { return overlaps(row, wanted); });
        }
        return rows;
    };
    for (const Block& block : blocks) judge.learn(rows_of(block, {0, UINT64_MAX}));
    judge.finish_learning();
    for (const Block& block : blocks)
        if (block.latest_end_ns >= window.from_ns) judge.judge(rows_of(block, window));
    judge.finish_judging();
    if (const Window more = judge.looks_back_at(); more.length_ns() > 0)
        for (const Block& block : blocks) judge.look_back(rows_of(block, {0, more.to_ns}));
    // Shares are of the whole window also where calls are known for less: little time is little evidence.
    context.covered_ns = judged_ns;
    context.window = window;
    context.boot_id = impl_->boot_id;
    uint64_t lost = 0;
    for (const LossRow& row : context.losses)
        if (row.to_ns > window.from_ns) lost = saturating_add(lost, row.lost());
    context.lossy = lost > totals.recorded / lossy_from;
    context.learnt_from_ns = kept_from_ns;
    context.recorded_until_ns = now.monotonic_ns;
    context.clock = now;
    context.processes = &known;
    context.spans = &spans;
    const std::vector<GpuStates> gpus = gpus_since(judged_from_ns);
    context.gpus = &gpus;
    std::vector<Finding> findings = judge.findings(context);
    note_hangs(findings, impl_->hangs);
    return findings;
}

}  // namespace ingero
