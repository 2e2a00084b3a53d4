// A real ingerod on a directory of its own, and the stand-in workload traced by it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model/event.h"
#include "core/model/unique_fd.h"
#include "core/store/store.h"
#include "core/wire/client.h"
#include "tests/standin/ground_truth_reader.h"
#include "tests/support/child.h"
#include "tests/support/sanitized.h"

namespace ingero::test {

inline constexpr uint64_t ms = 1'000'000;  ///< in ns

/// A stream connection to this socket; fails the test if there is none.
UniqueFd connect_to(const std::string& socket);

class TemporaryDirectory {
  public:
    TemporaryDirectory();
    ~TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    const std::string& path() const { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

/// Why tests that load BPF cannot run here; empty where they can. For GTEST_SKIP.
std::string why_no_bpf();
/// What is measured, on a machine with nothing else to do, is held to its bound (scripts/test --full).
bool full_form();
/// The long forms of tests run (scripts/test --long).
bool long_form();
/// An emulated processor runs this, many times slower than a real one: what is counted may be less.
bool emulated();

/// A way in which functions are attached to, by the options of ingerod that leave no better one.
struct AttachWay {
    const char* name;
    std::vector<std::string> options;
};
void PrintTo(const AttachWay& way, std::ostream* stream);
inline const std::vector<std::string> by_uprobe_multi = {"--deny-feature", "uprobe-session"};
inline const std::vector<std::string> by_perf_uprobes = {"--deny-feature", "uprobe-session", "--deny-feature",
                                                         "uprobe-multi"};
/// For INSTANTIATE_TEST_SUITE_P: the parameter's name, as an identifier.
template <class Param>
std::string name_of_parameter(const testing::TestParamInfo<Param>& info) {
    std::string name = info.param.name;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

/// All but the last of the ways in which functions are attached to, perf uprobes: they take 40 s, most of it in the
/// kernel, and attach_test.cpp has sanitizers look at them once.
template <class Way>
std::vector<Way> once_under_sanitizers(std::vector<Way> ways) {
    if (sanitized) ways.pop_back();
    return ways;
}

/// Nothing is missing at the end of its window. Of a daemon that runs.
bool has_all_stored(const nlohmann::json& answer);

class Daemon {
  public:
    /// Starts it and waits until it is ready; fails the test if it is not. Without a --config of the test's own no call
    /// is thinned.
    explicit Daemon(const std::string& directory, std::vector<std::string> more_options = {});

    nlohmann::json call(const std::string& method, nlohmann::json params = nlohmann::json::object());
    Result<nlohmann::json> try_call(const std::string& method, nlohmann::json params = nlohmann::json::object(),
                                    milliseconds timeout = milliseconds(60'000));
    nlohmann::json status() { return call("status"); }
    /// Asked again until the answer has all up to its window's end: behind a slow disk one does not wait for long.
    nlohmann::json call_when_stored(const std::string& method, nlohmann::json params);
    /// Waits until the process is traced.
    [[nodiscard]] bool wait_traced(int pid, milliseconds timeout = milliseconds(60'000));
    /// Waits until a file of this name is attached to: a process may be traced by another library already.
    [[nodiscard]] bool wait_attached(const std::string& name);
    std::string socket() const { return directory_ + "/control.sock"; }
    std::string store() const { return directory_ + "/store"; }
    Child& process() { return process_; }
    /// SIGTERM, and the exit code.
    int stop();
    /// SIGKILL.
    void kill();
    /// Pids of its workers.
    std::vector<int> workers() const;

  private:
    std::string directory_;
    const TemporaryDirectory config_directory_;
    Child process_;
};

/// The workload behind its gate: all libraries loaded, nothing called yet.
class Workload {
  public:
    explicit Workload(std::vector<std::string> arguments, const ChildOptions& options = {});
    int pid() const { return child_.pid(); }
    void open_gate() { child_.write_line("go"); }
    /// Its exit code.
    int finish(milliseconds timeout = milliseconds(120'000)) { return child_.wait(timeout); }
    Child& child() { return child_; }

  private:
    Child child_;
};

/// Whether an ingerod runs that this test did not start: it traces what the test runs too, with breakpoints of its own.
bool is_beside_another_ingerod();

/// Burns the CPU until it goes out of scope, in turns where more options of standin-hog say so; returns once it runs.
class Hog {
  public:
    Hog(int cpu, const std::string& comm, const std::vector<std::string>& more_options = {});
    int pid() const { return child_.pid(); }

  private:
    Child child_;
};

/// All of a closed store.
struct StoreContents {
    std::vector<Event> events;  ///< by start
    std::vector<LossRow> losses;
    std::vector<Session> sessions;
    std::vector<Process> processes;
    std::vector<FunctionRow> functions;
    std::vector<CommunicatorRow> communicators;
    uint64_t lost() const;
    /// For tests that run beside others, of which one may kill its program in a call, and so lose a frame.
    uint64_t lost_to_rings() const;
};
StoreContents read_store(const std::string& directory);

/// The op that a stand-in function's calls are traced as; nullopt where it is not traced.
std::optional<OpId> op_of_function(std::string_view function);

}  // namespace ingero::test
