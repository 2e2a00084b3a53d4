// What the control server asks of the daemon: the seam that lets the server be tested without probes or a store.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/workers/handed_over.h"

namespace ingero {

/// The uid of a caller that nothing belongs to: no process has it.
inline constexpr uint32_t nobody_uid = UINT32_MAX;

/// Who asks, as the kernel says (SO_PEERCRED), never as the client says.
struct Caller {
    uint32_t uid = 0;
    uint32_t pid = 0;
    /// root in the daemon's own namespaces, the daemon's own user, or a member of group ingero: sees every process.
    bool sees_all = false;
};

/// Calls or notices as they come, for one who asked for them. Ends when destroyed.
class LiveStream {
  public:
    virtual ~LiveStream() = default;
    /// The next ones, at most 256 KiB encoded; nullopt: none yet, and `on_ready` will say when there may be.
    virtual std::optional<nlohmann::json> next() = 0;
};

/// What a process tree touches, from the moment this was made. Ends when destroyed.
class FootprintRecording {
  public:
    virtual ~FootprintRecording() = default;
    /// All processes of the tree have ended.
    virtual bool has_ended() const = 0;
    /// Ends it. docs/schemas/footprint.schema.json, without `ended`. Once.
    virtual nlohmann::json finish() = 0;
};

class ControlBackend {
  public:
    virtual ~ControlBackend() = default;
    virtual std::string node() const = 0;
    virtual nlohmann::json status(const Caller& caller) = 0;     ///< the whole object of contracts.md
    virtual nlohmann::json processes(const Caller& caller) = 0;  ///< likewise
    virtual nlohmann::json probes(const Caller& caller) = 0;     ///< likewise
    /// What is looked up in the store. Given up where the client hangs up.
    virtual void hand_over(const Caller& caller, const std::string& method, const nlohmann::json& params,
                           HandedOver client) = 0;
    /// Whether the host and the daemon are fit to trace, by a program of its own. `done` is called once, on the loop
    /// thread.
    virtual void check(const Caller& caller, bool probe, std::function<void(Result<nlohmann::json>)> done) = 0;
    /// "trace": docs/control-protocol.md. `on_ready` may be called at any time, on the loop thread. Errors:
    /// bad_request, busy.
    virtual Result<std::unique_ptr<LiveStream>> trace(const Caller& caller, const nlohmann::json& params,
                                                      std::function<void()> on_ready) = 0;
    /// "monitor", likewise. Errors: busy.
    virtual Result<std::unique_ptr<LiveStream>> monitor(const Caller& caller, std::function<void()> on_ready) = 0;
    /// "footprint": of a process and of what it forks from now on. Errors: not_found, denied, busy, internal.
    virtual Result<std::unique_ptr<FootprintRecording>> footprint(const Caller& caller, uint32_t pid) = 0;
    /// Writes a copy of the store's data file, as it is now, to an empty regular file: {"bytes": n}. One at a time,
    /// else busy. Where `wanted` says no meanwhile it is given up without an answer. On the loop thread.
    virtual void snapshot(UniqueFd file, std::function<bool()> wanted,
                          std::function<void(Result<nlohmann::json>)> done) = 0;
    /// Reads the configuration again. The answer: {"changed": [keys], "needs_restart": [keys]}. Errors: bad_request, as
    /// "FILE:LINE: what", and then nothing has changed.
    virtual Result<nlohmann::json> reload() = 0;
};

}  // namespace ingero
