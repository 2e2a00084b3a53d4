// ingeroctl record --footprint: what a tree of processes touches is told to the last call, and nothing of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

constexpr uint32_t some_user = 12'345;

class FootprintOf : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
        std::filesystem::create_directory(work_);
        std::filesystem::permissions(work_, std::filesystem::perms::all);
        daemon_.emplace(directory_ / "run");
    }

    /// The program behind its gate.
    Child start(const std::string& mode, const std::string& program = FOOTPRINT_PROGRAM, ChildOptions options = {}) {
        Child child({FOOTPRINT_PROGRAM, mode, work_, program, FOOTPRINT_LIBRARY}, options);
        EXPECT_TRUE(child.wait_for_line("ready")) << child.errors();
        return child;
    }
    ControlClient connect() const {
        auto client = ControlClient::connect(daemon_->socket());
        EXPECT_TRUE(client) << client.error().message;
        return std::move(*client);
    }
    static json ask(ControlClient& client, json params) {
        const auto answer = client.call("footprint", std::move(params), milliseconds(30'000));
        EXPECT_TRUE(answer) << answer.error().message;
        return answer ? *answer : json();
    }
    /// Opens the gate, waits for the tree's end and returns what was recorded of it.
    json record(Child& child, ControlClient& client) {
        child.write_line("go");
        EXPECT_EQ(child.wait(), 0) << child.errors();
        EXPECT_TRUE(ask(client, json::object()).value("ended", false));
        return ask(client, {{"finish", true}});
    }
    json record(const std::string& mode, const std::string& program = FOOTPRINT_PROGRAM) {
        Child child = start(mode, program);
        ControlClient client = connect();
        ask(client, {{"pid", child.pid()}});
        json footprint = record(child, client);
        printed_ = child.output();
        return footprint;
    }
    std::vector<std::string> ingeroctl(std::vector<std::string> words) const {
        words.insert(words.begin(), {std::string(BUILD_DIRECTORY) + "/ctl/ingeroctl", "--socket", daemon_->socket()});
        return words;
    }

    /// What the program says of itself.
    uint64_t told(const std::string& key) const {
        std::istringstream lines(printed_);
        for (std::string word, value; lines >> word;)
            if (word == key && lines >> value) return std::stoull(value);
        ADD_FAILURE() << key << " is not in: " << printed_;
        return 0;
    }
    static json call(const json& footprint, const std::string& name) {
        for (const json& row : footprint.at("system_calls"))
            if (row.at("name") == name && row.at("abi") == "native") return row;
        return {{"count", 0}, {"returned", 0}, {"total_ns", 0}, {"errors", json::array()}};
    }
    static uint64_t count(const json& rows, const json& wanted) {
        uint64_t count = 0;
        for (const json& row : rows) {
            json shown = row;
            for (const auto& [key, value] : row.items())
                if (!wanted.contains(key)) shown.erase(key);
            if (shown == wanted) count += row.at("count").get<uint64_t>();
        }
        return count;
    }
    /// Programs of BPF that the daemon holds.
    size_t programs_held() const {
        size_t count = 0;
        const std::string fds = "/proc/" + std::to_string(daemon_->process().pid()) + "/fd";
        for (const auto& entry : std::filesystem::directory_iterator(fds)) {
            std::error_code error;
            if (std::filesystem::read_symlink(entry, error) == "anon_inode:bpf-prog") ++count;
        }
        return count;
    }
    /// Until a recording has begun, when the daemon held so many programs before.
    bool wait_recorded(size_t held) const {
        Patience limit;
        while (programs_held() == held && limit.lasts()) continue;
        daemon_->status();  // is answered after what began it
        return programs_held() > held;
    }

    bool wait_held(size_t held) const {
        Patience limit;
        while (programs_held() != held && limit.lasts()) daemon_->status();
        return programs_held() == held;
    }

    const TemporaryDirectory directory_;
    const std::string work_ = directory_ / "work";
    mutable std::optional<Daemon> daemon_;
    std::string printed_;
};

TEST_F(FootprintOf, a_tree_has_each_of_its_system_calls) {
    const json footprint = record("tree");
    EXPECT_EQ(call(footprint, "getpgid").at("count"), 1'700);
    EXPECT_EQ(call(footprint, "getpgid").at("returned"), 1'700);
    EXPECT_EQ(call(footprint, "getpgid").at("errors"),
              json::array({{{"errno", ESRCH}, {"name", "ESRCH"}, {"count", 700}}}));
    EXPECT_EQ(call(footprint, "sched_get_priority_max").at("count"), 1'000) << "of two threads";
    EXPECT_EQ(call(footprint, "sched_get_priority_min").at("count"), 300) << "of the third process, after execve";
    const json slept = call(footprint, "nanosleep");
    EXPECT_EQ(slept.at("count"), 2);
    EXPECT_GE(slept.at("total_ns"), 100'000'000);
    EXPECT_LE(slept.at("total_ns"), told("slept_ns"));
    EXPECT_EQ(call(footprint, "execve").at("errors").at(0).at("name"), "ENOENT");

    ASSERT_EQ(footprint.at("processes").size(), 3u);
    std::map<uint32_t, json> processes;
    uint64_t calls = 0, calls_of_processes = 0;
    for (const json& row : footprint.at("processes")) {
        EXPECT_TRUE(row.at("ended").get<bool>());
        calls_of_processes += row.at("calls").get<uint64_t>();
        processes[row.at("parent_pid").is_null() ? 0 : row.at("parent_pid").get<uint32_t>()] = row;
    }
    for (const json& row : footprint.at("system_calls")) calls += row.at("count").get<uint64_t>();
    EXPECT_EQ(calls, calls_of_processes);
    const uint32_t first = footprint.at("process").at("pid").get<uint32_t>();
    ASSERT_TRUE(processes.contains(0) && processes.contains(first));
    EXPECT_EQ(processes[0].at("pid"), first);
    EXPECT_TRUE(processes.contains(processes[first].at("pid").get<uint32_t>())) << "a grandchild";
    EXPECT_TRUE(footprint.at("coverage").at("complete").get<bool>()) << footprint.at("left_out");
}

TEST_F(FootprintOf, a_tree_has_its_files_programs_and_libraries) {
    const json footprint = record("tree");
    const std::string work = std::filesystem::canonical(work_);
    const json& files = footprint.at("files");
    EXPECT_EQ(count(files, {{"path", work + "/folder"}, {"flags", {"O_RDONLY", "O_DIRECTORY"}}, {"result", "ok"}}), 1u);
    EXPECT_EQ(count(files, {{"path", work + "/folder/inner.txt"}, {"flags", {"O_RDWR", "O_CREAT"}}, {"result", "ok"}}),
              5u)
        << "by the directory's descriptor";
    EXPECT_EQ(count(files, {{"path", work + "/missing.txt"}, {"flags", {"O_RDONLY"}}, {"result", "ENOENT"}}), 3u);
    EXPECT_EQ(count(files, {{"path", work + "/evil\033[31m\nname\uFFFD"}, {"result", "ok"}}), 1u);
    EXPECT_EQ(count(files, {{"path", work + "/./untouched.txt"}, {"result", "ok"}}), 1u);
    EXPECT_EQ(count(files, {{"cut", true}, {"result", "ok"}}), 1u) << "the long one";
    const std::string program = std::filesystem::canonical(FOOTPRINT_PROGRAM);
    EXPECT_EQ(footprint.at("programs").size(), 1u);
    EXPECT_EQ(count(footprint.at("programs"),
                    {{"path", program}, {"named", FOOTPRINT_PROGRAM}, {"argv0", "the first argument"}}),
              1u);
    EXPECT_EQ(footprint.dump(-1, ' ', true).find("a secret"), std::string::npos);
    EXPECT_EQ(count(footprint.at("libraries"), {{"path", std::filesystem::canonical(FOOTPRINT_LIBRARY)}}), 1u);
}

TEST_F(FootprintOf, a_tree_has_its_endpoints) {
    const json footprint = record("tree");
    const json& endpoints = footprint.at("endpoints");
    const auto row = [](const char* action, const char* family, const char* transport, const char* address, json port,
                        const char* result) -> json {
        return {{"action", action},   {"family", family},        {"transport", transport},
                {"address", address}, {"port", std::move(port)}, {"result", result}};
    };
    EXPECT_EQ(count(endpoints, row("bind", "inet", "tcp", "127.0.0.1", 0, "ok")), 1u);
    EXPECT_EQ(count(endpoints, row("connect", "inet", "tcp", "127.0.0.1", told("v4"), "ok")), 1u);
    EXPECT_EQ(count(endpoints, row("accept", "inet", "tcp", "127.0.0.1", told("v4_client"), "ok")), 1u);
    EXPECT_EQ(count(endpoints, row("connect", "inet6", "tcp", "::1", told("v6"), "ok")), 1u);
    EXPECT_EQ(count(endpoints, row("accept", "inet6", "tcp", "::1", told("v6_client"), "ok")), 1u);
    EXPECT_EQ(count(endpoints, row("bind", "unix", "stream", "local.sock", nullptr, "ok")), 1u);
    EXPECT_EQ(count(endpoints, row("connect", "unix", "stream", "local.sock", nullptr, "ok")), 1u);
    EXPECT_EQ(count(endpoints, row("accept", "unix", "stream", "local.sock", nullptr, "ok")), 1u);
    EXPECT_EQ(count(endpoints, row("connect", "inet", "tcp", "127.0.0.1", 1, "ECONNREFUSED")), 1u);
    EXPECT_EQ(count(endpoints, row("send", "inet", "udp", "127.0.0.1", 9, "ok")), 4u);
    EXPECT_EQ(endpoints.size(), 11u) << endpoints.dump(1);
}

TEST_F(FootprintOf, a_storm_of_a_million_calls_counts_each) {
    const json footprint = record("storm");
    EXPECT_EQ(call(footprint, "getppid").at("count"), 1'000'000);
    EXPECT_EQ(call(footprint, "getppid").at("returned"), 1'000'000);
    EXPECT_TRUE(footprint.at("coverage").at("complete").get<bool>()) << footprint.at("left_out");
}

TEST_F(FootprintOf, a_storm_of_files_is_bounded_and_what_has_no_room_told) {
    const json footprint = record("files");
    constexpr uint64_t opened = 200'000;
    const uint64_t calls = call(footprint, "openat").at("count").get<uint64_t>();
    EXPECT_GE(calls, opened);
    EXPECT_LT(calls, opened + 100) << "and those of libraries";
    EXPECT_LE(footprint.at("files").size(), 4'096u);
    uint64_t told = footprint.at("left_out").at("files").get<uint64_t>();
    for (const json& row : footprint.at("files")) told += row.at("count").get<uint64_t>();
    EXPECT_LE(told, calls);
    EXPECT_GE(told + footprint.at("left_out").at("records").get<uint64_t>(), calls);
    EXPECT_GT(footprint.at("left_out").at("files"), 0);
    EXPECT_FALSE(footprint.at("coverage").at("complete").get<bool>());
}

TEST_F(FootprintOf, calls_of_io_uring_which_cannot_be_seen_are_told) {
    const json footprint = record("io_uring");
    EXPECT_EQ(call(footprint, "io_uring_enter").at("count"), 3);
    EXPECT_EQ(footprint.at("left_out").at("io_uring_calls"), 3);
    EXPECT_FALSE(footprint.at("coverage").at("complete").get<bool>());
}

TEST_F(FootprintOf, calls_by_the_32_bit_way_are_told_without_what_they_open) {
    const json footprint = record("compat");
    if (told("compat") == 0) GTEST_SKIP() << "this kernel has no 32-bit calls";
    EXPECT_FALSE(footprint.at("coverage").at("complete").get<bool>());
    json compat = json::array();
    for (const json& row : footprint.at("system_calls"))
        if (row.at("abi") == "32-bit") compat.push_back(row);
    ASSERT_EQ(compat.size(), 1u) << compat;
    EXPECT_EQ(compat[0].at("name"), "open");
    EXPECT_EQ(compat[0].at("number"), 5);
    EXPECT_EQ(compat[0].at("count"), 4);
    EXPECT_EQ(compat[0].at("errors"), json::array({{{"errno", EFAULT}, {"name", "EFAULT"}, {"count", 4}}}));
    EXPECT_EQ(footprint.at("left_out").at("compat_calls"), 4);
}

// The thread takes over the number of the first one.
TEST_F(FootprintOf, a_program_that_a_thread_runs_has_its_calls) {
    const json footprint = record("thread");
    EXPECT_EQ(call(footprint, "execve").at("count"), 1);
    EXPECT_EQ(call(footprint, "execve").at("returned"), 1);
    EXPECT_EQ(call(footprint, "sched_get_priority_min").at("count"), 300);
    EXPECT_EQ(footprint.at("processes").size(), 1u);
    EXPECT_TRUE(footprint.at("coverage").at("complete").get<bool>()) << footprint.at("left_out");
}

TEST_F(FootprintOf, only_a_few_are_recorded_at_a_time) {
    Child child = start("storm");
    const size_t held = programs_held();
    std::vector<ControlClient> clients;
    for (size_t i = 0; i < 4; ++i) {
        clients.push_back(connect());
        ask(clients.back(), {{"pid", child.pid()}});
    }
    ControlClient fifth = connect();
    const auto refused = fifth.call("footprint", {{"pid", child.pid()}}, milliseconds(30'000));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::busy);
    ask(clients.back(), {{"finish", true}});
    ask(fifth, {{"pid", child.pid()}});
    ask(fifth, {{"finish", true}});

    ChildOptions user;
    user.uid = some_user;
    Child own = start("storm", FOOTPRINT_PROGRAM, user);
    clients.clear();
    ASSERT_TRUE(wait_held(held));
    const auto words = ingeroctl({"record", "--footprint", "--pid", std::to_string(own.pid())});
    Child first(words, user);
    ASSERT_TRUE(wait_recorded(held)) << first.errors();
    const Finished second = run(words, user);
    EXPECT_EQ(second.status, 1);
    EXPECT_THAT(second.errors, HasSubstr("records a footprint already"));
    first.signal(SIGINT);
    EXPECT_EQ(first.wait(), 0) << first.errors();
}

TEST_F(FootprintOf, one_process_has_nothing_of_another) {
    Child other = start("storm");
    Child child = start("become", "/nonexistent");
    ControlClient client = connect();
    ask(client, {{"pid", child.pid()}});
    other.write_line("go");
    EXPECT_EQ(other.wait(), 0);
    const json footprint = record(child, client);
    EXPECT_EQ(footprint.at("processes").size(), 1u);
    EXPECT_EQ(call(footprint, "getpgid").at("count"), 10);
    EXPECT_EQ(call(footprint, "getppid").at("count"), 0);
}

TEST_F(FootprintOf, a_hostile_name_is_inert_and_the_answer_valid) {
    for (const bool as_json : {false, true}) {
        std::filesystem::remove_all(work_);
        std::filesystem::create_directory(work_);
        Child child = start("tree");
        const size_t held = programs_held();
        std::vector<std::string> words = {"record", "--footprint", "--pid", std::to_string(child.pid())};
        if (as_json) words.insert(words.begin(), "--json");
        Child recorder(ingeroctl(words));
        ASSERT_TRUE(wait_recorded(held)) << recorder.errors();
        child.write_line("go");
        EXPECT_EQ(child.wait(), 0) << child.errors();
        EXPECT_EQ(recorder.wait(), 0) << recorder.errors();
        const std::string& output = recorder.output();
        EXPECT_EQ(output.find('\033'), std::string::npos);
        EXPECT_EQ(output.find("\nname"), std::string::npos);
        EXPECT_THAT(output, HasSubstr("nanosleep")) << "which takes longest of all";
        if (!as_json) continue;
        const std::string file = directory_ / "answer.json";
        std::ofstream(file) << output;
        const Finished valid =
            run({"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/footprint.schema.json", file});
        EXPECT_EQ(valid.status, 0) << valid.output << valid.errors;
        EXPECT_EQ(json::parse(output).at("ended"), "exit");
    }
}

TEST_F(FootprintOf, probes_are_there_only_while_somebody_records) {
    const size_t held = programs_held();
    Child child = start("storm");
    {
        ControlClient client = connect();
        ask(client, {{"pid", child.pid()}});
        EXPECT_GT(programs_held(), held);
        EXPECT_FALSE(ask(client, json::object()).at("ended").get<bool>());
        EXPECT_GT(ask(client, {{"finish", true}}).at("window").at("to_ns"), 0);
        EXPECT_EQ(programs_held(), held);
        ask(client, {{"pid", child.pid()}});
        EXPECT_GT(programs_held(), held);
    }
    EXPECT_TRUE(wait_held(held)) << "the client is gone";
}

TEST_F(FootprintOf, another_users_process_is_refused) {
    Child roots = start("tree");
    ChildOptions stranger;
    stranger.uid = some_user;
    const auto words = ingeroctl({"record", "--footprint", "--duration", "1ms", "--pid", std::to_string(roots.pid())});
    const Finished refused = run(words, stranger);
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.errors, HasSubstr("is another user's"));
    EXPECT_EQ(refused.output, "");
    Child own = start("tree", FOOTPRINT_PROGRAM, stranger);
    const Finished recorded =
        run(ingeroctl({"record", "--footprint", "--duration", "1ms", "--pid", std::to_string(own.pid())}), stranger);
    EXPECT_EQ(recorded.status, 0) << recorded.errors;
}

TEST_F(FootprintOf, what_is_not_to_be_traced_is_refused) {
    const std::string config = directory_ / "ingerod.conf";
    std::ofstream(config) << "[capture]\noverhead_budget = 0\nexclude = [\"comm:footprint-prog*\"]\n";
    daemon_.emplace(directory_ / "excluding", std::vector<std::string>{"--config", config});
    Child child = start("tree");
    const Finished refused = run(ingeroctl({"record", "--footprint", "--pid", std::to_string(child.pid())}));
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.errors, HasSubstr("must not be traced"));
}

enum class Rights { set_user_id, file_capability };

class FootprintOfRights : public FootprintOf, public testing::WithParamInterface<Rights> {
  protected:
    static void give(const std::string& program, Rights rights) {
        if (rights == Rights::set_user_id) {
            ASSERT_EQ(chmod(program.c_str(), 04755), 0);
        } else {
            // CAP_NET_RAW, permitted and effective.
            const vfs_cap_data data = {VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, {{1U << CAP_NET_RAW, 0}, {0, 0}}};
            ASSERT_EQ(setxattr(program.c_str(), "security.capability", &data, sizeof data, 0), 0) << strerror(errno);
        }
    }
};

// Whoever runs it may not see what it does: it may do more than they.
TEST_P(FootprintOfRights, are_followed_no_further) {
    const std::string program = directory_ / "with-rights";
    std::filesystem::copy_file(FOOTPRINT_PROGRAM, program);
    give(program, GetParam());
    ChildOptions user;
    user.uid = some_user;
    Child child = start("become", program, user);
    const auto words = ingeroctl({"--json", "record", "--footprint", "--pid", std::to_string(child.pid())});
    const size_t held = programs_held();
    Child recorder(words, user);
    ASSERT_TRUE(wait_recorded(held)) << recorder.errors();
    child.write_line("go");
    EXPECT_EQ(child.wait(), 0) << child.errors();
    EXPECT_EQ(recorder.wait(), 0) << recorder.errors();
    const json footprint = json::parse(recorder.output());
    EXPECT_EQ(call(footprint, "getpgid").at("count"), 10);
    EXPECT_EQ(call(footprint, "sched_get_priority_min").at("count"), 0);
    EXPECT_EQ(footprint.at("left_out").at("other_users"), 1);
    EXPECT_FALSE(footprint.at("coverage").at("complete").get<bool>());
}

INSTANTIATE_TEST_SUITE_P(All, FootprintOfRights, testing::Values(Rights::set_user_id, Rights::file_capability),
                         [](const auto& info) {
                             return info.param == Rights::set_user_id ? "set_user_id" : "file_capability";
                         });

TEST_F(FootprintOf, a_command_is_recorded_from_its_first_call) {
    const std::string file = directory_ / "answer.json";
    Child recorder(
        ingeroctl({"--json", "record", "--footprint", "-o", file, "--", FOOTPRINT_PROGRAM, "storm", work_, "-", "-"}));
    ASSERT_TRUE(recorder.wait_for_line("ready")) << recorder.errors();
    recorder.write_line("go");
    EXPECT_EQ(recorder.wait(), 0) << recorder.errors();
    const json footprint = json::parse(std::ifstream(file));
    EXPECT_EQ(call(footprint, "getppid").at("count"), 1'000'000);
    EXPECT_EQ(count(footprint.at("programs"), {{"path", std::filesystem::canonical(FOOTPRINT_PROGRAM)}}), 1u);
    EXPECT_EQ(footprint.at("ended"), "exit");
    EXPECT_EQ(footprint.at("processes").size(), 1u);

    EXPECT_EQ(run(ingeroctl({"record", "--footprint", "--", "/bin/sh", "-c", "exit 7"})).status, 7);
    const Finished absent = run(ingeroctl({"record", "--footprint", "/nonexistent/program"}));
    EXPECT_EQ(absent.status, 127);
    EXPECT_THAT(absent.errors, HasSubstr("cannot run /nonexistent/program"));
    EXPECT_EQ(absent.output, "");
}

TEST_F(FootprintOf, options_that_do_not_go_together_are_refused) {
    EXPECT_EQ(run(ingeroctl({"record", "--footprint"})).status, 2);
    EXPECT_EQ(run(ingeroctl({"record", "--footprint", "--unit", "a.service"})).status, 2);
    EXPECT_EQ(run(ingeroctl({"record", "--footprint", "--pid", "1", "/bin/true"})).status, 2);
    EXPECT_EQ(run(ingeroctl({"record", "--pid", "1", "-o", work_, "/bin/true"})).status, 2);
    EXPECT_EQ(run(ingeroctl({"record", "--pid", "1"})).status, 2);
    EXPECT_EQ(run(ingeroctl({"record", "--footprint", "--pid", "2147483000"})).status, 1);
}

}  // namespace
