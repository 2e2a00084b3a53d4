// What `ingeroctl explain` shows besides the findings of a window. Each returns the exit code.
#pragma once

#include <string>

#include "ctl/command.h"

namespace ingero::ctl {

int run_incident(const Options& options, const WindowOptions& window, const std::string& id);
int run_verify(const Options& options, const WindowOptions& window, const std::string& id);
int run_diff(const Options& options, const WindowOptions& window, const std::string& a, const std::string& b);

}  // namespace ingero::ctl
