// Functions that statements can call besides SQLite's own.
#pragma once

#include <sqlite3.h>

#include <span>
#include <string_view>

#include "core/sql/events/event_table.h"

namespace ingero {

struct SqlFunctionInfo {
    std::string_view call;
    std::string_view meaning;
};
std::span<const SqlFunctionInfo> sql_functions();

/// Those above, and of SQLite's own the ones that only compute with what they are given. Each may be called by whoever
/// may ask, so what is not known is not allowed: builds of SQLite differ in what they have. `name` in lower case.
bool may_be_called(std::string_view name);

/// An SQLite code.
int register_functions(sqlite3* database, SqlContext& context);

}  // namespace ingero
