#include "core/sql/groups/grouped_statement.h"

#include <algorithm>
#include <utility>

#include "core/sql/groups/grouped_select.h"

namespace ingero {

namespace group_columns {
std::string bucket(size_t number) {
    return "~bucket " + std::to_string(number);
}
std::string sum(size_t number) {
    return "~sum " + std::to_string(number);
}
std::string count(size_t number) {
    return "~count " + std::to_string(number);
}
std::string least(size_t number) {
    return "~least " + std::to_string(number);
}
std::string most(size_t number) {
    return "~most " + std::to_string(number);
}
}  // namespace group_columns

std::string groups_table(size_t number) {
    return "groups_of_events_" + std::to_string(number);
}

std::string StatementWriter::write(SqlSpan span) {
    // Each SELECT that is not understood has those in it written twice.
    constexpr size_t most_depth = 4;
    if (depth_ == most_depth) throw NotUnderstood();
    const size_t depth = depth_++;
    std::string text;
    const size_t before = groupings.size();
    if (!span.empty() && tokens_[span.first].is_word("select") && before < most_groupings) {
        // Before it is written: SELECTs in it come later.
        groupings.emplace_back();
        Grouping grouping;
        try {
            text = GroupedSelect(*this, tokens_, span).write(grouping, before);
            groupings[before] = std::move(grouping);
        } catch (const NotUnderstood&) {
            groupings.resize(before);
            depth_ = depth + 1;
        }
    }
    if (text.empty()) text = as_it_is(span);
    depth_ = depth;
    return text;
}

std::string StatementWriter::as_it_is(SqlSpan span) {
    std::string text;
    for (size_t i = span.first; i < span.last; ++i) {
        text.append(text.empty() ? "" : " ").append(tokens_[i].text);
        if (!tokens_[i].is_symbol("(") || i + 1 >= span.last || !tokens_[i + 1].is_word("select")) continue;
        const size_t close = match(i, span.last);
        text += " " + write({i + 1, close}) + " )";
        i = close;
    }
    return text;
}

size_t StatementWriter::match(size_t at, size_t last) const {
    size_t depth = 0;
    for (size_t i = at; i < last; ++i) {
        if (tokens_[i].is_symbol("(")) ++depth;
        if (tokens_[i].is_symbol(")") && --depth == 0) return i;
    }
    throw NotUnderstood();
}

std::optional<GroupedStatement> grouped_statement(std::string_view sql) {
    const auto tokens = sql_tokens(sql);
    if (!tokens) return std::nullopt;
    // What WITH names might be events, and a name of ours an alias.
    const auto is_refused = [](const SqlToken& one) {
        return one.is_word("with") || one.is_word("explain") || (one.is_name() && one.name.starts_with('~'));
    };
    if (std::any_of(tokens->begin(), tokens->end(), is_refused)) return std::nullopt;
    size_t last = tokens->size();
    while (last > 0 && (*tokens)[last - 1].is_symbol(";")) --last;
    StatementWriter writer(*tokens);
    try {
        GroupedStatement statement;
        statement.sql = writer.write({0, last});
        if (writer.groupings.empty()) return std::nullopt;
        statement.groupings = std::move(writer.groupings);
        return statement;
    } catch (const NotUnderstood&) {
        return std::nullopt;
    }
}

}  // namespace ingero
