// ingeroctl support-bundle: what somebody who is asked for help needs to know of this host, but no arguments,
// environment, ids of requests, labels, paths or names of its programs.
#pragma once

#include "ctl/command.h"

namespace ingero::ctl {

void add_support_bundle(CLI::App& app, Command& command);

}  // namespace ingero::ctl
