#include "ctl/live/pager.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/model/unique_fd.h"
#include "core/render/table.h"
#include "core/wire/spawn_plan.h"

extern char** environ;

namespace ingero::ctl {

namespace {

/// ^C is the pager's business as long as it runs, and so is where it stops reading.
class WithoutInterrupts {
  public:
    WithoutInterrupts() {
        for (size_t i = 0; i < std::size(numbers); ++i) before_[i] = signal(numbers[i], SIG_IGN);
    }
    WithoutInterrupts(const WithoutInterrupts&) = delete;
    WithoutInterrupts& operator=(const WithoutInterrupts&) = delete;
    ~WithoutInterrupts() {
        for (size_t i = 0; i < std::size(numbers); ++i) signal(numbers[i], before_[i]);
    }

  private:
    static constexpr int numbers[] = {SIGINT, SIGQUIT, SIGPIPE};
    sighandler_t before_[std::size(numbers)];
};

std::optional<std::string> variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
}

/// Empty: none is wanted.
std::vector<std::string> pager_command() {
    auto wanted = variable("INGERO_PAGER");
    if (!wanted) wanted = variable("PAGER");
    if (!wanted) return {"less", "-FRX"};
    if (wanted->empty() || *wanted == "cat") return {};
    // By a shell, as every program does it: a pager may have options, or be a pipe.
    return {"/bin/sh", "-c", *wanted};
}

std::vector<std::string> pager_environment() {
    std::vector<std::string> result;
    for (char** one = environ; *one; ++one)
        if (!std::string_view(*one).starts_with("LESSSECURE=")) result.emplace_back(*one);
    // No shell, no editor and no files from inside less, whoever has root run this.
    result.emplace_back("LESSSECURE=1");
    if (!variable("LESS")) result.emplace_back("LESS=FRX");
    return result;
}

}  // namespace

bool is_longer_than_terminal(std::string_view text) {
    winsize size{};
    const char* terminal = std::getenv("TERM");
    if (isatty(STDOUT_FILENO) == 0 || !terminal || std::string_view(terminal) == "dumb") return false;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return false;
    size_t lines = 0;
    while (!text.empty() && lines < size.ws_row) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        lines += 1 + (std::max<size_t>(display_width(line), 1) - 1) / size.ws_col;
    }
    return lines >= size.ws_row;  // one line is the prompt's
}

bool show_in_pager(std::string_view text) {
    auto command = pager_command();
    int ends[2];
    if (command.empty() || pipe2(ends, O_CLOEXEC) != 0) return false;
    UniqueFd input(ends[0]), output(ends[1]);
    const WithoutInterrupts without_interrupts;
    SpawnPlan plan;
    posix_spawn_file_actions_adddup2(&plan.files, input.get(), STDIN_FILENO);
    auto environment = pager_environment();
    pid_t pid = 0;
    if (posix_spawnp(&pid, command[0].c_str(), &plan.files, &plan.attributes, spawn_pointers(command).data(),
                     spawn_pointers(environment).data()) != 0)
        return false;
    input.reset();
    while (!text.empty()) {
        const ssize_t written = write(output.get(), text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) break;  // it has seen enough
        text.remove_prefix(static_cast<size_t>(written));
    }
    output.reset();
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    // What a shell says of a program that there is not.
    constexpr int not_executable = 126, not_found = 127;
    return !WIFEXITED(status) || (WEXITSTATUS(status) != not_executable && WEXITSTATUS(status) != not_found);
}

}  // namespace ingero::ctl
