// A long text on a terminal goes through a pager: $INGERO_PAGER, else $PAGER, else less.
#pragma once

#include <string_view>

namespace ingero::ctl {

/// More lines than the terminal has. False where standard output is no terminal that can be paged on.
bool is_longer_than_terminal(std::string_view text);
/// Returns when the user has left the pager. False where there is none, or none is wanted; nothing was shown then.
bool show_in_pager(std::string_view text);

}  // namespace ingero::ctl
