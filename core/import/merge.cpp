#include "core/import/merge.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "core/import/finding_calls.h"
#include "core/import/merge_plan.h"
#include "core/model/call_time.h"
#include "core/store/rows/rows.h"

namespace ingero {

using namespace merging;

namespace {

constexpr size_t batch_rows = 32'768;
/// Of rows besides events; a batch of more than a quarter of the store would be refused.
constexpr size_t batch_history_bytes = 1 << 20;
/// That a rollup may come to take: a page of its own.
constexpr size_t rollup_bytes = 4'096;
/// A call, or a span, may be stored so long after it ended, or came.
constexpr uint64_t late_ns = 1'000'000'000;

uint64_t file_bytes(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

class Merger {
  public:
    Merger(std::vector<Source> sources, std::string directory, uint64_t max_bytes)
        : sources_(std::move(sources)), directory_(std::move(directory)) {
        options_.max_size_bytes = max_bytes;
        options_.clock = [this] { return clock_; };
    }

    Result<MergeSummary> run();

  private:
    static void leave_out_first_minute(Window starts, Session& session);
    Result<void> write(const Part& part);
    Result<void> write_slice(const Part& part, size_t number);
    Result<void> write_events(const Part& part, size_t number);
    Result<void> write_history(const Part& part, size_t number);
    Result<void> write_gaps(const Part& part, size_t number);
    bool takes(const Part& part, size_t number, const Event& event);
    bool takes(const Part& part, size_t number, const SpanRow& span);
    template <class Row>
    Result<void> take_rows(Source& source, std::vector<Row>& rows, std::vector<Row> Batch::*into);
    Result<void> take_clocks(const Part& part);
    Result<void> take_states(const Slice& slice, Window window);
    Result<void> take(Source& source, const Event& event);
    Result<void> take_stacks(Source& source);
    Result<void> flush(Source& source, bool last);
    void take_process(Source& source, const ProcessKey& key);
    ProcessKey process_of(const ProcessKey& key);
    uint32_t file_of(Source& source, uint32_t id);
    /// Two nodes may report the same boot id, as containers of a host do.
    std::string boot_id(const Boot& boot);

    std::vector<Source> sources_;
    std::string directory_;
    StoreOptions options_;
    ClockTriple clock_;
    std::unique_ptr<StoreWriter> writer_;
    MergeSummary summary_;
    Batch batch_;
    size_t history_bytes_ = 0;  ///< of the batch
    uint32_t last_stack_ = 0;
    uint32_t last_file_ = 0;
    std::map<std::string, std::string> boot_nodes_;  ///< boot id to the node that has it
    Boot boot_;                                      ///< of the part in progress
    const Source* boot_source_ = nullptr;            ///< of the end of the part before it, of the same boot
    std::set<ProcessKey> part_processes_;            ///< of the slice in progress, as its source has them
    HistoryWindows windows_;                         ///< of the part in progress
    /// Of the part in progress: what was taken and may or may not be in a copy that ends at its time.
    std::set<std::array<uint64_t, 7>> late_calls_;
    std::set<std::string> late_spans_;
    std::map<std::pair<Boot, ProcessKey>, ProcessKey> processes_;
    std::map<ProcessKey, Boot> taken_;
    std::set<uint32_t> wanted_stacks_;  ///< of the batch, that have no number yet
};

Result<MergeSummary> Merger::run() {
    const auto parts = plan(sources_);
    if (!parts) return tl::unexpected(parts.error());
    uint64_t sequence = 0, sessions = 0;
    for (Source& source : sources_) {
        sessions += source.sessions.size();
        source.first_sequence = sequence;
        sequence += source.snapshot->figures().last_sequence;
    }
    summary_.repeated_sessions = sessions - parts->size();
    for (const Part& part : *parts)
        if (auto written = write(part); !written) return tl::unexpected(written.error());
    if (!writer_) {
        auto opened = StoreWriter::open(directory_, options_);
        if (!opened) return tl::unexpected(opened.error());
        writer_ = std::move(*opened);
    }
    if (writer_->figures().events_dropped_for_space != 0)
        return fail(ErrorCode::limit, "the merged store is larger than estimated", "please report this");
    summary_.processes = taken_.size();
    summary_.stacks = last_stack_;
    return std::move(summary_);
}

/// Its rollups may also count calls of the session before, which another source has.
void Merger::leave_out_first_minute(Window starts, Session& session) {
    const uint64_t next_ns = (starts.from_ns + rollup_minute_ns - 1) / rollup_minute_ns * rollup_minute_ns;
    session.rolled_up_from_ns = std::min(std::max(session.rolled_up_from_ns, next_ns), session.first_covered_ns);
}

std::string Merger::boot_id(const Boot& boot) {
    const auto& [node, id] = boot;
    const auto [at, added] = boot_nodes_.try_emplace(id, node);
    return at->second == node ? id : id + "@" + node;
}

Result<void> Merger::write(const Part& part) {
    if (!writer_) {
        auto opened = StoreWriter::open(directory_, options_);
        if (!opened) return tl::unexpected(opened.error());
        writer_ = std::move(*opened);
    }
    const Slice& first = part.slices.front();
    const Boot boot_before = std::exchange(boot_, {part.session.node, part.session.boot_id});
    const Source* source_before = std::exchange(boot_source_, part.slices.back().source);
    Session session = part.session;
    if (session.rolled_up_from_ns != 0 && boot_before == boot_ && source_before != first.source)
        leave_out_first_minute(first.starts, session);
    session.boot_id = boot_id(boot_);
    clock_ = session.latest_clock;
    if (auto begun = writer_->begin_session(session); !begun) return begun;

    MergeSummary::Node& node = summary_.nodes[session.node];
    const uint64_t before = summary_.events;
    late_calls_.clear();
    late_spans_.clear();
    auto windows = history_windows(part);
    if (!windows) return tl::unexpected(windows.error());
    windows_ = std::move(*windows);
    if (auto taken = take_clocks(part); !taken) return taken;
    for (size_t number = 0; number < part.slices.size(); ++number)
        if (auto written = write_slice(part, number); !written) return written;

    ++summary_.sessions;
    ++node.sessions;
    node.events += summary_.events - before;
    const ClockTriple& clock = session.latest_clock;
    if (session.first_covered_ns != 0) {
        const Window covered{clock.to_realtime(session.first_covered_ns), clock.to_realtime(session.last_covered_ns)};
        node.window.from_ns = node.window.to_ns == 0 ? covered.from_ns : std::min(node.window.from_ns, covered.from_ns);
        node.window.to_ns = std::max(node.window.to_ns, covered.to_ns);
    }
    if (session.ended_cleanly) return writer_->end_session();
    writer_.reset();  // a session that did not end cleanly stays one
    return {};
}

/// What one source gives of the session.
Result<void> Merger::write_slice(const Part& part, size_t number) {
    const Slice& slice = part.slices[number];
    Source& source = *slice.source;
    part_processes_.clear();
    if (auto written = write_events(part, number); !written) return written;
    if (auto written = write_history(part, number); !written) return written;
    for (const auto& [key, index] : source.boots)
        if (index == slice.boot_index) part_processes_.insert(key);
    const auto losses = source.snapshot->losses(slice.boot_index, slice.starts);
    if (!losses) return of_source(source, losses.error());
    for (const LossRow& row : *losses)
        if (slice.starts.contains(row.from_ns)) batch_.losses.push_back(row);
    if (auto written = write_gaps(part, number); !written) return written;
    for (const ProcessKey& key : part_processes_) take_process(source, key);
    if (number + 1 == part.slices.size()) batch_.covered_until_ns = part.session.last_covered_ns;
    return flush(source, true);
}

Result<void> Merger::write_events(const Part& part, size_t number) {
    const Slice& slice = part.slices[number];
    Source& source = *slice.source;
    Result<void> done;
    Window window = slice.starts;
    if (number != 0) --window.from_ns;  // what ended just then may not be in the copy before
    const auto scanned = source.snapshot->scan(slice.boot_index, window, [&](std::span<const Event> block) {
        for (const Event& event : block) {
            if (!takes(part, number, event)) continue;
            done = take(source, event);
            if (!done) return false;
        }
        return true;
    });
    if (!scanned) return of_source(source, scanned.error());
    return done;
}

/// A call is stored when it ends: one that began in the time of a copy before this one may have ended after that copy
/// was made.
bool Merger::takes(const Part& part, size_t number, const Event& event) {
    for (size_t i = 0; i <= number; ++i) {
        const Slice& slice = part.slices[i];
        if (!slice.starts.contains(event.start_ns)) continue;
        const bool is_own = i == number;
        const uint64_t stored_ns = saturating_add(saturating_end_ns(event), late_ns);
        if (part.slices.size() == 1 || stored_ns < slice.last_covered_ns) return is_own;
        const std::array<uint64_t, 7> identity{event.start_ns, event.duration_ns, event.tgid,   event.tid,
                                               event.op,       event.depth,       event.args[0]};
        const bool is_new = late_calls_.insert(identity).second;
        return is_own || is_new;
    }
    return false;
}

/// The same of a span, which may also come long after it ended.
bool Merger::takes(const Part& part, size_t number, const SpanRow& span) {
    for (size_t i = 0; i <= number; ++i) {
        if (!windows_.spans[i].contains(span.start_ns)) continue;
        const bool is_own = i == number;
        const uint64_t stored_ns = saturating_add(span.received_ns, late_ns);
        if (part.slices.size() == 1 || stored_ns < part.slices[i].last_covered_ns) return is_own;
        SpanRow named = span;
        if (named.process.pid != 0) named.process = process_of(named.process);
        const bool is_new = late_spans_.insert(encode_row(named)).second;
        return is_own || is_new;
    }
    return false;
}

/// Where a gap began before the slice, the copy that was made later knows how it ended: its row replaces the other. Of
/// calls that gave way, each copy has its own.
Result<void> Merger::write_gaps(const Part& part, size_t number) {
    const Slice& slice = part.slices[number];
    const bool is_one = part.slices.size() == 1, is_last = number + 1 == part.slices.size();
    const auto gaps = slice.source->snapshot->gaps(slice.boot_index, slice.starts);
    if (!gaps) return of_source(*slice.source, gaps.error());
    const Window begun{part.slices.front().starts.from_ns, slice.starts.to_ns};
    for (GapRow row : *gaps) {
        if (!is_one && row.reason == GapReason::gave_way) {
            row.from_ns = std::max(row.from_ns, slice.starts.from_ns);
            row.to_ns = std::min(row.to_ns, slice.starts.to_ns);
            // A row of anyone from the same time on would be the hole's.
            for (const Window& hole : part.holes)
                if (hole.contains(row.from_ns)) row.from_ns = hole.to_ns;
            if (row.from_ns >= row.to_ns) continue;
        }
        if (!begun.contains(row.from_ns)) continue;
        if (!is_last && row.to_ns == 0) row.to_ns = std::max(slice.last_covered_ns, row.from_ns + 1);
        if (row.process.pid != 0) row.process = process_of(row.process);
        batch_.gaps.push_back(std::move(row));
    }
    if (!is_last) return {};
    for (const Window& hole : part.holes)
        batch_.gaps.push_back({.process = {},
                               .uid = 0,
                               .from_ns = hole.from_ns,
                               .to_ns = hole.to_ns,
                               .reason = GapReason::gave_way,
                               .subject = "no copy that was merged has the calls of this time"});
    return {};
}

/// First of all: once there is one, the writer adds none of its own.
Result<void> Merger::take_clocks(const Part& part) {
    for (const Slice& slice : part.slices) {
        const auto clocks = slice.source->snapshot->clocks(slice.boot_index, slice.starts);
        if (!clocks) return of_source(*slice.source, clocks.error());
        batch_.clocks.insert(batch_.clocks.end(), clocks->begin(), clocks->end());
    }
    return {};
}

/// One by one: of GPUs there are more than memory holds.
Result<void> Merger::take_states(const Slice& slice, Window window) {
    Source& source = *slice.source;
    Result<void> taken;
    auto scanned = source.snapshot->scan_states(slice.boot_index, window, [&](const StateHead& head) -> bool {
        auto row = read_state(head);
        if (!row) {
            taken = of_source(source, row.error());
            return false;
        }
        ++summary_.states;
        std::vector<StateRow> one;
        one.push_back(std::move(*row));
        taken = take_rows(source, one, &Batch::states);
        return taken.has_value();
    });
    if (!scanned) return of_source(source, scanned.error());
    return taken;
}

/// What is left of a minute's calls belongs to the session in which the minute begins: there is one row for it, however
/// many sessions had calls in it. Where a slice ends within a minute, the next one has calls of it, or has lost them:
/// what the row counts of these is not known, and it is left out.
Result<void> Merger::write_history(const Part& part, size_t number) {
    const Slice& slice = part.slices[number];
    Source& source = *slice.source;
    const StoreSnapshot& snapshot = *source.snapshot;
    const uint32_t boot = slice.boot_index;
    const Window begun{windows_.spans.front().from_ns, windows_.spans[number].to_ns};
    auto spans = snapshot.spans(boot, begun, [&](const SpanRow& row) { return takes(part, number, row); });
    if (!spans) return of_source(source, spans.error());
    summary_.spans += spans->size();
    if (auto taken = take_rows(source, *spans, &Batch::spans); !taken) return taken;
    auto incidents = snapshot.incidents(boot, windows_.incidents[number]);
    if (!incidents) return of_source(source, incidents.error());
    for (IncidentRow& row : *incidents) move_calls(source.first_sequence, row);
    summary_.incidents += incidents->size();
    if (auto taken = take_rows(source, *incidents, &Batch::incidents); !taken) return taken;
    if (auto taken = take_states(slice, windows_.states[number]); !taken) return taken;
    auto rollups = snapshot.rollups(boot, slice.starts);
    if (!rollups) return of_source(source, rollups.error());
    const bool is_last = number + 1 == part.slices.size();
    std::erase_if(*rollups, [&](const RollupRow& row) {
        if (!slice.starts.contains(row.minute_ns)) return true;
        return !is_last && slice.starts.to_ns - row.minute_ns < rollup_minute_ns;
    });
    summary_.rollups += rollups->size();
    return take_rows(source, *rollups, &Batch::rollups);
}

template <class Row>
Result<void> Merger::take_rows(Source& source, std::vector<Row>& rows, std::vector<Row> Batch::*into) {
    for (Row& row : rows) {
        if constexpr (requires { row.process; }) {
            if (row.process.pid != 0) {
                part_processes_.insert(row.process);
                row.process = process_of(row.process);
            }
        }
        history_bytes_ += std::max(encode_row(row).size(), std::is_same_v<Row, RollupRow> ? rollup_bytes : 0);
        (batch_.*into).push_back(std::move(row));
        if (auto flushed = flush(source, false); !flushed) return flushed;
    }
    return {};
}

Result<void> Merger::take(Source& source, const Event& event) {
    Event taken = event;
    taken.sequence += source.first_sequence;
    if (event.tgid != 0) {
        part_processes_.insert(event.process());
        taken.process_start_ns = process_of(event.process()).start_ns;
    }
    if (event.stack != 0 && !source.stack_ids.contains(event.stack)) wanted_stacks_.insert(event.stack);
    batch_.events.push_back(taken);
    ++summary_.events;
    return flush(source, false);
}

/// A process of another boot may have the same pid and start: then this one began a moment later. Of a boot no two have
/// the same pid within a moment: it is one, that had moved in one of the sources.
ProcessKey Merger::process_of(const ProcessKey& key) {
    const auto [at, added] = processes_.try_emplace({boot_, key}, key);
    if (added)
        while (taken_.try_emplace(at->second, boot_).first->second != boot_) ++at->second.start_ns;
    return at->second;
}

void Merger::take_process(Source& source, const ProcessKey& key) {
    const ProcessKey own = process_of(key);
    if (const auto row = source.processes.find(key); row != source.processes.end()) {
        batch_.processes.push_back(row->second);
        batch_.processes.back().key = own;
    }
    if (const auto functions = source.functions.find(key); functions != source.functions.end())
        for (const FunctionRow& function : functions->second) {
            batch_.functions.push_back(function);
            batch_.functions.back().process = own;
        }
    if (const auto communicators = source.communicators.find(key); communicators != source.communicators.end())
        for (const CommunicatorRow& communicator : communicators->second) {
            batch_.communicators.push_back(communicator);
            batch_.communicators.back().process = own;
        }
}

uint32_t Merger::file_of(Source& source, uint32_t id) {
    const auto [at, added] = source.file_ids.try_emplace(id, last_file_ + 1);
    if (!added) return at->second;
    ++last_file_;
    if (const auto row = source.files.find(id); row != source.files.end()) {
        batch_.files.push_back(row->second);
        batch_.files.back().id = at->second;
    }
    return at->second;
}

/// A stack that its store has let go has no number here: it would come to be another's.
Result<void> Merger::take_stacks(Source& source) {
    const auto stacks = source.snapshot->stacks(wanted_stacks_);
    if (!stacks) return of_source(source, stacks.error());
    std::set<StackFrame> places;
    for (const uint32_t id : wanted_stacks_) {
        const auto row = stacks->find(id);
        source.stack_ids[id] = row == stacks->end() ? 0 : ++last_stack_;
        if (row == stacks->end()) continue;
        StackRow& stack = batch_.stacks.emplace_back(row->second);
        stack.id = last_stack_;
        if (stack.process.pid != 0) stack.process = process_of(stack.process);
        for (StackFrame& frame : stack.frames) {
            if (source.named.insert(frame).second) places.insert(frame);
            frame.file = file_of(source, frame.file);
        }
    }
    wanted_stacks_.clear();
    const auto symbols = source.snapshot->symbols(places);
    if (!symbols) return of_source(source, symbols.error());
    for (const auto& [place, symbol] : *symbols) {
        batch_.symbols.push_back(symbol);
        batch_.symbols.back().file = file_of(source, symbol.file);
    }
    return {};
}

/// Commits what there is once it is a batch.
Result<void> Merger::flush(Source& source, bool last) {
    if (!last && batch_.events.size() < batch_rows && history_bytes_ < batch_history_bytes) return {};
    if (auto taken = take_stacks(source); !taken) return taken;
    for (Event& event : batch_.events)
        if (event.stack != 0) event.stack = source.stack_ids.at(event.stack);
    auto committed = writer_->commit(batch_);
    batch_ = {};
    history_bytes_ = 0;
    return committed;
}

}  // namespace

Result<MergeSummary> merge_stores(const std::vector<MergeSource>& sources, const std::string& directory) {
    std::vector<Source> opened;
    uint64_t bytes = 0;
    for (const MergeSource& source : sources) {
        auto one = open_source(source);
        if (!one) return tl::unexpected(one.error());
        opened.push_back(std::move(*one));
        bytes += file_bytes(source.directory + "/data.mdb");
    }
    // Nothing is to be let go: room for several times what there is, since old blocks were compressed.
    constexpr uint64_t least = 64 << 20;
    return Merger(std::move(opened), directory, 4 * bytes + least).run();
}

Result<std::map<std::string, SessionCopy>> stored_sessions(const std::string& directory) {
    const auto reader = StoreReader::open(directory);
    if (!reader) return tl::unexpected(reader.error());
    const auto snapshot = (*reader)->snapshot();
    if (!snapshot) return tl::unexpected(snapshot.error());
    std::map<std::string, SessionCopy> sessions;
    for (const Session& session : (*snapshot)->sessions()) {
        auto gave_way = gave_way_in(**snapshot, session);
        if (!gave_way) return tl::unexpected(gave_way.error());
        const auto [known, added] = sessions.try_emplace(session.id);
        if (added || goes_further(session, known->second.session)) known->second = {session, std::move(*gave_way)};
    }
    return sessions;
}

}  // namespace ingero
