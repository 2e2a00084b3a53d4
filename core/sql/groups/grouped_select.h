// How a statement is written anew by grouped_statement(): its SELECTs one by one. For files of this folder alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/sql/groups/grouping.h"
#include "core/sql/groups/statement_tokens.h"

namespace ingero {

using SqlTokens = std::vector<SqlToken>;

/// From `first` up to `last`, which is none of them.
struct SqlSpan {
    size_t first = 0, last = 0;
    bool empty() const { return first >= last; }
    size_t size() const { return last - first; }
};

/// Thrown where a SELECT is not understood; caught where it began.
struct NotUnderstood {};

bool is_one_of(const auto& all, const auto& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
}

/// What a SELECT has with it is not understood.
bool is_refused_word(const SqlToken& token);
/// That may be in an expression, and is no name.
bool is_keyword(const SqlToken& token);
/// "name", with its own quotes doubled.
std::string quoted_name(std::string_view name);

class StatementWriter;

/// One SELECT, of a statement that SQLite has understood.
class GroupedSelect {
  public:
    GroupedSelect(StatementWriter& writer, const SqlTokens& tokens, SqlSpan span)
        : writer_(writer), tokens_(tokens), span_(span) {}
    /// NotUnderstood.
    std::string write(Grouping& ret_grouping, size_t number);

  private:
    /// Names of columns that the value of an expression comes from, outside of aggregates.
    using Atoms = std::set<std::string>;
    struct Item {
        SqlSpan span;       ///< without its alias
        std::string alias;  ///< in lower case
        SqlSpan alias_span;
        std::string compared;  ///< same_text()
        Atoms atoms;
    };

    void find_clauses();
    std::vector<SqlSpan> split(SqlSpan span) const;
    Item item(SqlSpan span) const;
    std::string expression(SqlSpan span, Atoms* ret_atoms);
    std::string aggregate(std::string_view function, SqlSpan arguments);
    std::string of_case(std::string_view function, SqlSpan arguments);
    std::string condition();
    std::vector<bool> within_or(SqlSpan span) const;
    bool is_compared(size_t at, size_t behind) const;
    void check_numbered(size_t at, size_t behind) const;
    std::string order(SqlSpan term);
    bool is_alias(const SqlToken& token) const;
    std::string atom(size_t at, size_t& ret_next, Atoms* ret_atoms);
    std::optional<EventColumn> column_at(size_t at, size_t& ret_next) const;
    std::string own(std::string_view column) const;
    std::string key(EventColumn column);
    size_t sum(EventColumn column, std::optional<EventColumn> times, bool summed);
    bool is_divided(size_t at, size_t behind) const;
    void check_groups() const;
    bool follows(const std::string& atom) const;
    bool is_determined(SqlSpan span, const Atoms& atoms) const;
    std::string same_text(SqlSpan span) const;
    size_t match(size_t at) const;

    StatementWriter& writer_;
    const SqlTokens& tokens_;
    SqlSpan span_;
    Grouping* grouping_ = nullptr;
    SqlSpan list_, where_, group_, having_, order_, limit_;
    bool distinct_ = false, aggregated_ = false;
    std::string qualifier_;  ///< of the table
    std::vector<Item> items_;
    std::set<std::string> group_texts_;
    Atoms group_atoms_;
};

/// A whole statement.
class StatementWriter {
  public:
    explicit StatementWriter(const SqlTokens& tokens) : tokens_(tokens) {}
    /// Its SELECT by groups, where that is possible, and else as it is. NotUnderstood.
    std::string write(SqlSpan span);
    /// With the SELECTs in it. NotUnderstood.
    std::string as_it_is(SqlSpan span);
    /// Where what opens there is closed. NotUnderstood.
    size_t match(size_t at, size_t last) const;

    std::vector<Grouping> groupings;

  private:
    const SqlTokens& tokens_;
    size_t depth_ = 0;
};

}  // namespace ingero
