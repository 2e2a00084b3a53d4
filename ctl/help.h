// What --help says besides the options, and what was meant by a word that is not known.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "core/model/result.h"

namespace ingero::ctl {

struct Example {
    const char* what;  ///< what one wants to know
    const char* line;
};

/// Shown below the command's options. The lines run as they stand: tests/integration/examples_test.py runs them.
void add_examples(CLI::App& command, std::initializer_list<Example> examples);

/// A whole number. `what` completes "wants ", such as "a process number"; empty: the range does.
CLI::Validator whole_number(uint64_t least, uint64_t most, const std::string& what = {});
CLI::Validator process_number();
/// One of these values. An option that is checked so has them completed.
CLI::Validator one_of(const std::vector<std::string>& values);
/// What an option made with one_of() takes; empty of any other.
std::vector<std::string> values_of(CLI::Option& option);

/// Commands before options, both wrapped to 80 columns.
std::shared_ptr<CLI::Formatter> help_formatter();

/// Why a command line was not understood, with what may have been meant.
Error explain_usage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace ingero::ctl
