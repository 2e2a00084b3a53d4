// A StoreSnapshot over rows in memory: what queries and the diagnosis are tested on without a store. Blocks come as the
// store gives them: up to 4,096 rows as they were recorded, in order of their end, of an imported trace in order of
// start; inside a block op by op.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <optional>

#include "core/model/call_time.h"
#include "core/store/rows/rows.h"
#include "core/store/store.h"

namespace ingero {

class MemorySnapshot : public StoreSnapshot {
  public:
    static constexpr size_t block_rows = 4'096;
    static constexpr uint64_t realtime_at_zero_ns = 1'700'000'000'000'000'000;

    /// One session that covers [0, covered_until_ns), with the wall clock `realtime_at_zero_ns` ahead of the monotonic
    /// one.
    explicit MemorySnapshot(uint64_t covered_until_ns) {
        Session session;
        session.id = std::string(32, 'a');
        session.boot_id = "boot-0";
        session.clock = {0, 0, realtime_at_zero_ns};
        session.latest_clock = {covered_until_ns, covered_until_ns, realtime_at_zero_ns + covered_until_ns};
        session.first_covered_ns = 1;
        session.last_covered_ns = covered_until_ns;
        sessions_.push_back(session);
    }

    /// Another one of the same boot: the first ends where it begins. It covers what comes `settles_ns` later.
    void add_session(uint64_t from_ns, uint64_t until_ns, uint64_t settles_ns = 0) {
        Session session = sessions_[0];
        sessions_[0].last_covered_ns = from_ns;
        sessions_[0].latest_clock = {from_ns, from_ns, realtime_at_zero_ns + from_ns};
        session.clock = {from_ns, from_ns, realtime_at_zero_ns + from_ns};
        session.first_covered_ns = from_ns + settles_ns;
        session.last_covered_ns = until_ns;
        sessions_.push_back(session);
    }

    /// The whole of what the session covers, on the wall clock.
    Window whole() const {
        return {realtime_at_zero_ns + sessions_[0].first_covered_ns,
                realtime_at_zero_ns + sessions_[0].last_covered_ns};
    }

    /// Gives the row the next sequence number where it has none.
    Event& add(Event event) {
        if (event.sequence == 0) event.sequence = events_.size() + 1;
        events_.push_back(event);
        ordered_ = false;
        return events_.back();
    }
    void add(Process process) { processes_.push_back(std::move(process)); }
    void add(LossRow loss) { losses_.push_back(loss); }
    void add(GapRow gap) { gaps_.push_back(std::move(gap)); }
    /// Blocks have rows so much later than they ended, as where CPUs are read one after the other.
    void delay_rows(std::function<uint64_t(const Event&)> delay_ns) { delay_ns_ = std::move(delay_ns); }
    /// From here on every scan fails with it.
    void fail_scans(Error error) { scan_error_ = std::move(error); }

    std::vector<Event>& events() { return events_; }

    const std::vector<Session>& sessions() const override { return sessions_; }
    Result<std::vector<Process>> processes() const override { return processes_; }

    Result<std::vector<GapRow>> gaps(uint32_t, Window window) const override {
        std::vector<GapRow> found;
        for (const GapRow& gap : gaps_)
            if (gap.from_ns < window.to_ns && (gap.to_ns == 0 || gap.to_ns > window.from_ns)) found.push_back(gap);
        return found;
    }
    Result<std::vector<LossRow>> losses(uint32_t boot_index, Window window) const override {
        std::vector<LossRow> found;
        if (boot_index != 0) return found;
        for (const LossRow& row : losses_) {
            if (row.from_ns < window.to_ns && row.to_ns > window.from_ns) found.push_back(row);
        }
        return found;
    }

    Result<std::vector<FunctionRow>> functions() const override { return functions_; }
    Result<std::vector<CommunicatorRow>> communicators() const override { return communicators_; }
    Result<std::optional<FunctionRow>> function(const ProcessKey& process, uint64_t handle) const override {
        for (const FunctionRow& row : functions_)
            if (row.process == process && row.handle == handle) return std::optional<FunctionRow>(row);
        return std::optional<FunctionRow>();
    }

    void add(FunctionRow function) { functions_.push_back(std::move(function)); }
    void add(CommunicatorRow communicator) { communicators_.push_back(std::move(communicator)); }
    void add(StackRow stack) { stacks_[stack.id] = std::move(stack); }
    void add(FileRow file) { files_[file.id] = std::move(file); }
    void add(SymbolRow symbol) { symbols_[{symbol.file, symbol.offset}] = std::move(symbol); }

    Result<std::map<uint32_t, StackRow>> stacks(const std::set<uint32_t>& ids) const override {
        std::map<uint32_t, StackRow> found;
        for (const uint32_t id : ids)
            if (const auto row = stacks_.find(id); row != stacks_.end()) found.insert(*row);
        return found;
    }
    Result<std::map<uint32_t, FileRow>> files() const override { return files_; }
    Result<std::map<StackFrame, SymbolRow>> symbols(const std::set<StackFrame>& places) const override {
        std::map<StackFrame, SymbolRow> found;
        for (const StackFrame& place : places)
            if (const auto row = symbols_.find(place); row != symbols_.end()) found.insert(*row);
        return found;
    }

    void add(RollupRow rollup) { rollups_.push_back(std::move(rollup)); }
    Result<std::vector<RollupRow>> rollups(uint32_t boot_index, Window window) const override {
        std::vector<RollupRow> found;
        for (const RollupRow& row : rollups_)
            if (boot_index == 0 && row.minute_ns < window.to_ns && row.minute_ns + rollup_minute_ns > window.from_ns)
                found.push_back(row);
        return found;
    }
    void add(SpanRow span) { spans_.push_back(std::move(span)); }
    void add(StateRow state) { states_.push_back(std::move(state)); }
    Result<std::vector<SpanRow>> spans(uint32_t, Window window,
                                       const std::function<bool(const SpanRow&)>& wanted) const override {
        std::vector<SpanRow> found;
        for (const SpanRow& span : spans_)
            if (span.start_ns < window.to_ns && span.end_ns > window.from_ns && (!wanted || wanted(span)))
                found.push_back(span);
        return found;
    }
    // No query reads these yet.
    Result<std::vector<SpanRow>> spans_of(std::string_view, const std::set<uint32_t>&) const override {
        return std::vector<SpanRow>();
    }
    Result<std::vector<IncidentRow>> incidents(uint32_t, Window) const override { return std::vector<IncidentRow>(); }
    Result<std::vector<StateRow>> states(uint32_t, Window) const override { return std::vector<StateRow>(); }
    Result<void> scan_states(uint32_t, Window window,
                             const std::function<bool(const StateHead&)>& visit) const override {
        for (const StateRow& state : states_) {
            if (!window.contains(state.time_ns)) continue;
            const std::string content = encode_row(state);
            if (!visit({state.time_ns, state.source, state.number, content})) break;
        }
        return {};
    }
    Result<std::vector<ClockRow>> clocks(uint32_t, Window) const override { return std::vector<ClockRow>(); }

    Result<void> scan(uint32_t boot_index, Window window,
                      const std::function<bool(std::span<const Event>)>& visit) const override {
        if (scan_error_) return tl::unexpected(*scan_error_);
        if (boot_index != 0) return {};
        order();
        std::vector<Event> block;
        for (size_t from = 0; from < events_.size(); from += block_rows) {
            block.clear();
            const size_t to = std::min(from + block_rows, events_.size());
            for (size_t row = from; row < to; ++row) {
                const Event& event = events_[row];
                // An instant counts as being where it is.
                const uint64_t end = std::max(saturating_end_ns(event), saturating_add(event.start_ns, 1));
                if (event.start_ns < window.to_ns && end > window.from_ns) block.push_back(event);
            }
            std::stable_sort(block.begin(), block.end(), [](const Event& a, const Event& b) { return a.op < b.op; });
            if (!block.empty() && !visit(block)) break;
        }
        return {};
    }

    Result<void> scan_blocks(uint32_t boot_index, Window window,
                             const std::function<bool(BlockView&)>& visit) const override {
        if (scan_error_) return tl::unexpected(*scan_error_);
        if (boot_index != 0) return {};
        const bool imported = std::any_of(gaps_.begin(), gaps_.end(),
                                          [](const GapRow& gap) { return gap.reason == GapReason::imported; });
        const auto place_of = [&](const Event& event) {
            const uint64_t delay_ns = delay_ns_ ? delay_ns_(event) : 0;
            return std::pair((imported ? event.start_ns : saturating_end_ns(event)) + delay_ns, event.sequence);
        };
        std::stable_sort(events_.begin(), events_.end(),
                         [&](const Event& a, const Event& b) { return place_of(a) < place_of(b); });
        ordered_ = false;
        BlockView view;
        for (size_t from = 0; from < events_.size(); from += block_rows) {
            const auto rows = std::span(events_).subspan(from, std::min(block_rows, events_.size() - from));
            std::sort(rows.begin(), rows.end(), [](const Event& a, const Event& b) {
                return std::pair(a.start_ns, a.sequence) < std::pair(b.start_ns, b.sequence);
            });
            // A list, so that bytes stay where they are; and until the snapshot goes, as a store's do.
            const std::string& bytes = blocks_.emplace_back(encode_block(0, rows));
            if (auto opened = view.open(bytes); !opened) return opened;
            if (overlaps(view.header(), window) && !visit(view)) break;
        }
        return {};
    }

    StoreFigures figures() const override { return {}; }

  private:
    void order() const {
        if (ordered_) return;
        std::stable_sort(events_.begin(), events_.end(),
                         [](const Event& a, const Event& b) { return a.start_ns < b.start_ns; });
        ordered_ = true;
    }

    mutable std::vector<Event> events_;
    mutable bool ordered_ = true;
    mutable std::list<std::string> blocks_;
    std::vector<Session> sessions_;
    std::vector<Process> processes_;
    std::vector<LossRow> losses_;
    std::vector<SpanRow> spans_;
    std::vector<StateRow> states_;
    std::vector<GapRow> gaps_;
    std::vector<RollupRow> rollups_;
    std::vector<FunctionRow> functions_;
    std::vector<CommunicatorRow> communicators_;
    std::map<uint32_t, StackRow> stacks_;
    std::map<uint32_t, FileRow> files_;
    std::map<StackFrame, SymbolRow> symbols_;
    std::optional<Error> scan_error_;
    std::function<uint64_t(const Event&)> delay_ns_;
};

/// Rows made as they are asked for, in order of start: for more of them than memory holds.
class GeneratedSnapshot : public MemorySnapshot {
  public:
    /// `make` fills the row of the given number; start_ns must not fall.
    GeneratedSnapshot(uint64_t covered_until_ns, uint64_t rows, std::function<void(uint64_t, Event&)> make)
        : MemorySnapshot(covered_until_ns), rows_(rows), make_(std::move(make)) {}

    Result<void> scan(uint32_t, Window, const std::function<bool(std::span<const Event>)>& visit) const override {
        std::vector<Event> block(block_rows);
        for (uint64_t from = 0; from < rows_; from += block_rows) {
            const size_t count = std::min<uint64_t>(block_rows, rows_ - from);
            for (size_t row = 0; row < count; ++row) make_(from + row, block[row]);
            if (!visit(std::span(block).first(count))) break;
        }
        return {};
    }

    Result<void> scan_blocks(uint32_t, Window window, const std::function<bool(BlockView&)>& visit) const override {
        BlockView view;
        std::string bytes;
        std::optional<Error> error;
        const auto scanned = scan(0, window, [&](std::span<const Event> rows) {
            bytes = encode_block(0, rows);
            const auto opened = view.open(bytes);
            if (!opened) error = opened.error();
            return opened && visit(view);
        });
        if (error) return tl::unexpected(*error);
        return scanned;
    }

  private:
    uint64_t rows_;
    std::function<void(uint64_t, Event&)> make_;
};

}  // namespace ingero
