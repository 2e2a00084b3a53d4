// Recorded scenarios answer without a daemon, a GPU or any right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "test_paths.h"
#include "tests/support/child.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

Finished ingeroctl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), INGEROCTL_PROGRAM);
    ChildOptions nobody;
    if (geteuid() == 0) nobody.uid = 65'534;
    return run(arguments, nobody);
}

TEST(Demo, ListsTheScenariosAndExplainsOne) {
    const Finished list = ingeroctl({"--json", "demo"});
    ASSERT_EQ(list.status, 0) << list.errors;
    const json all = json::parse(list.output, nullptr, false);
    EXPECT_TRUE(all["explain"].is_null());
    ASSERT_GE(all["scenarios"].size(), 5u) << all;
    const TemporaryDirectory directory;
    for (const json& scenario : all["scenarios"]) {
        const Finished told = ingeroctl({"--json", "demo", scenario["name"]});
        ASSERT_EQ(told.status, 0) << told.errors;
        std::ofstream(directory / "answer.json") << told.output;
        const Finished valid = run({"/usr/bin/python3", VALIDATE_SCHEMA,
                                    std::string(SCHEMA_DIRECTORY) + "/demo.schema.json", directory / "answer.json"});
        if (valid.status != 77) {
            EXPECT_EQ(valid.status, 0) << valid.errors;
        }
        EXPECT_EQ(json::parse(told.output)["explain"]["node"], "demo");
    }
    EXPECT_THAT(ingeroctl({"demo"}).output, HasSubstr("cpu-contention"));
    EXPECT_THAT(ingeroctl({"demo", "cpu-contention"}).output,
                testing::AllOf(HasSubstr("cpu-hog"), HasSubstr("ingeroctl --db demo:cpu-contention stats")));
}

TEST(Demo, IsOpenToEveryOtherCommand) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"stats"},
                                                    {"query", "SELECT COUNT(*) FROM events"},
                                                    {"processes"},
                                                    {"waits"},
                                                    {"stragglers"},
                                                    {"incidents"},
                                                    {"explain", "--per-process"}}) {
        std::vector<std::string> arguments = {"--db", "demo:straggler"};
        arguments.insert(arguments.end(), command.begin(), command.end());
        const Finished told = ingeroctl(arguments);
        EXPECT_EQ(told.status, 0) << command[0] << told.errors;
        EXPECT_FALSE(told.output.empty());
    }
    EXPECT_THAT(ingeroctl({"--db", "demo:straggler", "stragglers"}).output, HasSubstr("rank 2"));
    const Finished diff = ingeroctl({"explain", "--diff", "demo:healthy", "demo:lock-wait"});
    EXPECT_EQ(diff.status, 0) << diff.errors;
    EXPECT_THAT(diff.output,
                testing::AllOf(HasSubstr("Findings only in B: "), HasSubstr("lock-wait"), HasSubstr("worse")));
}

TEST(Demo, RefusesWhatThereIsNot) {
    const Finished unknown = ingeroctl({"demo", "nonsense"});
    EXPECT_EQ(unknown.status, 1);
    EXPECT_THAT(unknown.errors, HasSubstr("'ingeroctl demo' lists them"));
    EXPECT_EQ(ingeroctl({"--db", "demo:../truth", "stats"}).status, 1);
    EXPECT_EQ(ingeroctl({"--db", "demo:straggler", "demo"}).status, 2);
}

}  // namespace
