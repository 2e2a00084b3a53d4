// What `ingeroctl top` shows, put together from several answers of the daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/model/result.h"
#include "ctl/command.h"

namespace ingero::ctl {

struct TopQuestion {
    uint64_t since_ns = 0;          ///< how far back calls are looked at
    std::optional<uint32_t> pid{};  ///< only this process
    std::chrono::seconds patience = answer_patience;
};

struct TopLook {
    Result<nlohmann::json> answer;  ///< docs/schemas/top.schema.json
    bool connected = false;
    bool sees_all = true;
};

/// Errors: those of ControlClient, and the daemon's own; not_found where the one process is not traced.
TopLook look_for_top(const Options& options, const TopQuestion& question);

}  // namespace ingero::ctl
