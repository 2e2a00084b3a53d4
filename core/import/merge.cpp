#include "core/import/merge.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/import/finding_calls.h"
#include "core/store/rows/rows.h"

namespace ingero {

namespace {

constexpr size_t batch_rows = 32'768;
/// Of rows besides events; a batch of more than a quarter of the store would be refused.
constexpr size_t batch_history_bytes = 1 << 20;
/// That a rollup may come to take: a page of its own.
constexpr size_t rollup_bytes = 4'096;

uint64_t file_bytes(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

/// One store, and which numbers its rows get.
struct Source {
    std::string name;
    std::unique_ptr<StoreSnapshot> snapshot;
    std::vector<Session> sessions;
    std::map<ProcessKey, Process> processes;
    std::map<ProcessKey, uint32_t> boots;
    std::map<ProcessKey, std::vector<FunctionRow>> functions;
    std::map<ProcessKey, std::vector<CommunicatorRow>> communicators;
    std::map<uint32_t, FileRow> files;
    uint64_t first_sequence = 0;  ///< what is added to its own
    std::map<uint32_t, uint32_t> stack_ids;
    std::map<uint32_t, uint32_t> file_ids;
    std::set<StackFrame> named;  ///< places whose names are written
};

tl::unexpected<Error> of_source(const Source& source, Error error) {
    error.message = source.name + ": " + error.message;
    return tl::unexpected(std::move(error));
}

/// A session to be written, with what of its boot belongs to it: all that began from its start up to the next one's.
struct Part {
    Source* source = nullptr;
    Session session;
    Window starts;  ///< CLOCK_MONOTONIC
};

Result<Source> open_source(const MergeSource& from) {
    Source source;
    source.name = from.name;
    const auto reader = StoreReader::open(from.directory);
    if (!reader) return of_source(source, reader.error());
    auto snapshot = (*reader)->snapshot();
    if (!snapshot) return of_source(source, snapshot.error());
    source.snapshot = std::move(*snapshot);
    source.sessions = source.snapshot->sessions();
    for (Session& session : source.sessions)
        if (session.node.empty()) session.node = from.node;
    auto processes = source.snapshot->processes();
    if (!processes) return of_source(source, processes.error());
    for (Process& process : *processes) source.processes.emplace(process.key, std::move(process));
    auto boots = source.snapshot->process_boots();
    if (!boots) return of_source(source, boots.error());
    source.boots = std::move(*boots);
    auto functions = source.snapshot->functions();
    if (!functions) return of_source(source, functions.error());
    for (FunctionRow& function : *functions) source.functions[function.process].push_back(std::move(function));
    const auto communicators = source.snapshot->communicators();
    if (!communicators) return of_source(source, communicators.error());
    for (const CommunicatorRow& row : *communicators) source.communicators[row.process].push_back(row);
    auto files = source.snapshot->files();
    if (!files) return of_source(source, files.error());
    source.files = std::move(*files);
    return source;
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
    /// Of the store that is written: a boot of one node.
    using Boot = std::pair<std::string, std::string>;  // node, boot id

    std::vector<Part> plan();
    static void leave_out_first_minute(const Part& part, Session& session);
    Result<void> write(const Part& part);
    Result<void> write_events(const Part& part);
    Result<void> write_history(const Part& part);
    template <class Row>
    Result<void> take_rows(Source& source, std::vector<Row>& rows, std::vector<Row> Batch::*into);
    Result<void> take_clocks(const Part& part);
    Result<void> take_states(const Part& part);
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
    const Source* boot_source_ = nullptr;            ///< of the part before it, of the same boot
    std::set<ProcessKey> part_processes_;            ///< of the part in progress, as its source has them
    std::map<std::pair<Boot, ProcessKey>, ProcessKey> processes_;
    std::map<ProcessKey, Boot> taken_;
    std::set<uint32_t> wanted_stacks_;  ///< of the batch, that have no number yet
};

/// In the order of boots, and in a boot of sessions. Of a session that several sources have, the longest is taken.
std::vector<Part> Merger::plan() {
    std::map<std::string, Part> by_id;
    for (Source& source : sources_) {
        for (size_t i = 0; i < source.sessions.size(); ++i) {
            const Session& session = source.sessions[i];
            Part part{&source, session, {0, std::numeric_limits<uint64_t>::max()}};
            bool is_first = true;
            for (const Session& other : source.sessions) {
                if (other.boot_index != session.boot_index || &other == &session) continue;
                const uint64_t begin = other.clock.monotonic_ns;
                if (std::tie(begin, other.id) < std::tie(session.clock.monotonic_ns, session.id))
                    is_first = false;
                else
                    part.starts.to_ns = std::min(part.starts.to_ns, begin);
            }
            if (!is_first) part.starts.from_ns = session.clock.monotonic_ns;
            const auto [at, added] = by_id.try_emplace(session.id, part);
            if (added) continue;
            ++summary_.repeated_sessions;
            if (at->second.session.last_covered_ns < session.last_covered_ns) at->second = part;
        }
    }
    std::vector<Part> parts;
    std::map<Boot, uint64_t> begins;
    for (auto& [id, part] : by_id) {
        uint64_t& begin =
            begins.try_emplace({part.session.node, part.session.boot_id}, std::numeric_limits<uint64_t>::max())
                .first->second;
        begin = std::min(begin, part.session.clock.realtime_ns);
        parts.push_back(part);
    }
    std::sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) {
        const auto key = [&](const Session& session) {
            return std::tuple(begins.at({session.node, session.boot_id}), session.node, session.boot_id,
                              session.clock.monotonic_ns, session.id);
        };
        return key(a.session) < key(b.session);
    });
    return parts;
}

Result<MergeSummary> Merger::run() {
    const std::vector<Part> parts = plan();
    uint64_t sequence = 0;
    for (Source& source : sources_) {
        source.first_sequence = sequence;
        sequence += source.snapshot->figures().last_sequence;
    }
    for (const Part& part : parts)
        if (auto written = write(part); !written) return tl::unexpected(written.error());
    if (!writer_) {
        auto opened = StoreWriter::open(directory_, options_);
        if (!opened) return tl::unexpected(opened.error());
        writer_ = std::move(*opened);
    }
    if (writer_->figures().events_dropped_for_space != 0)
        return fail(ErrorCode::limit, "the merged store is larger than estimated", "please report this");
    summary_.processes = processes_.size();
    summary_.stacks = last_stack_;
    return std::move(summary_);
}

/// Its rollups may also count calls of the session before, which another source has.
void Merger::leave_out_first_minute(const Part& part, Session& session) {
    const uint64_t next_ns = (part.starts.from_ns + rollup_minute_ns - 1) / rollup_minute_ns * rollup_minute_ns;
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
    Source& source = *part.source;
    const Boot boot_before = std::exchange(boot_, {part.session.node, part.session.boot_id});
    const Source* source_before = std::exchange(boot_source_, part.source);
    part_processes_.clear();
    Session session = part.session;
    if (session.rolled_up_from_ns != 0 && boot_before == boot_ && source_before != part.source)
        leave_out_first_minute(part, session);
    session.boot_id = boot_id(boot_);
    clock_ = session.latest_clock;
    if (auto begun = writer_->begin_session(session); !begun) return begun;

    MergeSummary::Node& node = summary_.nodes[session.node];
    const uint64_t before = summary_.events;
    if (auto taken = take_clocks(part); !taken) return taken;
    if (auto written = write_events(part); !written) return written;
    if (auto written = write_history(part); !written) return written;
    const uint32_t boot = part.session.boot_index;
    for (const auto& [key, index] : source.boots)
        if (index == boot) part_processes_.insert(key);
    const auto losses = source.snapshot->losses(boot, part.starts);
    if (!losses) return of_source(source, losses.error());
    for (const LossRow& row : *losses)
        if (part.starts.contains(row.from_ns)) batch_.losses.push_back(row);
    const auto gaps = source.snapshot->gaps(boot, part.starts);
    if (!gaps) return of_source(source, gaps.error());
    for (GapRow row : *gaps) {
        if (!part.starts.contains(row.from_ns)) continue;
        if (row.process.pid != 0) row.process = process_of(row.process);
        batch_.gaps.push_back(std::move(row));
    }
    for (const ProcessKey& key : part_processes_) take_process(source, key);
    batch_.covered_until_ns = session.last_covered_ns;
    if (auto flushed = flush(source, true); !flushed) return flushed;

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

Result<void> Merger::write_events(const Part& part) {
    Source& source = *part.source;
    Result<void> done;
    const auto scanned = source.snapshot->scan(part.session.boot_index, part.starts, [&](std::span<const Event> block) {
        for (const Event& event : block) {
            if (!part.starts.contains(event.start_ns)) continue;
            done = take(source, event);
            if (!done) return false;
        }
        return true;
    });
    if (!scanned) return of_source(source, scanned.error());
    return done;
}

/// First of all: once there is one, the writer adds none of its own.
Result<void> Merger::take_clocks(const Part& part) {
    auto clocks = part.source->snapshot->clocks(part.session.boot_index, part.starts);
    if (!clocks) return of_source(*part.source, clocks.error());
    batch_.clocks = std::move(*clocks);
    return {};
}

/// One by one: of GPUs there are more than memory holds.
Result<void> Merger::take_states(const Part& part) {
    Source& source = *part.source;
    Result<void> taken;
    auto scanned =
        source.snapshot->scan_states(part.session.boot_index, part.starts, [&](const StateHead& head) -> bool {
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
/// many sessions had calls in it.
Result<void> Merger::write_history(const Part& part) {
    Source& source = *part.source;
    const StoreSnapshot& snapshot = *source.snapshot;
    const uint32_t boot = part.session.boot_index;
    auto spans = snapshot.spans(boot, part.starts);
    if (!spans) return of_source(source, spans.error());
    std::erase_if(*spans, [&](const SpanRow& row) { return !part.starts.contains(row.start_ns); });
    summary_.spans += spans->size();
    if (auto taken = take_rows(source, *spans, &Batch::spans); !taken) return taken;
    auto incidents = snapshot.incidents(boot, part.starts);
    if (!incidents) return of_source(source, incidents.error());
    for (IncidentRow& row : *incidents) move_calls(source.first_sequence, row);
    summary_.incidents += incidents->size();
    if (auto taken = take_rows(source, *incidents, &Batch::incidents); !taken) return taken;
    if (auto taken = take_states(part); !taken) return taken;
    auto rollups = snapshot.rollups(boot, part.starts);
    if (!rollups) return of_source(source, rollups.error());
    std::erase_if(*rollups, [&](const RollupRow& row) { return !part.starts.contains(row.minute_ns); });
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

/// A process of another boot may have the same pid and start: then this one began a moment later.
ProcessKey Merger::process_of(const ProcessKey& key) {
    const auto [at, added] = processes_.try_emplace({boot_, key}, key);
    if (added)
        while (!taken_.try_emplace(at->second, boot_).second) ++at->second.start_ns;
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

Result<std::map<std::string, uint64_t>> stored_sessions(const std::string& directory) {
    const auto reader = StoreReader::open(directory);
    if (!reader) return tl::unexpected(reader.error());
    const auto snapshot = (*reader)->snapshot();
    if (!snapshot) return tl::unexpected(snapshot.error());
    std::map<std::string, uint64_t> sessions;
    for (const Session& session : (*snapshot)->sessions()) {
        uint64_t& covered = sessions[session.id];
        covered = std::max(covered, session.last_covered_ns);
    }
    return sessions;
}

}  // namespace ingero
