// The whole path as a person walks it: a traced program, a stored event, a proven cause.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "test_paths.h"
#include "tests/support/daemon.h"
#include "tests/support/others_work.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

class ExplainCommand : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    static Finished ingeroctl(Daemon& daemon, std::vector<std::string> arguments) {
        std::vector<std::string> command = {INGEROCTL_PROGRAM, "--socket", daemon.socket()};
        command.insert(command.end(), arguments.begin(), arguments.end());
        return test::run(command);
    }

    /// What the workload printed.
    static std::string train(Daemon& daemon) {
        Workload workload({"train", "--duration", "5", "--cpu", "0"});
        EXPECT_TRUE(daemon.wait_traced(workload.pid()));
        workload.open_gate();
        EXPECT_EQ(workload.finish(), 0) << workload.child().errors();
        return workload.child().output();
    }
};

TEST_F(ExplainCommand, names_the_cpu_hog_as_the_culprit) {
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    {
        const Hog hog(0, "cpu-hog");
        train(daemon);
    }
    const Finished explain = ingeroctl(daemon, {"--json", "explain"});
    ASSERT_EQ(explain.status, 0) << explain.errors;
    const json answer = json::parse(explain.output);
    ASSERT_FALSE(answer.at("findings").empty()) << answer.dump(1);
    const json& finding = answer.at("findings")[0];
    EXPECT_EQ(finding.at("kind"), "cpu-contention");
    EXPECT_EQ(finding.at("verdict"), "proven");
    // Others of this host may have run there for longer.
    EXPECT_TRUE(std::ranges::any_of(finding.at("culprits"), [](const json& one) {
        return one.at("name") == "cpu-hog";
    })) << finding.at("culprits");
    EXPECT_GE(finding.at("explained_fraction"), 0.8);
    EXPECT_EQ(answer.at("healthy"), false);
    std::cout << "explained " << finding.at("explained_fraction") << ", " << finding.at("summary") << "\n";
    const Finished gated = ingeroctl(daemon, {"explain", "--fail-on", "low"});
    EXPECT_EQ(gated.status, 3);
    // Of many who had the CPU the text names those who had it longest.
    const auto first = finding.at("culprits").at(0).at("name").get<std::string>();
    EXPECT_NE(gated.output.find(first), std::string::npos) << first << "\n" << gated.output;
    EXPECT_EQ(daemon.stop(), 0);
}

TEST_F(ExplainCommand, finds_nothing_without_a_hog_but_what_others_took) {
    if (sanitized) GTEST_SKIP() << "a slow daemon on two CPUs is itself a hog";
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    const uint64_t delay_ns = run_delay_ns(train(daemon));
    const Finished explain = ingeroctl(daemon, {"--json", "explain"});
    ASSERT_EQ(explain.status, 0) << explain.errors;
    const json answer = json::parse(explain.output);
    EXPECT_EQ(not_others_work(answer.at("findings"), delay_ns), json::array()) << delay_ns;
    EXPECT_GT(answer.at("calls"), 1000);
    EXPECT_EQ(daemon.stop(), 0);
}

TEST_F(ExplainCommand, each_commands_text_is_plain_and_its_json_fits_its_schema) {
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    Workload workload({"calls", "--count", "3000", "--op", "mixed"});
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    // Before a call, while the process lives, and after: absent things are null, never 0.
    for (const bool finished : {false, true}) {
        if (finished) {
            workload.open_gate();
            EXPECT_EQ(workload.finish(), 0);
        }
        daemon.call_when_stored("stats", {{"since_ns", 60'000'000'000}});
        for (const std::string command : {"status", "processes", "stats", "explain"}) {
            const Finished text = ingeroctl(daemon, {command});
            EXPECT_EQ(text.status, 0) << command << text.errors;
            EXPECT_FALSE(text.output.empty());
            EXPECT_EQ(text.output.find('\033'), std::string::npos) << "colours away from a terminal";
            const Finished as_json = ingeroctl(daemon, {"--json", command});
            EXPECT_EQ(as_json.status, 0) << command << as_json.errors;
            EXPECT_EQ(json::parse(as_json.output).at("schema"), "ingero/" + command + "/1");
            const std::string file = directory / command + ".json";
            std::ofstream(file) << as_json.output;
            const Finished valid = test::run({"/usr/bin/python3", VALIDATE_SCHEMA,
                                              std::string(SCHEMA_DIRECTORY) + "/" + command + ".schema.json", file});
            if (valid.status == 77) GTEST_SKIP() << "python3-jsonschema is not installed";
            EXPECT_EQ(valid.status, 0) << command << ": " << valid.errors << as_json.output;
        }
    }
    EXPECT_EQ(daemon.stop(), 0);
}

}  // namespace
