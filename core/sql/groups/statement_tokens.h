// The tokens of an SQL statement, as SQLite has them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingero {

struct SqlToken {
    enum class Kind {
        word,     ///< a keyword or a name
        quoted,   ///< a name
        text,     ///< '...'
        integer,  ///< of decimal digits
        number,   ///< any other
        symbol,
    };
    Kind kind = Kind::symbol;
    std::string_view text;  ///< of the statement
    std::string name;       ///< of a word or a name: in lower case, without quotes

    bool is_name() const { return kind == Kind::word || kind == Kind::quoted; }
    bool is_word(std::string_view lower) const { return kind == Kind::word && name == lower; }
    bool is_symbol(std::string_view symbol) const { return kind == Kind::symbol && text == symbol; }
};

inline constexpr size_t most_sql_tokens = 20'000;

/// Without comments. Nothing where a text or a quoted name has no end, a number goes on as a name does, a character is
/// none of SQL's, or there are too many.
std::optional<std::vector<SqlToken>> sql_tokens(std::string_view sql);

}  // namespace ingero
