#include "core/sql/events/event_conditions.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace ingero {

namespace {

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

void apply(const EventIndex& index, const EventCondition& condition, sqlite3_value* value, EventSelection& selection) {
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

}  // namespace

std::optional<AnsweredCondition> answer_condition(sqlite3_index_info* info, int number) {
    const auto& condition = info->aConstraint[number];
    const Subject subject = subject_of(condition.iColumn);
    AnsweredCondition answered;
    answered.share_left = share_left(subject, condition.op);
    if (!condition.usable || answered.share_left == 0 || compares_otherwise(info, number, subject, condition.op))
        return std::nullopt;
    const auto column = condition.iColumn < 0 ? EventColumn::id : static_cast<EventColumn>(condition.iColumn);
    answered.complete = is_name(subject) ? condition.op == SQLITE_INDEX_CONSTRAINT_EQ : is_comparison(condition.op);
    answered.exact = answered_exactly(info, number, subject, condition.op);
    answered.words =
        std::string(event_columns()[static_cast<size_t>(column)].name).append(operation_text(condition.op));
    return answered;
}

EventSelection select_events(const EventIndex& index, std::span<const EventCondition> conditions,
                             sqlite3_value* const* values, const std::vector<uint8_t>& sources) {
    EventSelection selection;
    for (size_t i = 0; i < conditions.size(); ++i) apply(index, conditions[i], values[i], selection);
    if (!sources.empty())
        keep_ops(index, selection, [&](const EventIndex::OpEntry& op) {
            return std::find(sources.begin(), sources.end(), op.source_number()) != sources.end();
        });
    return selection;
}

bool is_start(EventColumn column) {
    return subject_of(static_cast<int>(column)) == Subject::start;
}

}  // namespace ingero
