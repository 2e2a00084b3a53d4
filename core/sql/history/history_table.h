// The tables of history to SQLite: one module, "ingero_history", whose argument is the table's name.
#pragma once

#include <sqlite3.h>

namespace ingero {

struct SqlContext;

/// An SQLite code.
int register_history_tables(sqlite3* database, SqlContext& context);

}  // namespace ingero
