// Statements that put all rows of events into groups, written anew so that SQLite reads groups in place of rows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/sql/groups/grouping.h"

namespace ingero {

/// Columns of a table of groups besides those of events; no statement of a caller can name them.
namespace group_columns {
inline constexpr std::string_view rows = "~rows";
std::string bucket(size_t number);
std::string sum(size_t number);
std::string count(size_t number);
std::string least(size_t number);
std::string most(size_t number);
}  // namespace group_columns

/// "groups_of_events_0".
std::string groups_table(size_t number);

struct GroupedStatement {
    std::string sql;
    std::vector<Grouping> groupings;  ///< of groups_table(0), and so on
};

/// The statement with each SELECT that reads one table of events, and of it aggregates, columns that it groups by and
/// distinct columns alone, reading groups. Nothing where there is no such SELECT, or something in it is not understood:
/// the answer of the statement is always the other one's. What its WHERE asks for the table of groups decides on.
std::optional<GroupedStatement> grouped_statement(std::string_view sql);

}  // namespace ingero
