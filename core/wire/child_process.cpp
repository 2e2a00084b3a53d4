#include "core/wire/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "core/wire/spawn_plan.h"

namespace ingero {

namespace {

using Clock = std::chrono::steady_clock;

/// The zone that local times are printed in, how a sanitizer build reports, and what the caller names.
std::vector<std::string> environment(const std::vector<std::string>& keep) {
    std::vector<std::string> names = {"TZ", "TZDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"};
    names.insert(names.end(), keep.begin(), keep.end());
    std::vector<std::string> result;
    for (const std::string& name : names)
        if (const char* value = getenv(name.c_str())) result.push_back(name + "=" + value);
    return result;
}

int milliseconds_until(Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

/// False at the deadline.
bool wait_readable(int fd, Clock::time_point deadline) {
    for (;;) {
        pollfd one{fd, POLLIN, 0};
        const int ready = poll(&one, 1, milliseconds_until(deadline));
        if (ready > 0) return true;
        if (ready == 0 || errno != EINTR) return false;
    }
}

}  // namespace

Result<ChildProcess> ChildProcess::start(std::vector<std::string> command, const Options& options) {
    std::string program = options.program.empty() ? command.at(0) : options.program;
    const auto failed = [&](int error_number) {
        return fail(ErrorCode::internal, errno_message("cannot run " + program, error_number),
                    "check that " + program + " is installed and may be run");
    };
    ChildProcess child;
    UniqueFd child_input, child_output;
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return failed(errno);
    child.output_.reset(ends[0]);
    child_output.reset(ends[1]);
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return failed(errno);
    if (options.with_input) {
        if (pipe2(ends.data(), O_CLOEXEC) != 0) return failed(errno);
        child_input.reset(ends[0]);
        child.input_.reset(ends[1]);
    } else {
        child_input.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
        if (!child_input) return failed(errno);
    }

    SpawnPlan plan;
    int error = posix_spawn_file_actions_adddup2(&plan.files, child_input.get(), STDIN_FILENO);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&plan.files, child_output.get(), STDOUT_FILENO);
    std::vector<std::string> variables = environment(options.keep);
    if (error == 0)
        error = posix_spawn(&child.pid_, program.c_str(), &plan.files, &plan.attributes, spawn_pointers(command).data(),
                            spawn_pointers(variables).data());
    if (error != 0) {
        child.pid_ = -1;
        return failed(error);
    }
    child.pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, child.pid_, 0)));
    if (!child.pidfd_) return failed(errno);
    return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept {
    *this = std::move(other);
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
    if (this == &other) return *this;
    kill();
    wait();
    pid_ = std::exchange(other.pid_, -1);
    status_ = other.status_;
    pidfd_ = std::move(other.pidfd_);
    input_ = std::move(other.input_);
    output_ = std::move(other.output_);
    return *this;
}

ChildProcess::~ChildProcess() {
    kill();
    wait();
}

Result<void> ChildProcess::write(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(input_.get(), text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail(ErrorCode::internal, errno_message("writing to a helper process", errno));
        text.remove_prefix(static_cast<size_t>(written));
    }
    return {};
}

bool ChildProcess::read_available(std::string& text) {
    std::array<char, 16384> buffer;
    for (;;) {
        const ssize_t size = read(output_.get(), buffer.data(), buffer.size());
        if (size > 0) {
            text.append(buffer.data(), static_cast<size_t>(size));
            if (static_cast<size_t>(size) < buffer.size()) return true;
            continue;
        }
        if (size < 0 && errno == EINTR) continue;
        return size < 0 && errno == EAGAIN;
    }
}

bool ChildProcess::read_line(std::string& text, Clock::time_point deadline) {
    const size_t from = text.size();
    while (text.find('\n', from) == std::string::npos) {
        if (!wait_readable(output_.get(), deadline)) return false;
        if (!read_available(text)) return text.find('\n', from) != std::string::npos;
    }
    return true;
}

void ChildProcess::kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);  // not yet reaped: the pid is still its own
}

int ChildProcess::wait() {
    if (pid_ <= 0) return status_;
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status_;
}

Result<int> ChildProcess::wait_until(Clock::time_point deadline) {
    if (pid_ > 0 && !wait_readable(pidfd_.get(), deadline)) {
        kill();
        wait();
        return fail(ErrorCode::deadline, "a helper process did not end in time and was killed");
    }
    return wait();
}

Result<ProcessOutput> run_program(std::vector<std::string> command, const ChildProcess::Options& options,
                                  std::chrono::milliseconds timeout, size_t max_bytes) {
    const auto deadline = Clock::now() + timeout;
    const std::string name = command.at(0);
    auto child = ChildProcess::start(std::move(command), options);
    if (!child) return tl::unexpected(child.error());
    ProcessOutput result;
    do {
        if (!wait_readable(child->output(), deadline))
            return fail(ErrorCode::deadline, name + " took longer than " + std::to_string(timeout.count()) + " ms");
        if (result.text.size() > max_bytes)
            return fail(ErrorCode::limit, name + " printed more than " + std::to_string(max_bytes) + " bytes");
    } while (child->read_available(result.text));
    const auto status = child->wait_until(deadline);
    if (!status) return tl::unexpected(status.error());
    result.status = *status;
    return result;
}

std::string find_sibling(const std::string& beside_as, const std::string& below_prefix,
                         const std::string& installed_as) {
    namespace fs = std::filesystem;
    std::error_code error;
    const auto above = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
    for (const auto& place : {above / beside_as, above / below_prefix})
        if (fs::exists(place, error)) return place.string();
    return installed_as;
}

std::string describe_wait_status(int status) {
    if (WIFEXITED(status)) return "exited with status " + std::to_string(WEXITSTATUS(status));
    const int number = WTERMSIG(status);
    const char* name = sigdescr_np(number);
    return "was ended by signal " + std::to_string(number) + (name ? " (" + std::string(name) + ")" : std::string());
}

}  // namespace ingero
