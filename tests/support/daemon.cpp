#include "tests/support/daemon.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <ostream>

#include "daemon/ingerod/probes/attach/targets.h"
#include "daemon/ingerod/probes/kernel/kernel_features.h"
#include "test_paths.h"

namespace ingero::test {

using nlohmann::json;

TemporaryDirectory::TemporaryDirectory() {
    std::string name = std::filesystem::temp_directory_path() / "ingero-test-XXXXXX";
    if (!mkdtemp(name.data())) abort();
    path_ = name;
    chmod(name.c_str(), 0755);
}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
}

UniqueFd connect_to(const std::string& socket) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
        << socket << ": " << strerror(errno);
    return fd;
}

void PrintTo(const AttachWay& way, std::ostream* stream) {
    *stream << way.name;
}

std::string why_no_bpf() {
    if (geteuid() != 0) return "loading BPF needs root";
    KernelFeatures features;
    if (features.attach_method() != AttachMethod::none) return {};
    return "no BPF here: " + features.why_not(Feature::btf) + " " + features.why_not(Feature::bpf);
}

bool long_form() {
    return getenv("INGERO_LONG") != nullptr;
}

bool full_form() {
    return getenv("INGERO_FULL") != nullptr;
}

bool emulated() {
    return getenv("INGERO_EMULATED") != nullptr;
}

namespace {

// The log goes to standard output, where the test waits for its lines.
std::vector<std::string> daemon_command(const std::string& directory, const std::string& config,
                                        const std::vector<std::string>& more) {
    std::vector<std::string> command = {"/bin/sh",     "-c",      "exec \"$@\" 2>&1", "ingerod",     INGEROD_PROGRAM,
                                        "--directory", directory, "--worker",         WORKER_PROGRAM};
    if (std::find(more.begin(), more.end(), "--config") == more.end())
        command.insert(command.end(), {"--config", config});
    command.insert(command.end(), more.begin(), more.end());
    return command;
}

/// Every call has a record of its own: what tests that compare exact counts run with.
std::string without_budget(const TemporaryDirectory& directory) {
    std::string path = directory / "ingerod.conf";
    std::ofstream(path) << "[capture]\noverhead_budget = 0\nwait_floor = \"off\"\n";
    return path;
}

}  // namespace

Daemon::Daemon(const std::string& directory, std::vector<std::string> more_options)
    : directory_(directory), process_(daemon_command(directory, without_budget(config_directory_), more_options)) {
    if (!process_.wait_for_line("is ready")) ADD_FAILURE() << "ingerod did not get ready: " << process_.output();
}

Result<json> Daemon::try_call(const std::string& method, json params, milliseconds timeout) {
    auto client = ControlClient::connect(socket());
    if (!client) return tl::unexpected(client.error());
    return client->call(method, std::move(params), timeout);
}

json Daemon::call(const std::string& method, json params) {
    auto answer = try_call(method, std::move(params));
    if (answer) return *answer;
    ADD_FAILURE() << method << ": " << answer.error().message << "; log: " << process_.output();
    return json::object();
}

bool has_all_stored(const json& answer) {
    const json& gaps = answer.at("coverage").at("gaps");
    const json& until = answer.at("window").at("to_ns");
    // Whatever the reason: where the disk takes seconds the store cannot tell.
    return std::none_of(gaps.begin(), gaps.end(),
                        [&](const json& gap) { return gap.at("partial") != true && gap.at("to_ns") == until; });
}

json Daemon::call_when_stored(const std::string& method, json params) {
    for (Patience limit;;) {
        json answer = call(method, params);
        if (!limit.lasts() || has_all_stored(answer)) return answer;
    }
}

bool Daemon::wait_traced(int pid, milliseconds timeout) {
    Patience limit(timeout);
    auto client = ControlClient::connect(socket());
    if (!client) return false;
    while (limit.lasts()) {
        const auto answer = client->call("processes", json::object(), timeout);
        if (!answer) return false;
        for (const json& process : answer->at("processes"))
            if (process.at("pid") == pid && process.at("state") == "tracing") return true;
    }
    return false;
}

bool Daemon::wait_attached(const std::string& name) {
    return wait_until([&] {
        const json answer = call("probes");
        const json& libraries = answer.at("libraries");
        return std::any_of(libraries.begin(), libraries.end(), [&](const json& library) {
            return library.at("library") == name && library.at("attached") != 0;
        });
    });
}

int Daemon::stop() {
    process_.signal(SIGTERM);
    return process_.wait();
}

void Daemon::kill() {
    process_.signal(SIGKILL);
    process_.wait();
}

std::vector<int> Daemon::workers() const {
    std::vector<int> result;
    const std::string pid = std::to_string(process_.pid());
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    for (int child = 0; children >> child;) {
        // One that does not execute its program yet holds up the daemon, which waits for that, if it is stopped.
        std::string name;
        if (std::ifstream("/proc/" + std::to_string(child) + "/comm") >> name && name == "ingero-worker")
            result.push_back(child);
    }
    return result;
}

namespace {
std::vector<std::string> workload_command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), WORKLOAD_PROGRAM);
    arguments.push_back("--gate");
    return arguments;
}
}  // namespace

Workload::Workload(std::vector<std::string> arguments, const ChildOptions& options)
    : child_(workload_command(std::move(arguments)), options) {
    if (!child_.wait_for_line("ready")) ADD_FAILURE() << "the workload did not get ready: " << child_.errors();
}

bool is_beside_another_ingerod() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        std::string name, word;
        std::ifstream(entry.path() / "comm") >> name;
        if (name != "ingerod") continue;
        std::ifstream status(entry.path() / "status");
        while (status >> word && word != "PPid:") {
        }
        int parent = 0;
        if (status >> parent && parent != getpid()) return true;
    }
    return false;
}

Hog::Hog(int cpu, const std::string& comm, const std::vector<std::string>& more_options)
    : child_([&] {
          std::vector<std::string> command = {HOG_PROGRAM,  "--cpu", std::to_string(cpu), "--comm", comm,
                                              "--duration", "600"};
          command.insert(command.end(), more_options.begin(), more_options.end());
          return command;
      }()) {
    if (!child_.wait_for_line("ready")) ADD_FAILURE() << "the hog did not get ready: " << child_.errors();
}

uint64_t StoreContents::lost() const {
    uint64_t sum = 0;
    for (const LossRow& row : losses) sum += row.lost();
    return sum;
}

uint64_t StoreContents::lost_to_rings() const {
    uint64_t sum = 0;
    for (const LossRow& row : losses) sum += row.lost_ring;
    return sum;
}

StoreContents read_store(const std::string& directory) {
    StoreContents contents;
    auto reader = StoreReader::open(directory);
    if (!reader) {
        ADD_FAILURE() << "cannot open the store: " << reader.error().message;
        return contents;
    }
    auto snapshot = (*reader)->snapshot();
    if (!snapshot) {
        ADD_FAILURE() << "no snapshot: " << snapshot.error().message;
        return contents;
    }
    contents.sessions = (*snapshot)->sessions();
    if (auto processes = (*snapshot)->processes()) contents.processes = *processes;
    if (auto functions = (*snapshot)->functions()) contents.functions = *functions;
    if (auto communicators = (*snapshot)->communicators()) contents.communicators = *communicators;
    const Window all{0, UINT64_MAX};
    for (const Session& session : contents.sessions) {
        if (&session != &contents.sessions.front() && session.boot_index == (&session)[-1].boot_index) continue;
        const auto scanned = (*snapshot)->scan(session.boot_index, all, [&](std::span<const Event> events) {
            contents.events.insert(contents.events.end(), events.begin(), events.end());
            return true;
        });
        EXPECT_TRUE(scanned) << scanned.error().message;
        if (auto losses = (*snapshot)->losses(session.boot_index, all))
            contents.losses.insert(contents.losses.end(), losses->begin(), losses->end());
    }
    std::sort(contents.events.begin(), contents.events.end(),
              [](const Event& a, const Event& b) { return a.start_ns < b.start_ns; });
    return contents;
}

std::optional<OpId> op_of_function(std::string_view function) {
    for (const Library library : all_libraries)
        for (const Target& target : targets_of(library))
            if (target.symbol == function) return target.op;
    return std::nullopt;
}

}  // namespace ingero::test
