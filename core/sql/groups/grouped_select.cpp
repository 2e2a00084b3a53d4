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
        if (clause.first != 0) throw NotUnderstood();  // as in IS DISTINCT FROM
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
    if (span.size() < 2 || !last.is_name() || is_keyword(last)) return item;
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
void GroupedSelect::check_groups() const {
    if (group_.empty() && !aggregated_) {
        if (!distinct_) throw NotUnderstood();
        return;
    }
    for (const Item& item : items_)
        if (!is_determined(item.span, item.atoms)) throw NotUnderstood();
}

std::string GroupedSelect::order(SqlSpan term) {
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
    if (value.size() == 1 && ((token.is_name() && is_alias(token)) || token.kind == Kind::integer))
        return std::string(token.text) + " " + direction;
    Atoms atoms;
    std::string text = expression(value, &atoms);
    if (group_.empty() ? atoms.empty() && aggregated_ : is_determined(value, atoms)) return text + " " + direction;
    const std::string compared = same_text(value);
    if (std::none_of(items_.begin(), items_.end(), [&](const Item& item) { return item.compared == compared; }))
        throw NotUnderstood();
    return text + " " + direction;
}

std::string GroupedSelect::write(Grouping& ret_grouping, size_t number) {
    grouping_ = &ret_grouping;
    find_clauses();
    for (const SqlSpan& part : split(list_)) items_.push_back(item(part));
    std::string list, groups;
    for (Item& one : items_) {
        if (one.span.size() == 1 && tokens_[one.span.first].is_symbol("*")) throw NotUnderstood();
        list += (list.empty() ? " " : ", ") + expression(one.span, &one.atoms);
        one.compared = same_text(one.span);
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
                if (place == 0 || place > items_.size()) throw NotUnderstood();
                text = token.text;
                part = items_[place - 1].span;
            } else if (part.size() == 1 && token.is_name() && !column_at(part.first, next)) {
                const auto named = std::find_if(items_.begin(), items_.end(),
                                                [&](const Item& one) { return one.alias == token.name; });
                if (named == items_.end()) throw NotUnderstood();
                text = token.text;
                part = named->span;
            }
            Atoms atoms;
            const bool before = std::exchange(aggregated_, false);
            const std::string value = expression(part, &atoms);
            if (aggregated_) throw NotUnderstood();
            aggregated_ = before;
            if (atoms.size() == 1 && (value == own(*atoms.begin()) || value == "+" + own(*atoms.begin())))
                group_atoms_.insert(*atoms.begin());
            group_texts_.insert(same_text(part));
            groups += (groups.empty() ? " " : ", ") + (text.empty() ? value : text);
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
        for (const SqlSpan& part : split(order_)) orders += (orders.empty() ? " " : ", ") + order(part);
    check_groups();
    // Which of the distinct rows, an order alone says.
    if (distinct_ && !limit_.empty() && order_.empty()) throw NotUnderstood();
    // The first or the latest time is that of one row, which is found at once.
    const auto& sums = grouping_->sums;
    if (items_.size() == 1 && group_.empty() && sums.size() == 1 && !sums[0].summed &&
        (sums[0].column == EventColumn::timestamp || sums[0].column == EventColumn::start_ns))
        throw NotUnderstood();
    std::string text = "SELECT" + std::string(distinct_ ? " DISTINCT" : "") + list + " FROM " + groups_table(number) +
                       " AS " + quoted_name(qualifier_);
    if (!where_.empty()) text += " WHERE " + condition();
    if (!groups.empty()) text += " GROUP BY" + groups;
    if (!having.empty()) text += " HAVING " + having;
    if (!orders.empty()) text += " ORDER BY" + orders;
    if (!limit_.empty()) text += " LIMIT " + writer_.as_it_is(limit_);
    return text;
}

}  // namespace ingero
