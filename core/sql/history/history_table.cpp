#include "core/sql/history/history_table.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/sql/catalogue.h"
#include "core/sql/events/event_table.h"
#include "core/sql/history/history_rows.h"
#include "core/sql/virtual_table.h"

namespace ingero {

namespace {

struct Table : VirtualTable {
    const HistoryTable* history = nullptr;
    const SqlTableInfo* info = nullptr;
};

struct Cursor : VirtualCursor<Table> {
    std::unique_ptr<HistoryRows> rows;
    std::vector<HistoryBoot> boots;
    HistoryBounds bounds;
    size_t boot = 0;
    size_t row = 0;
};

// What a value of a condition bounds: three bits each in the number of a plan, in the order of the values.
constexpr int bounds_from = 1;
constexpr int bounds_to = 2;
constexpr int bounds_id = 4;
constexpr int bits_a_value = 3;
constexpr int most_values = 10;

bool has(const std::vector<std::string_view>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

int bounded_by(const HistoryTable& table, std::string_view column, unsigned char operation) {
    const int from = has(table.from, column) ? bounds_from : 0;
    const int to = has(table.to, column) ? bounds_to : 0;
    switch (operation) {
        case SQLITE_INDEX_CONSTRAINT_EQ:
            return column == table.id ? bounds_id : from | to;
        case SQLITE_INDEX_CONSTRAINT_GT:
        case SQLITE_INDEX_CONSTRAINT_GE:
            return from;
        case SQLITE_INDEX_CONSTRAINT_LT:
        case SQLITE_INDEX_CONSTRAINT_LE:
            return to;
        default:
            return 0;
    }
}

/// SQLite looks at each row once more, so that a bound only has to leave all that a condition wants.
int best_index(sqlite3_vtab* raw, sqlite3_index_info* plan) {
    const Table& table = *reinterpret_cast<Table*>(raw);
    int number = 0, values = 0, bounds = 0;
    for (int i = 0; i < plan->nConstraint && values < most_values; ++i) {
        const auto& constraint = plan->aConstraint[i];
        if (!constraint.usable || constraint.iColumn < 0) continue;
        const auto& column = table.info->columns[static_cast<size_t>(constraint.iColumn)];
        const int bound = bounded_by(*table.history, column.name, constraint.op);
        const char* collation = sqlite3_vtab_collation(plan, i);
        if (bound == 0 || (bound == bounds_id && (!collation || sqlite3_stricmp(collation, "BINARY") != 0))) continue;
        number |= bound << (values * bits_a_value);
        bounds |= bound;
        plan->aConstraintUsage[i].argvIndex = ++values;
    }
    constexpr double rows_of_an_id = 4, rows_of_all = 100'000, rows_of_a_bound = rows_of_all / 4;
    const bool both = (bounds & bounds_from) && (bounds & bounds_to);
    const double rows = bounds & bounds_id ? rows_of_an_id
                        : both             ? rows_of_a_bound / 4
                        : bounds           ? rows_of_a_bound
                                           : rows_of_all;
    plan->idxNum = number;
    plan->idxStr = const_cast<char*>(bounds & bounds_id ? "by id" : bounds ? "by time" : "all rows");
    plan->estimatedCost = rows * 10;
    plan->estimatedRows = static_cast<sqlite3_int64>(rows);
    return SQLITE_OK;
}

/// The next boot that has rows, from the cursor's on.
int load(Cursor& cursor) {
    Table& table = *cursor.table;
    for (cursor.row = 0; cursor.boot < cursor.boots.size(); ++cursor.boot) {
        if (EventCursor::Clock::now() >= table.context->deadline)
            return fail_with(table, {ErrorCode::deadline, "the deadline has passed", ""});
        const auto loaded = cursor.rows->load(*table.context->snapshot, cursor.boots[cursor.boot], cursor.bounds,
                                              table.context->filter);
        if (!loaded) return fail_with(table, loaded.error());
        if (cursor.rows->size() > 0) return SQLITE_OK;
    }
    return SQLITE_OK;
}

void bound(HistoryBounds& bounds, int what, sqlite3_value* value) {
    if (what == bounds_id) {
        if (sqlite3_value_type(value) != SQLITE_TEXT) return;
        const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
        const std::string id = text ? text : "";
        // What was no UTF-8 is shown with this in place of it, and none has an empty id.
        if (!id.empty() && id.find("\xef\xbf\xbd") == std::string::npos) bounds.id = id;
        return;
    }
    if (sqlite3_value_type(value) != SQLITE_INTEGER) return;
    const auto time_ns = static_cast<uint64_t>(std::max<sqlite3_int64>(sqlite3_value_int64(value), 1));
    // One that ends at the time counts as after it, and one that begins then as before.
    if (what & bounds_from) bounds.wall.from_ns = std::max(bounds.wall.from_ns, time_ns - 1);
    if (what & bounds_to) bounds.wall.to_ns = std::min(bounds.wall.to_ns, time_ns + 1);
}

int filter(sqlite3_vtab_cursor* raw, int number, const char*, int count, sqlite3_value** values) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    Table& table = *cursor.table;
    return guarded(table, [&] {
        if (!cursor.rows) cursor.rows = table.history->make();
        cursor.boots = history_boots(*table.context->snapshot);
        cursor.bounds = {};
        for (int i = 0; i < count; ++i)
            bound(cursor.bounds, number >> (i * bits_a_value) & ((1 << bits_a_value) - 1), values[i]);
        cursor.boot = 0;
        return load(cursor);
    });
}

int next(sqlite3_vtab_cursor* raw) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    if (++cursor.row < cursor.rows->size()) return SQLITE_OK;
    ++cursor.boot;
    return guarded(*cursor.table, [&] { return load(cursor); });
}

int at_end(sqlite3_vtab_cursor* raw) {
    const Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    return cursor.boot >= cursor.boots.size();
}

int column(sqlite3_vtab_cursor* raw, sqlite3_context* out, int number) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    return guarded(*cursor.table, [&] {
        cursor.rows->give(cursor.row, static_cast<size_t>(number), out);
        return SQLITE_OK;
    });
}

int row_id(sqlite3_vtab_cursor* raw, sqlite3_int64* ret_id) {
    const Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    *ret_id = cursor.rows->id(cursor.row);
    return SQLITE_OK;
}

int connect(sqlite3* database, void* context, int count, const char* const* arguments, sqlite3_vtab** ret_table,
            char** ret_error) {
    constexpr int name_at = 3;  // after module, database and table
    const std::string_view name = count > name_at ? arguments[name_at] : "";
    auto table = std::make_unique<Table>();
    table->context = static_cast<SqlContext*>(context);
    table->history = find_history_table(name);
    table->info = find_sql_table(name);
    const std::vector<std::string_view> columns =
        table->history ? table->history->make()->columns() : std::vector<std::string_view>();
    const auto is_named = [](const SqlColumnInfo& info, std::string_view column) { return info.name == column; };
    if (!table->info || !std::equal(table->info->columns.begin(), table->info->columns.end(), columns.begin(),
                                    columns.end(), is_named)) {
        *ret_error = sqlite3_mprintf("the columns of %s are not those of the catalogue", arguments[name_at]);
        return SQLITE_ERROR;
    }
    const int declared =
        sqlite3_declare_vtab(database, ("CREATE TABLE x(" + column_declarations(table->info->columns) + ")").c_str());
    if (declared != SQLITE_OK) return declared;
    *ret_table = &table.release()->base;
    return SQLITE_OK;
}

}  // namespace

int register_history_tables(sqlite3* database, SqlContext& context) {
    static constexpr sqlite3_module module =
        virtual_table_module<Table, Cursor>(connect, best_index, filter, next, at_end, column, row_id);
    return sqlite3_create_module(database, "ingero_history", &module, &context);
}

}  // namespace ingero
