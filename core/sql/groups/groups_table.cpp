#include "core/sql/groups/groups_table.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>

#include "core/sql/catalogue.h"
#include "core/sql/events/event_row.h"
#include "core/sql/groups/grouped_rows.h"
#include "core/sql/groups/grouped_statement.h"
#include "core/sql/virtual_table.h"

namespace ingero {

namespace {

struct Place {
    SqlContext* context;
    size_t number;
};

struct Table : VirtualTable {
    size_t number = 0;

    const Grouping* grouping() const {
        return number < context->groupings.size() ? &context->groupings[number] : nullptr;
    }
};

struct Cursor : VirtualCursor<Table> {
    std::optional<GroupedRows> rows;
    LastProcess process;
    size_t group = 0;
};

// Columns: those of events, then the number of rows, buckets, and of each sum four.

constexpr int row_column = static_cast<int>(EventColumn::time_weight) + 1;
constexpr int bucket_column = row_column + 1;
constexpr int sum_column = bucket_column + static_cast<int>(Grouping::most_buckets);
constexpr int columns_of_sum = 4;
/// sqlite3_index_info::colUsed has a bit for each of the first, and one for all others.
static_assert(row_column < 63);

std::string declaration() {
    std::string text = "CREATE TABLE x(" + column_declarations(event_columns());
    const auto add = [&](std::string_view name) { text.append(", \"").append(name).append("\""); };
    add(group_columns::rows);
    for (size_t i = 0; i < Grouping::most_buckets; ++i) add(group_columns::bucket(i));
    for (size_t i = 0; i < Grouping::most_sums; ++i) {
        add(group_columns::sum(i));
        add(group_columns::count(i));
        add(group_columns::least(i));
        add(group_columns::most(i));
    }
    return text + ")";
}

std::string words_of(const Grouping& grouping, const std::vector<std::string>& conditions) {
    std::string text;
    for (const std::string& condition : conditions) text += (text.empty() ? "rows where " : " and ") + condition;
    if (text.empty()) text = "all rows";
    text += "; summed by op";
    for (const EventColumn key : grouping.keys)
        text.append(", ").append(event_columns()[static_cast<size_t>(key)].name);
    for (const Grouping::Bucket& bucket : grouping.buckets)
        text.append(", ")
            .append(event_columns()[static_cast<size_t>(bucket.column)].name)
            .append(" / ")
            .append(std::to_string(bucket.width));
    return text;
}

/// Whether each column that the statement reads is the same in all rows of a group, or is asked for by conditions that
/// the blocks answer.
bool is_answered(const sqlite3_index_info* info, const Grouping& grouping) {
    for (int column = 0; column < row_column; ++column) {
        if ((info->colUsed >> column & 1) == 0 || grouping.has_key(static_cast<EventColumn>(column))) continue;
        bool is_condition = false;
        for (int i = 0; i < info->nConstraint; ++i) {
            if (info->aConstraint[i].iColumn != column) continue;
            if (!info->aConstraintUsage[i].omit) return false;
            is_condition = true;
        }
        if (!is_condition) return false;
    }
    return true;
}

int best_index(sqlite3_vtab* raw, sqlite3_index_info* info) {
    Table& table = *reinterpret_cast<Table*>(raw);
    return guarded(table, [&] {
        const Grouping* const grouping = table.grouping();
        if (!grouping) return SQLITE_CONSTRAINT;
        const EventIndex* index = table.context->index();
        if (!index) return fail_with(table, *table.context->error);
        EventPlan plan;
        std::vector<std::string> words;
        for (int i = 0; i < info->nConstraint; ++i) {
            const auto answered = answer_condition(info, i);
            if (!answered) continue;
            // Of a list each value would be read for by itself; where groups have one each, SQLite picks them. But it
            // does not know that operations and sources have numbers.
            const int column = info->aConstraint[i].iColumn;
            const auto known = static_cast<EventColumn>(column);
            if (column >= 0 && grouping->has_key(known) && !is_of_operation(known) && sqlite3_vtab_in(info, i, -1))
                continue;
            plan.conditions.push_back({info->aConstraint[i].iColumn, info->aConstraint[i].op});
            info->aConstraintUsage[i].argvIndex = static_cast<int>(plan.conditions.size());
            info->aConstraintUsage[i].omit = answered->complete ? 1 : 0;
            words.push_back(answered->words);
        }
        if (!is_answered(info, *grouping)) return SQLITE_CONSTRAINT;
        info->estimatedRows = 100;
        info->estimatedCost = static_cast<double>(index->rows()) * 0.05 + 10;
        info->idxNum = static_cast<int>(table.context->plans.size());
        info->idxStr = sqlite3_mprintf("%s", words_of(*grouping, words).c_str());
        info->needToFreeIdxStr = 1;
        if (!info->idxStr) return SQLITE_NOMEM;
        table.context->plans.push_back(std::move(plan));
        return SQLITE_OK;
    });
}

std::vector<uint8_t> sources_of(const Grouping& grouping) {
    std::vector<uint8_t> sources;
    const SqlTableInfo* const table = find_sql_table(grouping.table);
    std::string_view rest = table ? table->definition : std::string_view();
    while (!rest.empty()) {
        uint8_t source = 0;
        std::from_chars(rest.data(), rest.data() + rest.size(), source);
        sources.push_back(source);
        const size_t comma = rest.find(',');
        rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return sources;
}

int filter(sqlite3_vtab_cursor* raw, int plan_number, const char*, int count, sqlite3_value** values) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    Table& table = *cursor.table;
    return guarded(table, [&] {
        const EventIndex* index = table.context->index();
        if (!index) return fail_with(table, *table.context->error);
        const Grouping& grouping = *table.grouping();
        const EventPlan& plan = table.context->plans.at(static_cast<size_t>(plan_number));
        cursor.process = {};
        cursor.group = 0;
        if (!cursor.rows) cursor.rows.emplace(*index, grouping);
        const auto read =
            cursor.rows->read(select_events(*index, std::span(plan.conditions).first(static_cast<size_t>(count)),
                                            values, sources_of(grouping)),
                              table.context->deadline);
        if (!read) return fail_with(table, read.error());
        if (*read) return SQLITE_OK;
        table.context->groups_failed = true;
        return SQLITE_ERROR;
    });
}

int next(sqlite3_vtab_cursor* raw) {
    ++reinterpret_cast<Cursor*>(raw)->group;
    return SQLITE_OK;
}

int at_end(sqlite3_vtab_cursor* raw) {
    const Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    return cursor.group >= cursor.rows->groups();
}

/// A row's number is asked for; of a group there is none.
int row_id(sqlite3_vtab_cursor* raw, sqlite3_int64*) {
    reinterpret_cast<Cursor*>(raw)->table->context->groups_failed = true;
    return SQLITE_ERROR;
}

/// Stands on a group, for what is the same in all of its rows.
struct GroupRow {
    const GroupedRows& rows;
    size_t group;

    const EventIndex::OpEntry& op() const { return rows.op(group); }
    const EventIndex::Boot& boot() const { return rows.boot(group); }
    const uint64_t* decoded(ColumnId id) const { return rows.stored(group, id); }
    Result<uint64_t> value(ColumnId) const {
        return fail(ErrorCode::internal, "a column that differs within a group was asked for");
    }
    const Comm& comm(uint64_t) const {
        static const Comm none{};
        return none;
    }
};

void give_sum(const Cursor& cursor, sqlite3_context* out, int place) {
    const auto number = static_cast<size_t>(place / columns_of_sum);
    if (number >= cursor.table->grouping()->sums.size()) return;
    const GroupSum& sum = cursor.rows->sum(cursor.group, number);
    const int part = place % columns_of_sum;
    if (part == 1) return sqlite3_result_int64(out, static_cast<int64_t>(sum.count));
    if (sum.count == 0) return;
    sqlite3_result_int64(out, part == 0 ? static_cast<int64_t>(sum.sum) : part == 2 ? sum.least : sum.most);
}

int column(sqlite3_vtab_cursor* raw, sqlite3_context* out, int number) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    return guarded(*cursor.table, [&] {
        const GroupedRows& rows = *cursor.rows;
        const Grouping& grouping = *cursor.table->grouping();
        if (number >= sum_column) {
            give_sum(cursor, out, number - sum_column);
        } else if (number >= bucket_column) {
            const auto bucket = static_cast<size_t>(number - bucket_column);
            if (bucket < grouping.buckets.size()) sqlite3_result_int64(out, rows.bucket(cursor.group, bucket));
        } else if (number == row_column) {
            sqlite3_result_int64(out, static_cast<int64_t>(rows.rows(cursor.group)));
        } else {
            if (number < 0 || !grouping.has_key(static_cast<EventColumn>(number))) {
                cursor.table->context->groups_failed = true;
                return SQLITE_ERROR;
            }
            GroupRow group{rows, cursor.group};
            SqliteSink sink{out};
            EventRow row(rows.index(), group, cursor.process, sink);
            row.give(static_cast<EventColumn>(number));
            if (row.error()) return fail_with(*cursor.table, *row.error());
        }
        return SQLITE_OK;
    });
}

int connect(sqlite3* database, void* place, int, const char* const*, sqlite3_vtab** ret_table, char**) {
    const int declared = sqlite3_declare_vtab(database, declaration().c_str());
    if (declared != SQLITE_OK) return declared;
    auto table = std::make_unique<Table>();
    table->context = static_cast<Place*>(place)->context;
    table->number = static_cast<Place*>(place)->number;
    *ret_table = &table.release()->base;
    return SQLITE_OK;
}

}  // namespace

int register_group_tables(sqlite3* database, SqlContext& context) {
    static constexpr sqlite3_module module = [] {
        sqlite3_module made =
            virtual_table_module<Table, Cursor>(connect, best_index, filter, next, at_end, column, row_id);
        made.xCreate = nullptr;  // there without being made, and in no list of tables
        return made;
    }();
    for (size_t number = 0; number < most_groupings; ++number) {
        const int registered =
            sqlite3_create_module_v2(database, groups_table(number).c_str(), &module, new Place{&context, number},
                                     [](void* place) { delete static_cast<Place*>(place); });
        if (registered != SQLITE_OK) return registered;
    }
    return SQLITE_OK;
}

}  // namespace ingero
