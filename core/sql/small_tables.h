// Tables that are small enough to be put into SQLite whole, when a statement names them.
#pragma once

#include <sqlite3.h>

#include <string_view>

#include "core/sql/events/event_table.h"

namespace ingero {

/// Fills the table of that name with the rows that the context's caller may see. Tables of which the store has nothing
/// stay empty. Errors: those of the store; limit (more memory than there is).
Result<void> fill_small_table(sqlite3* database, std::string_view name, SqlContext& context);

}  // namespace ingero
