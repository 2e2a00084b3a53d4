#include "ctl/live/terminal.h"

#define NCURSES_NOMACROS 1
#include <curses.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <string>

#include "core/render/table.h"

namespace ingero::ctl {

namespace {

enum Pair : short { no_pair, red, yellow, green, cyan };

/// Of the numbers in an escape sequence of ours, "1;31".
attr_t attributes_of(std::string_view codes) {
    attr_t result = A_NORMAL;
    while (!codes.empty()) {
        const std::string_view code = codes.substr(0, codes.find(';'));
        if (code == "1") result |= A_BOLD;
        if (code == "2") result |= A_DIM;
        if (code == "31") result |= COLOR_PAIR(red);
        if (code == "32") result |= COLOR_PAIR(green);
        if (code == "33") result |= COLOR_PAIR(yellow);
        if (code == "36") result |= COLOR_PAIR(cyan);
        codes.remove_prefix(std::min(codes.size(), code.size() + 1));
    }
    return result;
}

/// Ncurses' own way ends with a failure.
void leave(int) {
    endwin();
    _exit(0);
}

void put(int row, std::string_view line, attr_t plain) {
    size_t room = static_cast<size_t>(std::max(getmaxx(stdscr), 0));
    wmove(stdscr, row, 0);
    // A character that is wider than it was taken for may have led the line before into this one.
    wclrtoeol(stdscr);
    wattrset(stdscr, static_cast<int>(plain));
    while (!line.empty() && room > 0) {
        if (line.starts_with("\x1b[")) {
            const size_t end = std::min(line.find('m'), line.size() - 1);
            wattrset(stdscr, static_cast<int>(plain | attributes_of(line.substr(2, end - 2))));
            line.remove_prefix(end + 1);
            continue;
        }
        const std::string_view part = line.substr(0, line.find('\x1b', 1));
        const std::string shown = truncate_text(part, room);
        waddnstr(stdscr, shown.data(), static_cast<int>(shown.size()));
        room -= std::min(room, display_width(shown));
        line.remove_prefix(part.size());
    }
    wattrset(stdscr, A_NORMAL);
}

/// Nothing came because nothing will.
bool has_ended() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, 0) > 0 && (input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace

Result<Terminal> Terminal::open(bool colour) {
    const char* name = std::getenv("TERM");
    const bool is_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    const char* hint = "'ingeroctl top --once' prints it once";
    if (!is_terminal || !name || *name == '\0' || std::string_view(name) == "dumb")
        return fail(ErrorCode::not_found, "no terminal to draw on", hint);
    // What is printed is UTF-8, whatever the environment has.
    if (!std::setlocale(LC_CTYPE, "C.UTF-8")) std::setlocale(LC_CTYPE, "");
    if (!newterm(nullptr, stdout, stdin))
        return fail(ErrorCode::not_found, "the terminal type " + std::string(name) + " is not known here", hint);
    cbreak();
    noecho();
    keypad(stdscr, true);
    if (!std::getenv("ESCDELAY")) set_escdelay(25);
    curs_set(0);
    if (colour && has_colors() && start_color() == OK && use_default_colors() == OK) {
        init_pair(red, COLOR_RED, -1);
        init_pair(yellow, COLOR_YELLOW, -1);
        init_pair(green, COLOR_GREEN, -1);
        init_pair(cyan, COLOR_CYAN, -1);
    }
    std::signal(SIGINT, leave);
    std::signal(SIGTERM, leave);
    return Terminal();
}

Terminal::~Terminal() {
    if (is_open_) endwin();
}

unsigned Terminal::width() const {
    return static_cast<unsigned>(std::max(getmaxx(stdscr), 1));
}

unsigned Terminal::height() const {
    return static_cast<unsigned>(std::max(getmaxy(stdscr), 1));
}

void Terminal::show(std::string_view text, std::string_view last_line) {
    werase(stdscr);
    const int last = static_cast<int>(height()) - 1;
    for (int row = 0; row < last; ++row) {
        const std::string_view line = text.substr(0, text.find('\n'));
        put(row, line, A_NORMAL);
        text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
    put(last, last_line, A_REVERSE);
    wrefresh(stdscr);
}

Key Terminal::read_key(std::chrono::milliseconds patience) {
    using What = Key::What;
    wtimeout(stdscr, static_cast<int>(std::clamp<int64_t>(patience.count(), 0, std::numeric_limits<int>::max())));
    const int code = wgetch(stdscr);
    switch (code) {
        case ERR:
            return {has_ended() ? What::ended : What::none};
        case KEY_UP:
            return {What::up};
        case KEY_DOWN:
            return {What::down};
        case KEY_PPAGE:
            return {What::page_up};
        case KEY_NPAGE:
            return {What::page_down};
        case KEY_RESIZE:
            return {What::resized};
        case KEY_ENTER:
        case '\n':
        case '\r':
            return {What::enter};
        case KEY_BACKSPACE:
        case 0x7f:
        case '\b':
            return {What::erase};
        case 0x1b:
            return {What::escape};
        default:
            break;
    }
    if (code >= ' ' && code < 0x7f) return {What::character, static_cast<char>(code)};
    return {};
}

}  // namespace ingero::ctl
