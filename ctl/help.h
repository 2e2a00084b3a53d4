// What --help says besides the options, and what was meant by a word that is not known.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "core/usage/usage.h"

namespace ingero::ctl {

struct Example {
    const char* what;  ///< what one wants to know
    const char* line;
};

/// Shown below the command's options. The lines run as they stand: tests/integration/examples_test.py runs them.
void add_examples(CLI::App& command, std::initializer_list<Example> examples);

CLI::Validator process_number();

/// Commands before options, both wrapped to 80 columns.
std::shared_ptr<CLI::Formatter> help_formatter();

/// The same as the other, with how to ask a recording.
Error explain_usage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace ingero::ctl
