// Who answers: the daemon, or what --db names; for a command that asks more than once.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/model/result.h"
#include "ctl/command.h"

namespace ingero::ctl {

class Source {
  public:
    virtual ~Source() = default;
    /// Errors: those of the daemon, or of a worker.
    virtual Result<nlohmann::json> ask(const std::string& method, nlohmann::json params) = 0;
};

/// On failure it has been reported and `ret_exit_code` says how to leave.
std::unique_ptr<Source> open_source(const Options& options, const std::string& command, int& ret_exit_code);

}  // namespace ingero::ctl
