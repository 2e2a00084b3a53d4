// Requests and training steps by measured duration: `ingeroctl requests`, and the same of `explain` and `query`.
#pragma once

#include <optional>
#include <string>

#include "ctl/command.h"

namespace ingero::ctl {

/// Which of them, besides the window.
struct RequestsOptions {
    std::string request;
    std::string slower_than;

    void add_to(CLI::App& command);
    bool is_given() const { return !request.empty() || !slower_than.empty(); }
};

/// `limit`: rows; as many as usual where it is not given. `by`: "request", "step" or "phase". Returns the exit code;
/// `command` is named in errors.
int run_requests(const Options& options, const char* command, const WindowOptions& window,
                 const RequestsOptions& requests, std::optional<uint32_t> limit, const char* by);

}  // namespace ingero::ctl
