// What the tables of history have in common: how a column is given, and times of a boot.
#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sql/history/history_rows.h"
#include "core/wire/utf8.h"

namespace ingero {

/// What a column goes to. Nothing given is null.
struct Out {
    sqlite3_context* context;

    void number(uint64_t value) { sqlite3_result_int64(context, static_cast<int64_t>(value)); }
    void number(std::optional<uint64_t> value) {
        if (value) number(*value);
    }
    void real(double value) { sqlite3_result_double(context, value); }
    void text(std::string_view value) {
        if (value.empty()) return;
        const std::string valid = to_valid_utf8(value);
        sqlite3_result_text(context, valid.data(), static_cast<int>(valid.size()), SQLITE_TRANSIENT);
    }
};

template <class Row>
struct Column {
    std::string_view name;
    void (*give)(const Row& row, const HistoryBoot& boot, Out out);
};

template <class Row>
std::vector<std::string_view> names_of(std::span<const Column<Row>> columns) {
    std::vector<std::string_view> names;
    for (const Column<Row>& column : columns) names.push_back(column.name);
    return names;
}

template <class Row>
std::optional<double> value_of(const Row& row, std::string_view name) {
    for (const auto& [known, value] : row.values)
        if (known == name) return value;
    return std::nullopt;
}

inline void give_whole(std::optional<double> value, Out out) {
    if (value && *value >= 0 && *value < 9e18) out.number(static_cast<uint64_t>(*value));
}

inline Window monotonic_of(const HistoryBoot& boot, Window wall) {
    return {boot.clock.to_monotonic(wall.from_ns), boot.clock.to_monotonic(wall.to_ns)};
}

inline Window common(Window a, Window b) {
    return {std::max(a.from_ns, b.from_ns), std::min(a.to_ns, b.to_ns)};
}

}  // namespace ingero
