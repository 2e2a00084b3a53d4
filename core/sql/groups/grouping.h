// Groups of events, as one SELECT asks for them: what tells rows apart, and what is summed over the rows of a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sql/catalogue.h"
#include "core/store/block/event_columns.h"

namespace ingero {

/// SELECTs of one statement that can be answered by groups, each from a table of its own.
inline constexpr size_t most_groupings = 4;

struct Grouping {
    /// A column divided by a number, such as timestamp / 1000000000.
    struct Bucket {
        EventColumn column = EventColumn::timestamp;
        int64_t width = 1;  ///< more than 0
        bool operator==(const Bucket&) const = default;
    };
    /// Sums, extremes and counts of a column, or of the product of two.
    struct Sum {
        EventColumn column = EventColumn::duration;
        std::optional<EventColumn> times;
        bool summed = false;  ///< and not only counted or compared
        bool is_of(EventColumn of, std::optional<EventColumn> product) const {
            return column == of && times == product;
        }
    };
    static constexpr size_t most_buckets = 2;
    static constexpr size_t most_sums = 12;
    static constexpr size_t most_stored = 6;  ///< columns of the store that its keys come from

    std::string_view table;  ///< of the catalogue
    std::vector<EventColumn> keys;
    std::vector<Bucket> buckets;
    std::vector<Sum> sums;
    bool one_process = false;  ///< of a pid and of a thread there must be one process, or there is no such answer

    bool has_key(EventColumn column) const;
    /// Of the store, that the keys come from, each once.
    std::vector<ColumnId> stored() const;
};

/// What a column's value comes from, besides the operation and the boot; nothing where rows cannot be told apart by it.
std::optional<std::span<const ColumnId>> key_sources(EventColumn column);
/// The same in all rows of one operation and boot.
bool is_of_operation(EventColumn column);
bool can_be_summed(EventColumn column);
bool can_be_divided(EventColumn column);

}  // namespace ingero
