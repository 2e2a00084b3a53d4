// ingeroctl record: one process, or the processes of a unit, to a store of its own.
#pragma once

#include "ctl/command.h"

namespace ingero::ctl {

void add_record(CLI::App& app, Command& command);

}  // namespace ingero::ctl
