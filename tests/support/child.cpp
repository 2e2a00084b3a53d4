#include "tests/support/child.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "test_paths.h"

namespace ingero::test {

namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
    UniqueFd read, write;
    Pipe() {
        // As much as a daemon may write while the test does not read.
        constexpr int bytes = 1 << 20;
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) abort();
        fcntl(ends[1], F_SETPIPE_SZ, bytes);
        read.reset(ends[0]);
        write.reset(ends[1]);
    }
};

int left_ms(Clock::time_point until) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
    return left > 0 ? static_cast<int>(left) : 0;
}

int fork_as(int pid) {
    clone_args arguments{};
    arguments.exit_signal = SIGCHLD;
    arguments.set_tid = reinterpret_cast<uintptr_t>(&pid);
    arguments.set_tid_size = 1;
    return static_cast<int>(syscall(SYS_clone3, &arguments, sizeof(arguments)));
}

/// The first folder above the checkout, or the checkout, that only its owner may enter; empty where there is none.
std::string closed_folder() {
    const std::string checkout = INGERO_SOURCE_DIR;
    struct stat about {};
    for (size_t end = checkout.find('/', 1);; end = checkout.find('/', end + 1)) {
        const std::string folder = checkout.substr(0, end);
        if (stat(folder.c_str(), &about) == 0 && (about.st_mode & S_IXOTH) == 0) return folder;
        if (end == std::string::npos) return {};
    }
}

/// What other users run lies in the checkout, whose way may be closed to them (a home directory): in a mount namespace
/// of this process's own, the closed folder has nothing but the checkout in it, at its path.
bool open_the_way() {
    const std::string closed = closed_folder();
    if (closed.empty()) return true;
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    const UniqueFd checkout(open(INGERO_SOURCE_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC));
    const std::string source = "/proc/self/fd/" + std::to_string(checkout.get());
    if (!checkout || mount("none", closed.c_str(), "tmpfs", 0, "mode=0755") != 0) return false;
    umask(022);
    std::error_code error;
    std::filesystem::create_directories(INGERO_SOURCE_DIR, error);
    return mount(source.c_str(), INGERO_SOURCE_DIR, nullptr, MS_BIND | MS_REC, nullptr) == 0;
}

[[noreturn]] void become(const std::vector<std::string>& command, const ChildOptions& options) {
    for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    if ((options.uid || options.drop_capabilities) && !open_the_way()) {
        perror("the way to the checkout");
        _exit(126);
    }
    if (options.uid) {
        if (setgroups(0, nullptr) != 0 || setgid(*options.uid) != 0 || setuid(*options.uid) != 0) _exit(126);
    }
    if (options.drop_capabilities) {
        for (int capability = 0; capability <= 40; ++capability) prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
        cap_t none = cap_init();
        cap_set_proc(none);
        cap_free(none);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user takes it back
    std::vector<char*> arguments;
    for (const std::string& one : command) arguments.push_back(const_cast<char*>(one.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
}

}  // namespace

bool Patience::lasts() {
    if (std::exchange(asked_, true)) poll(nullptr, 0, 20);
    return Clock::now() < until_;
}

Child::Child(const std::vector<std::string>& command, const ChildOptions& options) {
    Pipe in, out, error;
    pid_ = options.wanted_pid ? fork_as(*options.wanted_pid) : fork();
    if (pid_ == 0) {
        dup2(in.read.get(), 0);
        dup2(out.write.get(), 1);
        dup2(error.write.get(), 2);
        become(command, options);
    }
    if (pid_ > 0) pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    input_ = std::move(in.write);
    output_ = std::move(out.read);
    error_ = std::move(error.read);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      error_(std::move(other.error_)),
      pending_(std::move(other.pending_)),
      all_(std::move(other.all_)),
      errors_(std::move(other.errors_)) {}

Child::~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
}

bool Child::pump(milliseconds timeout) {
    pollfd fds[] = {{output_.get(), POLLIN, 0}, {error_.get(), POLLIN, 0}};
    if (!output_ && !error_) return false;
    if (poll(fds, 2, static_cast<int>(timeout.count())) <= 0) return false;
    char buffer[65536];
    for (int i = 0; i < 2; ++i) {
        if (fds[i].revents == 0) continue;
        const ssize_t got = read(fds[i].fd, buffer, sizeof(buffer));
        if (got <= 0) {
            (i == 0 ? output_ : error_).reset();
        } else if (i == 0) {
            all_.append(buffer, static_cast<size_t>(got));
            pending_.append(buffer, static_cast<size_t>(got));
        } else {
            errors_.append(buffer, static_cast<size_t>(got));
        }
    }
    return true;
}

std::optional<std::string> Child::read_line(milliseconds timeout) {
    const auto until = Clock::now() + timeout;
    for (;;) {
        if (const size_t end = pending_.find('\n'); end != std::string::npos) {
            std::string line = pending_.substr(0, end);
            pending_.erase(0, end + 1);
            return line;
        }
        if (!output_ || !pump(milliseconds(left_ms(until)))) return std::nullopt;
    }
}

std::optional<std::string> Child::wait_for_line(const std::string& text, milliseconds timeout) {
    const auto until = Clock::now() + timeout;
    while (auto line = read_line(milliseconds(left_ms(until))))
        if (line->find(text) != std::string::npos) return line;
    return std::nullopt;
}

void Child::write_line(const std::string& line) {
    const std::string text = line + "\n";
    [[maybe_unused]] const ssize_t written = write(input_.get(), text.data(), text.size());
}

bool Child::is_asleep() const {
    return state() == 'S';
}

char Child::state() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
    std::string text;
    std::getline(file, text);
    const size_t name_end = text.rfind(')');
    return name_end != std::string::npos && name_end + 2 < text.size() ? text[name_end + 2] : '?';
}

void Child::signal(int number) const {
    kill(pid_, number);
}

int Child::wait(milliseconds timeout) {
    const auto until = Clock::now() + timeout;
    bool ended = false;
    while (!ended && left_ms(until) > 0) {
        pollfd fds[] = {{pidfd_.get(), POLLIN, 0}, {output_.get(), POLLIN, 0}, {error_.get(), POLLIN, 0}};
        poll(fds, 3, left_ms(until));
        if (fds[1].revents || fds[2].revents) pump(milliseconds(0));
        ended = fds[0].revents != 0;
    }
    if (!ended) {
        ADD_FAILURE() << "process " << pid_ << " did not end in time; its output: " << all_ << errors_;
        kill(pid_, SIGKILL);
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    while (pump(milliseconds(0))) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Finished run(const std::vector<std::string>& command, const ChildOptions& options, milliseconds timeout) {
    Child child(command, options);
    child.close_input();
    Finished finished;
    finished.status = child.wait(timeout);
    finished.output = child.output();
    finished.errors = child.errors();
    return finished;
}

std::vector<int> children_of(int pid) {
    const std::string number = std::to_string(pid);
    std::ifstream children("/proc/" + number + "/task/" + number + "/children");
    return {std::istream_iterator<int>(children), {}};
}

}  // namespace ingero::test
