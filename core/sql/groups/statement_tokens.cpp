#include "core/sql/groups/statement_tokens.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace ingero {

namespace {

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// Bytes of characters that ASCII has not are letters to SQLite.
bool begins_name(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

bool is_of_name(char c) {
    return begins_name(c) || is_digit(c) || c == '$';
}

constexpr auto symbols =
    std::to_array<std::string_view>({"->>", "->", "||", "<<", ">>", "<=", ">=", "<>", "!=", "==", "(", ")", ",",
                                     ";",   "+",  "-",  "*",  "/",  "%",  "&",  "|",  "~",  "<",  ">", "=", "."});

/// Behind the quote that ends what begins at `at`; two of them stand for one. npos where there is none.
size_t end_of_quoted(std::string_view sql, size_t at, char quote) {
    for (size_t i = at + 1; i < sql.size(); ++i) {
        if (sql[i] != quote) continue;
        if (quote != ']' && i + 1 < sql.size() && sql[i + 1] == quote) {
            ++i;
            continue;
        }
        return i + 1;
    }
    return std::string_view::npos;
}

/// As SQLite has it: digits, a fraction, an exponent; or 0x and digits.
size_t end_of_number(std::string_view sql, size_t at) {
    const auto is = [&](size_t place, std::string_view any) {
        return place < sql.size() && any.find(sql[place]) != std::string_view::npos;
    };
    constexpr std::string_view digits = "0123456789";
    if (sql[at] == '0' && is(at + 1, "xX") && is(at + 2, "0123456789abcdefABCDEF")) {
        for (at += 2; is(at, "0123456789abcdefABCDEF");) ++at;
        return at;
    }
    while (is(at, digits)) ++at;
    if (is(at, "."))
        for (++at; is(at, digits);) ++at;
    const size_t exponent = at + (is(at + 1, "+-") ? 2 : 1);
    if (is(at, "eE") && is(exponent, digits))
        for (at = exponent; is(at, digits);) ++at;
    return at;
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

/// Behind the blanks and comments at `at`; npos where a comment has no end, which SQLite takes for the statement's.
size_t skip_blanks(std::string_view sql, size_t at) {
    while (at < sql.size()) {
        if (is_space(sql[at])) {
            ++at;
        } else if (sql.substr(at, 2) == "--") {
            at = std::min(sql.find('\n', at), sql.size());
        } else if (sql.substr(at, 2) == "/*") {
            const size_t end = sql.find("*/", at + 2);
            if (end == std::string_view::npos) return end;
            at = end + 2;
        } else {
            break;
        }
    }
    return at;
}

}  // namespace

std::optional<std::vector<SqlToken>> sql_tokens(std::string_view sql) {
    using Kind = SqlToken::Kind;
    std::vector<SqlToken> tokens;
    // Which SQLite takes for a blank.
    if (sql.find("\xef\xbb\xbf") != std::string_view::npos) return std::nullopt;
    for (size_t at = skip_blanks(sql, 0); at < sql.size(); at = skip_blanks(sql, at)) {
        const char c = sql[at];
        SqlToken token;
        size_t end = at + 1;
        if (c == '\'') {
            end = end_of_quoted(sql, at, c);
            token.kind = Kind::text;
        } else if (c == '"' || c == '`' || c == '[') {
            end = end_of_quoted(sql, at, c == '[' ? ']' : c);
            token.kind = Kind::quoted;
            // A name with a quote in it is none of ours.
            if (end != std::string_view::npos) token.name = lower(sql.substr(at + 1, end - at - 2));
        } else if (is_digit(c) || (c == '.' && end < sql.size() && is_digit(sql[end]))) {
            end = end_of_number(sql, at);
            // Digits after a separator, as in 1_000, which not every SQLite has; or no number at all.
            if (end < sql.size() && is_of_name(sql[end])) return std::nullopt;
            const auto begin = sql.begin() + static_cast<std::ptrdiff_t>(at);
            const bool whole = std::all_of(begin, sql.begin() + static_cast<std::ptrdiff_t>(end), is_digit);
            token.kind = whole ? Kind::integer : Kind::number;
        } else if (begins_name(c)) {
            while (end < sql.size() && is_of_name(sql[end])) ++end;
            token.kind = Kind::word;
            token.name = lower(sql.substr(at, end - at));
            // x'00ff'
            if (token.name == "x" && end < sql.size() && sql[end] == '\'') {
                end = end_of_quoted(sql, end, '\'');
                token.kind = Kind::text;
            }
        } else {
            const auto symbol = std::find_if(symbols.begin(), symbols.end(),
                                             [&](std::string_view one) { return sql.substr(at).starts_with(one); });
            if (symbol == symbols.end()) return std::nullopt;
            end = at + symbol->size();
        }
        if (end == std::string_view::npos) return std::nullopt;
        token.text = sql.substr(at, end - at);
        if (tokens.size() == most_sql_tokens) return std::nullopt;
        tokens.push_back(std::move(token));
        at = end;
    }
    return tokens;
}

}  // namespace ingero
