// ingeroctl record --footprint: what one process tree touches, CUDA or not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctl/command.h"

namespace ingero::ctl {

struct FootprintCommand {
    uint32_t pid = 0;
    std::vector<std::string> command;  ///< is run, in place of a pid
    std::optional<uint64_t> duration_ns;
    std::string output;  ///< a file for the answer; empty: standard output
};

/// Records until the time is over, the tree has ended or an interrupt comes. Returns the exit code: the command's own,
/// where it was run and its footprint printed.
int record_footprint(const Options& options, const FootprintCommand& wanted);

}  // namespace ingero::ctl
