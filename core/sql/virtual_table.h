// What the virtual tables of SQLite have in common: how they fail, and the module around their own functions.
#pragma once

#include <sqlite3.h>

#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "core/sql/events/event_table.h"

namespace ingero {

/// A table derives from it; SQLite knows its first member only.
struct VirtualTable {
    sqlite3_vtab base{};
    SqlContext* context = nullptr;
};

/// A cursor derives from it.
template <class Table>
struct VirtualCursor {
    sqlite3_vtab_cursor base{};
    Table* table = nullptr;
};

inline int fail_with(VirtualTable& table, Error error) {
    const int code = error.code == ErrorCode::deadline  ? SQLITE_INTERRUPT
                     : error.code == ErrorCode::limit   ? SQLITE_NOMEM
                     : error.code == ErrorCode::corrupt ? SQLITE_CORRUPT_VTAB
                                                        : SQLITE_ERROR;
    sqlite3_free(table.base.zErrMsg);
    table.base.zErrMsg = sqlite3_mprintf("%s", error.message.c_str());
    if (!table.context->error) table.context->error = std::move(error);
    return code;
}

inline int to_code(VirtualTable& table, const Result<void>& result) {
    return result ? SQLITE_OK : fail_with(table, result.error());
}

/// Nothing may be thrown through SQLite.
template <class Body>
int guarded(VirtualTable& table, Body body) {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return SQLITE_NOMEM;
    } catch (const std::exception& error) {
        return fail_with(table, {ErrorCode::internal, error.what(), ""});
    }
}

/// What a column of a row goes to, for EventRow. Nothing given is null.
struct SqliteSink {
    sqlite3_context* out;

    void number(uint64_t value) { sqlite3_result_int64(out, static_cast<int64_t>(value)); }
    void lasting_text(std::string_view text) {
        sqlite3_result_text(out, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
    }
    void passing_text(std::string_view text) {
        sqlite3_result_text(out, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    }
};

/// Table and Cursor derive from what is above, and have no virtual functions: SQLite takes the address of `base` for
/// theirs.
template <class Table, class Cursor>
constexpr sqlite3_module virtual_table_module(decltype(sqlite3_module::xConnect) connect,
                                              decltype(sqlite3_module::xBestIndex) best_index,
                                              decltype(sqlite3_module::xFilter) filter,
                                              decltype(sqlite3_module::xNext) next,
                                              decltype(sqlite3_module::xEof) at_end,
                                              decltype(sqlite3_module::xColumn) column,
                                              decltype(sqlite3_module::xRowid) row_id) {
    sqlite3_module module{};
    module.iVersion = 1;
    module.xCreate = module.xConnect = connect;
    module.xBestIndex = best_index;
    module.xDisconnect = module.xDestroy = [](sqlite3_vtab* raw) {
        delete reinterpret_cast<Table*>(raw);
        return SQLITE_OK;
    };
    module.xOpen = [](sqlite3_vtab* raw, sqlite3_vtab_cursor** ret_cursor) {
        Table& table = *reinterpret_cast<Table*>(raw);
        return guarded(table, [&] {
            auto cursor = std::make_unique<Cursor>();
            cursor->table = &table;
            *ret_cursor = &cursor.release()->base;
            return SQLITE_OK;
        });
    };
    module.xClose = [](sqlite3_vtab_cursor* raw) {
        delete reinterpret_cast<Cursor*>(raw);
        return SQLITE_OK;
    };
    module.xFilter = filter;
    module.xNext = next;
    module.xEof = at_end;
    module.xColumn = column;
    module.xRowid = row_id;
    return module;
}

}  // namespace ingero
