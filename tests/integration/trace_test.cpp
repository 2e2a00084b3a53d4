// ingeroctl trace against what a traced program logged of itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "core/model/op.h"
#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

constexpr uint32_t stranger_uid = 12'345;

class Trace : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    std::vector<std::string> command(std::vector<std::string> options, bool as_json = true) const {
        std::vector<std::string> words = {std::string(BUILD_DIRECTORY) + "/ctl/ingeroctl", "--socket",
                                          daemon_->socket()};
        if (as_json) words.emplace_back("--json");
        words.emplace_back("trace");
        words.insert(words.end(), options.begin(), options.end());
        return words;
    }
    /// Of a stream that has begun: the daemon has a subscriber once the calls in flight were looked at for it.
    void start_tracing(std::vector<std::string> options, const ChildOptions& child = {}) {
        tracer_.emplace(command(std::move(options)), child);
        Patience limit;
        while (subscribers() == 0 && limit.lasts()) continue;
        ASSERT_NE(subscribers(), 0U) << tracer_->errors();
    }
    uint64_t subscribers() { return daemon_->status().at("traces").get<uint64_t>(); }

    /// What it has printed up to its end.
    std::vector<json> finish_tracing() {
        EXPECT_EQ(tracer_->wait(), 0) << tracer_->errors();
        std::vector<json> lines;
        std::istringstream text(tracer_->output());
        for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
        return lines;
    }
    /// The next line that is of this process.
    json next_line(int pid) {
        while (auto line = tracer_->read_line()) {
            json event = json::parse(*line);
            if (event["pid"] == pid) return event;
        }
        ADD_FAILURE() << "no more lines: " << tracer_->errors();
        return nullptr;
    }

    const TemporaryDirectory directory_;
    const std::string log_ = directory_ / "truth";
    std::optional<Daemon> daemon_;
    std::optional<Child> tracer_;
};

TEST_F(Trace, shows_each_call_of_a_program_with_what_it_was_about) {
    daemon_.emplace(directory_ / "run");
    Workload workload({"train", "--duration", "1", "--launches", "4", "--kernel-us", "1000", "--log", log_});
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    const int pid = workload.pid();
    start_tracing({"--pid", std::to_string(pid), "--duration", "20s"});
    workload.open_gate();
    EXPECT_EQ(workload.finish(), 0) << workload.child().errors();
    const auto truth = standin::GroundTruth::open(log_);
    ASSERT_TRUE(truth);

    std::map<OpId, uint64_t> made, shown;
    uint64_t bytes_made = 0, bytes_shown = 0, skipped = 0;
    std::set<std::string> kernels_made, kernels_shown;
    uint64_t expected = 0;
    for (const standin::Record& record : truth->records()) {
        const auto op = op_of_function(truth->name(record));
        if (!op) continue;
        made[*op]++, expected++;
        if (find_op(*op)->op_class == OpClass::copy) bytes_made += record.args[0];
        if (find_op(*op)->op_class == OpClass::launch)
            if (const auto kernel = truth->kernel_name(record.pid, record.args[0]); !kernel.empty())
                kernels_made.emplace(kernel);
    }
    std::map<std::string, OpId> by_name;
    uint64_t seen = 0;
    json launch;
    while (seen + skipped < expected) {
        const auto line = tracer_->read_line();
        ASSERT_TRUE(line) << seen << " of " << expected << " shown, " << skipped << " skipped: " << tracer_->errors();
        const json event = json::parse(*line);
        EXPECT_EQ(event["schema"], "ingero/trace/1");
        if (event["event"] == "skipped") {
            skipped += event["skipped"].get<uint64_t>();
            continue;
        }
        seen++;
        EXPECT_EQ(event["event"], "call");
        EXPECT_EQ(event["pid"], pid);
        const std::string name = event["op"];
        for (const Op& op : all_ops())
            if (op.name == name && source_name(op_source(op.id)) == event["source"].get<std::string>()) shown[op.id]++;
        if (!event["direction"].is_null()) bytes_shown += event["bytes"].get<uint64_t>();
        if (event["kernel"].is_string()) kernels_shown.insert(event["kernel"].get<std::string>());
        if (name == "cudaLaunchKernel") launch = event;
    }
    tracer_->signal(SIGTERM);
    tracer_->wait();
    EXPECT_EQ(skipped, 0U);
    EXPECT_EQ(shown, made);
    EXPECT_EQ(bytes_shown, bytes_made);
    EXPECT_EQ(kernels_shown.size(), kernels_made.size());
    EXPECT_FALSE(kernels_shown.empty());
    ASSERT_TRUE(launch.is_object());
    EXPECT_EQ(launch["grid"].size(), 3U);
    EXPECT_GT(launch["block"][0], 0);
    EXPECT_EQ(launch["weight"], 1);
}

TEST_F(Trace, filters_by_operation_duration_and_error) {
    daemon_.emplace(directory_ / "run");
    // Each hundredth launch fails, and each tenth synchronisation takes 4 ms.
    ChildOptions options;
    options.environment["INGERO_STANDIN"] =
        "at=cudaLaunchKernel:/100:error=719,at=cudaStreamSynchronize:/10:sleep=4000";
    Workload workload({"sync-loop", "--duration", "60"}, options);
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    const std::string pid = std::to_string(workload.pid());
    Child failed(command({"--pid", pid, "--errors", "--op", "cudaLaunchKernel", "--count", "5"}));
    Child slow(command({"--pid", pid, "--op", "cudaStreamSync", "--min-duration", "3ms", "--count", "5"}));
    Patience limit;
    while (subscribers() != 2 && limit.lasts()) continue;
    workload.open_gate();
    size_t lines = 0;
    for (; const auto line = failed.read_line(); ++lines) {
        const json event = json::parse(*line);
        EXPECT_EQ(event["op"], "cudaLaunchKernel");
        EXPECT_EQ(event["error"], "cudaErrorLaunchFailure");
        EXPECT_EQ(event["return_code"], 719);
    }
    EXPECT_EQ(lines, 5U) << failed.errors();
    EXPECT_EQ(failed.wait(), 0);
    size_t asleep = 0;
    for (lines = 0; const auto line = slow.read_line(); ++lines) {
        const json event = json::parse(*line);
        EXPECT_EQ(event["op"], "cudaStreamSync");
        EXPECT_GE(event["duration_ns"], 3'000'000);
        // One that had no CPU for as long is told as well.
        const bool slept = event["blocked_ns"] >= 3'000'000;
        EXPECT_EQ(event["blocked_on"] == "timer", slept) << event;
        asleep += slept;
        EXPECT_TRUE(event["error"].is_null());
    }
    EXPECT_EQ(lines, 5U) << slow.errors();
    EXPECT_GT(asleep, 0U);
    EXPECT_EQ(slow.wait(), 0);
    workload.child().signal(SIGTERM);
    workload.finish();
}

TEST_F(Trace, shows_a_call_that_does_not_return_while_it_lasts) {
    daemon_.emplace(directory_ / "run");
    ChildOptions options;
    options.environment["INGERO_STANDIN"] = "at=cudaStreamSynchronize:3:futex=60000000";
    Workload workload({"sync-loop", "--duration", "120"}, options);
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    start_tracing({"--pid", std::to_string(workload.pid()), "--in-flight"});
    workload.open_gate();
    const json first = next_line(workload.pid());
    EXPECT_EQ(first["event"], "in-flight");
    EXPECT_EQ(first["op"], "cudaStreamSync");
    EXPECT_EQ(first["depth"], 0);
    EXPECT_GE(first["duration_ns"], 1'000'000'000);
    EXPECT_LT(first["duration_ns"], 5'000'000'000);
    EXPECT_EQ(first["activity"], "blocked");
    EXPECT_EQ(first["blocked_on"], "futex");
    EXPECT_GT(first["blocked_ns"], 900'000'000);
    EXPECT_TRUE(first["return_code"].is_null());
    EXPECT_TRUE(first["error"].is_null());
    // Again when it has lasted twice as long, and with the same start.
    const json again = next_line(workload.pid());
    EXPECT_EQ(again["event"], "in-flight");
    EXPECT_GE(again["duration_ns"], 2 * first["duration_ns"].get<uint64_t>());
    const auto apart = static_cast<int64_t>(again["start_ns"].get<uint64_t>() - first["start_ns"].get<uint64_t>());
    EXPECT_LT(std::abs(apart), 1'000'000);
    // Who asks now sees it at once, as text too.
    Child late(command({"--in-flight", "--count", "1"}, false));
    EXPECT_THAT(late.read_line().value_or(late.errors()), HasSubstr("cudaStreamSync  so far"));
    EXPECT_EQ(late.wait(), 0);
    workload.child().signal(SIGKILL);
}

TEST_F(Trace, of_a_stranger_shows_nothing_of_others_and_does_not_count_them) {
    daemon_.emplace(directory_ / "run");
    ChildOptions stranger;
    stranger.uid = stranger_uid;
    start_tracing({"--duration", "3s"}, stranger);
    Workload workload({"calls", "--count", "20000", "--rate", "20000", "--op", "launch"});
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    workload.open_gate();
    EXPECT_EQ(workload.finish(), 0);
    EXPECT_TRUE(finish_tracing().empty()) << tracer_->output();
}

TEST_F(Trace, of_a_storm_says_what_it_leaves_out_and_its_lines_fit_the_schema) {
    daemon_.emplace(directory_ / "run");
    Workload workload({"calls", "--count", "200000", "--rate", "100000", "--op", "launch", "--log", log_});
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    start_tracing({"--pid", std::to_string(workload.pid())});
    workload.open_gate();
    EXPECT_EQ(workload.finish(), 0);
    const auto truth = standin::GroundTruth::open(log_);
    ASSERT_TRUE(truth);
    uint64_t made = 0, shown = 0, skipped = 0;
    for (const standin::Record& record : truth->records()) made += op_of_function(truth->name(record)).has_value();
    std::vector<json> lines;
    // Of all programs of the host: one that is killed in the middle of a call loses that.
    const auto lost = [&] { return daemon_->status().at("events").at("lost").get<uint64_t>(); };
    while (shown + skipped < made && shown + skipped + lost() < made) {
        const auto line = tracer_->read_line();
        ASSERT_TRUE(line) << shown << " shown and " << skipped << " skipped of " << made;
        lines.push_back(json::parse(*line));
        shown += lines.back()["event"] == "call";
        if (lines.back()["event"] == "skipped") skipped += lines.back()["skipped"].get<uint64_t>();
    }
    EXPECT_LE(shown + skipped, made);
    EXPECT_GT(skipped, 0U);
    EXPECT_GT(shown, 4'096U);

    const std::string sample = directory_ / "lines.jsonl";
    std::ofstream file(sample);
    for (size_t i = 0; i < lines.size(); ++i)
        if (i < 200 || lines[i]["event"] == "skipped") file << lines[i] << "\n";
    file.close();
    const Finished valid =
        run({"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/trace.schema.json", sample});
    EXPECT_EQ(valid.status, 0) << valid.errors;
}

TEST_F(Trace, ends_with_its_readers) {
    daemon_.emplace(directory_ / "run");
    start_tracing({});
    tracer_->signal(SIGKILL);
    tracer_->wait();
    Patience limit;
    while (subscribers() != 0 && limit.lasts()) continue;
    EXPECT_EQ(subscribers(), 0U);
    const auto wrong = run(command({"--op", "cudaNothing"}));
    EXPECT_EQ(wrong.status, 1);
    EXPECT_THAT(wrong.errors, HasSubstr("there is no operation named cudaNothing"));
}

}  // namespace
