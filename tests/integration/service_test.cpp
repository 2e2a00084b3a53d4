// ingerod as a service: what it tells systemd, sockets it is handed, reload, and incidents while they last.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>

#include "core/wire/client.h"
#include "core/wire/rpc.h"
#include "test_paths.h"
#include "tests/support/daemon.h"
#include "tests/support/others_work.h"
#include "tests/support/span_client.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

class Service : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }
};

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
}

UniqueFd listen_at(const std::string& path, int type) {
    UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    const sockaddr_un address = address_of(path);
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fd.reset();
    if (fd && type == SOCK_STREAM && listen(fd.get(), 16) != 0) fd.reset();
    return fd;
}

/// Stands where systemd stands: reads what sd_notify() says.
class NotifySocket {
  public:
    explicit NotifySocket(const std::string& path) : fd_(listen_at(path, SOCK_DGRAM)) {}
    /// Reads until a message holds `text`; false after the time.
    bool wait_for(const std::string& text, int timeout_ms = 30'000) {
        pollfd ready{fd_.get(), POLLIN, 0};
        while (poll(&ready, 1, timeout_ms) == 1) {
            char buffer[4096];
            const ssize_t size = recv(fd_.get(), buffer, sizeof(buffer), 0);
            if (size <= 0) return false;
            messages_.emplace_back(buffer, static_cast<size_t>(size));
            if (messages_.back().find(text) != std::string::npos) return true;
        }
        return false;
    }

  private:
    UniqueFd fd_;
    std::vector<std::string> messages_;
};

ino_t inode_of(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

Finished ingeroctl(const std::string& socket, std::vector<std::string> arguments, const ChildOptions& options = {}) {
    std::vector<std::string> command = {INGEROCTL_PROGRAM, "--socket", socket};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return test::run(command, options);
}

TEST_F(Service, tells_systemd_when_it_is_ready_alive_reloading_and_stopping) {
    const TemporaryDirectory directory;
    NotifySocket notify(directory / "notify");
    Child daemon(
        {INGEROD_PROGRAM, "--config", "/dev/null", "--directory", directory / "run", "--worker", WORKER_PROGRAM},
        {.environment = {{"NOTIFY_SOCKET", directory / "notify"}, {"WATCHDOG_USEC", "600000"}}});
    EXPECT_TRUE(notify.wait_for("READY=1"));
    EXPECT_TRUE(notify.wait_for("WATCHDOG=1"));
    daemon.signal(SIGHUP);
    EXPECT_TRUE(notify.wait_for("RELOADING=1\nMONOTONIC_USEC="));
    EXPECT_TRUE(notify.wait_for("READY=1"));
    daemon.signal(SIGTERM);
    EXPECT_TRUE(notify.wait_for("STOPPING=1"));
    EXPECT_EQ(daemon.wait(), 0);
}

// Wherever in its start the signal finds it.
TEST_F(Service, ends_as_asked_where_it_is_stopped_while_it_starts) {
    const TemporaryDirectory directory;
    { Daemon first(directory / "run"); }
    sigset_t term, before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    for (int round = 0; round < 3; ++round) {
        // Blocked from its first instruction on, as the daemon blocks it: it comes before that.
        ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &term, &before), 0);
        Child daemon(
            {INGEROD_PROGRAM, "--config", "/dev/null", "--directory", directory / "run", "--worker", WORKER_PROGRAM});
        ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
        daemon.signal(SIGTERM);
        EXPECT_EQ(daemon.wait(), 0) << daemon.output() << daemon.errors();
    }
    // It holds nothing any more, and has spoilt nothing.
    Daemon next(directory / "run");
    EXPECT_EQ(next.stop(), 0);
}

TEST_F(Service, serves_the_sockets_that_systemd_holds_and_leaves_them_when_it_ends) {
    const TemporaryDirectory directory;
    const std::string path = directory / "control.sock", spans = directory / "spans.sock", mcp = directory / "mcp.sock";
    const UniqueFd control_socket = listen_at(path, SOCK_STREAM);
    const UniqueFd spans_socket = listen_at(spans, SOCK_STREAM);
    const UniqueFd mcp_socket = listen_at(mcp, SOCK_STREAM);
    ASSERT_TRUE(control_socket && spans_socket && mcp_socket);
    const ino_t inode = inode_of(path);
    // The shell gives itself the descriptors' numbers and its own pid, and becomes the daemon.
    const std::string script = "exec 3<&$1 4<&$2 5<&$3; shift 3; LISTEN_PID=$$ exec \"$@\"";
    for (int run = 0; run < 2; ++run) {
        // A client that comes while nobody serves waits, and is served once somebody does.
        const int early = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_un address = address_of(path);
        ASSERT_EQ(connect(early, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        close(early);
        // Without close-on-exec.
        const UniqueFd first(dup(control_socket.get())), second(dup(spans_socket.get())), third(dup(mcp_socket.get()));
        Child daemon({"/bin/bash", "-c", script, "bash", std::to_string(first.get()), std::to_string(second.get()),
                      std::to_string(third.get()), INGEROD_PROGRAM, "--config", "/dev/null", "--directory",
                      directory / "run", "--worker", WORKER_PROGRAM},
                     {.environment = {{"LISTEN_FDS", "3"}, {"LISTEN_FDNAMES", "control:spans:mcp"}}});
        const Finished status = ingeroctl(path, {"--json", "status"});
        // 4: it answers, and has not attached to all there is yet.
        EXPECT_TRUE(status.status == 0 || status.status == 4) << status.errors << daemon.output();
        EXPECT_EQ(json::parse(status.output).at("sockets"), 5) << "annotations and the relay in its own directory";
        SpanClient program(spans);
        EXPECT_EQ(program.ask({{"id", "r"}, {"start", 1}, {"end", 2}, {"ack", 1}})["ack"], 1);
        const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_un mcp_address = address_of(mcp);
        ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&mcp_address), sizeof(mcp_address)), 0);
        const std::string ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        ASSERT_EQ(write(client.get(), ping.data(), ping.size()), static_cast<ssize_t>(ping.size()));
        std::string pong;
        for (char byte; !pong.ends_with('\n') && read(client.get(), &byte, 1) == 1;) pong += byte;
        EXPECT_EQ(json::parse(pong, nullptr, false)["result"], json::object()) << pong << daemon.output();
        daemon.signal(SIGTERM);
        EXPECT_EQ(daemon.wait(), 0);
        EXPECT_EQ(inode_of(path), inode);
    }
}

TEST_F(Service, reloads_its_configuration_or_says_what_is_wrong_with_it_and_goes_on) {
    const TemporaryDirectory directory;
    const std::string config = directory / "ingerod.conf";
    std::ofstream(config) << "[workers]\ndeadline = \"10s\"\n";
    Daemon daemon(directory / "run", {"--config", config});

    Finished result = ingeroctl(daemon.socket(), {"reload"});
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_EQ(result.output, "changed: nothing\n");

    std::ofstream(config) << "[workers]\ndeadline = \"20s\"\n[node]\nname = \"another\"\n";
    result = ingeroctl(daemon.socket(), {"reload"});
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_EQ(result.output, "changed: node.name, workers.deadline\nneeds a restart: node.name\n");
    result = ingeroctl(daemon.socket(), {"reload"});
    EXPECT_EQ(result.output, "changed: node.name\nneeds a restart: node.name\n") << "still so";

    std::ofstream(config) << "[workers]\ndeadlin = \"20s\"\n";
    result = ingeroctl(daemon.socket(), {"reload"});
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.errors.find("ingerod.conf:2: unknown key: workers.deadlin"), std::string::npos) << result.errors;
    EXPECT_EQ(ingeroctl(daemon.socket(), {"--json", "stats"}).status, 0) << "workers serve as before";
    daemon.process().signal(SIGHUP);
    EXPECT_TRUE(daemon.process().wait_for_line("the configuration was not reloaded"));

    result = ingeroctl(daemon.socket(), {"reload"}, {.uid = 65534});
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.errors.find("only root may reload"), std::string::npos) << result.errors;
    EXPECT_NE(result.errors.find("hint: "), std::string::npos) << result.errors;
    EXPECT_EQ(daemon.stop(), 0);
}

// On a disk of its own, so small that it fills up.
TEST_F(Service, says_in_its_log_that_the_disk_is_full_while_it_goes_on) {
    const TemporaryDirectory directory, config;
    std::ofstream(config / "ingerod.conf") << "[capture]\noverhead_budget = 0\n";  // thinned calls would fit
    const std::string script = "mount -t tmpfs -o size=1m none \"$0\" && exec \"$@\" 2>&1";
    Child daemon({"unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, directory.path(),
                  INGEROD_PROGRAM, "--directory", directory.path(), "--worker", WORKER_PROGRAM, "--config",
                  config / "ingerod.conf"});
    ASSERT_TRUE(daemon.wait_for_line("is ready")) << daemon.output();
    Workload workload({"calls", "--count", "100000000", "--rate", "20000", "--op", "launch"});
    ASSERT_TRUE(daemon.wait_for_line("libcuda.so.1")) << daemon.output();
    workload.open_gate();
    EXPECT_TRUE(daemon.wait_for_line("degraded: ", milliseconds(15'000))) << daemon.output();
    workload.child().signal(SIGKILL);
    workload.finish();
    daemon.signal(SIGTERM);
    EXPECT_EQ(daemon.wait(), 0);
}

TEST_F(Service, an_incident_opens_while_a_hog_runs_and_closes_after_it) {
    const TemporaryDirectory directory;
    std::ofstream(directory / "ingerod.conf") << "[capture]\noverhead_budget = 0\n[diagnosis]\nclose_after = \"3s\"\n";
    Daemon daemon(directory / "run", {"--config", directory / "ingerod.conf"});
    Workload workload({"sync-loop", "--kernel-us", "2000", "--duration", "60", "--cpu", "0"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    const auto start = std::chrono::steady_clock::now();
    {
        const Hog hog(0, "cpu-hog");
        const std::string pid = "(pid " + std::to_string(workload.pid()) + ") waited ";
        const auto opened = daemon.process().wait_for_line(pid, milliseconds(60'000));
        ASSERT_TRUE(opened) << daemon.process().output();
        // On a busy host others may have had more of it at first.
        const auto has_hog = [&] {
            const Finished asked = ingeroctl(daemon.socket(), {"--json", "incidents"});
            const json answer = json::parse(asked.output);
            for (const json& incident : answer.at("incidents"))
                for (const json& culprit : incident.at("culprits"))
                    if (culprit.at("name") == "cpu-hog") return true;
            return false;
        };
        for (Patience limit; !has_hog();)
            ASSERT_TRUE(limit.lasts()) << *opened << ingeroctl(daemon.socket(), {"--json", "incidents"}).output;
        const auto after = std::chrono::steady_clock::now() - start;
        std::cout << "open " << std::chrono::duration_cast<milliseconds>(after).count() << " ms after the hog began\n";
        EXPECT_EQ(daemon.status().at("incidents_open"), 1);
    }
    // On a busy host others would go on where the hog left off.
    workload.child().signal(SIGKILL);
    workload.finish();
    const auto closed = daemon.process().wait_for_line("is over", milliseconds(60'000));
    ASSERT_TRUE(closed) << daemon.process().output();
    EXPECT_NE(closed->find("cpu-contention of standin-workloa"), std::string::npos) << *closed;
    EXPECT_EQ(daemon.status().at("incidents_open"), 0);
    EXPECT_EQ(daemon.stop(), 0);
}

TEST_F(Service, no_incident_opens_on_a_healthy_host_but_of_what_others_took) {
    if (sanitized) GTEST_SKIP() << "a slow daemon on two CPUs is itself a hog";
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    Workload workload({"sync-loop", "--kernel-us", "2000", "--duration", long_form() ? "600" : "8", "--cpu", "0"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    workload.open_gate();
    ASSERT_EQ(workload.finish(milliseconds(700'000)), 0);
    const Finished incidents = ingeroctl(daemon.socket(), {"--json", "incidents"});
    EXPECT_EQ(daemon.stop(), 0);
    // Whatever opened in between is told too.
    const uint64_t delay_ns = run_delay_ns(workload.child().output());
    EXPECT_EQ(not_others_work(json::parse(incidents.output).at("incidents"), delay_ns), json::array()) << delay_ns;
}

/// Bytes as callers.py takes them.
std::string hexadecimal(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) {
        constexpr const char* digits = "0123456789abcdef";
        text += digits[static_cast<unsigned char>(byte) >> 4];
        text += digits[static_cast<unsigned char>(byte) & 15];
    }
    return text;
}

TEST_F(Service, sixty_four_callers_with_long_answers_cost_it_no_memory) {
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    const json query = {
        {"sql", "SELECT a.name, b.name, a.description, b.description, c.op_num FROM ops a, ops b, ops c"},
        {"limit", 20'000}};
    const std::string requests = hexadecimal(encode(RpcRequest{1, "hello", {{"version", control_protocol_version}}}) +
                                             encode(RpcRequest{2, "query", query}));
    constexpr size_t of_each = 16;
    std::vector<std::unique_ptr<Child>> users;
    for (const char* uid : {"0", "65501", "65502", "65503"})
        users.push_back(std::make_unique<Child>(std::vector<std::string>{
            "/usr/bin/python3", "-B", std::string(INGERO_SOURCE_DIR) + "/tests/integration/callers.py", daemon.socket(),
            uid, std::to_string(of_each), requests}));
    uint64_t bytes = 0, least = UINT64_MAX;
    for (const auto& user : users) {
        for (size_t i = 0; i < of_each; ++i) {
            const auto line = user->read_line(milliseconds(120'000));
            ASSERT_TRUE(line) << user->errors();
            bytes += std::stoull(*line);
            least = std::min<uint64_t>(least, std::stoull(*line));
        }
        EXPECT_EQ(user->wait(), 0) << user->errors();
    }
    EXPECT_GT(least, 500'000u) << "an answer was cut off";
    std::ifstream status("/proc/" + std::to_string(daemon.process().pid()) + "/status");
    const std::string text((std::istreambuf_iterator<char>(status)), {});
    const size_t peak = text.find("VmHWM:"), file = text.find("RssFile:"), shared = text.find("RssShmem:");
    ASSERT_NE(peak, std::string::npos);
    // At its largest, what it has mapped of files and shares with the kernel taken off.
    const uint64_t kib =
        std::stoull(text.substr(peak + 6)) - std::stoull(text.substr(file + 8)) - std::stoull(text.substr(shared + 9));
    std::cout << bytes / 1'000'000 << " MB of answers, daemon at most " << kib / 1'024 << " MiB\n";
    if (!sanitized) {
        EXPECT_LT(kib, 32u << 10);
    }
    EXPECT_EQ(daemon.stop(), 0);
}

}  // namespace
