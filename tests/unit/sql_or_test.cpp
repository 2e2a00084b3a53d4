// Conditions joined by OR: SQLite reads the rows of each by itself, and leaves out those it has had. On every table the
// answer is that of a plain table with the same rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>

#include "test_paths.h"
#include "tests/unit/sql_compared.h"

namespace ingero {
namespace {

using testing_sql::json;
using testing_sql::literal;
using testing_sql::PlainDatabase;

class SqlOr : public testing_sql::SqlCompared {};

TEST_F(SqlOr, GivesOnEveryTableWhatSqliteGives) {
    PlainDatabase plain;
    std::set<std::string> read_in_parts;
    for (const SqlTableInfo& table : sql_tables()) {
        const std::string name(table.name);
        const json all = rows("SELECT * FROM " + name);
        ASSERT_GE(all.size(), 2u) << name;
        plain.add_table(table, all);
        for (size_t i = 0; i < table.columns.size(); ++i) {
            const size_t next = (i + 1) % table.columns.size();
            const auto [low, high] = values_of(all, i);
            const auto [other, others] = values_of(all, next);
            if (low.is_null()) continue;
            const std::string column = "\"" + std::string(table.columns[i].name) + "\"";
            const std::string beside = "\"" + std::string(table.columns[next].name) + "\"";
            const std::string below = column + " < " + literal(low), above = column + " > " + literal(high);
            for (const std::string& condition :
                 {below + " OR " + above, column + " <= " + literal(high) + " OR " + column + " >= " + literal(low),
                  column + " = " + literal(low) + " OR " + above,
                  column + " = " + literal(low) + " OR " + beside + " >= " + literal(other),
                  below + " OR " + beside + " IN (" + literal(other) + ", " + literal(others) + ")"}) {
                const std::string sql = "SELECT * FROM " + name + " WHERE " + condition;
                EXPECT_EQ(sorted(rows(sql)), sorted(plain.run(sql))) << sql;
                if (rows(sql, true).dump().find("MULTI-INDEX OR") != std::string::npos) read_in_parts.insert(name);
            }
        }
    }
    // Of clocks no condition is told to the store, and what is put in memory as it is named is SQLite's own.
    for (const SqlTableInfo& table : sql_tables())
        if (table.kind == SqlTableInfo::Kind::history && table.name != "clocks") {
            EXPECT_EQ(read_in_parts.count(std::string(table.name)), 1u) << table.name;
        }
}

TEST_F(SqlOr, TheNumberOfARowIsItsOwnWhateverIsAskedFor) {
    for (const SqlTableInfo& table : sql_tables()) {
        if (table.kind != SqlTableInfo::Kind::history) continue;
        const std::string name(table.name);
        const json all = rows("SELECT rowid, * FROM " + name);
        std::set<json> numbers;
        for (const json& row : all) numbers.insert(row[0]);
        EXPECT_EQ(numbers.size(), all.size()) << name << " has two rows of one number";
        for (size_t i = 0; i < table.columns.size(); ++i) {
            const auto [low, high] = values_of(all, i + 1);
            if (low.is_null()) continue;
            const std::string column = "\"" + std::string(table.columns[i].name) + "\"";
            const std::string from = "SELECT rowid, * FROM " + name + " WHERE ";
            for (const char* operation : {" > ", " < ", " = "})
                EXPECT_EQ(sorted(rows(from + column + operation + literal(low))),
                          sorted(rows(from + "+" + column + operation + literal(low))))
                    << name << "." << column << operation << low;
        }
    }
}

/// Statements that people wrote, as far as SQLite itself understands them: a number of an op or a source is a name
/// here. Which rows a limit leaves, where several are alike, is SQLite's choice.
TEST_F(SqlOr, PublishedStatementsGiveWhatSqliteGives) {
    PlainDatabase plain;
    for (const SqlTableInfo& table : sql_tables())
        plain.add_table(table, rows("SELECT * FROM " + std::string(table.name)));
    std::ifstream file(INGERO_PUBLISHED_SQL);
    size_t compared = 0;
    std::set<std::string> without_rows;
    for (std::string sql; std::getline(file, sql);) {
        const auto has = [&](const char* text) { return sql.find(text) != std::string::npos; };
        if (sql.empty() || sql.starts_with("--") || has("op_id") || has("source = ")) continue;
        const json all = sorted(plain.run(std::regex_replace(sql, std::regex(" LIMIT [0-9]+"), "")));
        const json own = sorted(rows(sql));
        EXPECT_EQ(own.size(), plain.run(sql).size()) << sql;
        EXPECT_TRUE(std::includes(all.begin(), all.end(), own.begin(), own.end())) << sql << own;
        ++compared;
        if (own.empty()) without_rows.insert(sql.substr(0, 30));
    }
    EXPECT_EQ(compared, 24u);
    EXPECT_THAT(without_rows, testing::ElementsAre("SELECT * FROM events WHERE tim")) << "from before these rows";
}

}  // namespace
}  // namespace ingero
