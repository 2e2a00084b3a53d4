// What a process is part of, read from what /proc says of it. All of it is text that the process, or whoever started
// it, chose: nothing is kept but what has the form it must have, and nothing is kept at length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/process/process.h"

namespace ingero {

inline constexpr size_t max_kept_variables = 32;
inline constexpr size_t max_kept_value_bytes = 256;
inline constexpr size_t max_command_bytes = 1024;

/// How much of a command line is kept.
enum class KeepCommand : uint8_t {
    comm,      ///< nothing: the command's name alone
    redacted,  ///< redact_command()
    full,      ///< join_command()
};

struct FactsOptions {
    KeepCommand command = KeepCommand::redacted;
    std::vector<std::string> environ_allow;  ///< names of variables
};

/// Letters, digits and _, not beginning with a digit; 64 bytes at most.
bool is_variable_name(std::string_view name);

/// Container, pod, Slurm job and ECS task, of /proc/PID/cgroup: of all hierarchies, of v1 or v2.
void read_cgroup_facts(std::string_view cgroup_file, ProcessFacts& facts);
/// Ranks, job and devices, of /proc/PID/environ, which has the environment as it was when the program began. Of other
/// variables only those in `allowed` are kept. A cgroup says more surely than a variable: what is there already stays.
void read_environ_facts(std::string_view environ_file, std::span<const std::string> allowed, ProcessFacts& facts);

/// A command line, its arguments separated by zero bytes as in /proc/PID/cmdline, without what may be a secret: left
/// are the program, names of options, and values known to be harmless: numbers and words of options that are
/// no secrets, names of scripts and modules. All else is "***". The result is printable ASCII, max_command_bytes at
/// most.
std::string redact_command(std::string_view cmdline_file);
/// The same with nothing left out but what is too long: bytes as they are.
std::string join_command(std::string_view cmdline_file);

}  // namespace ingero
