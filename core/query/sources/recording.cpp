#include "core/query/sources/recording.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/store/block/block.h"

namespace ingero {

namespace {

/// Whether the path goes through the unit, as that of a delegated control group does.
bool lies_in_unit(const Process& process, const std::string& unit) {
    if (process.unit == unit) return true;
    const std::string path = process.cgroup + "/";
    return path.find("/" + unit + "/") != std::string::npos;
}

class Recorder {
  public:
    Recorder(const StoreSnapshot& snapshot, const RecordQuery& query) : snapshot_(snapshot), query_(query) {}

    Result<RecordPage> page();

  private:
    Result<void> find_processes();
    Result<void> take_events();
    void take(const Event& event);
    void cut();
    Result<void> take_losses();
    Result<void> take_stacks();
    Result<void> take_rest();

    const StoreSnapshot& snapshot_;
    const RecordQuery& query_;
    RecordPage page_;
    std::map<ProcessKey, Process> processes_;
    Window window_;                ///< CLOCK_MONOTONIC
    uint64_t up_to_ = UINT64_MAX;  ///< the highest sequence that can still be on the page
};

Result<RecordPage> Recorder::page() {
    if (snapshot_.sessions().empty()) return fail(ErrorCode::not_found, "nothing has been recorded yet");
    const Session& session = snapshot_.sessions().back();
    page_.rows.session = session;
    page_.after = query_.after;
    // What an earlier run saw is not of one piece with this one's.
    const uint64_t covered_ns = session.first_covered_ns == 0 ? session.last_covered_ns : session.first_covered_ns;
    page_.start_ns = std::max(session.latest_clock.to_monotonic(query_.start_ns), covered_ns);
    window_ = {page_.start_ns, UINT64_MAX};
    if (auto found = find_processes(); !found) return tl::unexpected(found.error());
    const auto take = !query_.stacks.empty() ? &Recorder::take_stacks
                      : query_.rest          ? &Recorder::take_rest
                                             : &Recorder::take_events;
    if (auto taken = (this->*take)(); !taken) return tl::unexpected(taken.error());
    return std::move(page_);
}

Result<void> Recorder::find_processes() {
    auto processes = snapshot_.processes();
    if (!processes) return tl::unexpected(processes.error());
    const auto boots = snapshot_.process_boots();
    if (!boots) return tl::unexpected(boots.error());
    for (Process& process : *processes) {
        const auto boot = boots->find(process.key);
        if (boot == boots->end() || boot->second != page_.rows.session.boot_index) continue;
        if (query_.uid && process.uid != *query_.uid) continue;
        if (process.exited_ns != 0 && process.exited_ns < window_.from_ns) continue;
        const bool wanted = query_.pid != 0 ? process.key.pid == query_.pid : lies_in_unit(process, query_.unit);
        if (!wanted) continue;
        // In order of start: of a number that was used again the latest stays.
        if (query_.pid != 0) processes_.clear();
        processes_.emplace(process.key, std::move(process));
    }
    if (processes_.empty() && query_.pid != 0)
        return fail(ErrorCode::not_found,
                    "no traced process " + std::to_string(query_.pid) + " among those that you may see",
                    "'ingeroctl processes' lists them");
    return {};
}

Result<void> Recorder::take_events() {
    std::vector<Event> rows;
    Result<void> decoded;
    const auto scanned = snapshot_.scan_blocks(page_.rows.session.boot_index, window_, [&](BlockView& block) {
        const BlockHeader& header = block.header();
        if (header.max_sequence <= query_.after || header.min_sequence > up_to_) return true;
        const auto is_in = [&](const auto& process) {
            return process.first.pid >= header.min_tgid && process.first.pid <= header.max_tgid;
        };
        if (std::none_of(processes_.begin(), processes_.end(), is_in)) return true;
        rows.clear();
        decoded = decode_block(block.bytes(), rows);
        if (!decoded) return false;
        for (const Event& event : rows) take(event);
        return true;
    });
    if (!decoded) return decoded;
    if (!scanned) return scanned;
    if (page_.rows.batch.events.size() > query_.limit) cut();
    page_.more = up_to_ != UINT64_MAX;
    page_.after = page_.more ? up_to_ : std::max(query_.after, snapshot_.figures().last_sequence);
    for (const auto& [key, process] : processes_) page_.rows.batch.processes.push_back(process);
    page_.has_ended =
        !page_.more && query_.pid != 0 && !processes_.empty() && processes_.begin()->second.exited_ns != 0;
    return take_losses();
}

void Recorder::take(const Event& event) {
    if (event.sequence <= query_.after || event.sequence > up_to_) return;
    if (!processes_.contains(event.process()) || !overlaps(event, window_)) return;
    page_.rows.batch.events.push_back(event);
    if (page_.rows.batch.events.size() >= 4 * query_.limit) cut();
}

/// Those of the lowest sequences stay: the others come with the next pages.
void Recorder::cut() {
    std::vector<Event>& events = page_.rows.batch.events;
    const auto last = events.begin() + static_cast<std::ptrdiff_t>(query_.limit) - 1;
    std::nth_element(events.begin(), last, events.end(),
                     [](const Event& a, const Event& b) { return a.sequence < b.sequence; });
    up_to_ = last->sequence;
    events.resize(query_.limit);
}

Result<void> Recorder::take_losses() {
    constexpr uint64_t late_ns = 60'000'000'000;
    const uint32_t boot = page_.rows.session.boot_index;
    const uint64_t from_ns = std::max(window_.from_ns, query_.after_ns - std::min(query_.after_ns, late_ns));
    auto losses = snapshot_.losses(boot, {from_ns, UINT64_MAX});
    if (!losses) return tl::unexpected(losses.error());
    page_.rows.batch.losses = std::move(*losses);
    auto gaps = snapshot_.gaps(boot, window_);
    if (!gaps) return tl::unexpected(gaps.error());
    for (GapRow& gap : *gaps) {
        const bool of_anyone = gap.process.pid == 0 && (is_of_anyone(gap) || !query_.uid || gap.uid == *query_.uid);
        if (of_anyone || processes_.contains(gap.process)) page_.rows.batch.gaps.push_back(std::move(gap));
    }
    return {};
}

Result<void> Recorder::take_stacks() {
    Batch& batch = page_.rows.batch;
    auto stacks = snapshot_.stacks({query_.stacks.begin(), query_.stacks.end()});
    if (!stacks) return tl::unexpected(stacks.error());
    std::set<StackFrame> places;
    std::set<uint32_t> wanted;
    for (auto& [id, stack] : *stacks) {
        if (query_.uid && !processes_.contains(stack.process)) continue;
        places.insert(stack.frames.begin(), stack.frames.end());
        for (const StackFrame& frame : stack.frames) wanted.insert(frame.file);
        batch.stacks.push_back(std::move(stack));
    }
    auto files = snapshot_.files();
    if (!files) return tl::unexpected(files.error());
    for (auto& [id, file] : *files)
        if (wanted.contains(id)) batch.files.push_back(std::move(file));
    auto symbols = snapshot_.symbols(places);
    if (!symbols) return tl::unexpected(symbols.error());
    for (auto& [place, symbol] : *symbols) batch.symbols.push_back(std::move(symbol));
    return {};
}

Result<void> Recorder::take_rest() {
    Batch& batch = page_.rows.batch;
    auto functions = snapshot_.functions();
    if (!functions) return tl::unexpected(functions.error());
    for (FunctionRow& function : *functions)
        if (processes_.contains(function.process)) batch.functions.push_back(std::move(function));
    const auto communicators = snapshot_.communicators();
    if (!communicators) return tl::unexpected(communicators.error());
    for (const CommunicatorRow& communicator : *communicators)
        if (processes_.contains(communicator.process)) batch.communicators.push_back(communicator);
    auto spans = snapshot_.spans(page_.rows.session.boot_index, window_);
    if (!spans) return tl::unexpected(spans.error());
    for (SpanRow& span : *spans)
        if (processes_.contains(span.process)) batch.spans.push_back(std::move(span));
    return {};
}

}  // namespace

Result<RecordPage> record_page(const StoreSnapshot& snapshot, const RecordQuery& query) {
    return Recorder(snapshot, query).page();
}

}  // namespace ingero
