#include "core/render/table.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/wire/utf8.h"

namespace ingero {

namespace {

constexpr size_t gutter = 2;
/// Cells are cut to the first before columns are left out, to the second only where that is not enough.
constexpr std::array<size_t, 2> narrowest_cells = {12, 8};

// East Asian Wide and Fullwidth, by block: enough to keep columns straight.
bool is_wide(uint32_t point) {
    return (point >= 0x1100 && point <= 0x115f) || (point >= 0x2e80 && point <= 0xa4cf) ||
           (point >= 0xac00 && point <= 0xd7a3) || (point >= 0xf900 && point <= 0xfaff) ||
           (point >= 0xfe30 && point <= 0xfe6f) || (point >= 0xff00 && point <= 0xff60) ||
           (point >= 0xffe0 && point <= 0xffe6) || (point >= 0x1f300 && point <= 0x1faff) ||
           (point >= 0x20000 && point <= 0x3fffd);
}

bool is_combining(uint32_t point) {
    return (point >= 0x0300 && point <= 0x036f) || (point >= 0x1ab0 && point <= 0x1aff) ||
           (point >= 0x1dc0 && point <= 0x1dff) || (point >= 0x20d0 && point <= 0x20ff) ||
           (point >= 0xfe20 && point <= 0xfe2f);
}

size_t width_of(const CodePoint& point) {
    if (is_combining(point.value)) return 0;
    return is_wide(point.value) ? 2 : 1;
}

std::string pad(const std::string& cell, size_t width, Align align) {
    const std::string spaces(width - std::min(width, display_width(cell)), ' ');
    return align == Align::right ? spaces + cell : cell + spaces;
}

size_t total(const std::vector<size_t>& widths) {
    const size_t shown = widths.size() - static_cast<size_t>(std::count(widths.begin(), widths.end(), size_t{0}));
    return std::accumulate(widths.begin(), widths.end(), size_t{0}) + (shown > 0 ? (shown - 1) * gutter : 0);
}

/// Takes from the widest column that may shrink, until the table fits or nothing is left to take.
void shrink(std::vector<size_t>& widths, const std::vector<Column>& columns, size_t width, size_t narrowest_cell) {
    while (total(widths) > width) {
        size_t* widest = nullptr;
        for (size_t i = 0; i < widths.size(); ++i)
            if (columns[i].shrinks && widths[i] > narrowest_cell && (!widest || widths[i] > *widest))
                widest = &widths[i];
        if (!widest) return;
        --*widest;
    }
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
    cells.resize(columns_.size());
    rows_.push_back(std::move(cells));
}

std::vector<size_t> Table::natural_widths() const {
    std::vector<size_t> widths;
    for (size_t i = 0; i < columns_.size(); ++i) {
        size_t widest = 0;
        bool says_something = columns_[i].drop_order == 0;
        for (const auto& row : rows_) {
            widest = std::max(widest, display_width(row[i]));
            says_something |= row[i] != "-";
        }
        widths.push_back(says_something || rows_.empty() ? std::max(widest, display_width(columns_[i].title)) : 0);
    }
    return widths;
}

std::string Table::render(unsigned width, unsigned indent) const {
    const std::vector<size_t> natural = natural_widths();
    std::vector<size_t> widths = natural;
    std::vector<size_t> droppable;
    for (size_t i = 0; i < columns_.size(); ++i)
        if (columns_[i].drop_order > 0) droppable.push_back(i);
    std::stable_sort(droppable.begin(), droppable.end(),
                     [&](size_t a, size_t b) { return columns_[a].drop_order > columns_[b].drop_order; });
    const size_t room = width > indent ? width - indent : 1;
    const auto fits = [&](size_t narrowest_cell) {
        for (size_t dropped = 0;; ++dropped) {
            // Those of one order say something only together.
            while (dropped > 0 && dropped < droppable.size() &&
                   columns_[droppable[dropped]].drop_order == columns_[droppable[dropped - 1]].drop_order)
                ++dropped;
            widths = natural;
            for (size_t i = 0; i < dropped; ++i) widths[droppable[i]] = 0;
            shrink(widths, columns_, room, narrowest_cell);
            if (total(widths) <= room) return true;
            if (dropped == droppable.size()) return false;
        }
    };
    if (width != 0 && !fits(narrowest_cells[0])) fits(narrowest_cells[1]);
    std::string result;
    const auto add_line = [&](auto&& cell_of) {
        std::string line;
        for (size_t i = 0; i < columns_.size(); ++i) {
            if (widths[i] == 0) continue;
            if (!line.empty()) line.append(gutter, ' ');
            line += pad(truncate_text(cell_of(i), widths[i]), widths[i], columns_[i].align);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        result += std::string(indent, ' ') + line + "\n";
    };
    add_line([&](size_t i) { return columns_[i].title; });
    for (const auto& row : rows_) add_line([&](size_t i) { return row[i]; });
    return result;
}

size_t display_width(std::string_view text) {
    size_t width = 0;
    while (!text.empty()) {
        // A colour of ours: what comes from elsewhere is escaped.
        if (text.starts_with("\x1b[")) {
            const size_t end = text.find('m');
            text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
            continue;
        }
        const CodePoint point = first_code_point(text);
        width += width_of(point);
        text.remove_prefix(point.length);
    }
    return width;
}

std::string truncate_text(std::string_view text, size_t width) {
    if (display_width(text) <= width) return std::string(text);
    std::string result;
    size_t taken = 0;
    while (!text.empty()) {
        const CodePoint point = first_code_point(text);
        if (taken + width_of(point) + 1 > width) break;
        taken += width_of(point);
        result += text.substr(0, point.length);
        text.remove_prefix(point.length);
    }
    return result + "…";
}

namespace {

/// The next word; a number with its unit is one.
std::string_view take_word(std::string_view& text) {
    constexpr std::array<std::string_view, 16> units = {"%", "ns",  "µs",  "ms",  "s",   "min", "h", "d",
                                                        "B", "KiB", "MiB", "GiB", "TiB", "MHz", "W", "°C"};
    const auto is_unit = [&](std::string_view word) {
        while (!word.empty() && std::string_view(",;.:)").find(word.back()) != std::string_view::npos)
            word.remove_suffix(1);
        return std::find(units.begin(), units.end(), word) != units.end();
    };
    size_t end = std::min(text.find(' '), text.size());
    const bool is_number = end > 0 && text[end - 1] >= '0' && text[end - 1] <= '9';
    if (is_number && end < text.size()) {
        const size_t after = std::min(text.find(' ', end + 1), text.size());
        if (is_unit(text.substr(end + 1, after - end - 1))) end = after;
    }
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    return word;
}

}  // namespace

std::string wrap_text(std::string_view text, size_t width, size_t indent) {
    if (width == 0) return std::string(text);
    const size_t room = std::max<size_t>(width > indent ? width - indent : 0, 20);
    std::string result;
    size_t used = 0;
    while (!text.empty()) {
        const std::string_view word = take_word(text);
        if (word.empty()) continue;
        const size_t word_width = display_width(word);
        if (used > 0 && used + 1 + word_width > room) {
            result += "\n" + std::string(indent, ' ');
            used = 0;
        } else if (used > 0) {
            result += ' ';
            ++used;
        }
        result += word;
        used += word_width;
    }
    return result;
}

}  // namespace ingero
