#include "ctl/gated_command.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ingero::ctl {

namespace {

constexpr int not_run = 127;

struct Pipe {
    UniqueFd read_end, write_end;
};

Result<Pipe> make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail(ErrorCode::internal, errno_message("cannot create a pipe", errno));
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// In the child: what it calls before the program is part of what is seen, so it is little.
[[noreturn]] void run(const std::vector<char*>& arguments, int gate, int failure) {
    char go = 0;
    if (read(gate, &go, 1) == 1) {
        execvp(arguments[0], arguments.data());
        const int error = errno;
        [[maybe_unused]] const ssize_t written = write(failure, &error, sizeof error);
    }
    _exit(not_run);
}

}  // namespace

Result<GatedCommand> GatedCommand::start(std::vector<std::string> command, const sigset_t& signals) {
    auto gate = make_pipe(), failure = make_pipe();
    if (!gate) return tl::unexpected(gate.error());
    if (!failure) return tl::unexpected(failure.error());
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t pid = fork();
    if (pid < 0) return fail(ErrorCode::internal, errno_message("cannot fork", errno));
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &signals, nullptr);
        gate->write_end.reset();  // or its end is never seen
        run(arguments, gate->read_end.get(), failure->write_end.get());
    }
    return GatedCommand(pid, command[0], std::move(gate->write_end), std::move(failure->read_end));
}

Result<void> GatedCommand::let_go() {
    if (write(gate_.get(), "g", 1) != 1) return fail(ErrorCode::internal, errno_message(name_, errno));
    int error = 0;
    ssize_t size = 0;
    while ((size = read(failure_.get(), &error, sizeof error)) < 0 && errno == EINTR) {
    }
    if (size == sizeof error) return fail(ErrorCode::not_found, errno_message("cannot run " + name_, error));
    return {};
}

int GatedCommand::wait() const {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ingero::ctl
