// The JSON objects against their schemas, and text that a target wrote made inert.

#include "core/render/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <limits>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/text/error_names.h"
#include "test_paths.h"
#include "tests/unit/render_fixture.h"

namespace ingero {
namespace {

using namespace render_fixture;
using nlohmann::json;
using testing::HasSubstr;

/// "" where valid, the errors otherwise; "missing" where there is no validator.
std::string validate(const std::string& command, const json& answer) {
    const std::string document = testing::TempDir() + "ingero-" + command + "-" + std::to_string(getpid()) + ".json";
    std::ofstream(document) << answer.dump();
    const std::string source = INGERO_SOURCE_DIR;
    const std::string line = "/usr/bin/python3 " + source + "/tests/support/validate_schema.py " + source +
                             "/docs/schemas/" + command + ".schema.json " + document + " 2>&1";
    FILE* pipe = popen(line.c_str(), "r");
    std::string output;
    char buffer[256];
    while (fgets(buffer, sizeof(buffer), pipe)) output += buffer;
    const int status = pclose(pipe);
    std::remove(document.c_str());
    if (WEXITSTATUS(status) == 77) return "missing";
    return WEXITSTATUS(status) == 0 ? "" : "invalid: " + output;
}

#define EXPECT_VALID(command, answer)                                                         \
    do {                                                                                      \
        const std::string errors = validate(command, answer);                                 \
        if (errors == "missing") GTEST_SKIP() << "the package python3-jsonschema is missing"; \
        EXPECT_EQ(errors, "");                                                                \
    } while (false)

TEST(Schema, EveryAnswerIsValid) {
    EXPECT_VALID("status", status_answer());
    EXPECT_VALID("processes", processes_answer());
    EXPECT_VALID("stats", to_json(stats_answer(), context()));
    EXPECT_VALID("explain", to_json(explain_answer(), context()));
    EXPECT_VALID("requests", to_json(requests_answer(), context()));
}

TEST(Schema, EmptyAndHostileAnswersAreValidToo) {
    StatsAnswer stats;
    EXPECT_VALID("stats", to_json(stats, {}));
    ExplainAnswer explain;
    EXPECT_VALID("explain", to_json(explain, {}));
    explain = explain_answer();
    Finding& finding = explain.findings[0];
    finding.comm = finding.summary = finding.kind = finding.fix = hostile;
    finding.culprits[0].name = hostile;
    finding.worst.event.preemptor_comm = to_comm("\xff\xfe");
    explain.coverage.gaps = {{1, 2, hostile}};
    EXPECT_VALID("explain", to_json(explain, {hostile, {hostile}, {{{.pid = 4242, .start_ns = 0}, hostile}}}));
}

TEST(Schema, HostileRequestsAreValidToo) {
    EXPECT_VALID("requests", to_json(RequestsAnswer{}, {}));
    RequestsAnswer answer = requests_answer();
    answer.kind = SpanKind::step;
    SpanRow& span = answer.requests[0].span;
    span.id = span.model = hostile;
    span.labels = {{hostile, hostile}, {"", ""}};
    span.values = {{hostile, std::numeric_limits<double>::infinity()}, {"nan", std::nan("")}};
    span.process = {};
    answer.requests[0].longest_stall->culprit = {"", 7, 1};
    answer.requests[1].longest_stall = RequestStall{};
    answer.requests[0].occupied_by = {{hostile, 1, 1}};
    EXPECT_VALID("requests", to_json(answer, {hostile, {hostile}, {}}));
}

TEST(Schema, AMemberMoreOrLessIsInvalid) {
    json answer = status_answer();
    answer["surprise"] = 1;
    const std::string errors = validate("status", answer);
    if (errors == "missing") GTEST_SKIP() << "the package python3-jsonschema is missing";
    EXPECT_THAT(errors, HasSubstr("surprise"));
    answer.erase("surprise");
    answer.erase("state");
    EXPECT_THAT(validate("status", answer), HasSubstr("state"));
}

TEST(RenderJson, AbsentIsNullAndNeverZero) {
    const json stats = to_json(stats_answer(), context());
    EXPECT_TRUE(stats["ops"][0]["bytes"].is_null()) << "a launch has no size";
    EXPECT_EQ(stats["ops"][1]["bytes"], 3ULL << 30);
    EXPECT_TRUE(stats["ops"][0]["lost_ns"].is_null());
    EXPECT_EQ(stats["ops"][2]["op"], "op-99-7");

    ExplainAnswer answer = explain_answer();
    answer.slow_calls[0].expected_ns = 0;
    answer.slow_calls[0].event.preemptor_tgid = 0;
    answer.slow_calls[0].event.blocked_reason = BlockedReason::none;
    answer.findings[0].worst = {};
    const json explain = to_json(answer, context());
    EXPECT_TRUE(explain["slow_calls"][0]["expected_ns"].is_null());
    EXPECT_TRUE(explain["slow_calls"][0]["ran_instead"].is_null());
    EXPECT_TRUE(explain["slow_calls"][0]["waited_for"].is_null());
    EXPECT_TRUE(explain["findings"][0]["timeline"].is_null());
    EXPECT_TRUE(explain["findings"][0]["culprits"][1]["pid"].is_null());
}

TEST(RenderJson, OfARequestTooAbsentIsNull) {
    RequestsAnswer answer = requests_answer();
    const json requests = to_json(answer, context())["requests"];
    EXPECT_EQ(requests[0]["queue_ns"], 0);
    EXPECT_EQ(requests[0]["rank_by_ns"], 8'200'000'000);
    EXPECT_EQ(requests[0]["labels"], (json{{"tenant", "a b"}}));
    EXPECT_EQ(requests[0]["longest_stall"]["culprit"], (json{{"name", "stress-ng"}, {"pid", 991}}));
    for (const char* name : {"queue_ns", "ttft_ns", "longest_stall", "prompt_tokens", "output_tokens", "model", "pid"})
        EXPECT_TRUE(requests[1][name].is_null()) << name;
    EXPECT_TRUE(requests[0]["events"]["collectives"].is_null());
    EXPECT_EQ(requests[0]["events"]["launches"], 1'234);
    answer.counts_collectives = true;
    EXPECT_EQ(to_json(answer, context())["requests"][0]["events"]["collectives"], 0);
}

TEST(RenderJson, ASlowCallSaysWhereItsTimeWent) {
    const json call = to_json(explain_answer(), context())["slow_calls"][0];
    EXPECT_EQ(call["op"], "cudaLaunchKernel");
    EXPECT_EQ(call["comm"], "python") << "known from the finding";
    EXPECT_EQ(call["split"]["runnable_ns"], 2'710'000u);
    EXPECT_EQ(call["ran_instead"], (json{{"name", "stress-ng"}, {"pid", 991}, {"ns", 2'600'000}}));
    EXPECT_EQ(call["waited_for"]["reason"], "disk");
    EXPECT_EQ(call["waited_for"]["waker"], (json{{"kind", "task"}, {"name", "kworker"}, {"pid", 12}}));
    EXPECT_NEAR(call["explained_fraction"].get<double>(), 0.941, 0.001);
}

TEST(RenderJson, CallsOfTwoProgramsThatHadOnePidHaveTheirOwnCommands) {
    ExplainAnswer answer = explain_answer();
    answer.slow_calls.push_back(slow_call());
    answer.slow_calls.push_back(slow_call());
    answer.slow_calls[1].event.process_start_ns += 1;
    answer.slow_calls[2].event.process_start_ns += 2;
    AnswerContext known = context();
    known.comms = {{answer.slow_calls[0].event.process(), "trainer"}, {answer.slow_calls[1].event.process(), "loader"}};
    const json calls = to_json(answer, known)["slow_calls"];
    EXPECT_EQ(calls[0]["comm"], "trainer");
    EXPECT_EQ(calls[1]["comm"], "loader");
    EXPECT_EQ(calls[2]["comm"], nullptr);
}

TEST(RenderJson, TheLimitKeepsTheFirstOps) {
    EXPECT_EQ(to_json(stats_answer(), context(), 1)["ops"].size(), 1u);
    EXPECT_EQ(to_json(stats_answer(), context(), 0)["ops"].size(), 3u);
}
TEST(EscapeText, LeavesWhatIsPrintable) {
    EXPECT_EQ(escape_text("python3.11 µs 日本 \U0001f600"), "python3.11 µs 日本 \U0001f600");
}

TEST(EscapeText, EscapesControlsInvalidBytesBidiAndInvisibles) {
    EXPECT_EQ(escape_text("a\tb\nc\rd"), "a\\tb\\nc\\rd");
    EXPECT_EQ(escape_text(std::string_view("\0\x1b\x7f", 3)), "\\x00\\x1b\\x7f");
    EXPECT_EQ(escape_text("\u009b"), "\\u{009b}") << "CSI as one code point";
    EXPECT_EQ(escape_text("\xff\xe2\x82"), "\\xff\\xe2\\x82");
    EXPECT_EQ(escape_text("\u202e\u2066\u200d\ufeff\u2028\u00ad"),
              "\\u{202e}\\u{2066}\\u{200d}\\u{feff}\\u{2028}\\u{00ad}");
    EXPECT_EQ(escape_text("\U000e0041"), "\\u{e0041}");
    EXPECT_EQ(escape_text("\\x1b"), "\\\\x1b") << "an escape cannot be forged";
}
TEST(ErrorNames, OfWhatIsNoCallAreTheKernels) {
    EXPECT_EQ(error_name(op_exit, SIGKILL), "signal 9");
    EXPECT_EQ(error_name(op_exit, 1 << 8), "exit status 1");
    EXPECT_EQ(error_name(op_exit, 0), "");
    EXPECT_EQ(error_name(op_block_read, EIO), "EIO");
    EXPECT_EQ(error_name(op::cudaLaunchKernel, 9), "cudaErrorInvalidConfiguration");
}

}  // namespace
}  // namespace ingero
