// The socket of AI clients. ingerod only accepts: it looks who came, counts, and hands the connection, unread, to a
// worker of its own, which speaks MCP with the client and asks here for the little that only the daemon knows. A worker
// that dies ends one session. Few of them look into the store at a time, since each may need as much memory as any
// worker: the others wait for their turn. Loop thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/control/control_backend.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/workers/worker_pool.h"

namespace ingero {

struct McpOptions {
    std::string group = "ingero";  ///< its members see every process
    unsigned sessions = 64;
    unsigned sessions_per_uid = 8;
    unsigned turns = 2;  ///< sessions that look into the store at a time: MemoryHigh= of the unit has room for these
    unsigned turns_per_uid = 1;
    /// By which uids of one user count together.
    OwnerOf owner_of{};
    /// A client was refused; called at most once a second; the text holds nothing of the client's. Default: a log line.
    std::function<void(const Caller&, const std::string&)> on_refusal{};
};

class McpServer {
  public:
    struct Host {
        /// Of the workers from now on; `deadline` is for one question of a session.
        std::function<WorkerOptions()> worker_options;
        std::function<nlohmann::json(const Caller&)> status;
        std::function<nlohmann::json(const Caller&)> processes;
        std::function<void(const Caller&, std::function<void(Result<nlohmann::json>)>)> check;
        /// What was recorded up to now gets into the store, or the disk takes too long; then what an answer says of
        /// the daemon, missing_probes and stacks_lost, and straggler_options for those who ask about stragglers.
        std::function<void(const Caller&, std::function<void(nlohmann::json)>)> commit;
    };

    /// The loop must outlive it; the host's functions may answer after it is gone.
    McpServer(EventLoop& loop, Host host, McpOptions options = {});
    ~McpServer();
    McpServer(const McpServer&) = delete;
    McpServer& operator=(const McpServer&) = delete;

    /// Serves a listening socket; `path` is removed in the end where it is given.
    void listen(UniqueFd socket, std::string path = {});

    size_t sessions() const;
    /// Pids of the sessions' workers, by age, and how many of them wait for their turn: for tests.
    std::vector<int> pids() const;
    size_t waiting() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ingero
