// Functions that statements can call besides SQLite's own.
#pragma once

#include <sqlite3.h>

#include <span>
#include <string_view>

#include "core/sql/event_table.h"

namespace ingero {

struct SqlFunctionInfo {
    std::string_view call;
    std::string_view meaning;
};
std::span<const SqlFunctionInfo> sql_functions();

/// An SQLite code.
int register_functions(sqlite3* database, SqlContext& context);

}  // namespace ingero
