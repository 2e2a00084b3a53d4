// The pool with real workers: what they answer, how they die, and what their sandbox holds.
#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/model/op.h"
#include "core/model/unique_fd.h"
#include "core/store/store.h"
#include "core/symbols/elf_symbols.h"
#include "daemon/worker/protocol.h"
#include "daemon/worker/sandbox.h"
#include "tests/unit/worker_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

UniqueFd open_file(const std::string& path) {
    return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

UniqueFd memory_file(std::string_view bytes) {
    UniqueFd file(memfd_create("worker-test", MFD_CLOEXEC));
    EXPECT_EQ(write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    return file;
}

// --- answers

TEST_F(WorkerPoolTest, starts_no_worker_before_one_is_needed_and_keeps_it_then) {
    start_one();
    EXPECT_THAT(pool_->pids(), IsEmpty());
    const int first = worker();
    EXPECT_EQ(worker(), first);
}

TEST_F(WorkerPoolTest, answers_ping_with_the_node) {
    start_one();
    const auto answer = ask("ping");
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(*answer, (json{{"node", "test-node"}, {"store", false}}));
}

TEST_F(WorkerPoolTest, uses_as_many_workers_as_it_may) {
    WorkerOptions options = one();
    options.count = 2;
    start(options);
    std::vector<Answer> answers;
    for (int i = 0; i < 5; ++i) answers.push_back(send("ping"));
    EXPECT_THAT(pool_->pids(), SizeIs(2));
    for (const Answer& answer : answers) EXPECT_TRUE(wait(answer));
    EXPECT_THAT(pool_->pids(), SizeIs(2));
}

TEST_F(WorkerPoolTest, reads_symbols_through_a_descriptor_that_stays_the_callers) {
    start_one();
    const UniqueFd file = open_file(INGERO_ELF_FIXTURE);
    const auto expected = read_function_symbols(file.get(), {"alias", "first_nop", "only_in_symtab"}, true);
    ASSERT_TRUE(expected);
    // Not in order: sorting them is the worker's part.
    const auto answer =
        ask("symbols", {{"wanted", {"only_in_symtab", "alias", "first_nop"}}, {"static", true}}, file.get());
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ((*answer)["build_id"], expected->build_id);
    ASSERT_EQ((*answer)["functions"].size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
        const FunctionSymbol& f = expected->functions[i];
        EXPECT_EQ((*answer)["functions"][i], (json{{"name", f.name},
                                                   {"offset", f.file_offset},
                                                   {"size", f.size},
                                                   {"emulated", f.emulated},
                                                   {"code", f.code},
                                                   {"jumps_to", 0}}));
    }
    EXPECT_GE(fcntl(file.get(), F_GETFD), 0);
}

TEST_F(WorkerPoolTest, carries_requests_larger_than_the_socket_takes_at_once) {
    start_one();
    json wanted = json::array();
    for (int i = 0; i < 4'095; ++i) wanted.push_back(std::string(1'000, 'a') + std::to_string(i));
    wanted.push_back("alias");
    const UniqueFd file = open_file(INGERO_ELF_FIXTURE);
    const auto answer = ask("symbols", {{"wanted", wanted}}, file.get());
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_THAT((*answer)["functions"], SizeIs(1));
}

TEST_F(WorkerPoolTest, survives_a_hostile_library) {
    start_one();
    const int before = worker();
    std::ifstream in(INGERO_ELF_FIXTURE, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    for (size_t i = 40; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31);
    for (const std::string& hostile : {std::string("no ELF"), bytes, bytes.substr(0, 700)}) {
        const UniqueFd file = memory_file(hostile);
        const auto answer = ask("symbols", {{"wanted", {"alias"}}}, file.get());
        ASSERT_FALSE(answer);
        EXPECT_THAT(answer.error().code, AnyOf(ErrorCode::corrupt, ErrorCode::limit)) << answer.error().message;
    }
    EXPECT_EQ(worker(), before);
}

TEST_F(WorkerPoolTest, passes_on_what_a_worker_refuses) {
    start_one();
    const UniqueFd file = open_file(INGERO_ELF_FIXTURE);
    EXPECT_EQ(ask("no-such-method").error().code, ErrorCode::unknown_method);
    EXPECT_EQ(ask("symbols", {{"wanted", {"a"}}}).error().code, ErrorCode::bad_request);
    EXPECT_EQ(ask("symbols", {{"wanted", 7}}, file.get()).error().code, ErrorCode::bad_request);
    EXPECT_EQ(ask("symbols", {{"wanted", {7}}}, file.get()).error().code, ErrorCode::bad_request);
    EXPECT_EQ(ask("stats", {{"from_ns", -1}}).error().code, ErrorCode::bad_request);
    EXPECT_EQ(ask("stats", {{"from_ns", 2}, {"to_ns", 1}}).error().code, ErrorCode::bad_request);
    EXPECT_EQ(ask("stats", {{"since_ns", 1}, {"to_ns", 1}}).error().code, ErrorCode::bad_request);
    EXPECT_EQ(ask("stats", {{"pid", 1ULL << 32}}).error().code, ErrorCode::bad_request);
    EXPECT_EQ(ask("ping", {}, -1).error().code, ErrorCode::internal);
}

TEST_F(WorkerPoolTest, gives_a_limit_error_where_memory_runs_out) {
    if (sanitizer_build) GTEST_SKIP() << "a sanitizer's shadow memory leaves no room for an address-space limit";
    WorkerOptions options = one();
    options.memory_bytes = 16 << 20;
    start(options);
    const int before = worker();
    // 90 MiB of symbols: within what is read, beyond this worker's memory.
    std::ifstream in(INGERO_ELF_FIXTURE, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    auto* header = reinterpret_cast<Elf64_Ehdr*>(bytes.data());
    auto* sections = reinterpret_cast<Elf64_Shdr*>(bytes.data() + header->e_shoff);
    for (size_t i = 0; i < header->e_shnum; ++i)
        if (sections[i].sh_type == SHT_DYNSYM) sections[i].sh_size = 3'900'000 * sizeof(Elf64_Sym);
    const UniqueFd file = memory_file(bytes);
    ASSERT_EQ(ftruncate(file.get(), 128 << 20), 0);
    const auto answer = ask("symbols", {{"wanted", {"alias"}}}, file.get());
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::limit) << answer.error().message;
    EXPECT_EQ(worker(), before);
}

// --- shares

constexpr WorkerUser first_user{.uid = 1000}, second_user{.uid = 1001};

TEST_F(WorkerPoolTest, keeps_a_worker_for_those_who_see_all) {
    WorkerOptions options = one();
    options.count = 2;
    start(options);
    stop(worker());
    const Answer stuck = send_for(first_user, "ping");
    std::vector<Answer> waiting;
    for (int i = 0; i < 20; ++i) waiting.push_back(send_for(i % 2 ? first_user : second_user, "ping"));
    EXPECT_THAT(pool_->pids(), SizeIs(1)) << "the other is none of theirs";
    const int pid = pool_->pids().front();
    EXPECT_TRUE(ask("ping"));
    EXPECT_THAT(pool_->pids(), SizeIs(2));
    for (const Answer& answer : waiting) EXPECT_FALSE(*answer);
    ASSERT_EQ(kill(pid, SIGCONT), 0);
    EXPECT_TRUE(wait(stuck));
    for (const Answer& answer : waiting) EXPECT_TRUE(wait(answer));
}

TEST_F(WorkerPoolTest, lets_users_take_turns) {
    start_one();
    const int pid = worker();
    stop(pid);
    std::string order;
    const auto asks = [&](const WorkerUser& user, const char* name) {
        pool_->request(user, "ping", json::object(), std::nullopt,
                       [&order, name](const Result<json>&) { order += name; });
    };
    for (int i = 0; i < 4; ++i) asks(first_user, "a");
    for (int i = 0; i < 2; ++i) asks(second_user, "b");
    asks(no_user, "r");
    ASSERT_EQ(kill(pid, SIGCONT), 0);
    run_until([&] { return order.size() == 7; });
    EXPECT_EQ(order, "abrabaa");
}

TEST_F(WorkerPoolTest, leaves_places_to_others) {
    start_one();
    const int pid = worker();
    stop(pid);
    std::vector<Answer> accepted;
    const auto take_all = [&](const WorkerUser& user) {
        size_t taken = 0;
        for (;; ++taken) {
            accepted.push_back(send_for(user, "ping"));
            // A refusal is there at once, while the others wait for the worker.
            while (sd_event_run(loop_.get(), 0) > 0) {
            }
            if (accepted.back()->has_value()) break;
        }
        EXPECT_EQ((*accepted.back())->error().code, ErrorCode::busy);
        accepted.pop_back();
        return taken;
    };
    EXPECT_EQ(take_all(first_user), 1 + 24U) << "one of them has the worker";
    EXPECT_THAT(ask_for(first_user).error().message, HasSubstr("24 queries of user 1000 are waiting"));
    EXPECT_EQ(take_all(second_user), 12U);
    EXPECT_EQ(take_all({.uid = 1002}), 6U);
    EXPECT_EQ(take_all(no_user), 64U - 24 - 12 - 6);
    ASSERT_EQ(kill(pid, SIGCONT), 0);
    for (const Answer& answer : accepted) EXPECT_TRUE(wait(answer));
}

TEST_F(WorkerPoolTest, gives_a_user_no_more_than_half_of_the_workers_while_others_wait) {
    WorkerOptions options = one();
    options.count = 5;
    start(options);
    // Four that hold what they are given; the fifth is kept.
    std::vector<Answer> held;
    for (int i = 0; i < 4; ++i) held.push_back(send_for(first_user, "ping"));
    const std::vector<int> pids = pool_->pids();
    ASSERT_THAT(pids, SizeIs(4)) << "nobody else waits";
    for (const Answer& answer : held) EXPECT_TRUE(wait(answer));
    for (const int pid : pids) stop(pid);
    held.clear();
    for (int i = 0; i < 4; ++i) held.push_back(send_for(i % 2 ? first_user : second_user, "ping"));
    std::string order;
    const auto asks = [&](const WorkerUser& user, const char* name) {
        pool_->request(user, "ping", json::object(), std::nullopt,
                       [&order, name](const Result<json>&) { order += name; });
    };
    for (int i = 0; i < 3; ++i) asks(first_user, "a");
    for (int i = 0; i < 3; ++i) asks(second_user, "b");
    // The first worker is the second user's; the first user still has two.
    ASSERT_EQ(kill(pids[0], SIGCONT), 0);
    run_until([&] { return order.size() >= 3; });
    EXPECT_EQ(order.substr(0, 3), "bbb");
    for (const int pid : pids) ASSERT_EQ(kill(pid, SIGCONT), 0);
    run_until([&] { return order.size() == 6; });
}

TEST_F(WorkerPoolTest, ends_a_turn_when_another_users_job_waits) {
    WorkerOptions options = one();
    options.turn = std::chrono::milliseconds(1);
    start(options);
    stop(worker());
    const Answer endless = send_for(first_user, "ping"), next = send_for(second_user, "ping");
    const auto answer = wait(endless);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::deadline);
    EXPECT_THAT(answer.error().message, HasSubstr("while queries of other users waited"));
    EXPECT_TRUE(wait(next));
}

class FilesOfTwoOwners : public WorkerPoolTest {
  protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
        ASSERT_EQ(fchown(theirs.get(), 1'234, 0), 0);
        WorkerOptions options = one();
        options.one_owner_each = true;
        start(options);
    }

    const UniqueFd ours = memory_file("no library"), theirs = memory_file("no library either");
};

TEST_F(FilesOfTwoOwners, are_passed_to_different_workers) {
    const auto reader_of = [&](const UniqueFd& file) {
        const auto answer = ask("symbols", {{"wanted", {"alias"}}}, file.get());
        EXPECT_FALSE(answer);
        EXPECT_EQ(answer.error().code, ErrorCode::corrupt) << answer.error().message;
        EXPECT_THAT(pool_->pids(), SizeIs(1));
        return pool_->pids().empty() ? -1 : pool_->pids().front();
    };
    const int first = reader_of(ours);
    EXPECT_EQ(reader_of(ours), first);
    const int second = reader_of(theirs);
    EXPECT_NE(second, first);
    EXPECT_EQ(reader_of(theirs), second);
    EXPECT_NE(reader_of(ours), second);
    // Others' turns come all the same, and each has its answer.
    std::vector<Answer> answers;
    for (int i = 0; i < 6; ++i)
        answers.push_back(send_for(i % 2 ? first_user : second_user, "symbols", {{"wanted", {"alias"}}},
                                   (i % 2 ? ours : theirs).get()));
    for (const Answer& answer : answers) EXPECT_EQ(wait(answer).error().code, ErrorCode::corrupt);
}

TEST_F(FilesOfTwoOwners, in_turns_start_no_more_workers_than_they_may) {
    constexpr int at_once = 256, more = 3;
    std::set<int> pids;
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i <= at_once + more; ++i) {
        EXPECT_FALSE(ask("symbols", {{"wanted", {"alias"}}}, (i % 2 ? ours : theirs).get()));
        for (const int pid : pool_->pids()) pids.insert(pid);
    }
    EXPECT_GT(pids.size(), 1u);
    EXPECT_GE(std::chrono::steady_clock::now() - begun, (more - 1) * std::chrono::milliseconds(200));
    std::cout << at_once + more << " workers in "
              << std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() << " s\n";
}

TEST_F(WorkerPoolTest, passes_a_worker_files_of_one_file_system_alone) {
    WorkerOptions options = one();
    options.one_owner_each = true;
    start(options);
    const UniqueFd in_memory = memory_file("no library"), on_disk = open_file(INGERO_ELF_FIXTURE);
    EXPECT_EQ(ask("symbols", {{"wanted", {"alias"}}}, in_memory.get()).error().code, ErrorCode::corrupt);
    const std::vector<int> first = pool_->pids();
    ASSERT_THAT(first, SizeIs(1));
    EXPECT_TRUE(ask("symbols", {{"wanted", {"alias"}}}, on_disk.get()));
    EXPECT_NE(pool_->pids(), first);
}

// --- deaths

TEST_F(WorkerPoolTest, fails_only_the_request_whose_worker_is_killed) {
    start_one();
    const int first = worker();
    stop(first);
    const Answer lost = send("ping");
    const Answer next = send("ping");
    ASSERT_EQ(kill(first, SIGKILL), 0);
    const auto answer = wait(lost);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::internal);
    EXPECT_EQ(answer.error().message, "the worker that ran this query ended (signal 9)");
    EXPECT_THAT(answer.error().hint, HasSubstr("try again"));
    EXPECT_TRUE(wait(next));
    EXPECT_NE(worker(), first);
}

TEST_F(WorkerPoolTest, replaces_a_worker_that_died_while_idle) {
    start_one();
    const int first = worker();
    ASSERT_EQ(kill(first, SIGKILL), 0);
    run_until([&] { return pool_->pids().empty(); });
    EXPECT_NE(worker(), first);
}

TEST_F(WorkerPoolTest, kills_a_worker_at_the_deadline) {
    WorkerOptions options = one();
    options.deadline = std::chrono::milliseconds(300);
    start(options);
    const int first = patient_worker();
    stop(first);
    const auto answer = ask("ping");
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::deadline);
    EXPECT_THAT(answer.error().message, HasSubstr("0.3 s"));
    run_until([&] { return kill(first, 0) != 0; });
    // Its successor has the same deadline, which a busy machine may not meet at once.
    run_until([&] { return ask("ping").has_value(); });
}

TEST_F(WorkerPoolTest, refuses_the_65th_waiting_request_and_answers_the_others) {
    start_one();
    const int pid = worker();
    stop(pid);
    std::vector<Answer> accepted = {send("ping")};
    for (int i = 0; i < 64; ++i) accepted.push_back(send("ping"));
    const auto refused = ask("ping");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::busy);
    EXPECT_FALSE(refused.error().hint.empty());
    ASSERT_EQ(kill(pid, SIGCONT), 0);
    for (const Answer& answer : accepted) EXPECT_TRUE(wait(answer));
    EXPECT_THAT(pool_->pids(), ElementsAre(pid));
}

TEST_F(WorkerPoolTest, fails_what_waited_for_a_worker_too_long) {
    WorkerOptions options = one();
    options.deadline = std::chrono::milliseconds(300);
    start(options);
    stop(patient_worker());
    const Answer running = send("ping");
    const Answer waiting = send("ping");
    // The loop finds both times past at once: it cannot give the second a new worker first.
    const auto past = std::chrono::steady_clock::now() + options.deadline + std::chrono::milliseconds(1);
    while (std::chrono::steady_clock::now() < past) {
    }
    EXPECT_THAT(wait(running).error().message, HasSubstr("took longer than 0.3 s"));
    EXPECT_THAT(wait(waiting).error().message, HasSubstr("no worker became free within 0.3 s"));
}

TEST_F(WorkerPoolTest, replaces_a_worker_after_1000_requests) {
    start_one();
    const int first = worker();
    for (int i = 0; i < 998; ++i) ASSERT_TRUE(ask("ping"));
    EXPECT_THAT(pool_->pids(), ElementsAre(first));
    ASSERT_TRUE(ask("ping"));
    EXPECT_NE(worker(), first);
}

TEST_F(WorkerPoolTest, replaces_a_worker_that_uses_over_half_of_its_memory) {
    WorkerOptions options = one();
    options.memory_bytes = 512 << 10;  // an idle one has more than half of it
    start(options);
    ASSERT_TRUE(ask("ping"));
    EXPECT_THAT(pool_->pids(), IsEmpty());
}

TEST_F(WorkerPoolTest, stops_trying_for_a_while_when_workers_do_not_start) {
    WorkerOptions options = one();
    options.program = "/bin/false";
    start(options);
    for (int i = 0; i < 3; ++i) {
        const auto answer = ask("ping");
        ASSERT_FALSE(answer);
        EXPECT_EQ(answer.error().code, ErrorCode::internal);
        EXPECT_THAT(answer.error().message, HasSubstr("did not start (exit status 1)"));
    }
    const auto answer = ask("ping");
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().message, HasSubstr("3 times in a row"));
    EXPECT_FALSE(answer.error().hint.empty());
}

TEST_F(WorkerPoolTest, says_which_program_is_missing) {
    WorkerOptions options = one();
    options.program = "/nonexistent/ingero-worker";
    start(options);
    const auto answer = ask("ping");
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().message, HasSubstr("/nonexistent/ingero-worker: No such file"));
    EXPECT_FALSE(answer.error().hint.empty());
}

/// A program that plays a worker taken over by what it read.
std::string rogue(const TemporaryDirectory& directory, const std::string& says) {
    const std::string path = directory.path() + "/rogue";
    std::ofstream(path) << "#!/bin/sh\nprintf '" << says << "' >&3\nexec cat <&3 >/dev/null\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
}

TEST_F(WorkerPoolTest, stops_a_worker_that_breaks_the_protocol) {
    const TemporaryDirectory directory;
    const std::map<std::string, std::string> sayings = {
        {"garbage", "it sent not MessagePack-RPC"},
        {"\\224\\001\\146\\300\\300", "it sent an unexpected message"},   // [1, 102, nil, nil]: another's id
        {"\\224\\000\\001\\241a\\200", "it sent an unexpected message"},  // [0, 1, "a", {}]: a request
    };
    for (const auto& [says, complaint] : sayings) {
        WorkerOptions options = one();
        options.program = rogue(directory, says);
        start(options);
        const auto answer = ask("ping");
        ASSERT_FALSE(answer);
        EXPECT_EQ(answer.error().code, ErrorCode::internal);
        EXPECT_THAT(answer.error().message, HasSubstr(complaint));
    }
}

TEST_F(WorkerPoolTest, may_be_destroyed_by_an_answer) {
    start_one();
    bool answered = false;
    pool_->request(no_user, "ping", json::object(), std::nullopt, [&](Result<json>) {
        pool_.reset();
        answered = true;
    });
    run_until([&] { return answered; });
}

TEST_F(WorkerPoolTest, ends_where_it_may_not_signal_its_workers) {
    if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: workers are other users' where root starts them";
    start_one();
    const int pid = worker();
    const std::unique_ptr<_cap_struct, int (*)(void*)> mine(cap_get_proc(), cap_free);
    const std::unique_ptr<_cap_struct, int (*)(void*)> fewer(cap_dup(mine.get()), cap_free);
    const cap_value_t signals = CAP_KILL;
    ASSERT_EQ(cap_set_flag(fewer.get(), CAP_EFFECTIVE, 1, &signals, CAP_CLEAR), 0);
    ASSERT_EQ(cap_set_proc(fewer.get()), 0);
    EXPECT_EQ(kill(pid, 0), -1);
    pool_.reset();
    ASSERT_EQ(cap_set_proc(mine.get()), 0);
    EXPECT_EQ(kill(pid, 0), -1);
    EXPECT_EQ(errno, ESRCH);
}

TEST_F(WorkerPoolTest, leaves_no_worker_when_it_goes) {
    start_one();
    const int pid = worker();
    send("ping");
    pool_.reset();
    EXPECT_NE(kill(pid, 0), 0);
}

// --- the sandbox, from outside

TEST_F(WorkerPoolTest, runs_workers_without_rights) {
    start_one();
    auto status = status_of(worker());
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) EXPECT_EQ(status[set], "0000000000000000") << set;
    EXPECT_EQ(status["NoNewPrivs"], "1");
    EXPECT_EQ(status["Seccomp"], "2");
    if (geteuid() != 0) GTEST_SKIP() << "not root: the user and the bounding set stay as they are";
    EXPECT_EQ(status["CapBnd"], "0000000000000000");
    EXPECT_EQ(status["Uid"], "65534\t65534\t65534\t65534");
    EXPECT_EQ(status["Gid"], "65534\t65534\t65534\t65534");
    EXPECT_THAT(status["Groups"], AnyOf("", " "));
}

TEST_F(WorkerPoolTest, lets_workers_inherit_no_descriptor) {
    if (geteuid() != 0) GTEST_SKIP() << "only root may list the descriptors of a process that cannot be dumped";
    std::array<int, 2> leaked{};
    ASSERT_EQ(pipe(leaked.data()), 0);  // no O_CLOEXEC
    start_one();
    const int pid = worker();
    const UniqueFd file = open_file(INGERO_ELF_FIXTURE);
    ASSERT_TRUE(ask("symbols", {{"wanted", {"alias"}}}, file.get()));
    EXPECT_THAT(descriptors_of(pid), ElementsAre(0, 1, 2, worker_socket_fd));
    close(leaked[0]);
    close(leaked[1]);
}

TEST_F(WorkerPoolTest, starts_workers_with_no_signal_blocked_and_few_variables) {
    const auto source = loop_.add_signal(SIGUSR1, [] {});
    start_one();
    const int pid = worker();
    EXPECT_EQ(status_of(pid)["SigBlk"], "0000000000000000");
    if (geteuid() != 0) return;
    std::ifstream in("/proc/" + std::to_string(pid) + "/environ");
    const std::string variables{std::istreambuf_iterator<char>(in), {}};
    EXPECT_THAT(variables, testing::Not(HasSubstr("PATH=")));
}

TEST_F(WorkerPoolTest, has_its_workers_die_with_the_daemon) {
    std::array<int, 2> pipe_ends{};
    ASSERT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
    const pid_t daemon = fork();
    if (daemon == 0) {
        EventLoop loop;  // one does not survive a fork
        WorkerPool pool(loop, one());
        bool ready = false;
        pool.request(no_user, "ping", json::object(), std::nullopt, [&](Result<json>) { ready = true; });
        while (!ready) sd_event_run(loop.get(), patience_us);
        const int pid = pool.pids().at(0);
        stop(pid);  // so that it cannot notice the end of its socket
        if (write(pipe_ends[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
        for (;;) pause();
    }
    close(pipe_ends[1]);
    int pid = 0;
    ASSERT_EQ(read(pipe_ends[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    ASSERT_TRUE(pidfd);
    ASSERT_EQ(kill(daemon, SIGKILL), 0);
    ASSERT_EQ(waitpid(daemon, nullptr, 0), daemon);
    pollfd end{pidfd.get(), POLLIN, 0};
    EXPECT_EQ(poll(&end, 1, patience_us / 1000), 1);
    close(pipe_ends[0]);
}

}  // namespace
}  // namespace ingero
