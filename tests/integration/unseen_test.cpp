// What is not seen is told: in the coverage of answers, and in the status.
#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "core/wire/client.h"
#include "test_paths.h"
#include "tests/integration/attach_target.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Unseen : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }
    void start_daemon() { daemon_.emplace(directory_ / "run"); }

    std::vector<std::string> reasons() {
        std::vector<std::string> result;
        const json answer = daemon_->call_when_stored("stats", {{"since_ns", 600'000'000'000}});
        for (const json& gap : answer.at("coverage").at("gaps")) result.push_back(gap.at("reason"));
        return result;
    }
    /// Waits for it.
    bool has_reason(const std::string& start) {
        Patience limit;
        while (limit.lasts())
            for (const std::string& reason : reasons())
                if (reason.starts_with(start)) return true;
        return false;
    }
    /// The program has run and is gone before the daemon gets to look at anything.
    void run_unseen(const std::string& program) {
        daemon_->process().signal(SIGSTOP);
        EXPECT_EQ(test::run({program}).status, 0);
        daemon_->process().signal(SIGCONT);
    }

    const TemporaryDirectory directory_;
    std::optional<Daemon> daemon_;
};

TEST_F(Unseen, programs_that_end_before_they_are_looked_at_are_gaps_until_their_file_is_known_to_have_no_runtime) {
    start_daemon();
    const std::string program = directory_ / "brief";
    fs::copy_file("/bin/true", program);
    run_unseen(program);
    EXPECT_TRUE(has_reason("refused: brief: exited before it could be checked for CUDA (pid "));
    const auto briefs = [&] {
        const auto all = reasons();
        return std::count_if(all.begin(), all.end(), [](const auto& one) { return one.starts_with("refused: brief"); });
    };
    EXPECT_EQ(briefs(), 1);
    // Of root alone, since nobody knows whose it was.
    const Finished stranger = test::run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "--json", "stats"},
                                        {.environment = {}, .uid = 12'345, .wanted_pid = {}});
    EXPECT_THAT(stranger.output, Not(HasSubstr("brief")));

    const std::string lasting = directory_ / "lasting";
    fs::copy_file("/bin/cat", lasting);
    {
        Child cat({lasting});
        cat.write_line("x");
        ASSERT_TRUE(cat.wait_for_line("x"));
        // What it mapped is dealt with before an answer is given.
        ASSERT_TRUE(daemon_->status().contains("state"));
    }
    daemon_->process().signal(SIGSTOP);
    EXPECT_EQ(test::run({lasting, "/dev/null"}).status, 0);
    daemon_->process().signal(SIGCONT);
    run_unseen(program);
    Patience limit;
    while (briefs() < 2) ASSERT_TRUE(limit.lasts());
    EXPECT_THAT(reasons(), Not(Contains(StartsWith("refused: lasting"))));
    EXPECT_EQ(daemon_->stop(), 0);
}

/// A symbol table that reaches beyond the end of the file: no matter for the program.
void break_symbol_table(const std::string& path) {
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(fd);
    Elf64_Ehdr header{};
    ASSERT_EQ(pread(fd.get(), &header, sizeof(header), 0), static_cast<ssize_t>(sizeof(header)));
    for (unsigned i = 0; i < header.e_shnum; ++i) {
        const auto at = static_cast<off_t>(header.e_shoff + i * sizeof(Elf64_Shdr));
        Elf64_Shdr section{};
        ASSERT_EQ(pread(fd.get(), &section, sizeof(section), at), static_cast<ssize_t>(sizeof(section)));
        if (section.sh_type != SHT_SYMTAB) continue;
        section.sh_size += section.sh_entsize << 32;
        ASSERT_EQ(pwrite(fd.get(), &section, sizeof(section), at), static_cast<ssize_t>(sizeof(section)));
    }
}

TEST_F(Unseen, programs_that_cannot_be_read_are_gaps_while_they_run_and_are_looked_at_again_when_their_file_changes) {
    start_daemon();
    const std::string program = directory_ / "odd-program";
    const std::vector<std::string> command = {program,  "calls",  "--count", "10",    "--op",
                                              "launch", "--load", "static",  "--gate"};
    const ChildOptions engine{.environment = {{"LD_LIBRARY_PATH", fs::path(CUDA_LIBRARY).parent_path()}}};
    fs::copy_file(STATIC_WORKLOAD, program);
    ASSERT_NO_FATAL_FAILURE(break_symbol_table(program));
    {
        Child odd(command, engine);
        ASSERT_TRUE(odd.wait_for_line("ready")) << odd.errors();
        EXPECT_TRUE(has_reason("refused: odd-program: not a usable ELF file"));
    }
    const auto gap_ends = [&] {
        const json answer = daemon_->call("stats", {{"since_ns", 600'000'000'000}});
        for (const json& gap : answer.at("coverage").at("gaps"))
            if (gap.at("reason").get<std::string>().starts_with("refused: odd")) return gap.at("to_ns").get<uint64_t>();
        return uint64_t{0};
    };
    // Over the same inode.
    std::ofstream(program, std::ios::binary) << std::ifstream(STATIC_WORKLOAD, std::ios::binary).rdbuf();
    Child mended(command, engine);
    ASSERT_TRUE(mended.wait_for_line("ready")) << mended.errors();
    EXPECT_TRUE(daemon_->wait_traced(mended.pid())) << daemon_->process().output();
    // An open gap reaches as far as the answer does, which is further each time.
    Patience limit;
    while (gap_ends() != gap_ends()) ASSERT_TRUE(limit.lasts()) << "it ends with the process";
    EXPECT_GT(gap_ends(), 0u);
    mended.write_line("go");
    EXPECT_EQ(mended.wait(), 0);
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Unseen, names_of_functions_that_find_no_room_are_counted_and_told) {
    constexpr uint64_t registered = 120'000;
    start_daemon();
    AttachTarget target;
    target.load(CUDART13_LIBRARY);
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    daemon_->process().signal(SIGSTOP);
    EXPECT_EQ(target.tell("register " + std::to_string(registered)), "registered");
    daemon_->process().signal(SIGCONT);
    EXPECT_TRUE(has_reason("too-many: "));
    const auto pid = static_cast<uint32_t>(target.pid());
    uint64_t lost = 0;
    const auto kept = [&] {
        const StoreContents store = read_store(daemon_->store());
        return static_cast<uint64_t>(std::count_if(store.functions.begin(), store.functions.end(),
                                                   [&](const FunctionRow& row) { return row.process.pid == pid; }));
    };
    // Some found no room at once, and others are looked for where nothing is any more.
    EXPECT_TRUE(wait_until([&] {
        lost = daemon_->status().at("events").at("names_lost");
        return kept() + lost == registered;
    })) << kept()
        << " and " << lost;
    EXPECT_GT(lost, 0u);
    EXPECT_THAT(reasons(), Contains(AllOf(StartsWith("too-many: "), EndsWith(" names of functions were not kept"))));
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Unseen, functions_of_one_user_beyond_what_is_allowed_are_refused_and_say_so) {
    constexpr uint32_t user = 12'345;
    constexpr size_t copies = 40;
    start_daemon();
    // A name of its own: others' libraries are none of this.
    const std::string name = "libcuda-" + fs::path(directory_.path()).filename().string() + ".so.1";
    AttachTarget target({}, {.environment = {}, .uid = user, .wanted_pid = {}});
    for (size_t i = 0; i < copies; ++i) {
        const std::string folder = directory_ / std::to_string(i);
        fs::create_directory(folder);
        fs::copy_file(CUDA_LIBRARY, folder + "/" + name);
        // Root's would be at root's cost.
        ASSERT_EQ(chown((folder + "/" + name).c_str(), user, user), 0);
        ASSERT_EQ(target.tell("map " + folder + "/" + name), "mapped");
    }
    json library;
    Patience limit;
    const auto settled = [&] {
        const json probes = daemon_->call("probes");
        for (const json& one : probes.at("libraries"))
            if (one.at("library") == name) library = one;
        return !library.is_null() &&
               library.at("attached").get<size_t>() + library.at("failed").get<size_t>() == copies;
    };
    while (!settled()) ASSERT_TRUE(limit.lasts()) << library.dump();
    size_t functions = 0;
    for (const json& set : library.at("sets")) functions += set.at("functions").get<size_t>();
    EXPECT_LE(functions, 4'096u);
    EXPECT_GT(functions, 4'096u - 200) << "all that are allowed";
    EXPECT_GT(library.at("failed"), 0) << "or there is nothing to see here";
    EXPECT_THAT(reasons(),
                Contains(StartsWith("refused: " + name + ": user 12345 has reached its limit of probed functions")));
    EXPECT_EQ(daemon_->status().at("state"), "tracing") << "nobody else's concern";
    // Another's are attached to.
    AttachTarget other({}, {.environment = {}, .uid = user + 1, .wanted_pid = {}});
    fs::copy_file(CUDA_LIBRARY, directory_ / "libcuda.so.1");
    ASSERT_EQ(other.tell("map " + directory_ / "libcuda.so.1"), "mapped");
    EXPECT_TRUE(daemon_->wait_traced(other.pid()));
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Unseen, events_of_tracepoints_that_the_kernel_does_not_have_are_told_of_as_missing) {
    const std::string config = directory_ / "ingerod.conf";
    std::ofstream(config) << "[capture]\nwait_floor = \"200us\"\n";
    daemon_.emplace(directory_ / "run",
                    std::vector<std::string>{"--config", config, "--deny-feature", "host-tracepoints"});
    AttachTarget target;
    target.load(CUDART13_LIBRARY);
    ASSERT_TRUE(daemon_->wait_traced(target.pid()));
    for (const char* method : {"status", "processes", "probes", "stats"}) {
        const auto missing = daemon_->call(method).at("missing_probes").get<std::vector<std::string>>();
        for (const char* name : {"mark_victim", "block_rq_complete", "tcp_retransmit_skb"}) {
            const std::string text = std::string("tracepoint ") + name + ": this kernel does not have it";
            EXPECT_EQ(std::count(missing.begin(), missing.end(), text), 1) << method;
        }
    }
    const json check = daemon_->call("check");
    EXPECT_THAT(check.at("missing_probes").dump(), HasSubstr("tracepoint mark_victim: "));
    EXPECT_THAT(check.at("checks").dump(), HasSubstr("not traced: "));
    const Finished text = test::run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "status"});
    EXPECT_THAT(text.output, HasSubstr("mark_victim"));
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(Unseen, processes_of_others_without_the_right_to_look_at_them_make_the_state_degraded) {
    Child daemon({"setpriv", "--bounding-set=-sys_ptrace", "/bin/sh", "-c", "exec \"$@\" 2>&1", "ingerod",
                  INGEROD_PROGRAM, "--config", "/dev/null", "--directory", directory_ / "run", "--worker",
                  WORKER_PROGRAM});
    ASSERT_TRUE(daemon.wait_for_line("is ready")) << daemon.output();
    const std::vector<std::string> status = {INGEROCTL_PROGRAM, "--socket", directory_ / "run/control.sock", "status"};
    const Finished text = test::run(status);
    EXPECT_EQ(text.status, 4);
    EXPECT_THAT(text.output, HasSubstr("degraded"));
    EXPECT_THAT(text.output, HasSubstr("CAP_SYS_PTRACE"));
    const Finished check = test::run({INGEROCTL_PROGRAM, "--socket", directory_ / "run/control.sock", "check"});
    EXPECT_THAT(check.output, HasSubstr("CAP_SYS_PTRACE"));
    daemon.signal(SIGTERM);
    EXPECT_EQ(daemon.wait(), 0);
    EXPECT_THAT(daemon.output(), HasSubstr("not traced: all processes of other users"));
}

}  // namespace
