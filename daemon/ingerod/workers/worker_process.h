// One ingero-worker: the process, the daemon's end of its socket, and a pidfd. Loop thread only; never blocks, but for
// reap() of a process that is not yet dead.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/workers/worker_pool.h"

namespace ingero {

class WorkerProcess {
  public:
    /// Starts the program with a clean environment and signal state. The socket is non-blocking. Errors: internal.
    static Result<WorkerProcess> start(const WorkerOptions& options);
    /// One that speaks MCP with the client at `client`, which stays the caller's, and answers it of the processes of
    /// `uid`; nullopt: of all. Errors: internal.
    static Result<WorkerProcess> start_session(const WorkerOptions& options, int client, std::optional<uint32_t> uid);

    int pid() const { return pid_; }
    int pidfd() const { return pidfd_.get(); }
    int socket() const { return socket_.get(); }

    /// Bytes taken, 0 where the socket is full; `fd`, where not -1, goes with the first. Errors: -errno.
    ssize_t send(std::string_view bytes, int fd);
    /// Bytes read, 0 at the end, -errno otherwise. Descriptors that come along are dropped by the kernel.
    ssize_t receive(std::span<std::byte> out);
    /// The worker reads the end of its stream and leaves by itself.
    void hang_up() { socket_.reset(); }
    void kill();
    /// Waits for the process and returns its wait status.
    int reap();
    /// Resident memory that belongs to it alone; 0 where that cannot be read.
    uint64_t anonymous_bytes() const;

  private:
    static Result<WorkerProcess> start(const WorkerOptions& options, int client, std::optional<uint32_t> uid);

    int pid_ = 0;
    UniqueFd pidfd_;
    UniqueFd socket_;
};

}  // namespace ingero
