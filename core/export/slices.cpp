#include "core/export/slices.h"

#include <xxhash.h>

#include <algorithm>

#include "core/model/call_time.h"
#include "core/model/host_event.h"
#include "core/wire/utf8.h"

namespace ingero {

namespace {

/// Linux gives out no pid beyond, so that a node's number finds place above it.
constexpr unsigned pid_bits = 22;
constexpr uint32_t most_nodes = 1u << (31 - pid_bits);
/// Of the first page.
constexpr size_t most_text_bytes = 8 << 20;
/// Processes of one number that are looked at.
constexpr int most_of_one_pid = 16;

constexpr auto argument_columns = std::to_array<EventColumn>(
    {EventColumn::id, EventColumn::runnable_ns, EventColumn::blocked_ns, EventColumn::blocked_on, EventColumn::waker,
     EventColumn::preemptor, EventColumn::bytes, EventColumn::direction, EventColumn::kernel, EventColumn::stream,
     EventColumn::device, EventColumn::error, EventColumn::weight, EventColumn::time_weight, EventColumn::stack_hash,
     EventColumn::split_uncertain, EventColumn::last_wait_ns, EventColumn::tail_ns});

/// What most slices have goes without saying.
bool is_usual(EventColumn column, int64_t value, int64_t weight) {
    switch (column) {
        case EventColumn::runnable_ns:
        case EventColumn::blocked_ns:
        case EventColumn::stream:
        case EventColumn::stack_hash:
        case EventColumn::split_uncertain:
            return value == 0;
        case EventColumn::weight:
            return value == 1;
        case EventColumn::time_weight:
            return value == weight;
        default:
            return false;
    }
}

struct ArgumentSink {
    std::vector<SliceArgument>& arguments;
    EventColumn column = EventColumn::id;
    int64_t weight = 1;  ///< as number() received it

    void number(uint64_t value) {
        const auto number = static_cast<int64_t>(value);
        if (column == EventColumn::weight) weight = number;
        if (!is_usual(column, number, weight)) arguments.push_back({column, false, number, {}});
    }
    void lasting_text(std::string_view text) { arguments.push_back({column, true, 0, to_valid_utf8(text)}); }
    void passing_text(std::string_view text) { lasting_text(text); }
};

/// A parent before its children; what took no time before what began as it was over.
bool comes_first(const Slice& a, const Slice& b) {
    const auto key = [](const Slice& slice) {
        const uint64_t length = slice.end_ns - slice.start_ns;
        return std::tuple(slice.boot, slice.process, slice.tid, slice.depth, length != 0, ~length, slice.id);
    };
    return key(a) < key(b);
}

}  // namespace

uint32_t take_lane(std::vector<std::vector<uint64_t>>& lanes, uint64_t start_ns, uint64_t end_ns) {
    for (size_t lane = 0;; ++lane) {
        if (lane == lanes.size()) lanes.emplace_back();
        auto& open = lanes[lane];
        while (!open.empty() && open.back() <= start_ns) open.pop_back();
        if (!open.empty() && open.back() < end_ns) continue;
        open.push_back(end_ns);
        return static_cast<uint32_t>(lane);
    }
}

static uint32_t take_free_lane(std::vector<std::vector<uint64_t>>& lanes, uint64_t start_ns, uint64_t end_ns) {
    size_t lane = 0;
    while (lane < lanes.size() && lanes[lane].back() > start_ns) ++lane;
    if (lane == lanes.size()) lanes.emplace_back();
    lanes[lane] = {end_ns};
    return static_cast<uint32_t>(lane);
}

SliceWriter::SliceWriter(const PageContext& context) : context_(context) {
    // In the order of all sessions, so that each page gives a node the same number.
    std::vector<std::string> names;
    for (const Session& session : context.snapshot.sessions())
        if (std::find(names.begin(), names.end(), session.node) == names.end()) names.push_back(session.node);
    for (const EventIndex::Boot& boot : context.index.boots())
        nodes_.push_back(static_cast<uint32_t>(std::find(names.begin(), names.end(), boot.node) - names.begin()));
}

Result<void> SliceWriter::begin(std::string& out) {
    write_head(out);
    if (!context_.is_first) return {};
    const Filter& filter = context_.query.filter;
    const auto covered = coverage(context_.snapshot, filter.window, {filter.uid, filter.pid});
    if (!covered) return tl::unexpected(covered.error());
    auto gaps = covered->gaps;
    // Of no time: what they are about was recorded.
    for (const std::string& note : context_.history.notes)
        gaps.push_back({.from_ns = context_.base_ns, .to_ns = context_.base_ns, .reason = note, .partial = true});
    std::stable_sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) { return a.from_ns < b.from_ns; });
    std::vector<Lane> lanes;
    for (const Gap& gap : gaps) write_gap(out, gap, take_lane(lanes, gap.from_ns, gap.to_ns));
    for (const HistorySlice& slice : context_.history.all) write(out, slice);
    return {};
}

/// Of a request the parts are shown, so that no other nests in it.
void SliceWriter::write(std::string& out, const HistorySlice& slice) {
    const auto kind = static_cast<uint8_t>(Track::first_history + static_cast<uint8_t>(slice.kind));
    Track track{slice.boot, slice.process, 0, kind, 0};
    const bool nests = slice.kind == HistoryKind::step || slice.kind == HistoryKind::phase;
    track.lane = nests ? take_lane(lanes_[track], slice.start_ns, slice.end_ns)
                       : take_free_lane(lanes_[track], slice.start_ns, slice.end_ns);
    describe(out, track);
    HistorySlice written;
    written.kind = slice.kind;
    written.name = slice.name;
    written.start_ns = slice.start_ns;
    written.end_ns = slice.end_ns;
    written.numbers = slice.numbers;
    written.stall = slice.stall;
    // Where there are very many with long texts, those are what is left out.
    if (out.size() < most_text_bytes) written.texts = slice.texts;
    write_history(out, track, written);
    if (slice.stall) {
        const LongestStall& stall = *slice.stall;
        const ProcessKey process = process_at(slice.boot, stall.pid, stall.at_ns);
        const Track stalled{slice.boot, process, stall.tid, is_call(stall.op) ? Track::calls : op_source(stall.op), 0};
        describe(out, stalled);
        write_stall(out, stalled, slice);
    }
    written.stall.reset();
    written.numbers.clear();
    written.texts.clear();
    written.end_ns = slice.start_ns;
    for (const auto& [name, until_ns] : slice.parts) {
        written.start_ns = written.end_ns;
        written.end_ns = std::clamp(until_ns, written.start_ns, slice.end_ns);
        written.name = name;
        if (written.end_ns != written.start_ns) write_history(out, track, written);
    }
}

Result<void> SliceWriter::keep(EventCursor& rows) {
    if (kept_count_ == kept_.size()) kept_.emplace_back();
    Slice& slice = kept_[kept_count_++];
    std::optional<Error> error;
    const auto value = [&](ColumnId id) -> uint64_t {
        const auto found = rows.value(id);
        if (!found) error = found.error();
        return found ? *found : 0;
    };
    const EventIndex::Boot& boot = rows.boot();
    Event event;
    event.start_ns = value(ColumnId::start);
    event.duration_ns = value(ColumnId::duration);
    event.runnable_ns = value(ColumnId::runnable);
    event.blocked_ns = value(ColumnId::blocked);
    const CallTime time = call_time(event);
    slice.start_ns = boot.window.clock.to_realtime(event.start_ns);
    slice.end_ns = saturating_add(slice.start_ns, event.duration_ns);
    slice.runnable_ns = time.runnable_ns;
    slice.blocked_ns = time.blocked_ns;
    slice.id = value(ColumnId::sequence);
    slice.boot = static_cast<uint32_t>(&boot - context_.index.boots().data());
    slice.process = {static_cast<uint32_t>(value(ColumnId::tgid)), value(ColumnId::process_start)};
    slice.tid = static_cast<uint32_t>(value(ColumnId::tid));
    slice.depth = static_cast<uint8_t>(value(ColumnId::depth));
    slice.op = rows.op().id;
    slice.name = rows.op().name;
    slice.blocked_on.clear();
    slice.arguments.clear();
    ArgumentSink sink{slice.arguments};
    EventRow row(context_.index, rows, last_, sink);
    for (const EventColumn column : argument_columns) {
        sink.column = column;
        row.give(column);
    }
    for (const SliceArgument& argument : slice.arguments)
        if (argument.column == EventColumn::blocked_on) slice.blocked_on = argument.text;
    slice.waker.tid = 0;
    const bool is_woken = slice.op == op_wait && (value(ColumnId::flags) & INGERO_CALL_SPLIT_UNCERTAIN) == 0 &&
                          value(ColumnId::waker_kind) == static_cast<uint64_t>(WakerKind::task);
    if (is_woken) {
        slice.waker.pid = static_cast<uint32_t>(value(ColumnId::waker_tgid));
        slice.waker.tid = static_cast<uint32_t>(value(ColumnId::argument_0));
        // Within the wait: a slice ends before what else is of that time.
        slice.waker.at_ns =
            std::min(saturating_add(slice.start_ns, time.blocked_ns), std::max(slice.end_ns, slice.start_ns + 1) - 1);
        slice.waker.comm.clear();
        for (const SliceArgument& argument : slice.arguments)
            if (argument.column == EventColumn::waker) slice.waker.comm = argument.text;
    }
    if (row.error()) error = row.error();
    if (error) return tl::unexpected(*error);
    return {};
}

void SliceWriter::write_kept(std::string& out) {
    const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(kept_count_);
    std::sort(kept_.begin(), end, comes_first);
    for (auto slice = kept_.begin(); slice != end; ++slice) write(out, *slice);
    kept_count_ = 0;
}

void SliceWriter::write(std::string& out, const Slice& slice) {
    const uint8_t kind = is_call(slice.op) ? Track::calls : op_source(slice.op);
    Track track{slice.boot, slice.process, slice.tid, kind, 0};
    track.lane = take_lane(lanes_[track], slice.start_ns, slice.end_ns);
    describe(out, track);
    write_slice(out, track, slice);
    if (kind == Track::calls && slice.depth == 0) write_parts(out, slice);
    if (slice.waker.tid == 0 || slice.waker.pid == 0) return;
    const ProcessKey waker = process_at(slice.boot, slice.waker.pid, slice.waker.at_ns);
    const Track waking{slice.boot, waker, slice.waker.tid, kind, 0};
    describe(out, waking);
    write_wake_up(out, waking, track, slice);
}

/// One that is not in the store, or not for the caller to see, has the pid alone.
ProcessKey SliceWriter::process_at(uint32_t boot, uint32_t pid, uint64_t at_ns) {
    if (!boots_of_processes_) {
        auto boots = context_.snapshot.process_boots();
        boots_of_processes_.emplace(boots ? std::move(*boots) : std::map<ProcessKey, uint32_t>());
    }
    const EventIndex::Boot& recorded = context_.index.boots()[boot];
    const ClockTriple& clock = recorded.window.clock;
    const auto& processes = context_.index.processes();
    // The last that had started by then.
    auto next =
        processes.upper_bound({pid, saturating_subtract(saturating_add(at_ns, clock.boottime_ns), clock.realtime_ns)});
    for (int tries = 0; tries < most_of_one_pid && next != processes.begin(); ++tries) {
        const auto& [key, entry] = *--next;
        if (key.pid != pid) break;
        const auto of_boot = boots_of_processes_->find(key);
        const uint64_t exited_ns = entry.process.exited_ns;
        const bool was_there = exited_ns == 0 || clock.to_realtime(exited_ns) >= at_ns;
        if (of_boot == boots_of_processes_->end() || of_boot->second != recorded.window.boot_index || !was_there)
            continue;
        if (context_.index.shows(key)) return key;
        break;
    }
    return {pid, 0};
}

void SliceWriter::write_parts(std::string& out, const Slice& slice) {
    if (slice.runnable_ns == 0 && slice.blocked_ns == 0) return;
    Track track{slice.boot, slice.process, slice.tid, Track::off_cpu, 0};
    const uint64_t end = slice.start_ns + slice.blocked_ns + slice.runnable_ns;
    track.lane = take_lane(lanes_[track], slice.start_ns, end);
    describe(out, track);
    if (slice.blocked_ns != 0) {
        const std::string name = "asleep" + (slice.blocked_on.empty() ? "" : ": " + slice.blocked_on);
        write_part(out, track, slice, name, slice.start_ns, slice.blocked_ns);
    }
    if (slice.runnable_ns != 0)
        write_part(out, track, slice, "waiting for a CPU", slice.start_ns + slice.blocked_ns, slice.runnable_ns);
}

void SliceWriter::describe(std::string& out, const Track& track) {
    if (!described_.insert(track).second) return;
    if (described_processes_.emplace(track.boot, track.process).second) describe_process(out, track);
    // Before what hangs on it.
    if (!track.is_thread() && !track.is_of_process()) describe(out, track.thread());
    describe_track(out, track);
}

int64_t SliceWriter::shown_pid(uint32_t boot, uint32_t pid) const {
    const uint32_t node = nodes_[boot] % most_nodes;
    return static_cast<int64_t>(node) << pid_bits | (visible_pid(pid) & 0x7fff'ffff);
}

std::string SliceWriter::process_name(const Track& track) const {
    const auto* entry = context_.index.process(track.process);
    std::string name = entry ? to_valid_utf8(entry->process.comm) : "";
    if (nodes_[track.boot] == 0 && context_.index.has_one_node()) return name;
    if (!name.empty()) name += ' ';
    return name + "on " + to_valid_utf8(context_.index.boots()[track.boot].node) + ", pid " +
           std::to_string(visible_pid(track.process.pid));
}

std::string SliceWriter::track_name(const Track& track) const {
    std::string name = "calls";
    if (track.kind == Track::off_cpu)
        name = "off the CPU in calls (how long is exact, when is not)";
    else if (track.is_of_process())
        name = std::string(to_string(static_cast<HistoryKind>(track.kind - Track::first_history))) + "s";
    else if (track.kind != Track::calls)
        name = "kernel: " + sql_source_name(track.kind);
    return track.lane == 0 ? name : name + ", overlapping " + std::to_string(track.lane);
}

uint64_t SliceWriter::process_start(const Track& track) const {
    const ClockTriple& clock = context_.index.boots()[track.boot].window.clock;
    return track.process.start_ns - clock.boottime_ns + clock.realtime_ns;
}

uint64_t SliceWriter::number_of_process(const Track& track) {
    const std::array<uint64_t, 3> parts = {track.boot + 1, track.process.pid, track.process.start_ns};
    return XXH3_64bits(parts.data(), sizeof parts) | 1;  // 0 is Perfetto's own
}

uint64_t SliceWriter::number_of_flow(const Slice& wait) {
    const std::array<uint64_t, 2> parts = {wait.boot, wait.id};
    return XXH3_64bits(parts.data(), sizeof parts) | 1;
}

uint64_t SliceWriter::number_of_flow(const LongestStall& stall) {
    const std::array<uint64_t, 2> parts = {UINT64_MAX, stall.flow};  // no boot's
    return XXH3_64bits(parts.data(), sizeof parts) | 1;
}

uint64_t SliceWriter::number_of(const Track& track) {
    const std::array<uint64_t, 4> parts = {number_of_process(track), track.tid, track.kind, track.lane};
    return XXH3_64bits(parts.data(), sizeof parts) | 1;
}

}  // namespace ingero
