#include "daemon/ingerod/workers/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/wire/fd_passing.h"
#include "core/wire/spawn_plan.h"
#include "daemon/worker/protocol.h"

namespace ingero {

namespace {

/// Both, where not -1, must have numbers above those that the worker knows them by.
int pass_sockets(SpawnPlan& plan, int socket, int client) {
    if (const int error = posix_spawn_file_actions_adddup2(&plan.files, socket, worker_socket_fd)) return error;
    if (client < 0) return posix_spawn_file_actions_addclosefrom_np(&plan.files, worker_socket_fd + 1);
    if (const int error = posix_spawn_file_actions_adddup2(&plan.files, client, worker_client_fd)) return error;
    return posix_spawn_file_actions_addclosefrom_np(&plan.files, worker_client_fd + 1);
}

std::vector<std::string> arguments_of(const WorkerOptions& options) {
    std::vector<std::string> arguments = {options.program, "--fd", std::to_string(worker_socket_fd), "--memory",
                                          std::to_string(options.memory_bytes)};
    if (!options.store_directory.empty()) arguments.insert(arguments.end(), {"--store", options.store_directory});
    if (!options.store_directory.empty() && options.store_is_checked) arguments.push_back("--checked");
    if (!options.node.empty()) arguments.insert(arguments.end(), {"--node", options.node});
    return arguments;
}

/// The zone that local times are printed in, and how a sanitizer build reports: nothing else of the daemon's.
std::vector<std::string> environment() {
    std::vector<std::string> result;
    for (const char* name : {"TZ", "TZDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"})
        if (const char* value = getenv(name)) result.push_back(std::string(name) + "=" + value);
    return result;
}

}  // namespace

Result<WorkerProcess> WorkerProcess::start(const WorkerOptions& options) {
    return start(options, -1, std::nullopt);
}

Result<WorkerProcess> WorkerProcess::start_session(const WorkerOptions& options, int client,
                                                   std::optional<uint32_t> uid) {
    const UniqueFd passed(fcntl(client, F_DUPFD_CLOEXEC, worker_output_fd));
    if (!passed) return fail(ErrorCode::internal, errno_message("cannot start a worker: the client", errno));
    return start(options, passed.get(), uid);
}

Result<WorkerProcess> WorkerProcess::start(const WorkerOptions& options, int client, std::optional<uint32_t> uid) {
    const auto failed = [&](const char* what, int error_number) {
        return fail(ErrorCode::internal, errno_message(std::string("cannot start a worker: ") + what, error_number),
                    "check that " + options.program + " is installed and that the daemon may start it");
    };
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return failed("socketpair", errno);
    WorkerProcess worker;
    worker.socket_.reset(ends[0]);
    const UniqueFd theirs(ends[1]);
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return failed("the socket", errno);

    SpawnPlan plan;
    if (const int error = pass_sockets(plan, theirs.get(), client)) return failed("the socket", error);
    std::vector<std::string> arguments = arguments_of(options), variables = environment();
    if (client >= 0) arguments.push_back("--mcp");
    if (uid) arguments.insert(arguments.end(), {"--uid", std::to_string(*uid)});
    if (const int error = posix_spawn(&worker.pid_, options.program.c_str(), &plan.files, &plan.attributes,
                                      spawn_pointers(arguments).data(), spawn_pointers(variables).data()))
        return failed(options.program.c_str(), error);
    worker.pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, worker.pid_, 0)));
    if (!worker.pidfd_) {
        const int error = errno;
        ::kill(worker.pid_, SIGKILL);
        worker.reap();
        return failed("pidfd_open", error);
    }
    return worker;
}

ssize_t WorkerProcess::send(std::string_view bytes, int fd) {
    const ssize_t n = send_with_fd(socket_.get(), bytes, fd, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    return n;
}

ssize_t WorkerProcess::receive(std::span<std::byte> out) {
    const ssize_t n = recv(socket_.get(), out.data(), out.size(), MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

void WorkerProcess::kill() {
    // It runs as another user: without CAP_KILL it can be asked alone.
    if (syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0) != 0 && errno == EPERM) hang_up();
}

int WorkerProcess::reap() {
    int status = 0;
    // One that could not be killed and does not listen ends with this process, by the kernel.
    constexpr int longest_ms = 5'000;
    pollfd ended{pidfd_.get(), POLLIN, 0};
    if (pidfd_ && poll(&ended, 1, longest_ms) == 0) return SIGKILL;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

uint64_t WorkerProcess::anonymous_bytes() const {
    const std::string path = "/proc/" + std::to_string(pid_) + "/statm";
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 128> text{};
    if (!file || read(file.get(), text.data(), text.size() - 1) <= 0) return 0;
    unsigned long long resident = 0, shared = 0;
    if (sscanf(text.data(), "%*u %llu %llu", &resident, &shared) != 2 || resident < shared) return 0;
    return (resident - shared) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace ingero
