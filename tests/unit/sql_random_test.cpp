// Random statements over every table: the answer is that of SQLite over the same rows in plain tables. With
// INGERO_LONG=1 an hour of new ones.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>

#include "tests/support/seed.h"
#include "tests/unit/sql_compared.h"

namespace ingero {
namespace {

using testing_sql::json;
using testing_sql::PlainDatabase;

struct ColumnValues {
    std::string name;
    std::string_view type;
    std::vector<json> values;  ///< without null
    bool summable = true;      ///< sums of it stay in range
    bool computed = false;     ///< of a view: SQLite converts no text that is compared with it to a number
    bool text = false;         ///< and of no number
    bool numbered = false;     ///< op and source of events, which can be asked for by number too
};

struct TableValues {
    std::string name;
    std::vector<ColumnValues> columns;
    size_t rows = 0;
};

/// Statements of random shape, whose answers do not depend on the order in which rows are read.
class Statements {
  public:
    Statements(std::vector<TableValues> tables, uint64_t seed) : tables_(std::move(tables)), random_(seed) {}

    std::string next() {
        const TableValues& table = one_of(tables_);
        const std::string where = " FROM " + table.name + clause(table, "");
        const ColumnValues& column = one_of(table.columns);
        const std::string name = quoted(column.name);
        switch (below(8)) {
            case 0:
                return "SELECT *" + where;
            case 1:
                return "SELECT " + columns(table, "") + where;
            case 2:
                return "SELECT " + aggregates(table) + where;
            case 3:
                return "SELECT " + name + ", " + aggregates(table) + where + " GROUP BY " + name +
                       (below(3) == 0 ? " HAVING count(*) > " + std::to_string(below(4)) : "");
            case 4:
                return "SELECT DISTINCT " + name + where;
            case 5:
                return sorted_part(table);
            case 6:
                return join(table);
            default: {
                const TableValues& other = one_of(tables_);
                const char* const operators[] = {" UNION ", " UNION ALL ", " INTERSECT ", " EXCEPT "};
                return "SELECT " + name + where + one_of(operators) + "SELECT " + quoted(one_of(other.columns).name) +
                       " FROM " + other.name + clause(other, "");
            }
        }
    }

  private:
    size_t below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }
    template <typename Range>
    auto one_of(const Range& range) -> decltype(*std::begin(range)) {
        return *std::next(std::begin(range), static_cast<std::ptrdiff_t>(below(std::size(range))));
    }

    static std::string quoted(const std::string& name) { return "\"" + name + "\""; }

    std::string clause(const TableValues& table, const std::string& prefix) {
        return below(5) == 0 ? "" : " WHERE " + condition(table, prefix, 3);
    }

    std::string condition(const TableValues& table, const std::string& prefix, int depth) {
        switch (depth > 0 ? below(6) : 5) {
            case 0:
            case 1:
                return "(" + condition(table, prefix, depth - 1) + " AND " + condition(table, prefix, depth - 1) + ")";
            case 2:
            case 3:
                return "(" + condition(table, prefix, depth - 1) + " OR " + condition(table, prefix, depth - 1) + ")";
            case 4:
                return "NOT (" + condition(table, prefix, depth - 1) + ")";
            default:
                return term(table, prefix);
        }
    }

    std::string term(const TableValues& table, const std::string& prefix) {
        const ColumnValues& column = one_of(table.columns);
        const std::string name = prefix + quoted(column.name);
        const char* const comparisons[] = {" = ", " == ", " <> ", " < ", " <= ", " > ", " >= ", " IS ", " IS NOT "};
        const char* const negation = below(3) == 0 ? " NOT" : "";
        switch (below(9)) {
            case 0:
                return name + negation + " IN (" + literal(column) + ", " + literal(column) + ", " + literal(column) +
                       ")";
            case 1:
                return name + negation + " BETWEEN " + literal(column) + " AND " + literal(column);
            case 2:
                return name + negation + " LIKE " + pattern(column);
            case 3:
                return name + " IS" + negation + " NULL";
            case 4: {
                const ColumnValues& other = one_of(table.columns);
                return name + one_of(comparisons) + prefix + quoted((compare(column, other) ? other : column).name);
            }
            case 5: {
                const auto& [other, compared] = counterpart(column);
                return name + negation + " IN (SELECT " + quoted(compared.name) + " FROM " + other.name + " WHERE " +
                       term_of_literal(other) + ")";
            }
            default:
                return below(4) == 0 ? literal(column) + one_of(comparisons) + name
                                     : name + one_of(comparisons) + literal(column);
        }
    }

    /// Whether SQLite compares the two as it does in plain tables.
    static bool compare(const ColumnValues& one, const ColumnValues& other) {
        const bool alike = one.text == other.text && one.type == other.type;
        return alike || !(one.numbered || other.numbered || one.computed || other.computed);
    }

    /// A table and a column of it to compare a column with.
    std::pair<const TableValues&, const ColumnValues&> counterpart(const ColumnValues& column) {
        for (;;) {
            const TableValues& table = one_of(tables_);
            const ColumnValues& chosen = one_of(table.columns);
            if (compare(column, chosen)) return {table, chosen};
        }
    }

    std::string term_of_literal(const TableValues& table) {
        const ColumnValues& column = one_of(table.columns);
        const char* const comparisons[] = {" = ", " < ", " >= ", " <> "};
        return quoted(column.name) + one_of(comparisons) + literal(column);
    }

    /// One of the column's values, one beside it, or one of another type.
    std::string literal(const ColumnValues& column) {
        if (column.values.empty() || below(20) == 0) return column.numbered || below(2) == 0 ? "NULL" : "0";
        const json& value = one_of(column.values);
        if (value.is_string())
            return below(10) == 0 && !column.computed && !column.numbered ? "7" : testing_sql::literal(value);
        switch (below(12)) {
            case 0:
                return value.is_number_integer() ? std::to_string(value.get<int64_t>() + 1) : value.dump();
            case 1:
                return value.is_number_integer() ? std::to_string(value.get<int64_t>() - 1) : value.dump();
            case 2:
                return column.computed ? value.dump() : "'" + value.dump() + "'";
            case 3:
                return value.is_number_integer() && std::abs(value.get<double>()) < 1e15 ? value.dump() + ".5"
                                                                                         : value.dump();
            case 4:
                return "-" + (value.dump().front() == '-' ? value.dump().substr(1) : value.dump());
            default:
                return value.dump();
        }
    }

    std::string pattern(const ColumnValues& column) {
        if (column.values.empty()) return "'%'";
        const json& value = one_of(column.values);
        std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        const size_t from = below(text.size() + 1);
        text = text.substr(from, 1 + below(4));
        if (!text.empty() && below(3) == 0) text[below(text.size())] = '_';
        return testing_sql::literal((from == 0 && below(2) == 0 ? "" : "%") + text + (below(2) == 0 ? "%" : ""));
    }

    std::string columns(const TableValues& table, const std::string& prefix) {
        std::string text;
        for (size_t left = 1 + below(3); left > 0; --left)
            text += (text.empty() ? "" : ", ") + prefix + quoted(one_of(table.columns).name);
        return text;
    }

    std::string aggregates(const TableValues& table) {
        const char* const any[] = {"count", "min", "max", "count(DISTINCT"};
        const char* const sums[] = {"sum", "total", "avg"};
        std::string text = "count(*)";
        for (size_t left = below(3); left > 0; --left) {
            const ColumnValues& column = one_of(table.columns);
            const std::string function = column.summable && below(2) == 0 ? one_of(sums) : one_of(any);
            text += ", " + function + (function.back() == 'T' ? " " : "(") + quoted(column.name) + ")";
        }
        return text;
    }

    /// The order is of all columns that are told: rows that it leaves equal are equal.
    std::string sorted_part(const TableValues& table) {
        const std::string told = columns(table, "");
        std::string order, limit = " LIMIT " + std::to_string(below(table.rows + 2));
        size_t place = 1;
        for (size_t i = 0; i == 0 || (i = told.find("\", ", i)) != std::string::npos; ++i)
            order += (order.empty() ? "" : ", ") + std::to_string(place++) + (below(2) == 0 ? " DESC" : "");
        if (below(2) == 0) limit += " OFFSET " + std::to_string(below(table.rows + 2));
        return "SELECT " + told + " FROM " + table.name + clause(table, "") + " ORDER BY " + order + limit;
    }

    std::string join(const TableValues& table) {
        const char* const kinds[] = {" JOIN ", " LEFT JOIN "};
        const ColumnValues& column = one_of(table.columns);
        const auto& [other, compared] = counterpart(column);
        const std::string on = "a." + quoted(column.name) + " = b." + quoted(compared.name);
        const std::string from = " FROM " + table.name + " AS a" + one_of(kinds) + other.name + " AS b ON " + on +
                                 (below(3) == 0 ? " AND " + condition(other, "b.", 1) : "") + clause(table, "a.");
        return "SELECT " + (below(2) == 0 ? "count(*)" : columns(table, "a.") + ", " + columns(other, "b.")) + from;
    }

    std::vector<TableValues> tables_;
    std::mt19937_64 random_;
};

class SqlRandom : public testing_sql::SqlCompared {
  protected:
    void SetUp() override {
        ASSERT_NO_FATAL_FAILURE(SqlCompared::SetUp());
        for (const SqlTableInfo& info : sql_tables()) {
            TableValues table{std::string(info.name), {}, 0};
            const json all = rows("SELECT * FROM " + table.name);
            plain_.add_table(info, all);
            table.rows = all.size();
            for (size_t i = 0; i < info.columns.size(); ++i) {
                ColumnValues& column = table.columns.emplace_back();
                std::set<json> values;
                for (const json& row : all)
                    if (!row[i].is_null()) values.insert(row[i]);
                column.name = info.columns[i].name;
                column.type = info.columns[i].type;
                column.computed = info.kind == SqlTableInfo::Kind::view;
                column.text =
                    info.columns[i].type == "TEXT" && std::none_of(values.begin(), values.end(), [](const json& value) {
                        return value.is_string() &&
                               std::strtod(value.get_ref<const std::string&>().c_str(), nullptr) != 0;
                    });
                column.numbered =
                    info.kind == SqlTableInfo::Kind::events && (column.name == "op" || column.name == "source");
                for (const json& value : values)
                    if (value.is_number() && std::abs(value.get<double>()) > 1e15) column.summable = false;
                column.values.assign(values.begin(), values.end());
            }
            tables_.push_back(std::move(table));
        }
    }

    /// In an order of their own, and reals as far as the order of a sum leaves them equal.
    static json comparable(json rows) {
        for (json& row : rows)
            for (json& value : row)
                if (value.is_number_float()) {
                    char text[32];
                    std::snprintf(text, sizeof text, "%.9g", value.get<double>());
                    value = std::strtod(text, nullptr);
                }
        std::sort(rows.begin(), rows.end());
        return rows;
    }

    /// Statements that had rows.
    size_t compare(uint64_t seed, size_t count) {
        Statements statements(tables_, seed);
        size_t answered = 0;
        for (size_t i = 0; i < count && !HasFailure(); ++i) {
            const std::string sql = statements.next();
            // Joins of all with all: counted, not told.
            const json count_of = plain_.run("SELECT count(*) FROM (" + sql + ")");
            if (count_of.at(0).at(0) > 5'000) continue;
            const json expected = comparable(plain_.run(sql));
            EXPECT_EQ(comparable(rows(sql)), expected) << sql << "\nseed " << seed << ", statement " << i;
            answered += expected.empty() ? 0 : 1;
        }
        return answered;
    }

    PlainDatabase plain_;
    std::vector<TableValues> tables_;
};

TEST_F(SqlRandom, StatementsHaveTheAnswersOfSqlite) {
    if (std::getenv("INGERO_LONG") == nullptr) {
        EXPECT_GT(compare(test::chosen_seed(), 5'000), 1'500u) << "most conditions leave no row: little was compared";
        return;
    }
    uint64_t seed = test::chosen_seed();
    const auto end = std::chrono::steady_clock::now() + std::chrono::hours(1);
    for (; std::chrono::steady_clock::now() < end && !HasFailure(); ++seed) compare(seed, 1'000);
}

}  // namespace
}  // namespace ingero
