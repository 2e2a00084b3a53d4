// Expressions of a SELECT that is answered by groups.
#include <array>
#include <charconv>

#include "core/sql/groups/grouped_select.h"
#include "core/sql/groups/grouped_statement.h"

namespace ingero {

using Kind = SqlToken::Kind;

namespace {

// What a SELECT has with any of these is not understood.
constexpr auto refused_words = std::to_array<std::string_view>(
    {"all",     "cross", "except", "exists",    "filter", "full",  "indexed", "inner",  "intersect", "join", "left",
     "natural", "outer", "over",   "recursive", "right",  "union", "using",   "values", "window",    "with"});

constexpr auto keywords = std::to_array<std::string_view>(
    {"and",   "as",    "asc",  "between", "case", "cast",    "collate", "desc", "else",    "end",     "escape",
     "false", "first", "glob", "in",      "is",   "isnull",  "last",    "like", "not",     "notnull", "null",
     "nulls", "or",    "then", "true",    "when", "integer", "real",    "text", "numeric", "int"});

/// Of one row's values, and the same each time.
constexpr auto scalar_functions = std::to_array<std::string_view>(
    {"abs",       "bytes_h", "ceil",        "ceiling", "coalesce", "date",      "datetime", "errno_name", "floor",
     "format",    "hex",     "ifnull",      "iif",     "instr",    "length",    "lower",    "ltrim",      "nullif",
     "op_name",   "printf",  "quote",       "replace", "round",    "rtrim",     "sign",     "strftime",   "substr",
     "substring", "time",    "time_bucket", "trim",    "typeof",   "unixepoch", "upper"});

std::optional<EventColumn> event_column(std::string_view name) {
    const auto columns = event_columns();
    for (size_t i = 0; i < columns.size(); ++i)
        if (columns[i].name == name) return static_cast<EventColumn>(i);
    return std::nullopt;
}

}  // namespace

bool is_refused_word(const SqlToken& token) {
    return token.kind == Kind::word && is_one_of(refused_words, std::string_view(token.name));
}

bool is_keyword(const SqlToken& token) {
    return token.kind == Kind::word && is_one_of(keywords, std::string_view(token.name));
}

std::string quoted_name(std::string_view name) {
    std::string result = "\"";
    for (const char c : name) result.append(c == '"' ? 2 : 1, c);
    return result + "\"";
}

/// The column that is named there, with its table's name or without.
std::optional<EventColumn> GroupedSelect::column_at(size_t at, size_t& ret_next) const {
    const auto is_dot = [&](size_t place) { return place < span_.last && tokens_[place].is_symbol("."); };
    if (at >= span_.last || !tokens_[at].is_name()) return std::nullopt;
    if (is_dot(at + 1)) {
        if (tokens_[at].name != qualifier_ || at + 2 >= span_.last || is_dot(at + 3)) return std::nullopt;
        at += 2;
    }
    ret_next = at + 1;
    return tokens_[at].is_name() ? event_column(tokens_[at].name) : std::nullopt;
}

/// With the table's name: by itself it might be that of an alias.
std::string GroupedSelect::own(std::string_view column) const {
    return quoted_name(qualifier_) + "." + quoted_name(column);
}

std::string GroupedSelect::key(EventColumn column) {
    if (!key_sources(column)) throw NotUnderstood();
    if (!grouping_->has_key(column)) grouping_->keys.push_back(column);
    if (grouping_->stored().size() > Grouping::most_stored) throw NotUnderstood();
    return own(event_columns()[static_cast<size_t>(column)].name);
}

size_t GroupedSelect::sum(EventColumn column, std::optional<EventColumn> times, bool summed) {
    auto found = std::find_if(grouping_->sums.begin(), grouping_->sums.end(),
                              [&](const Grouping::Sum& one) { return one.is_of(column, times); });
    if (found == grouping_->sums.end()) {
        if (grouping_->sums.size() == Grouping::most_sums) throw NotUnderstood();
        found = grouping_->sums.insert(found, {column, times, false});
    }
    found->summed |= summed;
    return static_cast<size_t>(found - grouping_->sums.begin());
}

/// Whether the column at `at` is divided by a number before anything else is done with it.
bool GroupedSelect::is_divided(size_t at, size_t behind) const {
    if (behind + 1 >= span_.last || !tokens_[behind].is_symbol("/") || tokens_[behind + 1].kind != Kind::integer)
        return false;
    const SqlToken& before = tokens_[at - 1];
    constexpr auto words = std::to_array<std::string_view>(
        {"and", "by", "case", "distinct", "else", "having", "not", "or", "select", "then", "when"});
    constexpr auto symbols =
        std::to_array<std::string_view>({"(", ",", "+", "=", "==", "<>", "!=", "<", "<=", ">", ">="});
    const bool begins = (before.kind == Kind::word && is_one_of(words, before.name)) ||
                        (before.kind == Kind::symbol && is_one_of(symbols, before.text));
    if (!begins || behind + 2 >= span_.last) return begins;
    const SqlToken& after = tokens_[behind + 2];
    return !after.is_symbol("||") && !after.is_symbol("->") && !after.is_symbol("->>") && !after.is_symbol(".") &&
           !after.is_word("collate");
}

std::string GroupedSelect::atom(size_t at, size_t& ret_next, Atoms* ret_atoms) {
    const auto column = column_at(at, ret_next);
    if (!column) throw NotUnderstood();
    std::string text, name(event_columns()[static_cast<size_t>(*column)].name);
    if (can_be_divided(*column) && is_divided(at, ret_next)) {
        const std::string_view digits = tokens_[ret_next + 1].text;
        Grouping::Bucket bucket{*column, 0};
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bucket.width);
        if (error != std::errc() || end != digits.data() + digits.size() || bucket.width <= 0) throw NotUnderstood();
        auto& buckets = grouping_->buckets;
        auto found = std::find(buckets.begin(), buckets.end(), bucket);
        if (found == buckets.end()) {
            if (buckets.size() == Grouping::most_buckets) throw NotUnderstood();
            found = buckets.insert(found, bucket);
        }
        name = group_columns::bucket(static_cast<size_t>(found - buckets.begin()));
        // A quotient has no affinity, as a column has.
        text = "+" + own(name);
        ret_next += 2;
    } else {
        text = key(*column);
    }
    if (ret_atoms) ret_atoms->insert(name);
    return text;
}

/// Of an item, which is looked at by itself.
bool GroupedSelect::is_alias(const SqlToken& token) const {
    return std::any_of(items_.begin(), items_.end(),
                       [&](const Item& item) { return !item.alias.empty() && item.alias == token.name; });
}

/// `ret_atoms`: nullptr within an aggregate.
std::string GroupedSelect::expression(SqlSpan span, Atoms* ret_atoms) {
    std::string text;
    const auto add = [&](std::string_view more) { text.append(text.empty() ? "" : " ").append(more); };
    for (size_t at = span.first; at < span.last;) {
        const SqlToken& token = tokens_[at];
        const bool opens = at + 1 < span.last && tokens_[at + 1].is_symbol("(");
        if (token.is_symbol("(") && at + 1 < span.last && tokens_[at + 1].is_word("select")) throw NotUnderstood();
        if (is_refused_word(token)) throw NotUnderstood();
        if (token.kind == Kind::word && opens && !is_keyword(token)) {
            const auto is_aggregate =
                is_one_of(std::to_array<std::string_view>({"avg", "count", "max", "min", "sum", "total"}), token.name);
            if (is_aggregate && ret_atoms) {
                const size_t close = match(at + 1);
                add(aggregate(token.name, {at + 2, close}));
                aggregated_ = true;
                at = close + 1;
                continue;
            }
            if (is_aggregate || !is_one_of(scalar_functions, token.name)) throw NotUnderstood();
            add(token.text);
            ++at;
        } else if (is_keyword(token)) {
            add(token.text);
            ++at;
        } else if (size_t next = 0; token.is_name() && !column_at(at, next) && is_alias(token)) {
            add(token.text);
            ++at;
        } else if (token.is_name()) {
            add(atom(at, at, ret_atoms));
        } else if (token.is_symbol(".") || token.is_symbol(";") || token.is_symbol("->") || token.is_symbol("->>")) {
            throw NotUnderstood();
        } else {
            add(token.text);
            ++at;
        }
    }
    return text;
}

/// A sum over rows of what is the same in a group's: where it may be no whole number, another sum would be rounded
/// otherwise.
std::string GroupedSelect::of_case(std::string_view function, SqlSpan arguments) {
    const size_t last = arguments.last - 1;
    if (!tokens_[arguments.first].is_word("case") || !tokens_[last].is_word("end")) throw NotUnderstood();
    size_t cases = 0;
    for (size_t at = arguments.first; at < arguments.last; ++at) {
        if (tokens_[at].is_word("case")) ++cases;
        if (!tokens_[at].is_word("then") && !tokens_[at].is_word("else")) continue;
        const SqlToken& value = tokens_[at + 1];
        const bool is_whole = (value.kind == Kind::integer && value.text.size() < 7) || value.is_word("null");
        const SqlToken& after = tokens_[at + 2];
        if (!is_whole || !(after.is_word("when") || after.is_word("else") || after.is_word("end")))
            throw NotUnderstood();
    }
    if (cases != 1) throw NotUnderstood();
    const std::string value = "(" + expression(arguments, nullptr) + ")";
    const std::string rows = own(group_columns::rows);
    const std::string count = "sum((" + value + " IS NOT NULL) * " + rows + ")";
    if (function == "count") return "coalesce(" + count + ", 0)";
    if (function == "min" || function == "max") return std::string(function) + "(" + value + ")";
    if (function == "avg") return "(CAST(sum(" + value + " * " + rows + ") AS REAL) / " + count + ")";
    return std::string(function) + "(" + value + " * " + rows + ")";
}

std::string GroupedSelect::aggregate(std::string_view function, SqlSpan arguments) {
    if (arguments.empty()) throw NotUnderstood();
    const std::string rows = own(group_columns::rows);
    const SqlToken& only = tokens_[arguments.first];
    if (arguments.size() == 1 && (only.is_symbol("*") || (only.kind == Kind::integer && function == "count"))) {
        if (function != "count") throw NotUnderstood();
        return "coalesce(sum(" + rows + "), 0)";
    }
    size_t next = arguments.first;
    if (tokens_[arguments.first].is_word("distinct")) {
        const auto column = column_at(arguments.first + 1, next);
        if (function != "count" || !column || next != arguments.last) throw NotUnderstood();
        return "count(DISTINCT " + key(*column) + ")";
    }
    const auto column = column_at(arguments.first, next);
    std::optional<EventColumn> times;
    if (column && next + 1 < arguments.last && tokens_[next].is_symbol("*")) {
        times = column_at(next + 1, next);
        if (!times || next != arguments.last || !can_be_summed(*times)) throw NotUnderstood();
    }
    if (!column || next != arguments.last) return of_case(function, arguments);
    if (!can_be_summed(*column)) {
        if (times) throw NotUnderstood();
        const std::string name = key(*column);
        if (function == "min" || function == "max") return std::string(function) + "(" + name + ")";
        if (function == "count") return "coalesce(sum((" + name + " IS NOT NULL) * " + rows + "), 0)";
        throw NotUnderstood();
    }
    const bool summed = function == "sum" || function == "avg" || function == "total";
    const size_t number = sum(*column, times, summed);
    const std::string sum_of = own(group_columns::sum(number)), count_of = own(group_columns::count(number));
    if (function == "count") return "coalesce(sum(" + count_of + "), 0)";
    if (function == "min") return "min(" + own(group_columns::least(number)) + ")";
    if (function == "max") return "max(" + own(group_columns::most(number)) + ")";
    if (function == "avg") return "(CAST(sum(" + sum_of + ") AS REAL) / sum(" + count_of + "))";
    return std::string(function) + "(" + sum_of + ")";
}

/// Names without regard to case and to their table's name.
std::string GroupedSelect::same_text(SqlSpan span) const {
    std::string text;
    for (size_t at = span.first; at < span.last;) {
        size_t next = at + 1;
        const auto column = column_at(at, next);
        if (column)
            text.append(" \"").append(event_columns()[static_cast<size_t>(*column)].name).append("\"");
        else
            text.append(" ").append(tokens_[at].is_name() ? tokens_[at].name : std::string(tokens_[at].text));
        at = column ? next : at + 1;
    }
    return text;
}

/// Whether the statement groups by what a column's value follows from.
bool GroupedSelect::follows(const std::string& atom) const {
    const auto grouped = [&](std::initializer_list<const char*> names) {
        return std::all_of(names.begin(), names.end(), [&](const char* name) { return group_atoms_.contains(name); });
    };
    const auto is = [&](std::initializer_list<std::string_view> names) { return is_one_of(names, atom); };
    if (group_atoms_.contains(atom)) return true;
    if (is({"op_num", "op"})) return grouped({"op", "source"}) || grouped({"op_num", "source_num"});
    if (is({"source_num", "source"})) return grouped({"source"}) || grouped({"source_num"});
    if (is({"device", "gpu_id"})) return grouped({"device"}) || grouped({"gpu_id"});
    const bool is_of_process = is({"comm", "cgroup_id", "rank", "local_rank", "world_size"});
    if (!is_of_process && !is({"pid"})) return false;
    if (!(is_of_process && grouped({"pid"})) && !grouped({"tid"})) return false;
    grouping_->one_process = true;
    return true;
}

bool GroupedSelect::is_determined(SqlSpan span, const Atoms& atoms) const {
    return std::all_of(atoms.begin(), atoms.end(), [&](const std::string& atom) { return follows(atom); }) ||
           group_texts_.contains(same_text(span));
}

/// Whether an OR is beside the token, or beside parentheses that it is in: blocks do not answer what is there.
std::vector<bool> GroupedSelect::within_or(SqlSpan span) const {
    std::vector<bool> within(span.size()), ors = {false};
    std::vector<size_t> opened = {span.first};
    const auto close = [&](size_t end) {
        if (ors.back())
            std::fill(within.begin() + static_cast<std::ptrdiff_t>(opened.back() - span.first),
                      within.begin() + static_cast<std::ptrdiff_t>(end - span.first), true);
        ors.pop_back();
        opened.pop_back();
    };
    for (size_t at = span.first; at < span.last; ++at) {
        if (tokens_[at].is_symbol("(")) {
            ors.push_back(false);
            opened.push_back(at);
        } else if (tokens_[at].is_symbol(")")) {
            if (ors.size() == 1) throw NotUnderstood();
            close(at);
        } else if (tokens_[at].is_word("or")) {
            ors.back() = true;
        }
    }
    if (ors.size() != 1) throw NotUnderstood();
    close(span.last);
    return within;
}

/// Whether the column, which blocks answer, is compared by itself.
bool GroupedSelect::is_compared(size_t at, size_t behind) const {
    const auto compares = [&](size_t place) {
        return place > where_.first && place < where_.last &&
               is_one_of(std::to_array<std::string_view>({"=", "==", "<", "<=", ">", ">="}), tokens_[place].text);
    };
    if (behind >= where_.last) return compares(at - 1);
    return compares(behind) || compares(at - 1) || tokens_[behind].is_word("between") || tokens_[behind].is_word("in");
}

/// An operation or a source has a name and a number. SQLite knows of the name alone; where blocks answer, of both.
void GroupedSelect::check_numbered(size_t at, size_t behind) const {
    const auto is_number = [&](size_t place) {
        return place >= where_.first && place < where_.last &&
               (tokens_[place].kind == Kind::integer || tokens_[place].kind == Kind::number);
    };
    for (size_t place = behind; place < where_.last && !tokens_[place].is_symbol(")"); ++place) {
        if (tokens_[place].is_word("and") || tokens_[place].is_word("or")) break;
        if (is_number(place)) throw NotUnderstood();
    }
    if (at >= where_.first + 2 && is_number(at - 2)) throw NotUnderstood();
}

std::string GroupedSelect::condition() {
    std::string text;
    const auto add = [&](std::string_view more) { text.append(text.empty() ? "" : " ").append(more); };
    const std::vector<bool> within = within_or(where_);
    for (size_t at = where_.first; at < where_.last;) {
        const SqlToken& token = tokens_[at];
        const bool opens = at + 1 < where_.last && tokens_[at + 1].is_symbol("(");
        if (token.is_symbol("(") && at + 1 < where_.last && tokens_[at + 1].is_word("select")) {
            const size_t close = match(at);
            add("( " + writer_.write({at + 1, close}) + " )");
            at = close + 1;
            continue;
        }
        // Others may have another value for each row.
        if (token.kind == Kind::word && opens && !is_keyword(token) && !is_one_of(scalar_functions, token.name))
            throw NotUnderstood();
        const size_t first = at;
        size_t next = at + 1;
        const auto column = token.is_name() ? column_at(at, next) : std::nullopt;
        if (!column) {
            if (token.is_symbol(".")) throw NotUnderstood();
            add(token.text);
            ++at;
            continue;
        }
        at = next;
        add(own(event_columns()[static_cast<size_t>(*column)].name));
        const bool is_answered = !within[first - where_.first] && is_compared(first, next);
        switch (*column) {
            case EventColumn::id:
            case EventColumn::timestamp:
            case EventColumn::start_ns:
            case EventColumn::duration:
            case EventColumn::duration_ns:
                if (!is_answered) throw NotUnderstood();
                break;
            case EventColumn::pid:
            case EventColumn::tid:
                if (!is_answered) key(*column);
                break;
            case EventColumn::op:
            case EventColumn::source:
                if (within[first - where_.first]) check_numbered(first, next);
                break;
            default:
                key(*column);  // the same in a group, where SQLite looks at it
        }
    }
    return text;
}

}  // namespace ingero
