#include "core/wire/worker_client.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/model/unique_fd.h"
#include "core/wire/child_process.h"
#include "core/wire/fd_passing.h"
#include "core/wire/spawn_plan.h"
#include "core/wire/worker_protocol.h"

namespace ingero {

using std::chrono::steady_clock;

namespace {

constexpr const char* worker_ended = "the worker ended";

/// Killed and reaped when this ends.
class Child {
  public:
    explicit Child(pid_t pid) : pid_(pid) {}
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        wait();
    }

    int wait() {
        int status = 0;
        while (waitpid(std::exchange(pid_, -1), &status, 0) < 0 && errno == EINTR) {
        }
        return status;
    }

  private:
    pid_t pid_;
};

Result<pid_t> start(const OwnWorker& worker, int socket) {
    SpawnPlan plan;
    posix_spawn_file_actions_adddup2(&plan.files, socket, worker_socket_fd);
    posix_spawn_file_actions_addclosefrom_np(&plan.files, worker_socket_fd + 1);
    std::vector<std::string> arguments = {worker.program, "--fd", std::to_string(worker_socket_fd), "--store",
                                          worker.store_directory};
    std::vector<std::string> variables;
    for (const char* name : {"TZ", "TZDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"})
        if (const char* value = std::getenv(name)) variables.push_back(std::string(name) + "=" + value);
    pid_t pid = -1;
    if (const int error = posix_spawn(&pid, worker.program.c_str(), &plan.files, &plan.attributes,
                                      spawn_pointers(arguments).data(), spawn_pointers(variables).data()))
        return fail(ErrorCode::internal, errno_message("cannot start " + worker.program, error),
                    "reinstall the package that contains ingeroctl: this program belongs to it");
    return pid;
}

Result<void> send(int socket, std::string_view bytes, int fd) {
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t n = send_with_fd(socket, bytes.substr(done), done == 0 ? fd : -1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(ErrorCode::internal, errno_message("cannot send the query to the worker", errno));
        done += static_cast<size_t>(n);
    }
    return {};
}

Result<nlohmann::json> receive(int socket, RpcDecoder& decoder, uint64_t id, steady_clock::time_point deadline) {
    std::vector<std::byte> buffer(256 << 10);
    for (;;) {
        auto message = decoder.next();
        if (!message) return tl::unexpected(message.error());
        if (*message) {
            auto* response = std::get_if<RpcResponse>(&**message);
            if (!response || response->id != id) continue;  // "ready"
            if (response->error) return tl::unexpected(*response->error);
            return std::move(response->result);
        }
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
        pollfd wait{socket, POLLIN, 0};
        const int ready = left.count() <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left.count()));
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return fail(ErrorCode::deadline, "the answer takes too long", "ask for a shorter window");
        const ssize_t n = recv(socket, buffer.data(), buffer.size(), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(ErrorCode::internal, worker_ended);
        decoder.feed({buffer.data(), static_cast<size_t>(n)});
    }
}

}  // namespace

struct OwnWorkerSession::Impl {
    Impl(UniqueFd our_socket, pid_t pid, std::chrono::milliseconds answer_timeout, int fd_to_send)
        : socket(std::move(our_socket)), child(pid), timeout(answer_timeout), fd(fd_to_send) {}

    UniqueFd socket;
    Child child;
    RpcDecoder decoder{worker_rpc_limits};
    std::chrono::milliseconds timeout;
    int fd;
    uint64_t last_id = 0;
};

OwnWorkerSession::OwnWorkerSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OwnWorkerSession::OwnWorkerSession(OwnWorkerSession&&) noexcept = default;
OwnWorkerSession& OwnWorkerSession::operator=(OwnWorkerSession&&) noexcept = default;
OwnWorkerSession::~OwnWorkerSession() = default;

Result<OwnWorkerSession> OwnWorkerSession::start(const OwnWorker& worker) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return fail(ErrorCode::internal, errno_message("socketpair", errno));
    UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    const auto pid = ingero::start(worker, theirs.get());
    if (!pid) return tl::unexpected(pid.error());
    return OwnWorkerSession(std::make_unique<Impl>(std::move(ours), *pid, worker.timeout, worker.fd));
}

Result<nlohmann::json> OwnWorkerSession::ask(const std::string& method, nlohmann::json params) {
    const uint64_t id = ++impl_->last_id;
    const int socket = impl_->socket.get();
    auto sent = send(socket, encode(RpcRequest{id, method, std::move(params)}), impl_->fd);
    auto answer = sent ? receive(socket, impl_->decoder, id, steady_clock::now() + impl_->timeout)
                       : Result<nlohmann::json>(tl::unexpected(sent.error()));
    if (answer || answer.error().message != worker_ended) return answer;
    // It has said why on standard error, if it could.
    return fail(ErrorCode::internal, "the worker " + describe_wait_status(impl_->child.wait()));
}

Result<nlohmann::json> ask_own_worker(const OwnWorker& worker, const std::string& method, nlohmann::json params) {
    auto session = OwnWorkerSession::start(worker);
    if (!session) return tl::unexpected(session.error());
    return session->ask(method, std::move(params));
}

}  // namespace ingero
