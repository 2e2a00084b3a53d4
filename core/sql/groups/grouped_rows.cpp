#include "core/sql/groups/grouped_rows.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/model/call_time.h"

namespace ingero {

namespace {

/// Sums up to here are exact in a double, in whatever order they are added.
constexpr __int128 most_exact = __int128{1} << 53;

}  // namespace

GroupedRows::GroupedRows(const EventIndex& index, const Grouping& grouping)
    : index_(index),
      grouping_(grouping),
      stored_(grouping.stored()),
      width_(1 + stored_.size() + grouping.buckets.size()),
      most_(grouping.sums.size()) {}

const uint64_t* GroupedRows::stored(size_t group, ColumnId id) const {
    const auto place = std::find(stored_.begin(), stored_.end(), id);
    return place == stored_.end() ? nullptr : &key(group)[1 + static_cast<size_t>(place - stored_.begin())];
}

uint64_t GroupedRows::Key::hash() const {
    static_assert(most_keys % 3 == 0);
    uint64_t value = 0;
    for (size_t i = 0; i < parts.size(); i += 3) value = hash_words(value, parts[i], parts[i + 1], parts[i + 2]);
    return value;
}

std::optional<uint32_t> GroupedRows::group_of(const Key& key) {
    const uint32_t group = index_of_groups_.find_or_add(key);
    if (group == KeyIndex<Key>::none) return std::nullopt;
    if (group == rows_.size()) {
        rows_.push_back(0);
        sums_.resize(sums_.size() + grouping_.sums.size());
        if (sums_.size() * sizeof(GroupSum) > most_bytes) return std::nullopt;
    }
    return group;
}

Result<bool> GroupedRows::read(EventSelection selection, EventCursor::Clock::time_point deadline) {
    index_of_groups_ = KeyIndex<Key>(most_groups);
    rows_.clear();
    sums_.clear();
    EventCursor cursor(index_);
    if (auto started = cursor.start(std::move(selection), EventOrder::any, {}, deadline); !started)
        return tl::unexpected(started.error());
    while (!cursor.at_end()) {
        const auto added = add_segment(cursor);
        if (!added || !*added) return added;
        if (auto next = cursor.next_segment(); !next) return tl::unexpected(next.error());
    }
    return is_exact() && (!grouping_.one_process || has_one_process_each());
}

/// Whether no pid, and no thread, was that of two processes one after the other.
bool GroupedRows::has_one_process_each() const {
    std::map<std::pair<ColumnId, uint64_t>, std::pair<uint64_t, uint64_t>> processes;
    const auto value = [&](size_t group, ColumnId id) {
        const uint64_t* const found = stored(group, id);
        return found ? *found : 0;
    };
    for (size_t group = 0; group < groups(); ++group)
        for (const ColumnId id : {ColumnId::tgid, ColumnId::tid}) {
            const uint64_t* const number = stored(group, id);
            if (!number) continue;
            const std::pair process(value(group, ColumnId::tgid), value(group, ColumnId::process_start));
            if (processes.try_emplace({id, *number}, process).first->second != process) return false;
        }
    return true;
}

bool GroupedRows::is_exact() {
    for (size_t number = 0; number < grouping_.sums.size(); ++number) {
        if (!grouping_.sums[number].summed) continue;
        __int128& most = most_[number];
        for (size_t group = 0; group < groups(); ++group) {
            const GroupSum& one = sum(group, number);
            if (one.count == 0) continue;
            most += one.least >= 0
                        ? one.sum
                        : static_cast<__int128>(one.count) * std::max<__int128>(-__int128{one.least}, one.most);
            if (most > most_exact) return false;
        }
    }
    return true;
}

Result<bool> GroupedRows::add_segment(EventCursor& cursor) {
    const SegmentRows rows = cursor.segment_rows();
    only_group_.reset();
    const auto found = find_groups(cursor, rows);
    if (!found || !*found) return found;
    if (only_group_)
        rows_[*only_group_] += rows.count;
    else
        for (const uint32_t group : group_of_) ++rows_[group];
    return add_sums(cursor, rows);
}

/// Of the rows of a segment, one after the other.
Result<std::span<const uint64_t>> GroupedRows::column(EventCursor& cursor, const SegmentRows& rows, ColumnId id,
                                                      size_t place) {
    const auto values = cursor.block_column(id);
    if (!values) return tl::unexpected(values.error());
    if (!rows.picked) return std::span<const uint64_t>(*values + rows.first, rows.count);
    std::vector<uint64_t>& picked = picked_[place];
    picked.resize(rows.count);
    for (size_t i = 0; i < rows.count; ++i) picked[i] = (*values)[rows.picked[i]];
    return std::span<const uint64_t>(picked);
}

Result<bool> GroupedRows::find_groups(EventCursor& cursor, const SegmentRows& rows) {
    Key whole;
    auto& key = whole.parts;
    key[0] = uint64_t{cursor.op_number()} << 32 | cursor.boot_number();
    if (width_ == 1) {
        only_group_ = group_of(whole);
        return only_group_.has_value();
    }
    std::array<std::span<const uint64_t>, most_keys> columns;
    for (size_t i = 0; i < stored_.size(); ++i) {
        const auto values = column(cursor, rows, stored_[i], 1 + i);
        if (!values) return tl::unexpected(values.error());
        columns[1 + i] = *values;
    }
    std::array<uint64_t, most_keys> offsets{}, widths{}, from{}, to{};
    const uint64_t realtime = cursor.boot().window.clock.to_realtime(0);
    const size_t first_bucket = 1 + stored_.size();
    for (size_t i = 0; i < grouping_.buckets.size(); ++i) {
        const Grouping::Bucket& bucket = grouping_.buckets[i];
        const bool is_start = bucket.column == EventColumn::timestamp || bucket.column == EventColumn::start_ns;
        const auto values = column(cursor, rows, is_start ? ColumnId::start : ColumnId::duration, first_bucket + i);
        if (!values) return tl::unexpected(values.error());
        columns[first_bucket + i] = *values;
        offsets[first_bucket + i] = is_start ? realtime : 0;
        widths[first_bucket + i] = static_cast<uint64_t>(bucket.width);
    }
    group_of_.resize(rows.count);
    std::optional<uint32_t> group;
    bool known = false;
    for (size_t row = 0; row < rows.count; ++row) {
        bool same = known;
        for (size_t i = 1; i < first_bucket; ++i) {
            const uint64_t value = columns[i][row];
            same &= value == key[i];
            key[i] = value;
        }
        for (size_t i = first_bucket; i < width_; ++i) {
            const uint64_t value = columns[i][row] + offsets[i];
            if (known && value >= from[i] && value < to[i]) continue;
            // As SQLite divides: towards zero. What is within one bucket needs no division.
            const auto quotient = static_cast<int64_t>(value) / static_cast<int64_t>(widths[i]);
            same = same && static_cast<uint64_t>(quotient) == key[i];
            key[i] = static_cast<uint64_t>(quotient);
            from[i] = to[i] = 0;
            if (static_cast<int64_t>(value) >= 0) {
                from[i] = key[i] * widths[i];
                to[i] = std::min(saturating_add(from[i], widths[i]), uint64_t{1} << 63);
            }
        }
        if (!same) group = group_of(whole);
        if (!group) return false;
        known = true;
        group_of_[row] = *group;
    }
    return true;
}

/// What `column` shows in each row of the segment.
Result<void> GroupedRows::fill(EventCursor& cursor, const SegmentRows& rows, EventColumn column, Values& ret_values) {
    ret_values.given.clear();
    std::optional<Error> error;
    const auto stored = [&](ColumnId id) -> const uint64_t* {
        const auto values = cursor.block_column(id);
        if (values) return *values;
        error = values.error();
        return nullptr;
    };
    const auto row_of = [&](size_t i) { return rows.picked ? rows.picked[i] : rows.first + i; };
    const auto as_stored = [&](ColumnId id) {
        const uint64_t* const values = stored(id);
        if (!values) return;
        if (!rows.picked) {
            ret_values.all = {reinterpret_cast<const int64_t*>(values) + rows.first, rows.count};
            return;
        }
        ret_values.own.resize(rows.count);
        for (size_t i = 0; i < rows.count; ++i) ret_values.own[i] = static_cast<int64_t>(values[rows.picked[i]]);
        ret_values.all = ret_values.own;
    };
    const auto each = [&](auto get) {
        if (error) return;
        ret_values.own.resize(rows.count);
        for (size_t i = 0; i < rows.count; ++i) ret_values.own[i] = static_cast<int64_t>(get(row_of(i)));
        ret_values.all = ret_values.own;
    };
    const auto each_or_null = [&](auto get, auto is_given) {
        each(get);
        if (error) return;
        ret_values.given.resize(rows.count);
        for (size_t i = 0; i < rows.count; ++i) ret_values.given[i] = is_given(row_of(i));
    };
    const uint64_t realtime = cursor.boot().window.clock.to_realtime(0);
    switch (column) {
        case EventColumn::id:
            as_stored(ColumnId::sequence);
            break;
        case EventColumn::timestamp:
        case EventColumn::start_ns: {
            const uint64_t* const start = stored(ColumnId::start);
            each([&](size_t row) { return start[row] + realtime; });
            break;
        }
        case EventColumn::end_ns: {
            const uint64_t* const start = stored(ColumnId::start);
            const uint64_t* const duration = stored(ColumnId::duration);
            each([&](size_t row) { return start[row] + duration[row] + realtime; });
            break;
        }
        case EventColumn::duration:
        case EventColumn::duration_ns:
            as_stored(ColumnId::duration);
            break;
        case EventColumn::on_cpu_ns:
        case EventColumn::runnable_ns:
        case EventColumn::blocked_ns: {
            const uint64_t* const duration = stored(ColumnId::duration);
            const uint64_t* const without_cpu = stored(ColumnId::runnable);
            const uint64_t* const asleep = stored(ColumnId::blocked);
            each([&](size_t row) {
                const uint64_t runnable = std::min(without_cpu[row], duration[row]);
                const uint64_t blocked = std::min(asleep[row], duration[row] - runnable);
                return column == EventColumn::runnable_ns  ? runnable
                       : column == EventColumn::blocked_ns ? blocked
                                                           : duration[row] - runnable - blocked;
            });
            break;
        }
        case EventColumn::arg0:
            as_stored(ColumnId::argument_0);
            break;
        case EventColumn::arg1:
            as_stored(ColumnId::argument_1);
            break;
        case EventColumn::arg2:
            as_stored(ColumnId::argument_2);
            break;
        case EventColumn::bytes: {
            as_stored(ColumnId::argument_0);
            const Op* const op = cursor.op().known;
            const bool has = op && (op->op_class == OpClass::alloc || op->op_class == OpClass::copy ||
                                    op->op_class == OpClass::collective);
            if (!has) ret_values.given.assign(rows.count, 0);
            break;
        }
        case EventColumn::weight:
            as_stored(ColumnId::weight);
            break;
        case EventColumn::time_weight: {
            const uint64_t* const of_times = stored(ColumnId::time_weight);
            const uint64_t* const weight = stored(ColumnId::weight);
            each([&](size_t row) { return of_times[row] != 0 ? of_times[row] : weight[row]; });
            break;
        }
        case EventColumn::preemptor_ns:
            as_stored(ColumnId::preemptor_time);
            break;
        case EventColumn::preempted_ns:
            as_stored(ColumnId::preempted);
            break;
        case EventColumn::longest_sleep_ns:
            as_stored(ColumnId::longest_sleep);
            break;
        case EventColumn::waits:
            as_stored(ColumnId::waits);
            break;
        case EventColumn::last_wait_ns:
        case EventColumn::tail_ns: {
            const uint64_t* const last = stored(ColumnId::last_wait);
            const uint64_t* const value = column == EventColumn::tail_ns ? stored(ColumnId::tail) : last;
            each_or_null([&](size_t row) { return value[row]; }, [&](size_t row) { return last[row] != 0; });
            break;
        }
        case EventColumn::pid: {
            const uint64_t* const pid = stored(ColumnId::tgid);
            each([&](size_t row) { return visible_pid(static_cast<uint32_t>(pid[row])); });
            break;
        }
        case EventColumn::tid:
            as_stored(ColumnId::tid);
            break;
        default:
            return fail(ErrorCode::internal, "a column that cannot be summed");
    }
    if (error) return tl::unexpected(*error);
    return {};
}

Result<bool> GroupedRows::add_sums(EventCursor& cursor, const SegmentRows& rows) {
    for (size_t number = 0; number < grouping_.sums.size(); ++number) {
        const Grouping::Sum& wanted = grouping_.sums[number];
        Values& values = values_[0];
        if (auto filled = fill(cursor, rows, wanted.column, values); !filled) return tl::unexpected(filled.error());
        if (wanted.times) {
            Values& others = values_[1];
            if (auto filled = fill(cursor, rows, *wanted.times, others); !filled) return tl::unexpected(filled.error());
            if (values.given.empty()) values.given.assign(rows.count, 1);
            std::vector<int64_t> products(rows.count);
            for (size_t row = 0; row < rows.count; ++row) {
                if (!others.given.empty() && !others.given[row]) values.given[row] = 0;
                if (!values.given[row]) continue;
                if (__builtin_mul_overflow(values.all[row], others.all[row], &products[row])) return false;
            }
            values.own = std::move(products);
            values.all = values.own;
        }
        const size_t step = grouping_.sums.size();
        if (!values.given.empty()) {
            for (size_t row = 0; row < rows.count; ++row)
                if (values.given[row])
                    sums_[(only_group_ ? *only_group_ : group_of_[row]) * step + number].add(values.all[row]);
        } else if (only_group_) {
            GroupSum sum;
            for (const int64_t value : values.all) sum.add(value);
            GroupSum& all = sums_[*only_group_ * step + number];
            all.sum += sum.sum;
            all.least = std::min(all.least, sum.least);
            all.most = std::max(all.most, sum.most);
            all.count += sum.count;
        } else {
            for (size_t row = 0; row < rows.count; ++row) sums_[group_of_[row] * step + number].add(values.all[row]);
        }
    }
    return true;
}

}  // namespace ingero
