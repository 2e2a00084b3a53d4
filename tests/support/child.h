// A child process of a test: its output read by line, its input written, its end waited for. It dies with the test.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/model/unique_fd.h"

namespace ingero::test {

using std::chrono::milliseconds;

/// For a loop that asks until something is so: lasts until a time that only a hang reaches, and rests between two
/// questions, so that what is waited for has the CPU.
class Patience {
  public:
    explicit Patience(milliseconds limit = milliseconds(60'000)) : until_(std::chrono::steady_clock::now() + limit) {}
    bool lasts();

  private:
    std::chrono::steady_clock::time_point until_;
    bool asked_ = false;
};

/// Until it is so; false after a time that only a hang reaches.
template <class Condition>
[[nodiscard]] bool wait_until(const Condition& condition) {
    for (Patience limit; !condition();)
        if (!limit.lasts()) return false;
    return true;
}

struct ChildOptions {
    std::map<std::string, std::string> environment{};  ///< added to the test's own
    std::optional<uint32_t> uid{};                     ///< and the same gid, with no other groups
    bool drop_capabilities = false;                    ///< stays root by name only
    std::optional<int> wanted_pid{};                   ///< where another process has it the child has pid() -1
};

class Child {
  public:
    Child(const std::vector<std::string>& command, const ChildOptions& options = {});
    Child(Child&& other) noexcept;
    Child& operator=(Child&&) = delete;
    ~Child();  ///< kills it if it still lives

    int pid() const { return pid_; }
    /// The next line of standard output, without its end; nullopt at its end or after the time.
    std::optional<std::string> read_line(milliseconds timeout = milliseconds(30'000));
    /// The first line that contains `text`.
    std::optional<std::string> wait_for_line(const std::string& text, milliseconds timeout = milliseconds(30'000));
    void write_line(const std::string& line);
    void close_input() { input_.reset(); }
    void signal(int number) const;
    /// Waits for the end and returns the wait status; all output not yet read is kept in output(). Fails the test and
    /// kills the child after the time.
    int wait(milliseconds timeout = milliseconds(60'000));
    /// All that came on standard output and standard error so far.
    const std::string& output() const { return all_; }
    /// Its main thread, interruptibly.
    bool is_asleep() const;
    /// The same as /proc has it: 'R', 'S', 'T' and so on; '?' where it is gone.
    char state() const;
    const std::string& errors() const { return errors_; }

  private:
    bool pump(milliseconds timeout);  ///< false when nothing more can come, or at the time

    int pid_ = -1;
    UniqueFd pidfd_, input_, output_, error_;
    std::string pending_, all_, errors_;
};

/// Runs to its end.
struct Finished {
    int status = -1;  ///< exit code; 128 + signal where one ended it
    std::string output, errors;
};
Finished run(const std::vector<std::string>& command, const ChildOptions& options = {},
             milliseconds timeout = milliseconds(60'000));

/// The pids of its children, the zombies too.
std::vector<int> children_of(int pid);

}  // namespace ingero::test
