// For the self-tests of the stand-ins: calls made in a forked child, since options are read once a process, and
// programs that are run and listened to.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ground_truth_reader.h"
#include "workload/runtime_api.h"

namespace ingero::standin {

inline const std::string standin_dir = STANDIN_DIR;
inline const std::string lib_dir = standin_dir + "/lib/";

/// A log's place, gone after the test.
class LogPath {
  public:
    LogPath() {
        static int count = 0;
        path_ = testing::TempDir() + "standin-" + std::to_string(getpid()) + "-" + std::to_string(++count) + ".log";
    }
    LogPath(const LogPath&) = delete;
    LogPath& operator=(const LogPath&) = delete;
    ~LogPath() { unlink(path_.c_str()); }
    const std::string& text() const { return path_; }

  private:
    std::string path_;
};

struct Logged {
    LogPath path;
    std::optional<GroundTruth> log;
    int status = -1;  ///< of the child: 0 when its body said true

    std::vector<Record> of(std::string_view name) const {
        std::vector<Record> found;
        for (const Record& record : log->records()) {
            if (log->name(record) == name) found.push_back(record);
        }
        return found;
    }
    size_t outermost() const {
        size_t count = 0;
        for (const Record& record : log->records()) count += record.depth == 0;
        return count;
    }
};

/// The function of that name in a library, whatever its signature is said to be.
template <typename Signature>
Signature* function(const char* name, const char* library = "libcudart.so.12") {
    void* handle = dlopen((lib_dir + library).c_str(), RTLD_NOW);
    return handle == nullptr ? nullptr : reinterpret_cast<Signature*>(dlsym(handle, name));
}

inline int status_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Calls `body` in a child with these options and a log, and reads the log. The body says whether it saw what it
/// should.
inline void in_child(Logged& logged, const std::string& options, const std::function<bool(const Runtime&)>& body) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        setenv("INGERO_STANDIN", ("log_capacity=65536," + options).c_str(), 1);
        setenv("INGERO_STANDIN_LOG", logged.path.text().c_str(), 1);
        std::string error;
        const auto runtime = Runtime::load(lib_dir + "libcudart.so.12", error);
        const bool good = runtime && body(*runtime);
        _exit(good ? 0 : 1);
    }
    logged.status = status_of(child);
    logged.log = GroundTruth::open(logged.path.text());
    ASSERT_TRUE(logged.log.has_value());
}

/// A program of ours, with its input and output in our hands. Killed when it is forgotten.
class Program {
  public:
    Program(const std::string& name, std::vector<std::string> arguments) {
        int to[2], from[2];
        if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) return;
        arguments.insert(arguments.begin(), standin_dir + "/" + name);
        std::vector<char*> pointers;
        for (std::string& argument : arguments) pointers.push_back(argument.data());
        pointers.push_back(nullptr);
        pid_ = fork();
        if (pid_ == 0) {
            dup2(to[0], STDIN_FILENO);
            dup2(from[1], STDOUT_FILENO);
            execv(pointers[0], pointers.data());
            _exit(127);
        }
        close(to[0]);
        close(from[1]);
        input_ = to[1];
        output_ = from[0];
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            status_of(pid_);
        }
        close(input_);
        close(output_);
    }

    pid_t pid() const { return pid_; }

    std::string read_line() {
        std::string line;
        char byte;
        while (read(output_, &byte, 1) == 1 && byte != '\n') line += byte;
        return line;
    }
    void send_line() { ASSERT_EQ(write(input_, "\n", 1), 1); }

    /// Waits for the end. The exit status, or 128 and the signal.
    int finish() {
        const int status = status_of(pid_);
        pid_ = -1;
        return status;
    }

  private:
    pid_t pid_ = -1;
    int input_ = -1;
    int output_ = -1;
};

/// Runs the workload to its end with a log. The last line it printed.
inline std::string run_workload(Logged& logged, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--log", logged.path.text()});
    Program program("standin-workload", arguments);
    const std::string line = program.read_line();
    logged.status = program.finish();
    logged.log = GroundTruth::open(logged.path.text());
    return line;
}

/// The number after `key=` in a line of the workload.
inline double number_in(const std::string& line, const std::string& key) {
    const size_t place = line.find(key + "=");
    return place == std::string::npos ? -1 : std::strtod(line.c_str() + place + key.size() + 1, nullptr);
}

/// Comes true within ten seconds.
inline bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 10'000; ++i) {
        if (condition()) return true;
        usleep(1000);
    }
    return false;
}

}  // namespace ingero::standin
