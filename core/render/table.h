// Plain-text layout: figures with units, and tables that fit a terminal. Cells are given escaped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingero {

enum class Align { left, right };

struct Column {
    std::string title;
    Align align = Align::left;
    bool shrinks = false;  ///< may be cut with "…" where the table is too wide
    int drop_order = 0;    ///< columns left out where cutting is not enough, highest first, and where no row has
                           ///< anything but "-" in them; 0: never
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

/// "12,345,678".
std::string format_count(uint64_t count);
/// "1 process", "2 processes".
std::string format_count(uint64_t count, std::string_view one, std::string_view many);
/// "1.2 GiB": powers of 1024, three significant digits.
std::string format_bytes(uint64_t bytes);
/// "3 d 4 h", "2 h 5 min", "5 min 3 s": for spans that people wait.
std::string format_span(uint64_t ns);
/// "14:32:05" in the local zone, "2026-11-20 14:32:05" where that is not the day of `today_ns`. CLOCK_REALTIME ns.
std::string format_short_time(uint64_t realtime_ns, uint64_t today_ns);
/// "93 %", "0.5 %", "<0.1 %".
std::string format_percent(double fraction);

}  // namespace ingero
