// The plain text made of answers: what it says and in which order, how it fits a terminal, and what happens to text
// that a target wrote.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "core/render/incidents.h"
#include "core/render/table.h"
#include "core/wire/utf8.h"
#include "tests/unit/render_fixture.h"

namespace ingero {
namespace {

using namespace render_fixture;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(RenderText, ExplainReadsLikeAVerdict) {
    const std::string text = text_explain(to_json(explain_answer(), context()));
    const std::string when = format_time(1'795'000'000'000'000'000);
    EXPECT_EQ(
        text,
        "HIGH  stress-ng (991) kept the CPU from python (4242)\n"
        "  Slower by   140 ms to 160 ms, 11 to 12 % of the time; waited 170 ms\n"
        "  Took CPU    stress-ng (991) 120 ms, disk 3 ms\n"
        "  Worst call  " +
            when +
            " cudaLaunchKernel 3.01 ms, usually 20 µs\n"
            "              [#=.....................-] 3.2 % on CPU, 3.3 % device, 90 % no CPU, 3.3 % asleep\n"
            "              asleep for 100 µs: disk, woken by kworker (12)\n"
            "  Other time  disk wait 3.9 ms\n"
            "  Fix         Pin stress-ng to other CPUs.\n"
            "  Check       Runnable time stays below 1 ms.\n"
            "  Evidence    cpu-contention, proven, 93 % of the time explained; 2 events; finding cpu-contention-4242\n"
            "\n"
            "12,345 calls together took 160 ms longer than usual, 94 % of it explained. Slowest: --all\n"
            "gpu-1, " +
            when + " to " + format_time(1'795'000'300'000'000'000) + " (5 min)\n");
    const std::string all = text_explain(to_json(explain_answer(), context()), {.details = true});
    EXPECT_THAT(all, HasSubstr("stress-ng (991) had the CPU for 2.6 ms"));
    EXPECT_THAT(all, HasSubstr("\nSlowest calls\n  OPERATION "));
}

TEST(RenderText, AFindingOfAnIncidentSaysHowToVerifyIt) {
    ExplainAnswer answer = explain_answer();
    answer.findings[0].incident_id = "56e9c520aabbccdd";
    EXPECT_THAT(text_explain(to_json(answer, context())),
                AllOf(HasSubstr("\n  Check       ingeroctl explain --verify 56e9c520\n"),
                      Not(HasSubstr("Runnable time stays"))));
}

TEST(RenderText, AFindingBeginsWithWhatHappened) {
    const auto first_line = [](const auto& change) {
        ExplainAnswer answer = explain_answer();
        change(answer.findings[0]);
        const std::string text = text_explain(to_json(answer, context()));
        return text.substr(0, text.find('\n'));
    };
    EXPECT_EQ(first_line([](Finding& finding) {
                  finding.culprits[0] = {"cgroup quota", 0, 1};
              }),
              "HIGH  the CPU quota of its cgroup throttled python (4242)");
    EXPECT_EQ(first_line([](Finding& finding) { finding.culprits[0].pid = finding.pid; }),
              "HIGH  other threads of python (4242) kept the CPU from it");
    EXPECT_EQ(first_line([](Finding& finding) { finding.culprits[0].ns = 80'000'000; }),
              "HIGH  stress-ng (991) and others kept the CPU from python (4242)");
    EXPECT_EQ(first_line([](Finding& finding) {
                  finding.kind = "lock-wait";
                  finding.culprits[0].pid = finding.pid;
                  finding.worst.event.op = op_wait;
              }),
              "HIGH  python (4242) waited for a lock that its own threads released");
    EXPECT_EQ(first_line([](Finding& finding) {
                  finding.kind = "own-io-wait";
                  finding.culprits = {{"disk", 0, 1}};
              }),
              "HIGH  python (4242) waited in cudaLaunchKernel for the disk");
    EXPECT_EQ(first_line([](Finding& finding) {
                  finding.kind = "lock-wait";
                  finding.culprits = {{"loader", 7, 1}};
              }),
              "HIGH  python (4242) waited in cudaLaunchKernel for a lock that loader (7) released");
    EXPECT_EQ(first_line([](Finding& finding) { finding.kind = "gpu-oom"; }),
              "HIGH  stress-ng ran while cudaLaunchKernel wanted the CPU");
    EXPECT_EQ(first_line([](Finding& finding) { finding.verdict = Verdict::partial; }),
              "HIGH  stress-ng ran while cudaLaunchKernel wanted the CPU")
        << "what is not proven is not said in short";
}

TEST(RenderText, ANumberIsNotPartedFromItsUnit) {
    EXPECT_EQ(wrap_text("it took about 2.37 ms, not 9 s", 20, 2), "it took about\n  2.37 ms, not 9 s");
    EXPECT_EQ(wrap_text("at most 7 calls of it", 20, 0), "at most 7 calls of\nit");
    EXPECT_EQ(wrap_text("ends in 7 ", 20, 0), "ends in 7");
    EXPECT_EQ(display_width("\x1b[1;31mHIGH\x1b[0m"), 4u);
    EXPECT_EQ(display_width("\x1b[1"), 0u);
}

TEST(RenderText, WhatItCostIsSaidOnce) {
    ExplainAnswer answer = explain_answer();
    answer.findings[0].verdict = Verdict::insufficient_evidence;
    answer.findings[0].summary =
        "a waited; that cost the program 2 ms (1 ms to 3 ms), 1 % of the window; too few calls";
    EXPECT_TRUE(text_explain(to_json(answer, context())).starts_with("HIGH  a waited; too few calls\n  Slower by "));
}

TEST(RenderText, WhatTheSummarySaysOfOtherFindingsIsSaidToo) {
    ExplainAnswer answer = explain_answer();
    answer.summary = answer.findings[0].summary + ", and 1 more finding; 5 calls are left out";
    EXPECT_THAT(text_explain(to_json(answer, context())), HasSubstr("\n5 calls are left out\n"));
}

TEST(RenderText, FitsATerminalOfSixtyColumns) {
    const TextStyle narrow{.width = 60, .short_times = true};
    std::istringstream lines(text_explain(to_json(explain_answer(), context()), narrow) +
                             text_status(status_answer(), narrow));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 60u) << line;
}

TEST(RenderText, RequestsStandAboveTheNotesAndTheLongestInFull) {
    const std::string text = text_requests(to_json(requests_answer(), context()), {80, false});
    const std::string notes =
        "Note: under continuous batching a kernel inside a request's span is not exclusively that request's work; the "
        "same event is counted in every request whose span contains it. Do not sum these counts across rows.\n"
        "Note: rows are ranked by measured span duration only. prompt_tokens and output_tokens are advisory labels "
        "from the emitter and never affect ranking.\n";
    EXPECT_TRUE(text.starts_with("REQUEST ")) << text;
    EXPECT_TRUE(text.ends_with(notes)) << text;
    EXPECT_THAT(text, HasSubstr("cmpl-17  8.2 s"));
    EXPECT_THAT(text, HasSubstr("580 ms  cpu-contention  stress-ng (991)"));
    EXPECT_THAT(text, HasSubstr("The longest 2 of 17\n"));
    EXPECT_THAT(text, HasSubstr("was mostly with heavy (62 %)"));
    EXPECT_THAT(text, HasSubstr("tenant=a b"));
    EXPECT_THAT(text, HasSubstr("loss=0.25"));
    EXPECT_THAT(text, HasSubstr("[######..................]"));
    EXPECT_THAT(text, Not(HasSubstr("LAUNCHES")));
    EXPECT_THAT(text_requests(to_json(requests_answer(), context()), {.details = true}), HasSubstr(" LAUNCHES "));
    const std::string none = text_requests(to_json(RequestsAnswer{}, context()));
    EXPECT_THAT(none, HasSubstr("advisory labels"));
    EXPECT_THAT(none, HasSubstr("No request in this window\n"));
}

TEST(RenderText, AHealthyWindowSaysWhatWasLookedAt) {
    ExplainAnswer answer;
    answer.window = {1'795'000'000'000'000'000, 1'795'000'300'000'000'000};
    answer.coverage.complete = true;
    answer.healthy = true;
    answer.calls = 12'345;
    answer.summary = "healthy";
    const std::string text = text_explain(to_json(answer, context()));
    EXPECT_TRUE(text.starts_with("Healthy\ngpu-1, ")) << text;
}

TEST(RenderText, IncompleteCoverageIsSaid) {
    AnswerContext incomplete = context();
    incomplete.missing_probes = {"cudart", "driver"};
    const std::string text = text_stats(to_json(stats_answer(), incomplete));
    EXPECT_THAT(text, HasSubstr(": nothing recorded, 3 events lost, 4 sampled out (--coverage)\n"));
    EXPECT_THAT(text, Not(HasSubstr("ingerod was not running")));
    EXPECT_THAT(text, HasSubstr("not attached: cudart, driver"));
    const std::string all = text_stats(to_json(stats_answer(), incomplete), {.coverage = true});
    EXPECT_THAT(all, HasSubstr("4 sampled out\n  nothing recorded from "));
    EXPECT_THAT(all, HasSubstr(": ingerod was not running\n"));
}

TEST(RenderText, ThatCallsWereSeenInSlicesIsSaidBesideTheirNumbers) {
    json answer = to_json(stats_answer(), context());
    EXPECT_THAT(text_stats(answer), Not(HasSubstr("Slices")));
    answer["coverage"]["gaps"].push_back(
        {{"from_ns", 1}, {"to_ns", 2}, {"reason", "sliced: cudaLaunchKernel (pid 5)"}, {"partial", true}});
    EXPECT_THAT(text_stats(answer), HasSubstr("\nSlices    hot calls were recorded for a small part of the time only"));
}

TEST(RenderText, WhatWasNotRecordedIsToldByItsLength) {
    const auto told = [](std::vector<json> gaps) {
        json answer = to_json(stats_answer(), context());
        answer["window"] = {{"from_ns", 1'000'000'000'000}, {"to_ns", 1'010'000'000'000}};
        answer["coverage"] = {{"complete", false}, {"lost", 0}, {"sampled_out", 0}, {"gaps", gaps}};
        const std::string text = text_stats(answer);
        const size_t line = text.find("gpu-1, ");
        return line == std::string::npos ? text : text.substr(line, text.find('\n', line) - line);
    };
    const auto gap = [](uint64_t from_s, uint64_t to_s, bool partial) -> json {
        return {
            {"from_ns", from_s * 1'000'000'000}, {"to_ns", to_s * 1'000'000'000}, {"partial", partial}, {"reason", ""}};
    };
    EXPECT_THAT(told({gap(900, 1'003, false), gap(1'002, 1'004, false), gap(1'005, 1'006, true)}),
                HasSubstr(" (10 s): nothing recorded for 4 s, incomplete for 1 s (--coverage)"));
    EXPECT_THAT(told({gap(900, 1'003, false), gap(1'002, 1'003, true)}),
                HasSubstr(" (10 s): nothing recorded for 3 s (--coverage)"));
    EXPECT_THAT(told({gap(1'002, 1'003, true), gap(1'002, 1'005, true)}),
                HasSubstr(": incomplete for 3 s (--coverage)"));
    EXPECT_THAT(told({gap(900, 2'000, true)}), HasSubstr(": incomplete (--coverage)"));
    EXPECT_THAT(told({gap(900, 2'000, false)}), HasSubstr(": nothing recorded (--coverage)"));
    EXPECT_TRUE(told({}).ends_with(": incomplete")) << "there is nothing to list";
}

TEST(RenderText, TimesForAReaderAreShort) {
    const uint64_t time = 1'795'176'000'000'000'000, day = 86'400'000'000'000;
    const std::string whole = format_time(time);
    EXPECT_EQ(format_short_time(time, time), whole.substr(11, 8));
    EXPECT_EQ(format_short_time(time, time + day), whole.substr(0, 10) + " " + whole.substr(11, 8));
    EXPECT_EQ(format_short_time(time, time + 365 * day), whole.substr(0, 10) + " " + whole.substr(11, 8));
}

TEST(RenderText, StatsHaveUnitsAndSharesOfTheTotal) {
    const std::string text = text_stats(to_json(stats_answer(), context()));
    EXPECT_THAT(text, HasSubstr("1,234,567"));
    EXPECT_THAT(text, HasSubstr("20.3 µs"));
    EXPECT_THAT(text, HasSubstr("90 %"));
    EXPECT_THAT(text, HasSubstr("3.00 GiB"));
}

TEST(RenderText, StatusAndProcessesShowTheirFigures) {
    const std::string status = text_status(status_answer());
    EXPECT_THAT(status, HasSubstr("1,234 measurements dropped for lack of room\n"));
    EXPECT_THAT(status, HasSubstr("ingerod 0.1.0 on gpu-1: tracing 3 processes, up 3 h 3 min\nIncidents none open\n"));
    EXPECT_THAT(status, HasSubstr("\nRecorded  12,345,678 events, none lost, 3 stacks lost\n"));
    EXPECT_THAT(status, HasSubstr("1.20 GiB of 10.0 GiB, empty"));
    json of_a_stranger = status_answer();
    for (const char* name : {"recorded", "committed", "split_uncertain"}) of_a_stranger["events"][name] = nullptr;
    const std::string hidden = text_status(of_a_stranger);
    EXPECT_THAT(hidden, HasSubstr("\nRecorded  none lost, 3 stacks lost\n"));
    EXPECT_THAT(hidden, HasSubstr("tracing 3 of your processes, "));
    EXPECT_THAT(hidden,
                HasSubstr("\nHidden    what other users' programs do: root and members of group ingero see it\n"));
    EXPECT_THAT(hidden, Not(HasSubstr("Spans")));
    const std::string processes = text_processes(processes_answer());
    EXPECT_THAT(processes, HasSubstr("python"));
    EXPECT_THAT(processes, HasSubstr("1,235"));
    EXPECT_THAT(processes, Not(HasSubstr("RANK"))) << "nothing is known of it";
    json ranked = processes_answer();
    ranked["processes"][0]["rank"] = 3;
    EXPECT_THAT(text_processes(ranked), HasSubstr("RANK"));
    json none = processes_answer();
    none["processes"].clear();
    EXPECT_THAT(text_processes(none), HasSubstr("No traced process that you may see"));
}

TEST(RenderText, StacksShortenNamesThatAreTooLong) {
    json answer = to_json(stats_answer(), context());
    answer["weight"] = "total_ns";
    const auto line_of = [&](const std::string& name, const TextStyle& style) {
        const json frame = {{"name", name}, {"symbol", name}, {"file", "/usr/lib/libtorch_cuda.so"}};
        answer["stacks"] = {{{"op", "cudaMalloc"}, {"total_ns", 1}, {"count", 1}, {"frames", {frame}}}};
        const std::string text = text_stacks(answer, style);
        const size_t from = text.find('\n') + 1;
        return text.substr(from, text.find('\n', from) - from);
    };
    const std::string name =
        "void at::kernel<__nv_hdl<false, 7u>, float (float)>(at::Base&, (anonymous namespace)::f<int>::g() const&)";
    const TextStyle narrow{80, false};
    EXPECT_EQ(line_of(name, narrow), "      void at::kernel<…>(…)  (libtorch_cuda.so)");
    EXPECT_EQ(line_of(name, {}), "      " + name + "  (libtorch_cuda.so)") << "for a program";
    EXPECT_EQ(line_of(name, {.width = 80, .details = true}), "      " + name + "  (libtorch_cuda.so)");
    EXPECT_EQ(line_of("f<int>(int)", narrow), "      f<int>(int)  (libtorch_cuda.so)") << "it fits";
    const std::string inside =
        "a::(anonymous namespace)::operator()(std::vector<int, std::allocator<int> > const&) const";
    EXPECT_EQ(line_of(inside, narrow), "      a::(anonymous namespace)::operator()(…) const  (libtorch_cuda.so)");
    // Of what has no such brackets, or ones that do not match, the end is cut off.
    for (const std::string& other : {std::string(200, 'x'), "operator<" + std::string(100, '(')}) {
        const std::string cut = line_of(other, narrow);
        EXPECT_EQ(display_width(cut), 80u) << cut;
        EXPECT_THAT(cut, HasSubstr("…  (libtorch_cuda.so)"));
    }
}

TEST(RenderText, WaitsSayOnlyWhatIsKnownOfThem) {
    json answer = to_json(stats_answer(), context());
    const auto told = [&](const json& more) {
        json link = {{"comm", "python"},
                     {"pid", 7},
                     {"tid", 12'345},
                     {"did", "slept"},
                     {"duration_ns", 5'000'000},
                     {"blocked_on", "other"},
                     {"syscall", nullptr},
                     {"detail", nullptr},
                     {"ended_by", "unknown"}};
        link.update(more);
        answer["chains"] = {{{"duration_ns", 5'000'000}, {"depth", 0}, {"links", {link}}}};
        return text_waits(answer);
    };
    EXPECT_THAT(told(json::object()),
                testing::StartsWith("5 ms  python (7) thread 12345, between calls\n   slept 5 ms: "
                                    "neither what it waited for nor what ended it was recorded\n\ngpu-1, "));
    EXPECT_THAT(told({{"blocked_on", "futex"}, {"syscall", "futex"}}),
                HasSubstr("slept 5 ms in futex, futex: what ended it was not recorded\n"));
    EXPECT_THAT(told({{"syscall", "io_uring_enter"}, {"ended_by", "interrupt"}}),
                HasSubstr("slept 5 ms in io_uring_enter: ended by an interrupt"));
}

TEST(RenderText, RanksThatWaitForTheOneThatIsLateAreToldWithIt) {
    json answer = to_json(explain_answer(), context());
    const json any = answer["findings"][0];
    const auto rank = [](unsigned pid) { return "rank 2 (rank, pid " + std::to_string(pid) + ")"; };
    const auto finding = [&](const char* kind, unsigned pid, unsigned culprit) {
        json one = any;
        one.update({{"kind", kind}, {"comm", "rank"}, {"pid", pid}, {"verdict", "partial"}});
        one["summary"] = (culprit == pid ? rank(pid) + " came last" : kind);
        one["culprits"] = {{{"name", rank(culprit)}, {"pid", culprit}, {"ns", 2'000'000'000}}};
        one["lost_ns"] = 2'000'000'000;
        return one;
    };
    answer["findings"] = {finding("straggler", 102, 102), finding("collective-wait", 100, 102),
                          finding("collective-wait", 101, 102), finding("collective-wait", 103, 101)};
    const std::string text = text_explain(answer);
    EXPECT_THAT(text, HasSubstr("\n  Waited      rank (100) 2 s, rank (101) 2 s\n"));
    const auto times = [](const std::string& all, const std::string& part) {
        size_t found = 0;
        for (size_t at = all.find(part); at != std::string::npos; at = all.find(part, at + 1)) ++found;
        return found;
    };
    EXPECT_EQ(times(text, "HIGH  collective-wait"), 1u) << "for another rank: " << text;
    const std::string all = text_explain(answer, {.details = true});
    EXPECT_EQ(times(all, "HIGH  collective-wait"), 3u) << all;
    EXPECT_THAT(all, Not(HasSubstr("  Waited ")));
    answer["findings"][1]["lost_ns"] = 2'000'000'001;
    EXPECT_EQ(times(text_explain(answer), "HIGH  collective-wait"), 2u) << "it lost more than the straggler's says";
    answer["findings"].push_back(answer["findings"][0]);
    EXPECT_EQ(times(text_explain(answer), "HIGH  collective-wait"), 3u) << "of which communicator is not known";
}

TEST(RenderText, ALossThatMayBeNoneHasOneBound) {
    json answer = to_json(explain_answer(), context());
    answer["findings"][0].update(
        {{"lost_ns", 100'000'000}, {"lost_low_ns", 0}, {"lost_high_ns", 200'000'000}, {"window_share", 0.1}});
    EXPECT_THAT(text_explain(answer), HasSubstr("  Slower by   at most 200 ms, 20 % of the time"));
    answer["findings"][0].update({{"lost_ns", 200'000'000}, {"lost_low_ns", 199'999'999}, {"window_share", 0.2}});
    EXPECT_THAT(text_explain(answer), HasSubstr("  Slower by   200 ms, 20 % of the time"));
}

TEST(RenderText, OfAStallThatNobodyMadeNobodyIsTold) {
    json answer = to_json(requests_answer(), context());
    answer["requests"][0]["longest_stall"]["culprit"] = {{"name", "other"}, {"pid", nullptr}, {"ns", 1}};
    EXPECT_THAT(text_requests(answer), Not(HasSubstr("by other")));
}

TEST(RenderText, CallsThatWentAlikeAreTogetherInAnIncident) {
    json answer = to_json(stats_answer(), context());
    answer["incident"] = {{"id", "1"},           {"kind", "cpu-contention"}, {"severity", "high"},
                          {"verdict", "proven"}, {"summary", "it is"},       {"opened_ns", 1},
                          {"closed_ns", nullptr}};
    const auto call = [](const char* op, uint64_t start_ns, uint64_t runnable_ns, bool worst) -> json {
        return {{"op", op},
                {"start_ns", start_ns},
                {"duration_ns", 2'000 + runnable_ns},
                {"tid", 7},
                {"depth", 0},
                {"on_cpu_ns", 2'000},
                {"worst", worst},
                {"runnable_ns", runnable_ns},
                {"blocked_ns", 0}};
    };
    json rows = json::array();
    for (uint64_t i = 0; i < 18; ++i) rows.push_back(call("cudaLaunchKernel", 1'000'000 + i * 10'000, 0, false));
    rows.push_back(call("cudaLaunchKernel", 2'000'000, 5'000'000, true));
    for (uint64_t i = 0; i < 2; ++i) rows.push_back(call("cudaLaunchKernel", 9'000'000 + i * 10'000, 0, false));
    answer["detail"] = {{"from_ns", 1'000'000}, {"rows", rows}};
    const std::string text = text_incident(answer);
    EXPECT_THAT(text, HasSubstr("+0 ns  36 µs  18 cudaLaunchKernel"));
    EXPECT_THAT(text, HasSubstr(">     +1 ms   5 ms  cudaLaunchKernel")) << "the worst is by itself";
    EXPECT_THAT(text, HasSubstr("+8 ms   2 µs  cudaLaunchKernel")) << "two are as short as one line";
    const std::string all = text_incident(answer, {.details = true});
    EXPECT_THAT(all, Not(HasSubstr("18 cudaLaunchKernel")));
    EXPECT_THAT(all, Not(HasSubstr("device wait")));
    answer["detail"]["rows"].push_back(call("cudaStreamSync", 9'500'000, 0, false));
    EXPECT_THAT(text_incident(answer), HasSubstr("  7  device wait")) << "it spins on the device";
    answer["detail"]["rows"][3].update({{"depth", 1}, {"op", "cuLaunchKernel"}});
    answer["detail"]["rows"][19].update({{"depth", 1}, {"op", "cuLaunchKernel"}, {"start_ns", 2'001'000}});
    EXPECT_THAT(text_incident(answer), AllOf(HasSubstr("17 cudaLaunchKernel"), HasSubstr("+1 ms   2 µs    cuLaunch")))
        << text_incident(answer);
}

TEST(RenderText, OfManyCulpritsTheFirstAreTold) {
    json answer = to_json(explain_answer(), context());
    json culprits = json::array();
    for (unsigned pid = 1; pid <= 6; ++pid) culprits.push_back({{"name", "hog"}, {"pid", pid}, {"ns", 9'000'000}});
    answer["findings"][0]["culprits"] = culprits;
    EXPECT_THAT(text_explain(answer), HasSubstr("hog (4) 9 ms, and 2 more\n"));
    EXPECT_THAT(text_explain(answer, {.details = true}), HasSubstr("hog (6) 9 ms\n"));
}

TEST(RenderText, EveryLineFitsTheTerminal) {
    for (const unsigned width : {60u, 80u, 100u, 132u}) {
        const TextStyle style{width, false};
        for (const std::string& text :
             {text_stats(to_json(stats_answer(), context()), style), text_processes(processes_answer(), style),
              text_requests(to_json(requests_answer(), context()), style)}) {
            std::istringstream lines(text);
            for (std::string line; std::getline(lines, line);) {
                const bool is_note = line.starts_with("Note: ");
                EXPECT_TRUE(is_note || display_width(line) <= width) << "at width " << width << ": " << line;
            }
        }
    }
}

TEST(RenderText, ColoursAreThereWhenAskedForAndEnd) {
    const std::string text = text_explain(to_json(explain_answer(), context()), {100, true});
    EXPECT_THAT(text, HasSubstr("\x1b[1;31mHIGH\x1b[0m"));
    EXPECT_EQ(text.rfind("\x1b["), text.rfind("\x1b[0m"));
}

TEST(RenderText, TextOfATargetCannotTouchTheTerminal) {
    ExplainAnswer answer = explain_answer();
    Finding& finding = answer.findings[0];
    finding.comm = finding.summary = finding.kind = finding.fix = finding.confirm = finding.id = hostile;
    finding.culprits[0].name = finding.rejected[0].hypothesis = answer.summary = hostile;
    answer.coverage = {false, 0, 0, {{1, 2, hostile}}};
    const AnswerContext hostile_context{hostile, {hostile}, {{{.pid = 4242, .start_ns = 0}, hostile}}};
    StatsAnswer stats = stats_answer();
    stats.coverage = answer.coverage;
    json status = status_answer();
    status["version"] = status["node"] = status["state"] = hostile;
    for (const std::string& text :
         {text_explain(to_json(answer, hostile_context)), text_stats(to_json(stats, hostile_context)),
          text_processes(processes_answer(hostile)), text_status(status)}) {
        EXPECT_THAT(text, HasSubstr("a\\x1b[2Jb\\nc"));
        EXPECT_THAT(text, Not(HasSubstr("\x1b")));
        EXPECT_THAT(text, Not(HasSubstr("\u202e")));
        EXPECT_THAT(text, Not(HasSubstr("\u200b")));
        EXPECT_TRUE(is_utf8(text));
    }
}

TEST(RenderText, JsonOfAnyShapeIsPrintedWithoutThrowing) {
    const std::vector<json> shapes = {
        nullptr,
        1,
        "text",
        json::array(),
        json::object(),
        {{"findings", 1}, {"ops", "x"}, {"processes", json::object()}},
        {{"findings", {1, nullptr}}, {"ops", {1}}, {"processes", {"x"}}, {"slow_calls", {{}}}},
        {{"findings", {{{"timeline", {{"split", {{"blocked_ns", ~0ULL}, {"on_cpu_ns", ~0ULL}}}}}}}}},
        {{"window", {{"from_ns", ~0ULL}, {"to_ns", -5}}}},
        {{"window", {{"from_ns", 9}, {"to_ns", 3}}},
         {"coverage", {{"complete", 0}, {"lost", ~0ULL}, {"gaps", {1, {{"from_ns", ~0ULL}, {"to_ns", 0}}}}}}},
        {{"requests", {1, {{"split", 7}, {"longest_stall", {{"op", 1}}}, {"occupied_by", {nullptr}}}}}, {"found", -1}},
        {{"requests", {nullptr}}, {"notes", {1}}, {"probes", {1, {{"hits", -1}}}}, {"libraries", {"x"}}},
        {{"findings", {{{"verdict", "proven"}, {"kind", "lock-wait"}, {"culprits", {3}}, {"window_share", 1e308}}}},
         {"summary", "; "}},
        {{"store", {{"bytes", 1e300}}}, {"uptime_ns", -1}}};
    for (const json& shape : shapes)
        for (const auto render : {text_status, text_processes, text_stats, text_explain, text_requests, text_probes})
            for (const TextStyle& style : {TextStyle{80, true}, TextStyle{60, false, true, true, true}})
                EXPECT_NO_THROW(static_cast<void>(render(shape, style))) << shape.dump();
}
TEST(Table, DropsAndCutsColumnsUntilItFits) {
    Table table({{"NAME", Align::left, true}, {"EXTRA", Align::right, false, 1}, {"N", Align::right}});
    table.add_row({"a-very-long-name-of-something", "12345", "7"});
    EXPECT_EQ(table.render(0), "NAME                           EXTRA  N\na-very-long-name-of-something  12345  7\n");
    EXPECT_EQ(table.render(27), "NAME               EXTRA  N\na-very-long-name…  12345  7\n") << "cut before dropped";
    EXPECT_EQ(table.render(20), "NAME               N\na-very-long-name…  7\n") << "dropped before cut to nothing";
    EXPECT_EQ(table.render(11), "NAME      N\na-very-…  7\n");
}

TEST(Table, DropsColumnsOfOneOrderTogether) {
    Table table({{"NAME", Align::left},
                 {"A", Align::right, false, 1},
                 {"B", Align::right, false, 1},
                 {"C", Align::right, false, 2}});
    table.add_row({"name", "1", "2", "3"});
    EXPECT_EQ(table.render(13), "NAME  A  B  C\nname  1  2  3\n");
    EXPECT_EQ(table.render(12), "NAME  A  B\nname  1  2\n");
    EXPECT_EQ(table.render(9), "NAME\nname\n");
}

TEST(Format, FiguresHaveThreeDigitsAndAUnit) {
    EXPECT_EQ(format_count(0), "0");
    EXPECT_EQ(format_count(999), "999");
    EXPECT_EQ(format_count(~0ULL), "18,446,744,073,709,551,615");
    EXPECT_EQ(format_bytes(0), "0 B");
    EXPECT_EQ(format_bytes(1023), "1023 B");
    EXPECT_EQ(format_bytes(1536), "1.50 KiB");
    EXPECT_EQ(format_bytes((1 << 20) - 1), "1.00 MiB");
    EXPECT_EQ(format_span(59'999'999'999), "59 s");
    EXPECT_EQ(format_span(90'061'000'000'000), "1 d 1 h");
    EXPECT_EQ(format_percent(0), "0 %");
    EXPECT_EQ(format_percent(0.0001), "<0.1 %");
    EXPECT_EQ(format_percent(0.055), "5.5 %");
    EXPECT_EQ(format_percent(1), "100 %");
}

}  // namespace
}  // namespace ingero
