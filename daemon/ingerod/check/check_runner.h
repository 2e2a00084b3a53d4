// The daemon's own `ingerod --check`: run as a program beside it, with the rights it has itself, so that a check that
// hangs or crashes costs one answer and never holds the loop. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model/result.h"
#include "core/wire/child_process.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero {

class CheckRunner {
  public:
    using Done = std::function<void(Result<nlohmann::json>)>;

    /// `command`: the program and the arguments that make it print its answer as JSON; --probe is added where asked
    /// for.
    CheckRunner(EventLoop& loop, std::vector<std::string> command);

    /// `done` is called once, on the loop thread, unless the runner is destroyed before. One program runs at a time;
    /// who asks for what is being found out gets that. An answer of up to `max_age` before will do (never for a probe).
    /// Errors: internal, deadline (45 s; the program is killed).
    void run(bool probe, std::chrono::milliseconds max_age, Done done);

  private:
    struct Waiting {
        bool probe = false;
        Done done;
    };

    void start_next();
    void on_output();
    void finish(Result<nlohmann::json> answer);
    Result<nlohmann::json> read_answer(int status) const;

    EventLoop& loop_;
    std::vector<std::string> command_;
    std::vector<Waiting> waiting_;
    bool running_probe_ = false;
    std::optional<ChildProcess> child_;
    std::string output_;
    std::optional<nlohmann::json> latest_;  ///< without a probe
    std::chrono::steady_clock::time_point latest_at_;
    EventLoop::Source io_;
    EventLoop::Source exit_;
    EventLoop::Source deadline_;
};

}  // namespace ingero
