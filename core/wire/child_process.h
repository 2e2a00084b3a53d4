// A program run beside ours, its standard input and output as pipes: a helper of the package, or a tool of the system.
// It starts with a clean environment and signal state, and it never outlives its handle. One thread at a time.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/model/result.h"
#include "core/model/unique_fd.h"

namespace ingero {

class ChildProcess {
  public:
    struct Options {
        std::string program;                 ///< what is run; empty: command[0]. Both are paths, no PATH is searched
        std::vector<std::string> keep = {};  ///< names of environment variables that it inherits
        bool with_input = false;             ///< a pipe as standard input; else /dev/null
    };

    /// Standard error stays ours. Errors: internal (the message names the program).
    static Result<ChildProcess> start(std::vector<std::string> command, const Options& options);
    static Result<ChildProcess> start(std::vector<std::string> command) { return start(std::move(command), {}); }

    ChildProcess() = default;
    ChildProcess(ChildProcess&& other) noexcept;
    ChildProcess& operator=(ChildProcess&& other) noexcept;
    /// Kills it where it still runs, and reaps it.
    ~ChildProcess();

    int pid() const { return pid_; }
    int pidfd() const { return pidfd_.get(); }
    /// The reading end of its standard output, non-blocking.
    int output() const { return output_.get(); }

    /// Writes all of a short text to its standard input. Errors: internal.
    Result<void> write(std::string_view text);
    /// Appends what there is to read now; false at the end of its output. Errors: none, a broken pipe is an end.
    bool read_available(std::string& text);
    /// Appends output until `text` holds a whole line more or the output ends, in which case it is false. False too
    /// where the deadline passes.
    bool read_line(std::string& text, std::chrono::steady_clock::time_point deadline);
    void kill();
    /// Blocks until it has ended; the wait status, and again the same one afterwards.
    int wait();
    /// The wait status where it ends before the deadline, else it is killed. Errors: deadline.
    Result<int> wait_until(std::chrono::steady_clock::time_point deadline);

  private:
    int pid_ = -1;
    int status_ = -1;
    UniqueFd pidfd_;
    UniqueFd input_;
    UniqueFd output_;
};

/// Another program of the package. From above the folder of the one that runs it is, in a build tree, at `beside_as`,
/// and installed, wherever that was moved to, at `below_prefix`; else at `installed_as`.
std::string find_sibling(const std::string& beside_as, const std::string& below_prefix,
                         const std::string& installed_as);

/// All that a program prints, and its wait status.
struct ProcessOutput {
    std::string text;
    int status = 0;
};

/// Runs it to its end. Errors: internal, deadline (it is killed), limit (more than `max_bytes`; it is killed).
Result<ProcessOutput> run_program(std::vector<std::string> command, const ChildProcess::Options& options,
                                  std::chrono::milliseconds timeout, size_t max_bytes);

/// "exited with status 3", "was ended by signal 11 (Segmentation fault)".
std::string describe_wait_status(int status);

}  // namespace ingero
