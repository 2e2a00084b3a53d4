// Rows that a statement gave, as a table and as comma-separated values.
#include <algorithm>

#include "core/model/time.h"
#include "core/render/table.h"
#include "core/render/text.h"

namespace ingero {

using nlohmann::json;
using namespace text;

namespace {

std::string plain(const json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_null()) return "";
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool is_number(const json& column) {
    const json& type = member(column, "type");
    return type == "integer" || type == "real";
}

std::string csv_field(const json& value) {
    std::string text = plain(value);
    const bool quoted = text.find_first_of(",\"\r\n") != std::string::npos || (value.is_string() && text.empty());
    if (!quoted) return text;
    std::string result = "\"";
    for (const char c : text) result.append(c == '"' ? 2 : 1, c);
    return result + "\"";
}

template <class Cells, class Cell>
std::string csv_line(const Cells& cells, const Cell& cell) {
    std::string line;
    bool first = true;
    for (const json& one : cells) {
        if (!std::exchange(first, false)) line += ',';
        line += csv_field(cell(one));
    }
    return line + "\r\n";
}

}  // namespace

std::string text_query(const json& answer, const TextStyle& style) {
    const json& columns = list(answer, "columns");
    std::vector<Column> heads;
    for (const json& column : columns) {
        const bool number = is_number(column);
        heads.push_back({.title = words(column, "name"),
                         .align = number ? Align::right : Align::left,
                         .shrinks = !number,
                         .drop_order = 0});
    }
    Table table(heads);
    for (const json& row : list(answer, "rows")) {
        if (!row.is_array()) continue;
        std::vector<std::string> cells;
        for (const json& value : row) cells.push_back(value.is_null() ? absent : escape_text(plain(value)));
        cells.resize(heads.size());
        table.add_row(std::move(cells));
    }
    const size_t rows = list(answer, "rows").size();
    std::string text = heads.empty() ? "" : table.render(style.width);
    text += "\n" + format_count(rows, "row", "rows") + ", " + duration(answer, "elapsed_ns") + "\n";
    if (flag(answer, "truncated")) text += paint("More rows were left out: see --limit.", Colour::yellow, style) + "\n";
    return text + recorded_line(answer, style) + coverage_lines(answer, style);
}

std::string csv_query(const json& answer, const TextStyle&) {
    std::string text = csv_line(list(answer, "columns"), [](const json& column) { return member(column, "name"); });
    for (const json& row : list(answer, "rows"))
        if (row.is_array()) text += csv_line(row, [](const json& value) { return value; });
    return text;
}

}  // namespace ingero
