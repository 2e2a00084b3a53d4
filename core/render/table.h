// Plain-text layout: tables that fit a terminal. Cells are given escaped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/text/format.h"

namespace ingero {

enum class Align { left, right };

struct Column {
    std::string title;
    Align align = Align::left;
    bool shrinks = false;  ///< may be cut with "…" where the table is too wide
    int drop_order = 0;    ///< columns left out where cutting is not enough, highest first and those of one order
                           ///< together, and where no row has anything but "-" in them; 0: never
};

class Table {
  public:
    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

    /// One cell a column.
    void add_row(std::vector<std::string> cells);
    /// A title line and the rows, each with a newline, indented. `width` in terminal columns, 0: no limit.
    std::string render(unsigned width, unsigned indent = 0) const;

  private:
    std::vector<size_t> natural_widths() const;

    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

/// Columns a text takes on a terminal: wide East Asian characters and emoji take two, combining marks none.
size_t display_width(std::string_view text);
/// Cut to `width` columns, the last one "…", where it is longer.
std::string truncate_text(std::string_view text, size_t width);
/// Broken between words into lines of at most `width` columns (0: one line), lines after the first indented.
std::string wrap_text(std::string_view text, size_t width, size_t indent);

}  // namespace ingero
