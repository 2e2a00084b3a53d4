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
            while (end < sql.size() && is_of_name(sql[end])) ++end;
            const bool whole = std::all_of(sql.begin() + static_cast<std::ptrdiff_t>(at),
                                           sql.begin() + static_cast<std::ptrdiff_t>(end), is_digit);
            token.kind = whole ? Kind::integer : Kind::number;
            // A fraction, and a sign of an exponent.
            while (end < sql.size() &&
                   (is_of_name(sql[end]) || sql[end] == '.' ||
                    ((sql[end] == '+' || sql[end] == '-') && (sql[end - 1] == 'e' || sql[end - 1] == 'E')))) {
                token.kind = Kind::number;
                ++end;
            }
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
            token.name = *symbol;
        }
        if (end == std::string_view::npos) return std::nullopt;
        token.text = sql.substr(at, end - at);
        tokens.push_back(std::move(token));
        at = end;
    }
    return tokens;
}

}  // namespace ingero
