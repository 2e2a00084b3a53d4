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
    std::string name;       ///< of a word or a name: in lower case, without quotes; of a symbol: itself

    bool is_name() const { return kind == Kind::word || kind == Kind::quoted; }
    bool is_word(std::string_view lower) const { return kind == Kind::word && name == lower; }
    bool is_symbol(std::string_view symbol) const { return kind == Kind::symbol && text == symbol; }
};

/// Without comments. Nothing where a text or a quoted name has no end, or a character is none of SQL's.
std::optional<std::vector<SqlToken>> sql_tokens(std::string_view sql);

}  // namespace ingero
