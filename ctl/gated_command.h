// A command that is started and held back, so that all it does is seen by who looks at it from then on.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "core/model/result.h"
#include "core/model/unique_fd.h"

namespace ingero::ctl {

class GatedCommand {
  public:
    /// `command` is not empty; it gets this program's files. `signals`: its signal mask. Errors: internal.
    static Result<GatedCommand> start(std::vector<std::string> command, const sigset_t& signals);
    GatedCommand(GatedCommand&&) = default;
    /// One that was not let go ends without having run.
    ~GatedCommand() = default;

    pid_t pid() const { return pid_; }
    /// Returns once it runs. Errors: not_found (there is no such program, or it cannot be run).
    Result<void> let_go();
    /// Waits for its end: its exit code, or 128 and the signal's number.
    int wait() const;

  private:
    GatedCommand(pid_t pid, std::string name, UniqueFd gate, UniqueFd failure)
        : pid_(pid), name_(std::move(name)), gate_(std::move(gate)), failure_(std::move(failure)) {}

    pid_t pid_;
    std::string name_;
    UniqueFd gate_;
    UniqueFd failure_;  ///< an errno comes here, or its end
};

}  // namespace ingero::ctl
