// ingeroctl import and ingeroctl --db as a script sees them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "core/model/op.h"
#include "core/wire/child_process.h"
#include "test_paths.h"
#include "tests/unit/trace_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using test::first_generation;
using test::TraceFolder;
using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
    int exit_code = -1;
    std::string text;  ///< of standard output and standard error
    json answer() const { return json::parse(text, nullptr, false); }
};

/// Arguments without anything that a shell would touch.
Outcome ingeroctl(const std::string& arguments) {
    const auto ran = run_program({"/bin/sh", "-c", std::string(INGEROCTL) + " " + arguments + " 2>&1"},
                                 {.program = {}, .keep = {"TMPDIR"}}, std::chrono::seconds(60), 4 << 20);
    if (!ran) return {-1, ran.error().message};
    return {WIFEXITED(ran->status) ? WEXITSTATUS(ran->status) : -1, ran->text};
}

class StoredTrace : public testing::Test {
  protected:
    StoredTrace() {
        std::string script = first_generation;
        for (uint64_t i = 0; i < 100; ++i)
            script += "INSERT INTO events(timestamp,pid,tid,source,op,duration,arg0) VALUES(" +
                      std::to_string(1'700'000'000'000'000'000 + i * 1'000'000'000) + ",10,10,1,3,5000,77);";
        folder_.make_trace(script + "INSERT INTO process_names VALUES(10,'train',1);");
    }

    TraceFolder folder_;
};

void expect_valid(const std::string& command, const std::string& text) {
    const std::string source = INGERO_SOURCE_DIR;
    const auto ran =
        run_program({"/bin/sh", "-c",
                     "printf %s \"$1\" | /usr/bin/python3 " + source + "/tests/support/validate_schema.py " + source +
                         "/docs/schemas/" + command + ".schema.json - 2>&1",
                     "sh", text},
                    {}, std::chrono::seconds(60), 1 << 20);
    ASSERT_TRUE(ran);
    if (WIFEXITED(ran->status) && WEXITSTATUS(ran->status) == 77) GTEST_SKIP() << "SKIPPED: no python3-jsonschema";
    EXPECT_EQ(ran->status, 0) << ran->text << text;
}

TEST_F(StoredTrace, IsImportedOnceAndSaysSo) {
    const Outcome first = ingeroctl("--json import " + folder_.trace() + " -o " + folder_.store() + " --node alpha");
    ASSERT_EQ(first.exit_code, 0) << first.text;
    EXPECT_EQ(first.answer()["events"], 100);
    EXPECT_EQ(first.answer()["nodes"][0]["node"], "alpha");
    expect_valid("import", first.text);
    const Outcome again = ingeroctl("import " + folder_.trace() + " -o " + folder_.store());
    EXPECT_EQ(again.exit_code, 0);
    EXPECT_THAT(again.text, HasSubstr("already"));
}

TEST_F(StoredTrace, AnswersFromAStoreAndFromTheTraceAlike) {
    ASSERT_EQ(ingeroctl("import " + folder_.trace() + " -o " + folder_.store()).exit_code, 0);
    for (const char* command : {"stats", "stacks", "explain", "processes", "requests", "gpus"}) {
        const Outcome stored = ingeroctl("--db " + folder_.store() + " --json " + command);
        const Outcome direct = ingeroctl("--db " + folder_.trace() + " --json " + command);
        ASSERT_EQ(stored.exit_code, 0) << stored.text;
        EXPECT_EQ(stored.text, direct.text);
        expect_valid(command, stored.text);
    }
    const json stats = ingeroctl("--db " + folder_.store() + " --json stats").answer();
    EXPECT_EQ(stats["ops"][0]["count"], 100) << "the default is all of the trace";
    EXPECT_EQ(stats["node"], "trace");
    const json processes = ingeroctl("--db " + folder_.trace() + " --json processes").answer();
    EXPECT_EQ(processes["processes"][0]["comm"], "train");
}

TEST_F(StoredTrace, IsAskedWithSqlWhereverItsRowsAre) {
    ASSERT_EQ(ingeroctl("import " + folder_.trace() + " -o " + folder_.store()).exit_code, 0);
    const std::string statement = "'SELECT op, count(*) AS n, sum(arg0) FROM events GROUP BY op'";
    for (const std::string& path : {folder_.store(), folder_.trace()}) {
        const Outcome all = ingeroctl("--db " + path + " --json query " + statement);
        ASSERT_EQ(all.exit_code, 0) << all.text;
        EXPECT_EQ(all.answer()["rows"], json::parse(R"([["cudaLaunchKernel", 100, 7700]])")) << all.text;
        expect_valid("query", all.text);
        // As the end of the trace has it, and not the end of the day.
        const Outcome last = ingeroctl("--db " + path + " --json query --since 10s " + statement);
        EXPECT_EQ(last.answer()["rows"], json::parse(R"([["cudaLaunchKernel", 10, 770]])")) << last.text;
        const Outcome from = ingeroctl("query --db " + path + " --csv --from 2023-11-14T22:13:30Z " + statement);
        EXPECT_EQ(from.text, "op,n,sum(arg0)\r\ncudaLaunchKernel,90,6930\r\n");
        EXPECT_EQ(ingeroctl("--db " + path + " query 'DELETE FROM events'").exit_code, 1);
    }
}

TEST_F(StoredTrace, IsExportedWholeOrNotAtAll) {
    const std::string file = folder_.store() + ".out";
    const Outcome csv = ingeroctl("--db " + folder_.trace() + " --json export --format csv -o " + file);
    ASSERT_EQ(csv.exit_code, 0) << csv.text;
    expect_valid("export", csv.text);
    EXPECT_EQ(csv.answer()["events"], 100);
    EXPECT_EQ(csv.answer()["bytes"], std::filesystem::file_size(file));
    EXPECT_EQ(read_file(file),
              ingeroctl("--db " + folder_.trace() + " query --csv 'SELECT * FROM events ORDER BY timestamp, id'").text);
    const Outcome lines = ingeroctl("export --db " + folder_.trace() + " --format jsonl --since 10s");
    EXPECT_EQ(std::count(lines.text.begin(), lines.text.end(), '\n'), 10);
    for (const char* format : {"perfetto", "chrome", "folded"}) {
        const Outcome other =
            ingeroctl("--db " + folder_.trace() + " --json export -o " + file + " --format " + format);
        ASSERT_EQ(other.exit_code, 0) << other.text;
        EXPECT_EQ(other.answer()["events"], 100);
        expect_valid("export", other.text);
    }
    EXPECT_EQ(ingeroctl("--db " + folder_.trace() + " export --format yaml").exit_code, 2);
    const Outcome outside =
        ingeroctl("--db " + folder_.trace() + " export --format csv --from 2024-11-14T22:13:30Z -o " + file);
    EXPECT_EQ(outside.exit_code, 1);
    EXPECT_FALSE(std::filesystem::exists(file)) << "nothing of a file that could not be written stays";
}

TEST_F(StoredTrace, TracesOfTwoNodesAreMergedOnce) {
    TraceFolder second;
    std::string script = first_generation;
    for (uint64_t i = 0; i < 40; ++i)
        script += "INSERT INTO events(timestamp,pid,tid,source,op,duration,arg0) VALUES(" +
                  std::to_string(1'700'000'000'000'000'000 + i * 1'000'000'000) + ",10,10,1,3,7000,5);";
    second.make_trace(script);
    ASSERT_EQ(ingeroctl("import " + second.trace() + " -o " + second.store() + " --node beta").exit_code, 0);
    const std::string merge = "--json merge " + folder_.trace() + " " + second.store() + " -o " + folder_.store();
    const Outcome merged = ingeroctl(merge);
    ASSERT_EQ(merged.exit_code, 0) << merged.text;
    expect_valid("merge", merged.text);
    EXPECT_EQ(merged.answer()["events"], 140);
    const std::string counts =
        " --json query 'SELECT node, count(*), sum(duration) FROM events GROUP BY node ORDER BY 1'";
    const json wanted = json::parse(R"([["beta", 40, 280000], ["trace", 100, 500000]])");
    EXPECT_EQ(ingeroctl("--db " + folder_.store() + counts).answer()["rows"], wanted);
    // What has no node in its rows is of one node.
    const std::string db = "--db " + folder_.store() + " --json ";
    for (const std::string command : {"stats", "stacks", "explain", "processes", "requests"}) {
        const Outcome mixed = ingeroctl(db + command);
        EXPECT_EQ(mixed.exit_code, 1) << mixed.text;
        EXPECT_THAT(mixed.text, HasSubstr("choose one with --node: beta, trace"));
        const Outcome one = ingeroctl(db + command + " --node beta");
        EXPECT_EQ(one.exit_code, 0) << one.text;
        EXPECT_EQ(one.answer()["node"], "beta");
    }
    EXPECT_EQ(ingeroctl(db + "stats --node beta").answer()["ops"][0]["count"], 40);
    EXPECT_EQ(ingeroctl(db + "stats --node trace").answer()["ops"][0]["count"], 100);
    EXPECT_EQ(ingeroctl(db + "processes --node trace").answer()["processes"].size(), 1u);
    EXPECT_THAT(ingeroctl(db + "stats --node gamma").text, HasSubstr("no such node"));
    EXPECT_THAT(ingeroctl(db + counts.substr(8)).text, HasSubstr("node beta: "));
    const std::string bytes = folder_.store_bytes();
    const Outcome again = ingeroctl(merge);
    ASSERT_EQ(again.exit_code, 0) << again.text;
    EXPECT_EQ(again.answer()["already_there"], true);
    EXPECT_EQ(folder_.store_bytes(), bytes);
    // One more beside those that are there.
    const Outcome third = ingeroctl("--json merge " + second.trace() + " --node gamma -o " + folder_.store());
    ASSERT_EQ(third.exit_code, 0) << third.text;
    EXPECT_EQ(third.answer()["already_there"], true) << "it is the trace that beta is of";
    EXPECT_EQ(ingeroctl("merge " + folder_.trace() + " -o " + second.trace()).exit_code, 1);
}

TEST_F(StoredTrace, SinceCountsBackFromItsEnd) {
    const Outcome last = ingeroctl("--db " + folder_.trace() + " --json stats --since 10s");
    ASSERT_EQ(last.exit_code, 0) << last.text;
    EXPECT_EQ(last.answer()["ops"][0]["count"], 10);
    const Outcome from = ingeroctl("--db " + folder_.trace() + " --json stats --from 2023-11-14T22:13:30Z");
    ASSERT_EQ(from.exit_code, 0) << from.text;
    EXPECT_EQ(from.answer()["ops"][0]["count"], 90);
    const Outcome after = ingeroctl("--db " + folder_.trace() + " --json stats --from 2024-11-14T22:13:30Z");
    EXPECT_EQ(after.exit_code, 1);
    EXPECT_THAT(after.text, HasSubstr("ends before"));
}

TEST_F(StoredTrace, LeavesNothingBehind) {
    const std::string scratch = folder_.store() + "-scratch";
    std::filesystem::create_directory(scratch);
    setenv("TMPDIR", scratch.c_str(), 1);
    EXPECT_EQ(ingeroctl("--db " + folder_.trace() + " stats").exit_code, 0);
    unsetenv("TMPDIR");
    EXPECT_TRUE(std::filesystem::is_empty(scratch));
    EXPECT_THAT(folder_.names_beside_trace(), testing::ElementsAre("trace.db"));
    std::filesystem::remove(scratch);
}

TEST_F(StoredTrace, AStoreIsNotChangedByReadingIt) {
    ASSERT_EQ(ingeroctl("import " + folder_.trace() + " -o " + folder_.store()).exit_code, 0);
    const std::string before = folder_.store_bytes();
    EXPECT_EQ(ingeroctl("--db " + folder_.store() + " explain").exit_code, 0);
    EXPECT_EQ(folder_.store_bytes(), before);
}

TEST_F(StoredTrace, AStoreThatADaemonHasIsRefused) {
    ASSERT_EQ(ingeroctl("import " + folder_.trace() + " -o " + folder_.store()).exit_code, 0);
    const auto writer = StoreWriter::open(folder_.store(), {});
    ASSERT_TRUE(writer);
    const Outcome outcome = ingeroctl("--db " + folder_.store() + " stats");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.text, HasSubstr("a running ingerod uses the store"));
    const Outcome imported = ingeroctl("import " + folder_.trace() + " -o " + folder_.store() + "2");
    EXPECT_EQ(imported.exit_code, 0) << imported.text;
    std::filesystem::remove_all(folder_.store() + "2");
}

TEST_F(StoredTrace, WhatOnlyADaemonKnowsIsAUsageError) {
    for (const char* command : {"status", "probes", "check", "trace", "monitor", "reload"}) {
        const Outcome outcome = ingeroctl("--db " + folder_.trace() + " " + command);
        EXPECT_EQ(outcome.exit_code, 2) << command;
        EXPECT_THAT(outcome.text, HasSubstr("cannot be used with --db"));
    }
}

TEST_F(StoredTrace, WhatIsNeitherStoreNorTraceIsRefused) {
    EXPECT_THAT(ingeroctl("--db /nonexistent stats").text, HasSubstr("cannot open /nonexistent"));
    EXPECT_THAT(ingeroctl("--db /bin/sh stats").text,
                AllOf(HasSubstr("not a SQLite file"), HasSubstr("hint: name the directory of a closed store")));
    EXPECT_THAT(ingeroctl("--db /usr stats").text, HasSubstr("no event store in /usr"));
    EXPECT_EQ(ingeroctl("--db /usr stats").exit_code, 1);
}

}  // namespace
}  // namespace ingero
