#include "core/sql/events/event_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
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

enum class Subject { none, start, duration, pid, tid, id, op, source, op_num, source_num, ret_code, error };

Subject subject_of(int column) {
    if (column < 0) return Subject::id;
    switch (static_cast<EventColumn>(column)) {
        case EventColumn::id:
            return Subject::id;
        case EventColumn::timestamp:
        case EventColumn::start_ns:
            return Subject::start;
        case EventColumn::duration:
        case EventColumn::duration_ns:
            return Subject::duration;
        case EventColumn::pid:
            return Subject::pid;
        case EventColumn::tid:
            return Subject::tid;
        case EventColumn::op:
            return Subject::op;
        case EventColumn::source:
            return Subject::source;
        case EventColumn::op_num:
            return Subject::op_num;
        case EventColumn::source_num:
            return Subject::source_num;
        case EventColumn::ret_code:
            return Subject::ret_code;
        case EventColumn::error:
            return Subject::error;
        default:
            return Subject::none;
    }
}

bool is_comparison(unsigned char operation) {
    return operation == SQLITE_INDEX_CONSTRAINT_EQ || operation == SQLITE_INDEX_CONSTRAINT_GT ||
           operation == SQLITE_INDEX_CONSTRAINT_GE || operation == SQLITE_INDEX_CONSTRAINT_LT ||
           operation == SQLITE_INDEX_CONSTRAINT_LE;
}

bool is_name(Subject subject) {
    return subject == Subject::op || subject == Subject::source;
}

/// What a condition leaves of the rows, roughly; 0 where it is not for the blocks to answer.
double share_left(Subject subject, unsigned char operation) {
    const bool equal = operation == SQLITE_INDEX_CONSTRAINT_EQ;
    switch (subject) {
        case Subject::none:
            return 0;
        case Subject::start:
            return !is_comparison(operation) ? 0 : equal ? 1e-6 : 0.2;
        case Subject::id:
            return !is_comparison(operation) ? 0 : equal ? 1e-7 : 0.3;
        case Subject::duration:
            return !is_comparison(operation) ? 0 : equal ? 1e-4 : 0.2;
        case Subject::pid:
        case Subject::tid:
            return !is_comparison(operation) ? 0 : equal ? 0.15 : 0.5;
        case Subject::op:
        case Subject::source:
            if (operation == SQLITE_INDEX_CONSTRAINT_NE) return 0.9;
            if (operation == SQLITE_INDEX_CONSTRAINT_LIKE || operation == SQLITE_INDEX_CONSTRAINT_GLOB) return 0.4;
            return !equal ? 0 : subject == Subject::op ? 0.1 : 0.4;
        case Subject::op_num:
        case Subject::source_num:
            return !equal ? 0 : 0.3;
        case Subject::ret_code:
            return operation == SQLITE_INDEX_CONSTRAINT_NE ? 0.1 : 0;
        case Subject::error:
            return operation == SQLITE_INDEX_CONSTRAINT_ISNOTNULL ? 0.1 : 0;
    }
    return 0;
}

std::string_view operation_text(unsigned char operation) {
    switch (operation) {
        case SQLITE_INDEX_CONSTRAINT_EQ:
            return " =";
        case SQLITE_INDEX_CONSTRAINT_GT:
            return " >";
        case SQLITE_INDEX_CONSTRAINT_GE:
            return " >=";
        case SQLITE_INDEX_CONSTRAINT_LT:
            return " <";
        case SQLITE_INDEX_CONSTRAINT_LE:
            return " <=";
        case SQLITE_INDEX_CONSTRAINT_NE:
            return " !=";
        case SQLITE_INDEX_CONSTRAINT_LIKE:
            return " LIKE";
        case SQLITE_INDEX_CONSTRAINT_GLOB:
            return " GLOB";
        default:
            return " IS NOT NULL";
    }
}

/// Names are compared here by their bytes.
bool compares_otherwise(sqlite3_index_info* info, int number, Subject subject, unsigned char operation) {
    const bool by_collation = operation == SQLITE_INDEX_CONSTRAINT_EQ || operation == SQLITE_INDEX_CONSTRAINT_NE;
    return is_name(subject) && by_collation && std::strcmp(sqlite3_vtab_collation(info, number), "BINARY") != 0;
}

/// Whether SQLite need not look at the condition again: where blocks and SQLite could differ, it does.
bool answered_exactly(sqlite3_index_info* info, int number, Subject subject, unsigned char operation) {
    if (is_name(subject)) return operation == SQLITE_INDEX_CONSTRAINT_EQ;
    if (!is_comparison(operation)) return false;
    sqlite3_value* value = nullptr;
    return sqlite3_vtab_rhs_value(info, number, &value) == SQLITE_OK && value &&
           sqlite3_value_type(value) == SQLITE_INTEGER;
}

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
    if (info->nOrderBy == 1 && first.iColumn >= 0 && subject_of(first.iColumn) == Subject::start) {
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

std::string plan_words(const EventPlan& plan, const std::vector<std::string>& conditions,
                       const sqlite3_index_info* info) {
    std::string text;
    for (const std::string& condition : conditions) text += (text.empty() ? "rows where " : " and ") + condition;
    if (text.empty()) text = "all rows";
    if (plan.order == EventOrder::by_start) text += "; in order of time";
    if (plan.order == EventOrder::by_start_descending) text += "; in order of time, latest first";
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
            const auto& condition = info->aConstraint[i];
            const Subject subject = subject_of(condition.iColumn);
            const double share = share_left(subject, condition.op);
            if (!condition.usable || share == 0 || compares_otherwise(info, i, subject, condition.op)) continue;
            plan.conditions.push_back({condition.iColumn, condition.op});
            info->aConstraintUsage[i].argvIndex = static_cast<int>(plan.conditions.size());
            info->aConstraintUsage[i].omit = answered_exactly(info, i, subject, condition.op) ? 1 : 0;
            rows *= share;
            const auto column = condition.iColumn < 0 ? EventColumn::id : static_cast<EventColumn>(condition.iColumn);
            words.push_back(
                std::string(event_columns()[static_cast<size_t>(column)].name).append(operation_text(condition.op)));
        }
        plan_order(*index, info, plan);
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

// What the values of conditions select.

constexpr ValueRange nothing{1, 0};

/// A comparison with an integer column, whatever it is compared with, exactly as SQLite does it. A plan cannot
/// distinguish 200 from 200.0: to sqlite3_vtab_rhs_value() both are integers.
ValueRange to_range(unsigned char operation, sqlite3_value* value) {
    const bool equal = operation == SQLITE_INDEX_CONSTRAINT_EQ;
    const bool from = operation == SQLITE_INDEX_CONSTRAINT_GT || operation == SQLITE_INDEX_CONSTRAINT_GE;
    ValueRange range;
    switch (sqlite3_value_numeric_type(value)) {
        case SQLITE_INTEGER: {
            const int64_t number = sqlite3_value_int64(value);
            if (operation == SQLITE_INDEX_CONSTRAINT_GT && number == range.most) return nothing;
            if (operation == SQLITE_INDEX_CONSTRAINT_LT && number == range.least) return nothing;
            if (equal || from) range.least = number + (operation == SQLITE_INDEX_CONSTRAINT_GT ? 1 : 0);
            if (equal || !from) range.most = number - (operation == SQLITE_INDEX_CONSTRAINT_LT ? 1 : 0);
            return range;
        }
        case SQLITE_FLOAT: {
            const double number = sqlite3_value_double(value);
            constexpr double beyond = 9223372036854775808.0;
            if (std::isnan(number)) return nothing;
            if (equal && number != std::floor(number)) return nothing;
            if (equal || from) {
                const bool next = operation == SQLITE_INDEX_CONSTRAINT_GT;
                const double least = next ? std::floor(number) : std::ceil(number);
                if (least >= beyond) return nothing;
                if (least >= -beyond) range.least = static_cast<int64_t>(least) + (next ? 1 : 0);
            }
            if (equal || !from) {
                const bool before = operation == SQLITE_INDEX_CONSTRAINT_LT;
                const double most = before ? std::ceil(number) : std::floor(number);
                if (most < -beyond || (before && most == -beyond)) return nothing;
                if (most < beyond) range.most = static_cast<int64_t>(most) - (before ? 1 : 0);
            }
            return range;
        }
        case SQLITE_NULL:
            return nothing;
        default:  // any text comes after all numbers
            return equal || from ? nothing : range;
    }
}

/// An op or a source by its name or its number.
class NameCondition {
  public:
    NameCondition(unsigned char operation, sqlite3_value* value) : operation_(operation) {
        const int type = sqlite3_value_type(value);
        if (type == SQLITE_TEXT) {
            const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
            if (text) text_ = std::string(text, static_cast<size_t>(sqlite3_value_bytes(value)));
        }
        if (type == SQLITE_INTEGER) number_ = sqlite3_value_int64(value);
        if (type == SQLITE_FLOAT && sqlite3_value_double(value) == static_cast<double>(sqlite3_value_int64(value)))
            number_ = sqlite3_value_int64(value);
        // Lists of numbers come as texts, since the column is one.
        int64_t number = 0;
        const char* end = text_ ? text_->data() + text_->size() : nullptr;
        if (text_ && std::from_chars(text_->data(), end, number).ptr == end && !text_->empty()) number_ = number;
    }

    bool holds(const std::string& name, uint8_t number) const {
        switch (operation_) {
            case SQLITE_INDEX_CONSTRAINT_EQ:
                return text_ == name || number_ == number;
            case SQLITE_INDEX_CONSTRAINT_NE:
                return text_ != name;
            case SQLITE_INDEX_CONSTRAINT_LIKE:
                return !text_ || sqlite3_strlike(text_->c_str(), name.c_str(), 0) == 0;
            case SQLITE_INDEX_CONSTRAINT_GLOB:
                return !text_ || sqlite3_strglob(text_->c_str(), name.c_str()) == 0;
            default:
                return true;
        }
    }

  private:
    unsigned char operation_;
    std::optional<std::string> text_;
    std::optional<int64_t> number_;
};

template <class Holds>
void keep_ops(const EventIndex& index, EventSelection& selection, const Holds& holds) {
    if (selection.ops.empty()) selection.ops.assign(index.ops().size(), true);
    for (size_t i = 0; i < index.ops().size(); ++i)
        if (!holds(index.ops()[i])) selection.ops[i] = false;
}

void apply(const EventIndex& index, const EventPlan::Condition& condition, sqlite3_value* value,
           EventSelection& selection) {
    const Subject subject = subject_of(condition.column);
    switch (subject) {
        case Subject::start:
            return selection.start_ns.keep(to_range(condition.operation, value));
        case Subject::duration:
            return selection.duration_ns.keep(to_range(condition.operation, value));
        case Subject::pid:
            return selection.pid.keep(to_range(condition.operation, value));
        case Subject::tid:
            return selection.tid.keep(to_range(condition.operation, value));
        case Subject::id:
            return selection.id.keep(to_range(condition.operation, value));
        case Subject::op:
        case Subject::source: {
            const NameCondition named(condition.operation, value);
            return keep_ops(index, selection, [&](const EventIndex::OpEntry& op) {
                return subject == Subject::op ? named.holds(op.name, op.number())
                                              : named.holds(op.source, op.source_number());
            });
        }
        case Subject::op_num:
        case Subject::source_num: {
            const ValueRange wanted = to_range(condition.operation, value);
            return keep_ops(index, selection, [&](const EventIndex::OpEntry& op) {
                return wanted.contains(subject == Subject::op_num ? op.number() : op.source_number());
            });
        }
        case Subject::ret_code:
            if (sqlite3_value_type(value) == SQLITE_INTEGER && sqlite3_value_int64(value) == 0)
                selection.errors_only = true;
            return;
        case Subject::error:
            selection.errors_only = true;
            return;
        case Subject::none:
            return;
    }
}

int filter(sqlite3_vtab_cursor* raw, int plan_number, const char*, int count, sqlite3_value** values) {
    Cursor& cursor = *reinterpret_cast<Cursor*>(raw);
    Table& table = *cursor.table;
    return guarded(table, [&] {
        const EventIndex* index = table.context->index();
        if (!index) return fail_with(table, *table.context->error);
        const EventPlan& plan = table.context->plans.at(static_cast<size_t>(plan_number));
        EventSelection selection;
        for (int i = 0; i < count; ++i) apply(*index, plan.conditions.at(static_cast<size_t>(i)), values[i], selection);
        if (!table.sources.empty())
            keep_ops(*index, selection, [&](const EventIndex::OpEntry& op) {
                return std::find(table.sources.begin(), table.sources.end(), op.source_number()) != table.sources.end();
            });
        cursor.process = {};
        if (!cursor.rows) cursor.rows.emplace(*index);
        return to_code(table,
                       cursor.rows->start(std::move(selection), plan.order, plan.terms, table.context->deadline));
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

/// What a column of a row goes to. Nothing given is null.
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
