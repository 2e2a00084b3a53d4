// What `ingeroctl top` draws: which processes come first, what fits, and what a target's text can do there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/render/table.h"
#include "core/render/top.h"
#include "tests/unit/render_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

json process(uint64_t pid, const std::string& comm, double calls_per_s, uint64_t lost_ns) {
    return {{"pid", pid},
            {"comm", comm},
            {"unit", pid == 30 ? json("train.service") : json()},
            {"rank", nullptr},
            {"world_size", nullptr},
            {"calls_per_s", calls_per_s},
            {"gpu_memory_bytes", pid << 20},
            {"longest_ns", 1'000'000 * pid},
            {"split", {{"on_cpu_ns", 10'000}, {"device_wait_ns", 70'000}, {"runnable_ns", 20'000}, {"blocked_ns", 0}}},
            {"lost_ns", lost_ns},
            {"ops", json::array({{{"op", "cudaLaunchKernel"},
                                  {"count", 12'345},
                                  {"errors", 0},
                                  {"p50_ns", 4'000},
                                  {"p99_ns", 9'000},
                                  {"max_ns", 1'000'000},
                                  {"total_ns", 50'000'000}}})}};
}

json incident(uint64_t pid, const std::string& kind, const std::string& severity) {
    return {{"id", "0123456789abcdef"},   {"kind", kind}, {"severity", severity}, {"verdict", "proven"},
            {"summary", kind + " of it"}, {"pid", pid},   {"comm", "python"},     {"opened_ns", 1},
            {"lost_ns", 1'500'000'000}};
}

json answer() {
    return {{"schema", "ingero/top/1"},
            {"node", "gpu-1"},
            {"state", "tracing"},
            {"overhead", {{"budget_permille", 20.0}, {"measured_permille", 31.0}}},
            {"events_lost", 3},
            {"processes", json::array({process(10, "python", 500, 0), process(20, "vllm", 20'000, 1'500'000'000),
                                       process(30, "train", 7'000, 0)})},
            {"incidents", json::array({incident(20, "lock-wait", "medium"), incident(20, "cpu-contention", "high")})},
            {"in_flight", json::array({{{"pid", 10},
                                        {"tid", 11},
                                        {"comm", "python"},
                                        {"op", "cudaStreamSync"},
                                        {"start_ns", 1},
                                        {"duration_ns", 12'000'000'000},
                                        {"activity", "blocked"},
                                        {"activity_ns", 11'000'000'000}}})},
            {"requests", json::array({{{"id", "cmpl-7"},
                                       {"pid", 20},
                                       {"start_ns", 1},
                                       {"duration_ns", 660'000'000},
                                       {"queue_ns", nullptr},
                                       {"ttft_ns", 30'000'000},
                                       {"model", "llama"}}})}};
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

TEST(RenderTop, WhatLosesTimeComesFirstAndWhatDoesNotReturnIsThere) {
    EXPECT_EQ(text_top(answer(), {.pid = 20}, {}),
              "gpu-1: tracing, 3 processes, 2 incidents open, overhead 3.1 %, over budget, 3 events lost\n"
              "  PID  COMMAND  CALLS/S  LONGEST  ON CPU  DEVICE  NO CPU  ASLEEP  GPU MEMORY   LOST  INCIDENT\n"
              ">  20  vllm      20,000    20 ms    10 %    70 %    20 %     0 %    20.0 MiB  1.5 s  cpu-contention +1\n"
              "   30  train      7,000    30 ms    10 %    70 %    20 %     0 %    30.0 MiB      -  -\n"
              "   10  python       500    10 ms    10 %    70 %    20 %     0 %    10.0 MiB      -  -\n"
              "\n"
              "Open incidents\n"
              "  MEDIUM  lock-wait of it: 1.5 s lost (ingeroctl explain --incident 01234567)\n"
              "  HIGH    cpu-contention of it: 1.5 s lost (ingeroctl explain --incident 01234567)\n"
              "\n"
              "Calls that have not returned\n"
              "  cudaStreamSync of python (10): 12 s, blocked for 11 s\n"
              "\n"
              "Slowest requests of the last minute\n"
              "  REQUEST  PID    TOOK  FIRST TOKEN  MODEL\n"
              "  cmpl-7    20  660 ms        30 ms  llama\n");
}

TEST(RenderTop, EachOrderAndTheFilterChooseWhatIsShown) {
    const json looked = answer();
    EXPECT_THAT(top_pids(looked, {.sort = TopSort::lost}), ElementsAre(20, 30, 10));
    EXPECT_THAT(top_pids(looked, {.sort = TopSort::calls}), ElementsAre(20, 30, 10));
    EXPECT_THAT(top_pids(looked, {.sort = TopSort::longest}), ElementsAre(30, 20, 10));
    EXPECT_THAT(top_pids(looked, {.sort = TopSort::memory}), ElementsAre(30, 20, 10));
    EXPECT_THAT(top_pids(looked, {.sort = TopSort::pid}), ElementsAre(10, 20, 30));
    EXPECT_THAT(top_pids(looked, {.filter = "py"}), ElementsAre(10));
    EXPECT_THAT(top_pids(looked, {.filter = "train.s"}), ElementsAre(30));
    EXPECT_THAT(top_pids(looked, {.filter = "20"}), ElementsAre(20));
    EXPECT_THAT(text_top(looked, {.filter = "no\x1b[2J"}, {}),
                HasSubstr("No process has 'no\\x1b[2J' in its pid, command or unit"));
    for (size_t i = 0; i < top_sorts; ++i)
        EXPECT_EQ(parse_top_sort(to_string(static_cast<TopSort>(i))), static_cast<TopSort>(i));
    EXPECT_EQ(parse_top_sort("other"), std::nullopt);
}

TEST(RenderTop, OneProcessAloneHasItsOperationsAndWhatIsItsOwn) {
    const std::string text = text_top(answer(), {.pid = 10, .detail = true}, {});
    EXPECT_THAT(text, AllOf(HasSubstr("python (10), 10.0 MiB of GPU memory"), HasSubstr("70 % device"),
                            HasSubstr("cudaLaunchKernel  12,345"), HasSubstr("cudaStreamSync of python"),
                            Not(HasSubstr("Open incidents")), Not(HasSubstr("cmpl-7")), Not(HasSubstr("vllm"))));
    // One that has ended meanwhile leaves all of them.
    EXPECT_THAT(text_top(answer(), {.pid = 99, .detail = true}, {}), HasSubstr("vllm"));
}

TEST(RenderTop, WhatIsNotKnownIsSaid) {
    json looked = answer();
    looked["in_flight"] = nullptr;
    looked["missing_probes"] = {"libcuda"};
    looked["coverage"] = {{"complete", false}, {"lost", 7}, {"sampled_out", 0}, {"gaps", json::array()}};
    EXPECT_THAT(text_top(looked, {}, {}),
                AllOf(HasSubstr("\nCalls that have not returned: not known"), HasSubstr("not attached: libcuda"),
                      HasSubstr("Coverage  7 events lost")));
}

TEST(RenderTop, FitsTheTerminalAndShowsTheSelectedProcess) {
    json looked = answer();
    for (uint64_t pid = 1'000; pid < 1'200; ++pid)
        looked["processes"].push_back(process(pid, "a-program-of-length", 1, 0));
    looked["incidents"][0]["summary"] = std::string(300, 'x');
    for (const unsigned width : {40u, 60u, 80u, 200u})
        for (const size_t height : {1u, 5u, 12u, 24u, 60u})
            for (const uint64_t pid : {20u, 1'000u, 1'100u, 1'199u}) {
                const auto lines = lines_of(text_top(looked, {.pid = pid, .height = height}, {.width = width}));
                EXPECT_LE(lines.size(), height);
                for (const std::string& line : lines) EXPECT_LE(display_width(line), std::max(width, 60u)) << line;
                const bool has_it = std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
                    return line.starts_with(">") && line.find(std::to_string(pid)) != std::string::npos;
                });
                EXPECT_TRUE(has_it || height < 12) << pid << " at " << width << " by " << height;
            }
}

TEST(RenderTop, TextOfATargetMovesNothing) {
    json looked = answer();
    looked["processes"][0]["comm"] = render_fixture::hostile;
    looked["processes"][0]["unit"] = render_fixture::hostile;
    looked["incidents"][0]["summary"] = render_fixture::hostile;
    looked["requests"][0]["id"] = render_fixture::hostile;
    looked["in_flight"][0]["comm"] = render_fixture::hostile;
    for (const bool detail : {false, true}) {
        const std::string text = text_top(looked, {.pid = 10, .detail = detail}, {});
        EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), HasSubstr("a\\x1b[2Jb\\nc\\xff\\u{202e}\\u{200b}")));
    }
}

TEST(RenderTop, OfWhatIsNoAnswerNothingIsSaid) {
    const json odd = json::array({nullptr, "text", 5, json::object(), json::array({1})});
    for (const json& looked : std::vector<json>{nullptr, json::array(), json::object(), "text"})
        EXPECT_THAT(text_top(looked, {.pid = 1, .detail = true, .height = 3}, {}), StartsWith("-: -"));
    json looked = answer();
    for (const char* key : {"processes", "incidents", "in_flight", "requests"}) looked[key] = odd;
    EXPECT_NE(text_top(looked, {}, {.width = 80}), "");
    looked = answer();
    looked["processes"][0] = {{"pid", 7}, {"split", "x"}, {"ops", odd}, {"calls_per_s", "many"}};
    EXPECT_NE(text_top(looked, {.pid = 7, .detail = true}, {.width = 80}), "");
}

}  // namespace
}  // namespace ingero
