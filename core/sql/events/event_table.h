// Events as virtual tables of SQLite: which conditions and orders the blocks answer themselves, and a row's columns.
#pragma once

#include <sqlite3.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/sql/events/event_conditions.h"
#include "core/sql/events/event_cursor.h"
#include "core/sql/events/event_index.h"
#include "core/sql/groups/grouping.h"

namespace ingero {

/// A way to answer with events: what xBestIndex offered and SQLite may take.
struct EventPlan {
    std::vector<EventCondition> conditions;  ///< in the order of the values that xFilter gets
    EventOrder order = EventOrder::any;
    std::vector<GroupTerm> terms;
    /// By duration: values of LIMIT and OFFSET, in this order, follow those of the conditions.
    bool has_limit = false, has_offset = false;
    std::string words;
};

/// What a running statement has. Tables point to it: it stays, its content is of one statement.
struct SqlContext {
    const StoreSnapshot* snapshot = nullptr;
    Filter filter;           ///< whose rows, and of which time
    Window coverage_window;  ///< what coverage is reported for: the same, but of a whole trace its extent
    EventCursor::Clock::time_point deadline = EventCursor::Clock::time_point::max();
    std::optional<Error> error;  ///< why a table failed
    std::deque<EventPlan> plans;
    std::vector<Grouping> groupings;  ///< of the tables of groups
    bool groups_failed = false;       ///< groups turned out to be no way to answer the statement
    uint64_t percentile_values = 0;

    /// Read when first asked for. nullptr: `error` says why not.
    const EventIndex* index();
    void clear();

  private:
    std::optional<EventIndex> index_;
};

/// The module "ingero_events"; its arguments are the numbers of sources that the table has, all where there are none.
/// An SQLite code.
int register_event_table(sqlite3* database, SqlContext& context);

}  // namespace ingero
