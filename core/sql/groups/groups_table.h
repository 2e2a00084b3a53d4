// Groups of events as virtual tables of SQLite, which only statements of our own read.
#pragma once

#include <sqlite3.h>

#include "core/sql/events/event_table.h"

namespace ingero {

/// The tables groups_table(0) and so on, as many as there can be groupings. They have no rows but where the context's
/// groupings say of what. An SQLite code.
int register_group_tables(sqlite3* database, SqlContext& context);

}  // namespace ingero
