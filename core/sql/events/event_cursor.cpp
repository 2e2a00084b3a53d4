#include "core/sql/events/event_cursor.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "core/model/call_time.h"

namespace ingero {

namespace {

int64_t as_signed(uint64_t value) {
    return static_cast<int64_t>(value);
}

/// What a column's values between two of its own can show in SQL.
ValueRange shown(uint64_t least, uint64_t most) {
    const ValueRange range{as_signed(least), as_signed(most)};
    return range.is_empty() ? ValueRange{} : range;
}

/// Processes outside the daemon's namespace show as 0, and so have a place at either end.
ValueRange shown_pids(const BlockHeader& header) {
    return header.max_tgid == INGERO_PID_OUTSIDE ? ValueRange{} : shown(header.min_tgid, header.max_tgid);
}

bool disjoint(const ValueRange& a, const ValueRange& b) {
    return a.most < b.least || b.most < a.least;
}
bool covers(const ValueRange& outer, const ValueRange& inner) {
    return outer.least <= inner.least && inner.most <= outer.most;
}

}  // namespace

// All rows of a boot move by the same offset; where that wraps, starts say nothing of each other.
ValueRange EventCursor::starts_of(const EventIndex::Block& block) const {
    const ClockTriple& clock = index_.boots()[block.boot].window.clock;
    return shown(clock.to_realtime(block.header.first_start_ns), clock.to_realtime(block.header.last_start_ns));
}

bool EventCursor::wants(const EventIndex::Block& block) const {
    const BlockHeader& header = block.header;
    return !disjoint(selection_.start_ns, starts_of(block)) && !disjoint(selection_.pid, shown_pids(header)) &&
           !disjoint(selection_.tid, shown(header.min_tid, header.max_tid)) &&
           !disjoint(selection_.id, shown(header.min_sequence, header.max_sequence));
}

bool EventCursor::wants(const EventIndex::Segment& segment) const {
    if (!selection_.ops.empty() && !selection_.ops[segment.op]) return false;
    if (selection_.errors_only && !segment.errors) return false;
    return !disjoint(selection_.duration_ns, shown(segment.min_ns, segment.max_ns));
}

Result<void> EventCursor::check_deadline() const {
    if (Clock::now() < deadline_) return {};
    return fail(ErrorCode::deadline, "the deadline has passed");
}

Result<void> EventCursor::start(EventSelection selection, EventOrder order, const std::vector<GroupTerm>& terms,
                                Clock::time_point deadline, size_t most_rows) {
    selection_ = std::move(selection);
    if (const auto& filter = index_.filter(); filter.pid) selection_.pid.keep({*filter.pid, *filter.pid});
    order_ = order;
    deadline_ = deadline;
    at_end_ = true;
    position_ = end_ = next_work_ = next_to_open_ = 0;
    work_.clear();
    to_open_.clear();
    for (auto& reader : open_) spare_.push_back(std::move(reader));
    open_.clear();
    only_reader_.block = nullptr;
    for (const ValueRange* range :
         {&selection_.start_ns, &selection_.duration_ns, &selection_.pid, &selection_.tid, &selection_.id})
        if (range->is_empty()) return {};
    if (order_ >= EventOrder::by_duration) return start_by_duration(most_rows);
    if (order_ >= EventOrder::by_start) return start_by_time();
    if (order_ == EventOrder::grouped) {
        if (auto planned = plan_groups(terms); !planned) return planned;
    } else {
        for (const EventIndex::Block& block : index_.blocks()) {
            if (!wants(block)) continue;
            for (uint32_t segment = block.first_segment; segment < block.first_segment + block.segments; ++segment)
                if (wants(index_.segments()[segment])) work_.push_back({.segment = segment});
        }
    }
    return next_segment();
}

Result<void> EventCursor::plan_groups(const std::vector<GroupTerm>& terms) {
    const bool by_pid =
        std::any_of(terms.begin(), terms.end(), [](const auto& term) { return term.field == GroupField::pid; });
    std::vector<uint32_t> pids = {0};
    if (by_pid) {
        const auto found = index_.pids(std::numeric_limits<size_t>::max());
        if (!found) return tl::unexpected(found.error());
        pids = **found;
    }
    struct Group {
        uint16_t op;
        uint32_t pid;
    };
    std::vector<Group> groups;
    for (const uint32_t pid : pids)
        for (uint16_t op = 0; op < index_.ops().size(); ++op)
            if ((selection_.ops.empty() || selection_.ops[op]) && (!by_pid || selection_.pid.contains(pid)))
                groups.push_back({op, pid});
    std::stable_sort(groups.begin(), groups.end(), [&](const Group& a, const Group& b) {
        const EventIndex::OpEntry &op_a = index_.ops()[a.op], &op_b = index_.ops()[b.op];
        for (const GroupTerm& term : terms) {
            int order = 0;
            const auto three_way = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
            switch (term.field) {
                case GroupField::source:
                    order = op_a.source.compare(op_b.source);
                    break;
                case GroupField::op:
                    order = op_a.name.compare(op_b.name);
                    break;
                case GroupField::source_num:
                    order = three_way(op_a.source_number(), op_b.source_number());
                    break;
                case GroupField::op_num:
                    order = three_way(op_a.number(), op_b.number());
                    break;
                case GroupField::pid:
                    order = three_way(a.pid, b.pid);
                    break;
                case GroupField::constant:
                    break;
            }
            if (order != 0) return (order < 0) != term.descending;
        }
        return false;
    });
    std::vector<std::vector<uint32_t>> segments(index_.ops().size());
    for (uint32_t i = 0; i < index_.segments().size(); ++i) {
        const EventIndex::Segment& segment = index_.segments()[i];
        if (wants(index_.blocks()[segment.block]) && wants(segment)) segments[segment.op].push_back(i);
    }
    for (const Group& group : groups) {
        for (const uint32_t segment : segments[group.op]) {
            const BlockHeader& header = index_.blocks()[index_.segments()[segment].block].header;
            if (!by_pid || shown_pids(header).contains(group.pid))
                work_.push_back({.segment = segment, .pid = group.pid, .only_pid = by_pid});
        }
    }
    return {};
}

Result<void> EventCursor::open(Reader& reader, const EventIndex::Block& block) {
    if (reader.block == &block) return {};
    reader.block = nullptr;
    if (auto opened = reader.view.open(block.bytes); !opened) return opened;
    if (reader.view.ops().size() != block.segments)
        return fail(ErrorCode::corrupt, "a block has changed since its header was read");
    reader.block = &block;
    reader.have.assign(block.segments, 0);
    return {};
}

Result<void> EventCursor::decode(Reader& reader, const EventIndex::Segment& segment, ColumnId id) {
    std::vector<uint64_t>& values = reader.values[static_cast<size_t>(id)];
    if (values.size() < max_block_rows) values.resize(max_block_rows);
    const size_t first = reader.view.first_row(segment.number);
    if (auto decoded = reader.view.column(id, segment.number, std::span(values).subspan(first, segment.rows)); !decoded)
        return decoded;
    reader.have[segment.number] |= uint64_t{1} << static_cast<unsigned>(id);
    return {};
}

Result<std::span<const uint64_t>> EventCursor::column(Reader& reader, const EventIndex::Segment& segment, ColumnId id) {
    if ((reader.have[segment.number] >> static_cast<unsigned>(id) & 1) == 0) {
        if (auto decoded = decode(reader, segment, id); !decoded) return tl::unexpected(decoded.error());
    }
    const size_t first = reader.view.first_row(segment.number);
    return std::span<const uint64_t>(reader.values[static_cast<size_t>(id)]).subspan(first, segment.rows);
}

/// `passes` of a row's number in the segment and its value. The first goes over all rows, the next over what is left.
template <class Passes>
Result<void> EventCursor::keep_rows(Reader& reader, const EventIndex::Segment& segment, ColumnId id, Passes passes) {
    const auto values = column(reader, segment, id);
    if (!values) return tl::unexpected(values.error());
    const uint32_t first = picked_first_;
    size_t kept = 0;
    if (picked_all_) {
        picked_.resize(segment.rows);
        for (uint32_t i = 0; i < segment.rows; ++i) {
            picked_[kept] = first + i;
            kept += passes(i, (*values)[i]) ? 1 : 0;
        }
    } else {
        for (const uint32_t row : picked_) {
            picked_[kept] = row;
            kept += passes(row - first, (*values)[row - first]) ? 1 : 0;
        }
    }
    picked_.resize(kept);
    picked_all_ = false;
    return {};
}

Result<void> EventCursor::keep_window(Reader& reader, const EventIndex::Segment& segment) {
    const Window window = index_.boots()[reader.block->boot].window.monotonic;
    const auto durations = column(reader, segment, ColumnId::duration);
    if (!durations) return tl::unexpected(durations.error());
    return keep_rows(reader, segment, ColumnId::start, [&](uint32_t row, uint64_t start) {
        const uint64_t end = saturating_add(start, (*durations)[row]);
        return start < window.to_ns && (end > window.from_ns || start >= window.from_ns);
    });
}

Result<void> EventCursor::keep_shown(Reader& reader, const EventIndex::Segment& segment) {
    const auto starts = column(reader, segment, ColumnId::process_start);
    if (!starts) return tl::unexpected(starts.error());
    ProcessKey last;
    bool known = false, shows = false;
    return keep_rows(reader, segment, ColumnId::tgid, [&](uint32_t row, uint64_t pid) {
        const ProcessKey key{static_cast<uint32_t>(pid), (*starts)[row]};
        if (!known || key != last) shows = index_.shows(last = key), known = true;
        return shows;
    });
}

Result<void> EventCursor::pick(Reader& reader, const EventIndex::Segment& segment, const Work& work) {
    const EventIndex::Block& block = *reader.block;
    picked_first_ = static_cast<uint32_t>(reader.view.first_row(segment.number));
    picked_all_ = true;
    picked_.clear();
    Result<void> done;
    const auto keep = [&](ColumnId id, ValueRange wanted, uint64_t offset) {
        if (!done || (!picked_all_ && picked_.empty())) return;
        done = keep_rows(reader, segment, id,
                         [=](uint32_t, uint64_t value) { return wanted.contains(as_signed(value + offset)); });
    };
    ValueRange pid = selection_.pid;
    if (work.only_pid) pid.keep({work.pid, work.pid});
    if (!covers(selection_.duration_ns, shown(segment.min_ns, segment.max_ns)))
        keep(ColumnId::duration, selection_.duration_ns, 0);
    if (done && !covers(pid, shown_pids(block.header)))
        done = keep_rows(reader, segment, ColumnId::tgid, [&](uint32_t, uint64_t value) {
            return pid.contains(visible_pid(static_cast<uint32_t>(value)));
        });
    if (!covers(selection_.tid, shown(block.header.min_tid, block.header.max_tid)))
        keep(ColumnId::tid, selection_.tid, 0);
    if (!covers(selection_.start_ns, starts_of(block)))
        keep(ColumnId::start, selection_.start_ns, index_.boots()[block.boot].window.clock.to_realtime(0));
    if (!covers(selection_.id, shown(block.header.min_sequence, block.header.max_sequence)))
        keep(ColumnId::sequence, selection_.id, 0);
    if (done && !block.inside) done = keep_window(reader, segment);
    if (done && index_.filter().uid) done = keep_shown(reader, segment);
    return done;
}

void EventCursor::stand_on(Reader& reader, const EventIndex::Segment& segment, uint32_t row) {
    reader_ = &reader;
    block_ = reader.block;
    segment_ = &segment;
    row_ = row;
    at_end_ = false;
}

Result<void> EventCursor::next_segment_or_row() {
    if (order_ >= EventOrder::by_duration) return next_by_duration();
    return order_ < EventOrder::by_start ? next_segment() : next_by_time();
}

Result<void> EventCursor::next_segment() {
    at_end_ = true;
    while (next_work_ < work_.size()) {
        if (auto in_time = check_deadline(); !in_time) return in_time;
        const Work& work = work_[next_work_++];
        const EventIndex::Segment& segment = index_.segments()[work.segment];
        if (auto opened = open(only_reader_, index_.blocks()[segment.block]); !opened) return opened;
        if (auto picked = pick(only_reader_, segment, work); !picked) return picked;
        position_ = 0;
        end_ = picked_all_ ? segment.rows : picked_.size();
        if (end_ == 0) continue;
        stand_on(only_reader_, segment, picked_all_ ? picked_first_ : picked_[0]);
        return {};
    }
    return {};
}

// Segments that may have the first rows come first, and the rest is not looked at once none can have one of them.

Result<void> EventCursor::start_by_duration(size_t most_rows) {
    ranked_.clear();
    next_ranked_ = 0;
    if (most_rows == 0) return {};
    const bool descending = order_ == EventOrder::by_duration_descending;
    const auto best_of = [&](uint32_t number) {
        const EventIndex::Segment& segment = index_.segments()[number];
        const ValueRange durations = shown(segment.min_ns, segment.max_ns);
        return descending ? durations.most : durations.least;
    };
    const auto before = [&](int64_t a, int64_t b) { return descending ? a > b : a < b; };
    std::vector<uint32_t> segments;
    for (const EventIndex::Block& block : index_.blocks()) {
        if (!wants(block)) continue;
        for (uint32_t segment = block.first_segment; segment < block.first_segment + block.segments; ++segment)
            if (wants(index_.segments()[segment])) segments.push_back(segment);
    }
    std::stable_sort(segments.begin(), segments.end(),
                     [&](uint32_t a, uint32_t b) { return before(best_of(a), best_of(b)); });
    const auto in_order = [&](const Ranked& a, const Ranked& b) { return before(a.duration_ns, b.duration_ns); };
    for (const uint32_t number : segments) {
        // On top of the heap is the last of the first rows.
        if (ranked_.size() == most_rows && !before(best_of(number), ranked_.front().duration_ns)) break;
        if (auto in_time = check_deadline(); !in_time) return in_time;
        const EventIndex::Segment& segment = index_.segments()[number];
        if (auto opened = open(only_reader_, index_.blocks()[segment.block]); !opened) return opened;
        if (auto picked = pick(only_reader_, segment, {}); !picked) return picked;
        const auto durations = column(only_reader_, segment, ColumnId::duration);
        if (!durations) return tl::unexpected(durations.error());
        const size_t count = picked_all_ ? segment.rows : picked_.size();
        for (size_t i = 0; i < count; ++i) {
            const auto row = static_cast<uint32_t>(picked_all_ ? picked_first_ + i : picked_[i]);
            const Ranked ranked{as_signed((*durations)[row - picked_first_]), number, row};
            if (ranked_.size() == most_rows) {
                if (!in_order(ranked, ranked_.front())) continue;
                std::pop_heap(ranked_.begin(), ranked_.end(), in_order);
                ranked_.pop_back();
            }
            ranked_.push_back(ranked);
            std::push_heap(ranked_.begin(), ranked_.end(), in_order);
        }
    }
    std::sort_heap(ranked_.begin(), ranked_.end(), in_order);
    return next_by_duration();
}

Result<void> EventCursor::next_by_duration() {
    at_end_ = true;
    if (next_ranked_ == ranked_.size()) return {};
    const Ranked& ranked = ranked_[next_ranked_++];
    const EventIndex::Segment& segment = index_.segments()[ranked.segment];
    if (auto opened = open(only_reader_, index_.blocks()[segment.block]); !opened) return opened;
    stand_on(only_reader_, segment, ranked.row);
    return {};
}

// Blocks overlap in time: all those that reach to the row in turn are open, and the one with the next row is on top.

Result<void> EventCursor::start_by_time() {
    for (const EventIndex::Block& block : index_.blocks())
        if (wants(block)) to_open_.push_back(&block);
    const bool descending = order_ == EventOrder::by_start_descending;
    std::stable_sort(to_open_.begin(), to_open_.end(), [&](const auto* a, const auto* b) {
        return descending ? starts_of(*a).most > starts_of(*b).most : starts_of(*a).least < starts_of(*b).least;
    });
    return next_by_time();
}

int64_t EventCursor::start_of(const Reader& reader) const {
    const uint64_t start = reader.values[static_cast<size_t>(ColumnId::start)][reader.rows[reader.position]];
    return as_signed(index_.boots()[reader.block->boot].window.clock.to_realtime(start));
}

Result<void> EventCursor::open_by_time(const EventIndex::Block& block) {
    if (auto in_time = check_deadline(); !in_time) return in_time;
    std::unique_ptr<Reader> reader;
    if (spare_.empty()) {
        reader = std::make_unique<Reader>();
    } else {
        reader = std::move(spare_.back());
        spare_.pop_back();
    }
    reader->block = nullptr;
    if (auto opened = open(*reader, block); !opened) return opened;
    std::vector<bool> wanted(block.header.rows);
    reader->segments.assign(block.header.rows, 0);
    size_t count = 0;
    for (uint32_t number = 0; number < block.segments; ++number) {
        const EventIndex::Segment& segment = index_.segments()[block.first_segment + number];
        if (!wants(segment)) continue;
        if (auto picked = pick(*reader, segment, {}); !picked) return picked;
        if (auto starts = column(*reader, segment, ColumnId::start); !starts) return tl::unexpected(starts.error());
        const size_t rows = picked_all_ ? segment.rows : picked_.size();
        for (size_t i = 0; i < rows; ++i) {
            const size_t row = picked_all_ ? picked_first_ + i : picked_[i];
            wanted[row] = true;
            reader->segments[row] = static_cast<uint16_t>(number);
        }
        count += rows;
    }
    reader->rows.clear();
    reader->position = 0;
    if (count > 0) {
        const auto order = reader->view.time_order();
        if (!order) return tl::unexpected(order.error());
        for (const uint16_t row : *order)
            if (wanted[row]) reader->rows.push_back(row);
        if (order_ == EventOrder::by_start_descending) std::reverse(reader->rows.begin(), reader->rows.end());
    }
    (count > 0 ? open_ : spare_).push_back(std::move(reader));
    return {};
}

Result<void> EventCursor::next_by_time() {
    const bool descending = order_ == EventOrder::by_start_descending;
    const auto later = [&](const auto& a, const auto& b) {
        return descending ? start_of(*a) < start_of(*b) : start_of(*a) > start_of(*b);
    };
    const auto settle_top = [&] {
        for (size_t at = 0, child = 1; child < open_.size(); child = 2 * at + 1) {
            if (child + 1 < open_.size() && later(open_[child], open_[child + 1])) ++child;
            if (!later(open_[at], open_[child])) break;
            std::swap(open_[at], open_[child]);
            at = child;
        }
    };
    if (!at_end_ && !open_.empty()) {
        // On top is the block with the row it stands on.
        if (++open_.front()->position == open_.front()->rows.size()) {
            std::swap(open_.front(), open_.back());
            spare_.push_back(std::move(open_.back()));
            open_.pop_back();
        }
        settle_top();
    }
    at_end_ = true;
    while (next_to_open_ < to_open_.size()) {
        const EventIndex::Block& block = *to_open_[next_to_open_];
        if (!open_.empty()) {
            const int64_t now = start_of(*open_.front());
            const ValueRange starts = starts_of(block);
            if (descending ? starts.most < now : starts.least > now) break;
        }
        ++next_to_open_;
        const size_t before = open_.size();
        if (auto opened = open_by_time(block); !opened) return opened;
        if (open_.size() > before) std::push_heap(open_.begin(), open_.end(), later);
    }
    if (open_.empty()) return {};
    Reader& top = *open_.front();
    const uint16_t row = top.rows[top.position];
    stand_on(top, index_.segments()[top.block->first_segment + top.segments[row]], row);
    return {};
}

}  // namespace ingero
