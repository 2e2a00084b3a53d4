// What a shell offers for the word at the cursor: `ingeroctl complete -- WORD...`, which the scripts of ctl/completion
// call and --help does not name. Commands, options and their values are those of the command line itself.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ingero::ctl {

/// Prints what else may stand there (words, files, directories or commands), then a line a candidate: the whole word, a
/// tab and what it is. `words`: all after the program's name, the last one up to the cursor. What comes from a target
/// or a daemon is left out where a terminal or a shell could take it for anything but text. Always done, and soon.
int complete(CLI::App& app, std::vector<std::string> words);

}  // namespace ingero::ctl
