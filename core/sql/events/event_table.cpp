#include "core/sql/events/event_table.h"

#include <algorithm>
#include <memory>

#include "core/sql/catalogue.h"
#include "core/sql/events/event_row.h"
#include "core/sql/virtual_table.h"

namespace ingero {

const EventIndex* SqlContext::index() {
    if (!index_ && !error && snapshot) {
        auto read = EventIndex::read(*snapshot, filter);
        if (read)
            index_ = std::move(*read);
        else
            error = read.error();
    }
    return index_ ? &*index_ : nullptr;
}

void SqlContext::clear() {
    index_.reset();
    plans.clear();
    groupings.clear();
    groups_failed = false;
    error.reset();
    snapshot = nullptr;
    percentile_values = 0;
}

namespace {

constexpr size_t most_grouped_pids = 16;

struct Table : VirtualTable {
    std::vector<uint8_t> sources;  ///< empty: all
};

struct Cursor : VirtualCursor<Table> {
    std::optional<EventCursor> rows;
    LastProcess process;
};

// Planning.

std::optional<GroupField> group_field(const EventIndex& index, int column) {
    switch (static_cast<EventColumn>(column)) {
        case EventColumn::op:
            return GroupField::op;
        case EventColumn::source:
            return GroupField::source;
        case EventColumn::op_num:
            return GroupField::op_num;
        case EventColumn::source_num:
            return GroupField::source_num;
        case EventColumn::node:
            if (index.has_one_node()) return GroupField::constant;
            return std::nullopt;
        case EventColumn::pid: {
            const auto pids = index.pids(most_grouped_pids);
            if (pids && *pids) return GroupField::pid;
            return std::nullopt;
        }
        default:
            return std::nullopt;
    }
}

void plan_order(const EventIndex& index, sqlite3_index_info* info, EventPlan& ret_plan) {
    if (info->nOrderBy == 0) return;
    const auto& first = info->aOrderBy[0];
    if (info->nOrderBy == 1 && first.iColumn >= 0 && is_start(static_cast<EventColumn>(first.iColumn))) {
        ret_plan.order = first.desc ? EventOrder::by_start_descending : EventOrder::by_start;
        info->orderByConsumed = 1;
        return;
    }
    std::vector<GroupTerm> terms;
    for (int i = 0; i < info->nOrderBy; ++i) {
        if (info->aOrderBy[i].iColumn < 0) return;
        const auto field = group_field(index, info->aOrderBy[i].iColumn);
        if (!field) return;
        terms.push_back({*field, info->aOrderBy[i].desc != 0});
    }
    ret_plan.order = EventOrder::grouped;
    ret_plan.terms = std::move(terms);
    info->orderByConsumed = 1;
}

/// The first rows by duration, where nothing is left for SQLite to leave out.
void plan_first(sqlite3_index_info* info, EventPlan& ret_plan) {
    constexpr int64_t most_rows = 10'000;
    if (info->nOrderBy != 1 || info->orderByConsumed || info->aOrderBy[0].iColumn < 0) return;
    const auto column = static_cast<EventColumn>(info->aOrderBy[0].iColumn);
    if (column != EventColumn::duration && column != EventColumn::duration_ns) return;
    int limit = -1, offset = -1;
    for (int i = 0; i < info->nConstraint; ++i) {
        const auto& condition = info->aConstraint[i];
        const bool is_limit = condition.op == SQLITE_INDEX_CONSTRAINT_LIMIT;
        if (!is_limit && condition.op != SQLITE_INDEX_CONSTRAINT_OFFSET) {
            if (!condition.usable || !info->aConstraintUsage[i].omit) return;
            continue;
        }
        sqlite3_value* value = nullptr;
        if (!condition.usable || sqlite3_vtab_rhs_value(info, i, &value) != SQLITE_OK || !value ||
            sqlite3_value_type(value) != SQLITE_INTEGER || sqlite3_value_int64(value) < 0 ||
            sqlite3_value_int64(value) > most_rows)
            return;
        (is_limit ? limit : offset) = i;
    }
    if (limit < 0) return;
    auto place = static_cast<int>(ret_plan.conditions.size());
    for (const int i : {limit, offset})
        if (i >= 0) info->aConstraintUsage[i].argvIndex = ++place;
    ret_plan.has_limit = true;
    ret_plan.has_offset = offset >= 0;
    ret_plan.order = info->aOrderBy[0].desc ? EventOrder::by_duration_descending : EventOrder::by_duration;
    info->orderByConsumed = 1;
}

std::string plan_words(const EventPlan& plan, const std::vector<std::string>& conditions,
                       const sqlite3_index_info* info) {
    std::string text;
    for (const std::string& condition : conditions) text += (text.empty() ? "rows where " : " and ") + condition;
    if (text.empty()) text = "all rows";
    if (plan.order == EventOrder::by_start) text += "; in order of time";
    if (plan.order == EventOrder::by_start_descending) text += "; in order of time, latest first";
    if (plan.order == EventOrder::by_duration) text += "; the shortest";
    if (plan.order == EventOrder::by_duration_descending) text += "; the longest";
    if (plan.order != EventOrder::grouped) return text;
    text += "; grouped by ";
    for (int i = 0; i < info->nOrderBy; ++i)
        text.append(i ? ", " : "").append(event_columns()[static_cast<size_t>(info->aOrderBy[i].iColumn)].name);
    return text;
}

int best_index(sqlite3_vtab* raw, sqlite3_index_info* info) {
    Table& table = *reinterpret_cast<Table*>(raw);
    return guarded(table, [&] {
        const EventIndex* index = table.context->index();
        if (!index) return fail_with(table, *table.context->error);
        EventPlan plan;
        std::vector<std::string> words;
        double rows = static_cast<double>(index->rows()) * (table.sources.empty() ? 1 : 0.5);
        for (int i = 0; i < info->nConstraint; ++i) {
            const auto answered = answer_condition(info, i);
            if (!answered) continue;
            plan.conditions.push_back({info->aConstraint[i].iColumn, info->aConstraint[i].op});
            info->aConstraintUsage[i].argvIndex = static_cast<int>(plan.conditions.size());
            info->aConstraintUsage[i].omit = answered->exact ? 1 : 0;
            rows *= answered->share_left;
            words.push_back(answered->words);
        }
        plan_order(*index, info, plan);
        plan_first(info, plan);
        plan.words = plan_words(plan, words, info);
        rows = std::max(rows, 1.0);
        info->estimatedRows = static_cast<sqlite3_int64>(rows);
        info->estimatedCost =
            rows * (plan.order == EventOrder::any ? 1 : 1.2) + static_cast<double>(index->blocks().size()) * 0.1 + 10;
        info->idxNum = static_cast<int>(table.context->plans.size());
        info->idxStr = sqlite3_mprintf("%s", plan.words.c_str());
        info->needToFreeIdxStr = 1;
        if (!info->idxStr) return SQLITE_NOMEM;
        table.context->plans.push_back(std::move(plan));
        return SQLITE_OK;
    });
}

int filter(sqlite3_vtab_cursor* raw, int plan_number, const char*, int count, sqlite3_value** values) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    Table& table = *cursor.table;
    return guarded(table, [&] {
        const EventIndex* index = table.context->index();
        if (!index) return fail_with(table, *table.context->error);
        const EventPlan& plan = table.context->plans.at(static_cast<size_t>(plan_number));
        const size_t conditions = plan.conditions.size();
        EventSelection selection = select_events(*index, plan.conditions, values, table.sources);
        size_t most_rows = 0;
        for (size_t i = conditions; i < static_cast<size_t>(count); ++i)
            most_rows += static_cast<size_t>(std::max<int64_t>(sqlite3_value_int64(values[i]), 0));
        cursor.process = {};
        if (!cursor.rows) cursor.rows.emplace(*index);
        return to_code(table, cursor.rows->start(std::move(selection), plan.order, plan.terms, table.context->deadline,
                                                 most_rows));
    });
}

// Rows.

int next(sqlite3_vtab_cursor* raw) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    if (cursor.rows->step()) return SQLITE_OK;
    return guarded(*cursor.table, [&] { return to_code(*cursor.table, cursor.rows->next()); });
}

int at_end(sqlite3_vtab_cursor* raw) {
    return reinterpret_cast<Cursor*>(raw)->rows->at_end();
}

int column(sqlite3_vtab_cursor* raw, sqlite3_context* out, int number) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    return guarded(*cursor.table, [&] {
        SqliteSink sink{out};
        EventRow row(*cursor.table->context->index(), *cursor.rows, cursor.process, sink);
        row.give(static_cast<EventColumn>(number));
        return row.error() ? fail_with(*cursor.table, *row.error()) : SQLITE_OK;
    });
}

int row_id(sqlite3_vtab_cursor* raw, sqlite3_int64* ret_id) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    return guarded(*cursor.table, [&] {
        const auto sequence = cursor.rows->value(ColumnId::sequence);
        if (!sequence) return fail_with(*cursor.table, sequence.error());
        *ret_id = static_cast<sqlite3_int64>(*sequence);
        return SQLITE_OK;
    });
}

int connect(sqlite3* database, void* context, int count, const char* const* arguments, sqlite3_vtab** ret_table,
            char**) {
    const int declared =
        sqlite3_declare_vtab(database, ("CREATE TABLE x(" + column_declarations(event_columns()) + ")").c_str());
    if (declared != SQLITE_OK) return declared;
    auto table = std::make_unique<Table>();
    table->context = static_cast<SqlContext*>(context);
    constexpr int own_arguments = 3;  // after module, database and table
    for (int i = own_arguments; i < count; ++i) table->sources.push_back(static_cast<uint8_t>(std::atoi(arguments[i])));
    *ret_table = &table.release()->base;
    return SQLITE_OK;
}

}  // namespace

int register_event_table(sqlite3* database, SqlContext& context) {
    static constexpr sqlite3_module module =
        virtual_table_module<Table, Cursor>(connect, best_index, filter, next, at_end, column, row_id);
    return sqlite3_create_module(database, "ingero_events", &module, &context);
}

}  // namespace ingero
