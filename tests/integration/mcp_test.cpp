// Sessions of AI clients with a real ingerod: what they get to see, that none can harm another, and what they are told
// when theirs ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>

#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

namespace {

constexpr uint32_t stranger = 4'242;

std::string request(int id, const std::string& method, json params = json::object()) {
    return json{{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}}.dump();
}

std::string call(int id, const std::string& tool, json arguments = json::object(), json meta = json::object()) {
    return request(id, "tools/call", {{"name", tool}, {"arguments", std::move(arguments)}, {"_meta", std::move(meta)}});
}

std::string hello() {
    return request(0, "initialize",
                   {{"protocolVersion", "2025-11-25"},
                    {"capabilities", json::object()},
                    {"clientInfo", {{"name", "test"}, {"version", "1"}}}});
}

/// As a client configures it.
class Assistant {
  public:
    Assistant(const Daemon& daemon, const ChildOptions& options = {})
        : child_({INGEROCTL_PROGRAM, "--socket", daemon.socket(), "mcp"}, options) {}

    json say(const std::string& line) {
        child_.write_line(line);
        return read();
    }
    json read() {
        const auto line = child_.read_line();
        return line ? json::parse(*line, nullptr, false) : json();
    }
    /// The structured content, or the whole result where there is none.
    json ask(const std::string& tool, json arguments = json::object()) {
        const json result = say(call(++last_id_, tool, std::move(arguments))).value("result", json());
        return result.is_object() && result.contains("structuredContent") ? result["structuredContent"] : result;
    }
    /// Of the latest minutes, when all of them is stored.
    json ask_when_stored(const std::string& tool, json arguments) {
        for (Patience limit;;) {
            json answer = ask(tool, arguments);
            if (!limit.lasts() || (answer.contains("coverage") && has_all_stored(answer))) return answer;
        }
    }
    Child& child() { return child_; }

  private:
    Child child_;
    int last_id_ = 0;
};

/// A connection that somebody made as a user of their own, without a program between.
class Socket {
  public:
    Socket(const std::string& path, uint32_t uid) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        fd_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        // The kernel notes who connects.
        EXPECT_EQ(seteuid(uid), 0);
        const int connected = connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
        EXPECT_EQ(seteuid(0), 0);
        EXPECT_EQ(connected, 0) << std::strerror(errno);
    }

    void write(const std::string& line) const {
        const std::string bytes = line + "\n";
        EXPECT_EQ(send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    }
    /// The next line, empty at the end or after the time.
    std::string read_line(std::chrono::steady_clock::time_point until) {
        for (;;) {
            if (const size_t end = pending_.find('\n'); end != std::string::npos) {
                std::string line = pending_.substr(0, end);
                pending_.erase(0, end + 1);
                return line;
            }
            const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
            pollfd wait{fd_.get(), POLLIN, 0};
            if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) return {};
            char buffer[4'096];
            const ssize_t n = recv(fd_.get(), buffer, sizeof(buffer), 0);
            if (n <= 0) return {};
            pending_.append(buffer, static_cast<size_t>(n));
        }
    }
    int fd() const { return fd_.get(); }

  private:
    UniqueFd fd_;
    std::string pending_;
};

std::chrono::steady_clock::time_point soon() {
    return std::chrono::steady_clock::now() + std::chrono::seconds(30);
}

class McpSessions : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        std::ofstream(directory_ / "ingerod.conf") << "[capture]\noverhead_budget = 0\n[workers]\ndeadline = \"3s\"\n";
        daemon_.emplace(directory_ / "run", std::vector<std::string>{"--config", directory_ / "ingerod.conf"});
    }

    /// A workload that made its calls; its pid.
    int work(const ChildOptions& options = {}) {
        Workload workload({"calls", "--count", "3000", "--op", "mixed"}, options);
        const int pid = workload.pid();
        EXPECT_TRUE(daemon_->wait_traced(pid));
        workload.open_gate();
        EXPECT_EQ(workload.finish(), 0) << workload.child().errors();
        return pid;
    }

    /// The id of its first call, once it is stored: behind a slow disk an answer does not wait for long.
    static json first_call_of(Assistant& assistant, int pid) {
        const std::string sql = "SELECT MIN(id) FROM events WHERE pid = " + std::to_string(pid);
        json id;
        for (Patience limit; id.is_null() && limit.lasts();)
            id = assistant.ask("run_sql", {{"sql", sql}}).at("rows").at(0).at(0);
        EXPECT_FALSE(id.is_null());
        return id;
    }

    /// Pids of the daemon's sessions.
    std::vector<int> sessions() {
        std::vector<int> found;
        for (const int pid : daemon_->workers()) {
            std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
            const std::string command{std::istreambuf_iterator<char>(file), {}};
            if (command.find("--mcp") != std::string::npos) found.push_back(pid);
        }
        return found;
    }

    std::string mcp_socket() const { return directory_ / "run/mcp.sock"; }

    const TemporaryDirectory directory_;
    std::optional<Daemon> daemon_;
};

TEST_F(McpSessions, answers_every_tool_prompt_and_resource_in_every_revision) {
    const int pid = work();
    Assistant assistant(*daemon_);
    ASSERT_EQ(assistant.say(hello())["result"]["protocolVersion"], "2025-11-25");
    const json calls = assistant.ask_when_stored("get_timeline", {{"pid", pid}, {"order", "longest"}})["calls"];
    ASSERT_THAT(calls, testing::Not(IsEmpty()));
    const json arguments = {{"explain_call", {{"event", calls[0]["id"]}}},
                            {"run_sql", {{"sql", "SELECT op, COUNT(*) AS n, NULL AS none FROM events GROUP BY op"}}}};
    for (const char* revision : {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}) {
        const Finished all = run({"/usr/bin/python3", MCP_CLIENT, revision, arguments.dump(), INGEROCTL_PROGRAM,
                                  "--socket", daemon_->socket(), "mcp"});
        if (all.status == 77) GTEST_SKIP() << all.errors;
        ASSERT_EQ(all.status, 0) << revision << ": " << all.errors << daemon_->process().output();
    }
}

TEST_F(McpSessions, answer_the_official_sdk) {
    const int pid = work();
    Assistant assistant(*daemon_);
    assistant.say(hello());
    const json arguments = {{"explain_call", {{"event", first_call_of(assistant, pid)}}},
                            {"run_sql", {{"sql", "SELECT 1"}}}};
    const Finished all = run({"/usr/bin/env", "node", SDK_CLIENT, arguments.dump(), INGEROCTL_PROGRAM, "--socket",
                              daemon_->socket(), "mcp"});
    if (all.status == 77 || all.status == 127) GTEST_SKIP() << "SKIPPED: no MCP SDK: " << all.errors;
    ASSERT_EQ(all.status, 0) << all.errors << daemon_->process().output();
    const json used = json::parse(all.output);
    EXPECT_THAT(used["tools"], SizeIs(testing::Ge(12u)));
    EXPECT_THAT(used["prompts"], SizeIs(3));
    EXPECT_THAT(used["resources"], SizeIs(3));
}

TEST_F(McpSessions, tell_what_the_daemon_recorded_up_to_now) {
    const int pid = work();
    Assistant assistant(*daemon_);
    assistant.say(hello());
    const json stats = assistant.ask_when_stored("get_trace_stats", {{"pid", pid}, {"limit", 100}});
    uint64_t counted = 0;
    for (const json& op : stats["ops"])
        if (op["source"] != "HOST") counted += op["count"].get<uint64_t>();
    EXPECT_GE(counted, 3'000u) << stats.dump();
    const json told = assistant.ask(
        "run_sql", {{"sql", "SELECT COUNT(*) FROM events WHERE source <> 'HOST' AND pid = " + std::to_string(pid)}});
    EXPECT_EQ(told["rows"][0][0], counted);
    EXPECT_TRUE(told["coverage"].contains("complete"));
    // Each claim can be followed to its calls.
    const json first = assistant.ask("get_timeline", {{"pid", pid}, {"order", "longest"}, {"limit", 1}});
    ASSERT_THAT(first["calls"], SizeIs(1));
    const json explained = assistant.ask("explain_call", {{"event", first["calls"][0]["id"]}});
    ASSERT_TRUE(explained.contains("call") && explained["usual"].is_object()) << explained.dump();
    EXPECT_EQ(explained["call"]["id"], first["calls"][0]["id"]);
    EXPECT_EQ(explained["call"]["duration_ns"], first["calls"][0]["duration_ns"]);
    EXPECT_EQ(explained["call"]["pid"], pid);
    EXPECT_GE(explained["usual"]["calls"], 1);
    const json demos = assistant.ask("run_demo");
    EXPECT_GE(demos["scenarios"].size(), 10u) << demos.dump();
    EXPECT_EQ(demos["findings"], json::array());
    const json demo = assistant.ask("run_demo", {{"scenario", "cpu-contention"}});
    ASSERT_EQ(demo["findings"].size(), 1u) << demo.dump();
    EXPECT_EQ(demo["findings"][0]["kind"], "cpu-contention");
    EXPECT_EQ(assistant.ask("run_demo", {{"scenario", "../demo/cpu-contention"}})["isError"], true);
    const json check = assistant.ask("get_check");
    ASSERT_TRUE(check.contains("events")) << check.dump();
    EXPECT_GE(check["events"]["recorded"], 3'000) << check.dump();
    EXPECT_THAT(check["checks"], testing::Not(IsEmpty()));
    EXPECT_EQ(assistant.ask("run_sql", {{"sql", "DELETE FROM events"}})["isError"], true);
}

TEST_F(McpSessions, show_a_user_their_own_processes_alone) {
    if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can be somebody else";
    const int roots = work(), theirs = work({.uid = stranger});
    Assistant root(*daemon_), user(*daemon_, {.uid = stranger});
    root.say(hello());
    user.say(hello());
    const json id = first_call_of(root, roots);
    first_call_of(root, theirs);
    const std::string everything = "SELECT DISTINCT pid FROM events";
    EXPECT_THAT(root.ask("run_sql", {{"sql", everything}})["rows"].size(), testing::Ge(2u));
    EXPECT_EQ(user.ask("run_sql", {{"sql", everything}})["rows"], json::array({json::array({theirs})}));
    for (const auto& [tool, list] : std::map<std::string, std::string>{
             {"get_trace_stats", "ops"}, {"get_timeline", "threads"}, {"list_processes", "processes"}}) {
        const json answer = user.ask(tool);
        ASSERT_TRUE(answer.contains(list)) << answer.dump();
        for (const json& row : answer[list]) EXPECT_EQ(row["pid"], theirs) << tool;
    }
    EXPECT_THAT(user.ask("get_trace_stats", {{"pid", roots}})["ops"], IsEmpty());
    EXPECT_EQ(user.ask("explain_call", {{"event", id}})["isError"], true);
    EXPECT_EQ(root.ask("explain_call", {{"event", id}})["call"]["pid"], roots);
}

TEST_F(McpSessions, are_limited_for_each_user_and_in_all) {
    if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can be somebody else";
    std::vector<Socket> open;
    for (uint32_t uid = 5'000; uid < 5'008; ++uid)
        for (int i = 0; i < 8; ++i) {
            open.emplace_back(mcp_socket(), uid);
            open.back().write(request(1, "ping"));
        }
    for (Socket& one : open) EXPECT_THAT(one.read_line(soon()), HasSubstr("\"result\""));
    EXPECT_THAT(sessions(), SizeIs(64));
    Assistant late(*daemon_, {.uid = stranger});
    late.child().wait_for_line("too many MCP sessions");
    EXPECT_EQ(late.child().wait(), 1);
    EXPECT_THAT(late.child().errors(), HasSubstr("ingerod has too many MCP sessions"));
    // One that ends makes room, for whom the limit of their own lets in.
    const size_t before = daemon_->workers().size();
    shutdown(open.back().fd(), SHUT_WR);
    EXPECT_EQ(open.back().read_line(soon()), "");
    open.pop_back();
    // Until the daemon has seen it, and not only its end: each round waits for its answer.
    for (Patience limit; daemon_->workers().size() >= before && limit.lasts();) daemon_->status();
    Socket ninth(mcp_socket(), 5'000);
    EXPECT_THAT(ninth.read_line(soon()), HasSubstr("this user has too many MCP sessions"));
    Assistant again(*daemon_, {.uid = stranger});
    EXPECT_EQ(again.say(request(1, "ping"))["error"]["code"], json()) << daemon_->process().output();
    EXPECT_EQ(daemon_->status()["state"].is_string(), true);
}

TEST_F(McpSessions, answer_thirty_two_at_once_under_load) {
    if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can be somebody else";
    if (sanitized || emulated()) GTEST_SKIP() << "SKIPPED: how long it takes is the product's promise";
    work();
    Workload load({"calls", "--count", "2000000", "--rate", "20000"});
    ASSERT_TRUE(daemon_->wait_traced(load.pid()));
    load.open_gate();
    const auto begun = std::chrono::steady_clock::now();
    std::vector<Socket> open;
    for (int i = 0; i < 32; ++i) {
        open.emplace_back(mcp_socket(), 6'000 + static_cast<uint32_t>(i) / 8);
        open.back().write(hello());
        open.back().write(call(1, "get_trace_stats"));
    }
    for (Socket& one : open) {
        EXPECT_THAT(one.read_line(soon()), HasSubstr("protocolVersion"));
        EXPECT_THAT(one.read_line(soon()), HasSubstr("structuredContent"));
    }
    const auto took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
    std::cout << "32 sessions answered after " << took.count() << " ms\n";
    if (full_form()) {
        EXPECT_LT(took, milliseconds(2'000));
    }
}

TEST_F(McpSessions, end_alone_when_their_worker_is_killed_and_say_so) {
    Assistant assistant(*daemon_);
    assistant.say(hello());
    const auto mine = sessions();
    ASSERT_THAT(mine, SizeIs(1));
    Assistant other(*daemon_);
    other.say(hello());
    // It runs from when it tells of progress on.
    const std::string endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT SUM(x) FROM n";
    const json progress = assistant.say(call(7, "run_sql", {{"sql", endless}}, {{"progressToken", 1}}));
    EXPECT_EQ(progress["method"], "notifications/progress");
    ASSERT_EQ(kill(mine.front(), SIGKILL), 0);
    const json lost = assistant.read();
    EXPECT_EQ(lost["id"], 7);
    EXPECT_EQ(lost["error"]["code"], -32000);
    EXPECT_THAT(lost["error"]["message"].get<std::string>(), HasSubstr("ended the session"));
    EXPECT_EQ(assistant.child().wait(), 1);
    EXPECT_EQ(other.say(request(1, "ping"))["result"], json::object());
    EXPECT_TRUE(other.ask("get_trace_stats").contains("ops"));
}

TEST_F(McpSessions, are_stopped_when_one_question_takes_too_long) {
    Assistant assistant(*daemon_);
    assistant.say(hello());
    const std::string endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT SUM(x) FROM n";
    const json lost = assistant.say(call(7, "run_sql", {{"sql", endless}}));
    EXPECT_EQ(lost["error"]["code"], -32000) << lost;
    EXPECT_EQ(assistant.child().wait(), 1);
}

TEST_F(McpSessions, tell_a_client_that_the_daemon_is_gone) {
    Assistant assistant(*daemon_);
    assistant.say(hello());
    EXPECT_EQ(daemon_->stop(), 0);
    EXPECT_EQ(assistant.child().wait(), 4);
    EXPECT_THAT(assistant.child().errors(), AllOf(HasSubstr("ingerod no longer answers"), HasSubstr("hint: ")));
    const Finished late = run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "mcp"});
    EXPECT_EQ(late.status, 4);
}

TEST_F(McpSessions, that_flood_harm_nobody_else) {
    Assistant other(*daemon_);
    other.say(hello());
    // One never reads its answers, one sends a line without end, one sends no MCP at all.
    Socket deaf(mcp_socket(), 0), endless(mcp_socket(), 0), noise(mcp_socket(), 0);
    for (const Socket* one : {&deaf, &endless, &noise}) fcntl(one->fd(), F_SETFL, O_NONBLOCK);
    std::string pings, junk(1 << 16, '\0');
    for (int i = 0; i < 1'000; ++i) pings += request(i, "ping") + "\n";
    const std::string line(1 << 16, '[');
    std::generate(junk.begin(), junk.end(),
                  [n = 1U]() mutable { return static_cast<char>((n = n * 1'103'515'245 + 12'345) >> 16); });
    size_t deaf_took = 0;
    for (int i = 0; i < 200; ++i) {
        const ssize_t n = send(deaf.fd(), pings.data(), pings.size(), MSG_NOSIGNAL);
        if (n > 0) deaf_took += static_cast<size_t>(n);
        send(endless.fd(), line.data(), line.size(), MSG_NOSIGNAL);
        send(noise.fd(), junk.data(), junk.size(), MSG_NOSIGNAL);
        if (i % 20 == 0) {
            EXPECT_EQ(other.say(request(1, "ping"))["result"], json::object());
        }
    }
    EXPECT_LT(deaf_took, 16u << 20) << "what is not answered is not taken in either";
    EXPECT_TRUE(other.ask("get_trace_stats").contains("ops"));
    EXPECT_TRUE(daemon_->status()["state"].is_string());
    for (const int pid : sessions()) {
        std::ifstream status("/proc/" + std::to_string(pid) + "/status");
        std::string text{std::istreambuf_iterator<char>(status), {}};
        const size_t at = text.find("RssAnon:");
        ASSERT_NE(at, std::string::npos);
        if (!sanitized) {
            EXPECT_LT(std::stoull(text.substr(at + 8)), 64u << 10) << "KiB of a session";
        }
    }
}

}  // namespace
