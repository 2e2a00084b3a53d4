#include "core/sql/groups/grouped_select.h"

#include <charconv>
#include <utility>

#include "core/sql/groups/grouped_statement.h"

namespace ingero {

using Kind = SqlToken::Kind;

size_t GroupedSelect::match(size_t at) const {
    return writer_.match(at, span_.last);
}

/// Commas outside of parentheses part it.
std::vector<SqlSpan> GroupedSelect::split(SqlSpan span) const {
    std::vector<SqlSpan> parts = {{span.first, span.first}};
    for (size_t i = span.first; i < span.last; ++i) {
        if (tokens_[i].is_symbol("(")) i = match(i);
        if (tokens_[i].is_symbol(",")) {
            parts.back().last = i;
            parts.push_back({i + 1, i + 1});
        }
    }
    parts.back().last = span.last;
    if (std::any_of(parts.begin(), parts.end(), [](const SqlSpan& one) { return one.empty(); })) throw NotUnderstood();
    return parts;
}

void GroupedSelect::find_clauses() {
    SqlSpan from;
    SqlSpan* now = &list_;
    size_t at = span_.first + 1;
    distinct_ = at < span_.last && tokens_[at].is_word("distinct");
    at += distinct_ ? 1 : 0;
    list_ = {at, at};
    const auto begin = [&](SqlSpan& clause, size_t words) {
        now->last = at;
        at += words;
        clause = {at, at};
        now = &clause;
    };
    while (at < span_.last) {
        const SqlToken& token = tokens_[at];
        if (is_refused_word(token)) throw NotUnderstood();
        const bool by = at + 1 < span_.last && tokens_[at + 1].is_word("by");
        if (token.is_symbol("("))
            at = match(at) + 1;
        else if (token.is_word("from"))
            begin(from, 1);
        else if (token.is_word("where"))
            begin(where_, 1);
        else if (token.is_word("group") && by)
            begin(group_, 2);
        else if (token.is_word("having"))
            begin(having_, 1);
        else if (token.is_word("order") && by)
            begin(order_, 2);
        else if (token.is_word("limit"))
            begin(limit_, 1);
        else if (token.is_word("select") || token.is_symbol(";"))
            throw NotUnderstood();
        else
            ++at;
    }
    now->last = span_.last;
    // One table of events, with another name or without.
    if (from.empty() || !tokens_[from.first].is_name()) throw NotUnderstood();
    const SqlTableInfo* const table = find_sql_table(tokens_[from.first].name);
    if (!table || table->kind != SqlTableInfo::Kind::events) throw NotUnderstood();
    grouping_->table = table->name;
    qualifier_ = table->name;
    size_t next = from.first + 1;
    if (next < from.last && tokens_[next].is_word("as")) ++next;
    if (next < from.last && tokens_[next].is_name()) qualifier_ = tokens_[next++].name;
    if (next != from.last || list_.empty()) throw NotUnderstood();
}

GroupedSelect::Item GroupedSelect::item(SqlSpan span) const {
    Item item;
    item.span = span;
    const SqlToken& last = tokens_[span.last - 1];
    if (span.size() < 2 || !last.is_name() || (is_keyword(last))) return item;
    const SqlToken& before = tokens_[span.last - 2];
    const bool named = before.is_word("as");
    // What ends a value, with a name behind it.
    const bool follows = before.is_symbol(")") || before.kind == Kind::quoted || before.kind == Kind::text ||
                         before.kind == Kind::integer || before.kind == Kind::number || before.is_word("end") ||
                         before.is_word("null") || (before.kind == Kind::word && !is_keyword(before));
    if (!named && !follows) return item;
    item.alias = last.name;
    item.alias_span = {span.last - 1, span.last};
    item.span.last = span.last - (named ? 2 : 1);
    if (item.span.empty()) throw NotUnderstood();
    return item;
}

/// Of a group, a column that it is not grouped by has the value of some row; which one, SQLite alone knows.
void GroupedSelect::check_groups(const std::vector<Item>& items) const {
    if (group_.empty() && !aggregated_) {
        if (!distinct_) throw NotUnderstood();
        return;
    }
    for (const Item& item : items)
        if (!is_determined(item.span, item.atoms)) throw NotUnderstood();
}

std::string GroupedSelect::order(SqlSpan term, const std::vector<Item>& items) {
    SqlSpan value = term;
    std::string direction;
    const auto drop = [&](size_t words) {
        direction = writer_.as_it_is({value.last - words, value.last}) + " " + direction;
        value.last -= words;
    };
    if (value.size() > 2 && tokens_[value.last - 2].is_word("nulls")) drop(2);
    if (value.size() > 1 && (tokens_[value.last - 1].is_word("asc") || tokens_[value.last - 1].is_word("desc")))
        drop(1);
    const SqlToken& token = tokens_[value.first];
    const bool is_alias =
        value.size() == 1 && token.is_name() && std::any_of(items.begin(), items.end(), [&](const Item& item) {
            return !item.alias.empty() && item.alias == token.name;
        });
    if (is_alias || (value.size() == 1 && token.kind == Kind::integer))
        return std::string(token.text) + " " + direction;
    Atoms atoms;
    std::string text = expression(value, &atoms);
    const bool is_item = std::any_of(items.begin(), items.end(),
                                     [&](const Item& item) { return same_text(item.span) == same_text(value); });
    if (!is_item && !(group_.empty() ? atoms.empty() && aggregated_ : is_determined(value, atoms)))
        throw NotUnderstood();
    return text + " " + direction;
}

std::string GroupedSelect::write(Grouping& ret_grouping, size_t number) {
    grouping_ = &ret_grouping;
    find_clauses();
    std::vector<Item> items;
    for (const SqlSpan& part : split(list_)) items.push_back(item(part));
    std::string list, groups;
    for (Item& one : items) {
        one.text = expression(one.span, &one.atoms);
        list += (list.empty() ? " " : ", ") + one.text;
        size_t next = 0;
        const bool is_column = column_at(one.span.first, next) && next == one.span.last;
        if (!one.alias_span.empty()) {
            list.append(" AS ").append(tokens_[one.alias_span.first].text);
        } else if (!is_column) {
            const std::string_view first = tokens_[one.span.first].text, last = tokens_[one.span.last - 1].text;
            list += " AS " + quoted_name(std::string_view(
                                 first.data(), static_cast<size_t>(last.data() + last.size() - first.data())));
        }
    }
    if (!group_.empty()) {
        for (SqlSpan part : split(group_)) {
            const SqlToken& token = tokens_[part.first];
            size_t next = 0;
            std::string text;
            if (part.size() == 1 && token.kind == Kind::integer) {
                size_t place = 0;
                std::from_chars(token.text.data(), token.text.data() + token.text.size(), place);
                if (place == 0 || place > items.size()) throw NotUnderstood();
                text = token.text;
                part = items[place - 1].span;
            } else if (part.size() == 1 && token.is_name() && !column_at(part.first, next)) {
                const auto named =
                    std::find_if(items.begin(), items.end(), [&](const Item& one) { return one.alias == token.name; });
                if (named == items.end()) throw NotUnderstood();
                text = token.text;
                part = named->span;
            }
            Atoms atoms;
            const bool before = std::exchange(aggregated_, false);
            std::string own = expression(part, &atoms);
            if (aggregated_) throw NotUnderstood();
            aggregated_ = before;
            if (atoms.size() == 1 && *atoms.begin() == own) group_atoms_.insert(own);
            group_texts_.insert(same_text(part));
            groups += (groups.empty() ? " " : ", ") + (text.empty() ? own : text);
        }
    }
    std::string having;
    if (!having_.empty()) {
        Atoms atoms;
        having = expression(having_, &atoms);
        if (group_.empty() || !is_determined({0, 0}, atoms)) throw NotUnderstood();
    }
    std::string orders;
    if (!order_.empty())
        for (const SqlSpan& part : split(order_)) orders += (orders.empty() ? " " : ", ") + order(part, items);
    check_groups(items);
    std::string text = "SELECT" + std::string(distinct_ ? " DISTINCT" : "") + list + " FROM " + groups_table(number);
    if (!where_.empty()) text += " WHERE " + condition(where_);
    if (!groups.empty()) text += " GROUP BY" + groups;
    if (!having.empty()) text += " HAVING " + having;
    if (!orders.empty()) text += " ORDER BY" + orders;
    if (!limit_.empty()) text += " LIMIT " + writer_.as_it_is(limit_);
    return text;
}

}  // namespace ingero
