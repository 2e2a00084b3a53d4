// A terminal that is drawn on as a whole, by ncurses. While it lives the terminal is its own: nothing else is printed.
// SIGINT and SIGTERM give it back and end the program, with success.
#pragma once

#include <chrono>
#include <string_view>

#include "core/model/result.h"

namespace ingero::ctl {

struct Key {
    enum class What { none, character, up, down, page_up, page_down, enter, escape, erase, resized, ended };
    What what = What::none;  ///< ended: there is no terminal any more
    char character = '\0';   ///< printable ASCII
};

class Terminal {
  public:
    /// Of standard input and output. Errors: not_found (no terminal that can be drawn on; the hint says what then).
    static Result<Terminal> open(bool colour);

    Terminal(Terminal&& other) noexcept : is_open_(other.is_open_) { other.is_open_ = false; }
    Terminal& operator=(Terminal&&) = delete;
    ~Terminal();

    unsigned width() const;
    unsigned height() const;
    /// Lines, with colours as core/render has them, and below them the last line of the terminal. What does not fit is
    /// cut.
    void show(std::string_view text, std::string_view last_line);
    /// The next key, or none within the time.
    Key read_key(std::chrono::milliseconds patience);

  private:
    Terminal() = default;
    bool is_open_ = true;
};

}  // namespace ingero::ctl
