// Conditions of SQL on columns of events: which of them the blocks answer, and what their values select.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/sql/catalogue.h"
#include "core/sql/events/event_cursor.h"
#include "core/sql/events/event_index.h"

namespace ingero {

struct EventCondition {
    int column = 0;           ///< of EventColumn; -1 is the row's number
    unsigned char operation;  ///< SQLITE_INDEX_CONSTRAINT_*
};

struct AnsweredCondition {
    double share_left = 1;  ///< of the rows, roughly
    bool complete = false;  ///< what is left is what SQLite would leave
    bool exact = false;     ///< and that is known before its value is
    std::string words;      ///< "duration >"
};

/// A condition that blocks answer, of those that xBestIndex is offered; nothing where they do not.
std::optional<AnsweredCondition> answer_condition(sqlite3_index_info* info, int number);

/// What the conditions leave, with the values that xFilter gets for them. `sources`: of the table; empty: all.
EventSelection select_events(const EventIndex& index, std::span<const EventCondition> conditions,
                             sqlite3_value* const* values, const std::vector<uint8_t>& sources);

/// Whether the column is when the call began.
bool is_start(EventColumn column);

}  // namespace ingero
