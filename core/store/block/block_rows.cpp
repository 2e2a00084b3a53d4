#include "core/store/block/block_rows.h"

#include <algorithm>
#include <span>

namespace ingero {

namespace {

template <class Field>
void set(Field& field, uint64_t value, const BlockView& block) {
    if constexpr (std::is_same_v<Field, Comm>)
        field = block.comm(value);
    else
        field = static_cast<Field>(value);
}

}  // namespace

Result<void> decode_rows(BlockView& block, const std::function<bool(const OpSummary&)>& wanted,
                         std::vector<Event>& ret_events) {
    const std::span<const OpSummary> ops = block.ops();
    std::vector<uint8_t> is_wanted(block.rows());  // by row number
    for (size_t segment = 0; segment < ops.size(); ++segment)
        if (wanted(ops[segment])) std::fill_n(is_wanted.data() + block.first_row(segment), ops[segment].rows, 1);
    if (std::find(is_wanted.begin(), is_wanted.end(), 1) == is_wanted.end()) return {};
    const auto order = block.time_order();
    if (!order) return tl::unexpected(order.error());
    std::vector<uint16_t> place(block.rows());  // in time, of each row number that is wanted
    uint16_t next = 0;
    for (const uint16_t row : *order) {
        place[row] = next;
        next = static_cast<uint16_t>(next + is_wanted[row]);
    }
    const size_t before = ret_events.size();
    ret_events.resize(before + next);
    const std::span<Event> events = std::span(ret_events).subspan(before);
    std::vector<uint64_t> column_values(block.rows());
    Result<void> result;
    for (size_t segment = 0; segment < ops.size(); ++segment) {
        if (!is_wanted[block.first_row(segment)]) continue;
        const std::span<const uint16_t> places(place.data() + block.first_row(segment), ops[segment].rows);
        const std::span<uint64_t> own = std::span(column_values).first(places.size());
        for_each_column([&]<class Get>(ColumnId id, Get get) {
            if (!result || block.is_default(id, segment)) return;
            if (result = block.column(id, segment, own); !result) return;
            for (size_t i = 0; i < places.size(); ++i) set(get(events[places[i]]), own[i], block);
        });
    }
    if (!result) ret_events.resize(before);
    return result;
}

Result<void> decode_rows(BlockView& block, size_t segment, std::span<const uint16_t> rows,
                         std::vector<Event>& ret_events) {
    const size_t before = ret_events.size();
    ret_events.resize(before + rows.size());
    const std::span<Event> events = std::span(ret_events).subspan(before);
    std::vector<uint64_t> column_values(block.ops()[segment].rows);
    Result<void> result;
    for_each_column([&]<class Get>(ColumnId id, Get get) {
        if (!result || rows.empty() || block.is_default(id, segment)) return;
        if (result = block.column(id, segment, column_values); !result) return;
        for (size_t i = 0; i < rows.size(); ++i) set(get(events[i]), column_values[rows[i]], block);
    });
    if (!result) ret_events.resize(before);
    return result;
}

}  // namespace ingero
