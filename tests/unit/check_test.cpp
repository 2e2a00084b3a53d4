// The parts of `ingeroctl check` that need no kernel: what a finding means, how an answer reads, and the program that
// the daemon has it found by.
#include "daemon/ingerod/check/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "core/render/render.h"
#include "core/wire/child_process.h"
#include "daemon/ingerod/check/check_runner.h"
#include "daemon/ingerod/check/daemon_check.h"
#include "daemon/ingerod/check/host_checks.h"
#include "daemon/ingerod/check/library_check.h"
#include "daemon/ingerod/check/probe_check.h"
#include "daemon/ingerod/check/return_probe_check.h"
#include "daemon/probe_target/target.h"
#include "tests/unit/control_fixture.h"

using namespace ingero;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using State = CheckResult::State;
using std::chrono::milliseconds;

namespace {

TEST(Check, everything_but_a_pass_says_what_to_do) {
    const CheckResults results = {
        check_clock_source("tsc"),
        check_clock_source("hpet"),
        check_clock_source(""),
        check_lockdown(""),
        check_lockdown("[none] integrity confidentiality"),
        check_lockdown("none integrity [confidentiality]"),
        check_lockdown("]["),
        check_store("/proc/none"),
        check_store("/tmp/not/there"),
        check_control_socket("/nonexistent/s"),
        check_control_socket(std::string(200, 'x')),
        check_mapped_library({.path = "/x/libcuda.so.1", .processes = 1, .reading = true, .reason = {}, .symbols = {}}),
        check_mapped_library({.path = "/x/libcuda.so.1", .processes = 1, .reason = "no", .symbols = {}}),
        check_mapped_library({.path = "/x/libcuda.so.1", .processes = 1, .reason = {}, .symbols = {}}),
        check_library_file("/x/libcuda.so", Library::cuda_driver, fail(ErrorCode::corrupt, "no ELF file")),
    };
    for (const CheckResult& result : results) {
        EXPECT_EQ(result.fix.empty(), result.state == State::pass) << result.name << ": " << result.detail;
        EXPECT_FALSE(result.detail.empty()) << result.name;
    }
}

TEST(Check, slow_clocks_and_a_locked_down_kernel_are_named) {
    EXPECT_EQ(check_clock_source("kvm-clock").state, State::pass);
    EXPECT_EQ(check_clock_source("acpi_pm").state, State::note);
    EXPECT_EQ(check_lockdown("none [integrity] confidentiality").state, State::pass);
    EXPECT_EQ(check_lockdown("none integrity [confidentiality]").state, State::fail);
}

TEST(Check, a_store_needs_a_directory_that_can_be_written_on_a_disk_of_the_host) {
    const test::TemporaryDirectory directory;
    EXPECT_NE(check_store(directory.path() + "/not/yet").state, State::fail);
    EXPECT_EQ(check_store("/proc/self/store").state, State::fail) << "nobody writes there";
    if (access("/dev/shm", W_OK) == 0) {
        EXPECT_EQ(check_store("/dev/shm/store").state, State::note) << "gone after a reboot";
    }
}

TEST(Check, a_control_socket_is_connected_to) {
    const test::LoopThread server;
    EXPECT_EQ(check_control_socket(server.path()).state, State::pass);
    EXPECT_EQ(check_control_socket("/nonexistent/s").state, State::note) << "not started yet";
}

TEST(ReturnProbes, fail_only_where_a_filter_sees_the_call) {
    using Call = UretprobeCall;
    const auto state = [](Call plain, Call filtered, std::optional<bool> in_btf) {
        return check_return_probes(judge_probed_return(plain, filtered, in_btf)).state;
    };
    EXPECT_EQ(state(Call::trap, Call::trap, true), State::pass) << "corrected kernel";
    EXPECT_EQ(state(Call::trap, Call::refused, std::nullopt), State::fail) << "6.11 to 6.13";
    EXPECT_EQ(state(Call::unknown_call, Call::refused, false), State::pass) << "before 6.11";
    // As the service sees it, whose own filter refuses the call with EPERM.
    EXPECT_EQ(state(Call::refused, Call::trap, true), State::pass);
    EXPECT_EQ(state(Call::refused, Call::refused, true), State::fail);
    EXPECT_EQ(state(Call::refused, Call::refused, false), State::pass);
    EXPECT_EQ(state(Call::refused, Call::refused, std::nullopt), State::note);
    EXPECT_EQ(state(Call::unknown, Call::unknown, true), State::note);
    EXPECT_EQ(state(Call::unknown, Call::unknown, false), State::pass) << "a filter of ours ends the child";
}

TEST(ReturnProbes, are_tried_without_harm_to_the_one_who_asks) {
#if !defined(__x86_64__)
    GTEST_SKIP() << "the system call is x86-64's";
#endif
    const UretprobeCall plain = try_uretprobe(false);
    EXPECT_THAT(plain, testing::AnyOf(UretprobeCall::trap, UretprobeCall::unknown_call, UretprobeCall::refused));
    if (plain == UretprobeCall::unknown_call) {
        EXPECT_EQ(try_uretprobe(true), UretprobeCall::refused) << "the filter stands before the call";
    }
}

TEST(Libraries, are_found_in_what_ldconfig_prints) {
    EXPECT_THAT(libraries_of_ldconfig("2 libs found in cache `/etc/ld.so.cache'\n"
                                      "\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12\n"
                                      "\tlibcudadebugger.so.1 (libc6,x86-64) => /usr/lib/libcudadebugger.so.1\n"
                                      "\tlibcuda.so (libc6) => relative/libcuda.so\n"
                                      "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1"),
                ElementsAre("/usr/local/cuda/lib64/libcudart.so.12", "/usr/lib/libcuda.so.1"));
    EXPECT_THAT(libraries_of_ldconfig(" => \n => \n\n"), testing::IsEmpty());
}

TEST(Libraries, name_what_is_single_stepped_and_what_is_not_there) {
    const std::vector<FunctionSymbol> symbols = {{"cudaMalloc", 0x100, 16, true},
                                                 {"cudaLaunchKernel", 0x200, 16, false},
                                                 {"cudaLaunchKernel_ptsz", 0x200, 16, false}};
    const SymbolSummary summary = summarize_symbols(Library::cuda_runtime, symbols);
    EXPECT_EQ(summary.found, 3u);
    EXPECT_EQ(summary.places, 2u);
    EXPECT_EQ(summary.wanted, symbol_names(Library::cuda_runtime).size());
    EXPECT_EQ(summary.wanted - summary.found, summary.absent.size());
    EXPECT_THAT(summary.stepped, ElementsAre("cudaLaunchKernel"));
    EXPECT_THAT(summary.absent, testing::Contains("cudaFree"));

    const CheckResult result = check_library_file("/x/libcudart.so.12", Library::cuda_runtime, symbols);
    EXPECT_EQ(result.state, State::note);
    EXPECT_THAT(result.detail, AllOf(HasSubstr("/x/libcudart.so.12"), HasSubstr("1 single-stepped (cudaLaunchKernel)"),
                                     HasSubstr("not exported: ")));
    EXPECT_EQ(check_library_file("/x/libcudart.so.12", Library::cuda_runtime, std::vector<FunctionSymbol>{}).state,
              State::note)
        << "none of the functions";
}

TEST(Libraries, that_the_daemon_fails_to_trace_are_a_failure_and_damaged_ones_a_note) {
    MappedLibrary library{.path = "/x/libcuda.so.1", .processes = 2, .reason = "it is no ELF file", .symbols = {}};
    EXPECT_EQ(check_mapped_library(library).state, State::note);
    EXPECT_THAT(check_mapped_library(library).detail, HasSubstr("used by 2 processes: not traced: it is no ELF file"));
    library.degrades = true;
    EXPECT_EQ(check_mapped_library(library).state, State::fail);
}

/// The events of a run as they should come back.
std::vector<Event> events_of(const TargetRun& run) {
    std::vector<Event> events(run.calls);
    for (uint64_t i = 0; i < run.calls; ++i) {
        Event& event = events[i];
        event.tgid = run.pid;
        event.tid = run.tid;
        event.args = {ingero_target_bytes(i), static_cast<uint64_t>(ingero_target_direction(i)), 0};
        event.stream = ingero_target_stream(i);
        event.return_code = ingero_target_result(ingero_target_bytes(i));
        event.start_ns = run.begun_ns + i * 10;
        event.duration_ns = 5;
    }
    return events;
}

TEST(ProbeEvents, are_compared_in_each_thing_that_they_tell) {
    const TargetRun run{.pid = 70, .tid = 71, .calls = 100, .begun_ns = 1'000, .ended_ns = 2'000};
    EXPECT_EQ(compare_events(run, events_of(run)), "");
    const auto difference = [&](auto&& change) {
        std::vector<Event> events = events_of(run);
        change(events);
        return compare_events(run, events);
    };
    EXPECT_EQ(difference([](auto& events) { std::reverse(events.begin(), events.end()); }), "") << "by time";
    EXPECT_THAT(difference([](auto& events) { events.pop_back(); }), HasSubstr("100 calls came back as 99 events"));
    EXPECT_THAT(difference([](auto& events) { events[3].tgid = 9; }), HasSubstr("99 events")) << "another process";
    EXPECT_THAT(difference([](auto& events) { events[3].tid = 9; }), HasSubstr("call 4 came back with thread 9"));
    EXPECT_THAT(difference([](auto& events) { events[3].args[0] = 9; }), HasSubstr("bytes"));
    EXPECT_THAT(difference([](auto& events) { events[3].args[1] = 9; }), HasSubstr("direction"));
    EXPECT_THAT(difference([](auto& events) { events[3].stream = 9; }), HasSubstr("stream"));
    EXPECT_THAT(difference([](auto& events) { events[3].return_code = -1; }), HasSubstr("return code"));
    EXPECT_THAT(difference([](auto& events) { events[3].duration_ns = 0; }), HasSubstr("without a duration"));
    EXPECT_THAT(difference([](auto& events) { events[99].duration_ns = 5'000; }), HasSubstr("a time outside the run"));
}

TEST(CheckAnswer, is_ready_unless_something_failed) {
    const CheckResult pass{"btf", State::pass, "available", ""}, note{"clock", State::note, "hpet", "boot otherwise"},
        failure{"bpf", State::fail, "EPERM", "be root"};
    EXPECT_EQ(check_answer("n", {pass, note}, std::nullopt).at("ready"), true);
    EXPECT_EQ(check_answer("n", {pass, failure, note}, std::nullopt).at("ready"), false);
    json answer = check_answer("n", {pass}, ProbeFigures{"uprobe-multi", 10, 10, 5});
    EXPECT_EQ(answer.at("probe").at("cost_ns"), 5);
    EXPECT_EQ(answer.at("checks")[0].at("fix"), nullptr);
    note_absent_libraries(answer);
    EXPECT_EQ(answer.at("ready"), true) << "a missing CUDA library is no failure";
    EXPECT_EQ(answer.at("checks")[1].at("state"), "note");
    note_absent_libraries(answer);
    EXPECT_EQ(answer.at("checks").size(), 2u) << "said once";
}

TEST(CheckAnswer, of_a_daemon_tells_its_state_and_the_libraries_that_the_caller_may_see) {
    DaemonFacts facts{.node = "gpu-1",
                      .version = "1.2.3",
                      .state = "degraded",
                      .attach_method = "uprobe-multi",
                      .store_error = {},
                      .missing_probes = {"libcuda.so.1: refused\xff", "tracepoint mark_victim: it is not there"},
                      .libraries = {}};
    const json head = check_answer("other", {}, std::nullopt);
    json answer = add_daemon_checks(head, facts);
    EXPECT_EQ(answer.at("node"), "gpu-1");
    EXPECT_EQ(answer.at("ready"), true);
    EXPECT_THAT(answer.dump(), AllOf(HasSubstr("1.2.3, degraded, attaches by uprobe-multi"), HasSubstr("refused"),
                                     HasSubstr("; tracepoint mark_victim: it is not there")));
    facts.store_error = "No space left on device";
    facts.libraries = {{.path = "/x/libcuda.so.1", .processes = 1, .reason = {}, .symbols = {}, .traced = true}};
    answer = add_daemon_checks(head, facts);
    EXPECT_EQ(answer.at("ready"), false);
    EXPECT_THAT(answer.dump(),
                AllOf(HasSubstr("No space left"), HasSubstr("/x/libcuda.so.1, used by 1 process, traced"),
                      Not(HasSubstr("no libcudart"))));
}

TEST(TextCheck, answers_first_and_tells_what_to_do_about_what_did_not_pass) {
    json answer = check_answer("gpu-1",
                               {{"btf", State::pass, "available", ""},
                                {"library", State::note, "/x/\x1b[2J\xff", "install it again"},
                                {"capabilities", State::fail, "missing: CAP_BPF", "run it as root"}},
                               std::nullopt);
    const std::string wanting =
        "FAIL  capabilities  missing: CAP_BPF\n"
        "      fix: run it as root\n"
        "note  library       /x/\\x1b[2J\xef\xbf\xbd\n"
        "      fix: install it again\n";
    EXPECT_EQ(text_check(answer), "NOT READY, node gpu-1: 1 pass (--all), 1 note, 1 failure\n" + wanting);
    EXPECT_EQ(text_check(answer, {.details = true}),
              "NOT READY, node gpu-1: 1 pass, 1 note, 1 failure\n" + wanting + "pass  btf           available\n");
    EXPECT_THAT(text_check(answer, {.width = 0, .colour = true}), HasSubstr("\x1b[1;31mFAIL\x1b[0m  capabilities  "));
    answer["checks"][1]["detail"] = "one two three four five six seven eight nine ten";
    EXPECT_THAT(text_check(answer, {.width = 40}), HasSubstr("three four\n" + std::string(20, ' ') + "five"));
}

TEST(TextCheck, does_not_stumble_over_what_is_no_answer) {
    for (const char* text : {"null", "[]", "{}", R"({"checks":7})", R"({"checks":[7,null,{"state":1,"name":[]}]})"})
        EXPECT_THAT(text_check(json::parse(text)), HasSubstr("NOT READY"));
}

TEST(RunProgram, gives_all_output_and_the_status) {
    const auto done = run_program({"/bin/sh", "-c", "echo one; echo two; exit 3"}, {}, milliseconds(30'000), 100);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->text, "one\ntwo\n");
    EXPECT_EQ(describe_wait_status(done->status), "exited with status 3");
    EXPECT_THAT(describe_wait_status(SIGSEGV), HasSubstr("was ended by signal 11"));
}

TEST(RunProgram, bounds_time_and_output_and_leaves_nobody_behind) {
    const auto slow = run_program({"/bin/sh", "-c", "exec sleep 600"}, {}, milliseconds(50), 100);
    EXPECT_EQ(slow.error().code, ErrorCode::deadline);
    const auto silent = run_program({"/bin/sh", "-c", "exec sleep 600 >&-"}, {}, milliseconds(50), 100);
    EXPECT_EQ(silent.error().code, ErrorCode::deadline);
    const auto loud = run_program({"/bin/sh", "-c", "exec yes"}, {}, milliseconds(30'000), 100);
    EXPECT_EQ(loud.error().code, ErrorCode::limit);
    const auto absent = run_program({"/nonexistent/program"}, {}, milliseconds(1'000), 100);
    EXPECT_THAT(absent.error().message, HasSubstr("/nonexistent/program"));
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

/// Runs the loop until `count` answers have come.
std::vector<Result<json>> answers_of(EventLoop& loop, size_t count, const auto& ask) {
    std::vector<Result<json>> answers;
    ask([&](Result<json> answer) {
        answers.push_back(std::move(answer));
        if (answers.size() == count) loop.exit(0);
    });
    const auto limit = loop.add_timer(30'000'000, [&] { loop.exit(1); });
    if (answers.size() < count) loop.run();
    EXPECT_EQ(answers.size(), count);
    return answers;
}

TEST(CheckRunner, runs_one_program_for_all_who_ask_meanwhile) {
    const test::TemporaryDirectory directory;
    const std::string count = directory.path() + "/count";
    EventLoop loop;
    CheckRunner runner(
        loop, {"/bin/sh", "-c", "echo run >>" + count + R"(; echo "{\"checks\":[],\"args\":\"$*\"}"; exit 4)", "sh"});
    const auto answers = answers_of(loop, 4, [&](const CheckRunner::Done& done) {
        for (const bool probe : {false, true, false, true}) runner.run(probe, milliseconds(0), done);
    });
    std::vector<std::string> arguments;
    for (const auto& answer : answers)
        arguments.push_back(answer ? answer->at("args").get<std::string>() : answer.error().message);
    EXPECT_THAT(arguments, ElementsAre("", "", "--probe", "--probe"));
    EXPECT_EQ(std::filesystem::file_size(count), 8u) << "each kind once";
}

TEST(CheckRunner, repeats_a_fresh_answer_to_who_takes_one_but_never_a_probe) {
    const test::TemporaryDirectory directory;
    const std::string count = directory.path() + "/count";
    EventLoop loop;
    CheckRunner runner(loop, {"/bin/sh", "-c", "echo run >>" + count + R"(; echo '{"checks":[]}')", "sh"});
    answers_of(loop, 3, [&](const CheckRunner::Done& done) {
        runner.run(false, milliseconds(60'000), [&runner, done](Result<json> first) {
            done(std::move(first));
            runner.run(false, milliseconds(60'000), done);
            runner.run(true, milliseconds(60'000), done);
        });
    });
    EXPECT_EQ(std::filesystem::file_size(count), 8u);
}

TEST(CheckRunner, says_how_a_program_failed) {
    const auto message_of = [](const std::string& script) {
        EventLoop loop;
        CheckRunner runner(loop, {"/bin/sh", "-c", script, "sh"});
        const auto answers =
            answers_of(loop, 1, [&](const CheckRunner::Done& done) { runner.run(false, milliseconds(0), done); });
        return answers.at(0) ? answers[0]->dump() : answers[0].error().message;
    };
    EXPECT_EQ(message_of("exit 1"), "the check exited with status 1");
    EXPECT_THAT(message_of("kill -SEGV $$"), HasSubstr("was ended by signal 11"));
    EXPECT_EQ(message_of("echo nothing"), "the check printed no answer");
    EXPECT_EQ(message_of(R"(echo '{"checks":1}')"), "the check printed no answer");
    EXPECT_EQ(message_of("exec yes"), "the check printed more than 1 MiB");
    EventLoop loop;
    CheckRunner runner(loop, {"/nonexistent/ingerod"});
    const auto absent =
        answers_of(loop, 1, [&](const CheckRunner::Done& done) { runner.run(false, milliseconds(0), done); });
    EXPECT_THAT(absent.at(0).error().message, HasSubstr("/nonexistent/ingerod"));
}

}  // namespace
