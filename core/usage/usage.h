// Command lines: the values that options take, and what was meant where one is not understood.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/model/result.h"

namespace ingero {

/// A whole number. `what` completes "wants ", such as "a process number"; empty: the range does.
CLI::Validator whole_number(uint64_t least, uint64_t most, const std::string& what = {});
/// One of these values. An option that is checked so has them completed.
CLI::Validator one_of(const std::vector<std::string>& values);
/// What an option made with one_of() takes; empty of any other.
std::vector<std::string> values_of(CLI::Option& option);

/// What to do about a word that the command has no place for; empty: see its help.
using HintForWord = std::function<std::string(const std::string& word, const CLI::App& command)>;
/// Why a command line was not understood, with what may have been meant.
Error explain_usage(const CLI::App& app, const CLI::ParseError& error, const HintForWord& hint_for_word);

}  // namespace ingero
