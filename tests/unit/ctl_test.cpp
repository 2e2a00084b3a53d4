// ingeroctl as a script sees it: what it asks, what it prints, where, and its exit codes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <sstream>

#include "core/render/render.h"
#include "test_paths.h"
#include "tests/unit/control_fixture.h"

namespace ingero {
namespace {

using nlohmann::json;
using test::LoopThread;
using testing::HasSubstr;

struct Outcome {
    int exit_code = -1;
    std::string out;
    std::string err;
};

std::string read_all(int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; (size = read(fd, buffer, sizeof(buffer))) > 0;)
        text.append(buffer, static_cast<size_t>(size));
    close(fd);
    return text;
}

Outcome run(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    arguments.insert(arguments.begin(), "ingeroctl");
    const auto pointers = [](std::vector<std::string>& strings) {
        std::vector<char*> result;
        for (std::string& text : strings) result.push_back(text.data());
        result.push_back(nullptr);
        return result;
    };
    int out[2];
    int err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) return {};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    pid_t pid = 0;
    const int spawned =
        posix_spawn(&pid, INGEROCTL, &actions, nullptr, pointers(arguments).data(), pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    Outcome outcome;
    outcome.out = read_all(out[0]);  // what goes to stderr fits its pipe
    outcome.err = read_all(err[0]);
    int status = 0;
    if (spawned == 0) waitpid(pid, &status, 0);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

json answer_of(const std::string& command, json own, bool complete = true, json gaps = json::array()) {
    json answer = answer_head(command, {"test-node", {}, {}}, {1000, 2000}, {complete, 0, 0, {}});
    answer["coverage"]["gaps"] = std::move(gaps);
    answer.update(own);
    return answer;
}

json explain_with(const std::string& severity, bool complete = true) {
    json findings = json::array();
    if (!severity.empty()) findings.push_back({{"severity", severity}, {"kind", "cpu-contention"}});
    return answer_of("explain", {{"findings", findings}, {"healthy", severity.empty()}, {"summary", "the summary"}},
                     complete);
}

TEST(Ctl, WithoutADaemonItSaysHowToStartOne) {
    const Outcome outcome = run({"--socket", "/nonexistent/s", "status"});
    EXPECT_EQ(outcome.exit_code, 4);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.find("ingeroctl: connect: no ingerod at /nonexistent/s: No such file or directory\nhint: "),
              0u)
        << outcome.err;
}

TEST(Ctl, TheSocketComesFromTheOptionOrTheEnvironment) {
    LoopThread server;
    EXPECT_EQ(run({"status"}, {"INGERO_SOCKET=" + server.path()}).exit_code, 0);
    EXPECT_EQ(run({"--socket", server.path(), "status"}, {"INGERO_SOCKET=/nonexistent"}).exit_code, 0);
    EXPECT_EQ(run({"status", "--socket", server.path()}).exit_code, 0) << "global options may follow the command";
}

TEST(Ctl, StatusIsReadyWhenTracingOrIdleOnly) {
    LoopThread server;
    for (const auto& [state, code] : {std::pair{"tracing", 0}, {"idle", 0}, {"starting", 4}, {"degraded", 4}}) {
        server.on_loop([&, text = state] { server.backend().status_answer = {{"state", text}}; });
        EXPECT_EQ(run({"--socket", server.path(), "status"}).exit_code, code) << state;
    }
}

TEST(Ctl, JsonIsOneLineOfAsciiAsTheDaemonSentIt) {
    LoopThread server;
    const json answer = {{"state", "tracing"}, {"node", "gpu\u202e\x1b[31m\u009b"}};
    server.on_loop([&] { server.backend().status_answer = answer; });
    const Outcome outcome = run({"--socket", server.path(), "--json", "status"});
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1);
    for (const char c : outcome.out) EXPECT_TRUE((c >= 0x20 && c < 0x7f) || c == '\n');
    EXPECT_EQ(json::parse(outcome.out), answer);
}

TEST(Ctl, WindowsBecomeParameters) {
    LoopThread server;
    server.answer_with([](const std::string& method, const json& params) -> Result<json> {
        return answer_of(method, {{"ops", json::array()}, {"echo", params}});
    });
    const auto params = [&](std::vector<std::string> options) {
        options.insert(options.begin(), {"--socket", server.path(), "--json", "stats"});
        const Outcome outcome = run(options, {"TZ=UTC"});
        return outcome.exit_code == 0 ? json::parse(outcome.out)["echo"] : json(outcome.err);
    };
    EXPECT_EQ(params({}), (json{{"since_ns", 300'000'000'000}}));
    EXPECT_EQ(params({"--since", "90s", "--pid", "7"}), (json{{"since_ns", 90'000'000'000}, {"pid", 7}}));
    for (const std::vector<std::string>& hour :
         {std::vector<std::string>{"--since", "-1h"}, {"--since", "1h", "--until", "now"}})
        EXPECT_EQ(params(hour), (json{{"since_ns", 3'600'000'000'000}})) << "as journalctl has it";
    EXPECT_EQ(params({"--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:00:01Z", "--limit", "3"}),
              (json{{"from_ns", 1'767'225'600'000'000'000}, {"to_ns", 1'767'225'601'000'000'000}, {"limit", 3}}));
    for (const char* option : {"--from", "--since"}) {
        const json open_end = params({option, "2020-01-01 00:00:00"});
        EXPECT_EQ(open_end["from_ns"], 1'577'836'800'000'000'000) << option;
        EXPECT_GT(open_end["to_ns"], open_end["from_ns"]) << option;
    }
    for (const char* option : {"--to", "--until"})
        EXPECT_EQ(params({"--since", "2020-01-01", option, "2020-01-02"}),
                  (json{{"from_ns", 1'577'836'800'000'000'000}, {"to_ns", 1'577'923'200'000'000'000}}));
}

TEST(Ctl, QueriesGoToTheDaemonAsTheyWereWritten) {
    LoopThread server;
    server.answer_with([](const std::string& method, const json& params) -> Result<json> {
        return answer_of(method,
                         {{"columns", {{{"name", "a,b"}, {"type", "text"}}, {{"name", "n"}, {"type", "integer"}}}},
                          {"rows", {{params.dump(), 1}, {nullptr, nullptr}, {"", 12}}},
                          {"truncated", true},
                          {"elapsed_ns", 1'000'000}});
    });
    const auto query = [&](std::vector<std::string> options) {
        options.insert(options.begin(), {"--socket", server.path(), "query"});
        return run(options);
    };
    const auto params = [&](std::vector<std::string> options) {
        options.push_back("--json");
        const Outcome outcome = query(std::move(options));
        return outcome.exit_code == 0 ? json::parse(json::parse(outcome.out)["rows"][0][0].get<std::string>())
                                      : json(outcome.err);
    };
    EXPECT_EQ(params({"SELECT 1"}), (json{{"sql", "SELECT 1"}, {"limit", 10'000}}))
        << "no window unless one is asked for";
    EXPECT_EQ(params({"SELECT 2", "--since", "5m", "--limit", "3", "--explain"}),
              (json{{"sql", "SELECT 2"}, {"limit", 3}, {"explain", true}, {"since_ns", 300'000'000'000}}));
    EXPECT_THAT(params({"--schema", "ev'ents"})["sql"], HasSubstr("FROM schema_columns WHERE table_name = 'ev''ents'"));
    const Outcome csv = query({"SELECT 1", "--csv"});
    EXPECT_EQ(csv.out, "\"a,b\",n\r\n\"{\"\"limit\"\":10000,\"\"sql\"\":\"\"SELECT 1\"\"}\",1\r\n,\r\n\"\",12\r\n");
    const Outcome text = query({"SELECT 1"});
    EXPECT_THAT(text.out, HasSubstr("3 rows, 1 ms"));
    EXPECT_THAT(text.out, HasSubstr("More rows were left out"));
    EXPECT_EQ(query({}).exit_code, 2);
    EXPECT_EQ(query({"SELECT 1", "--csv", "--json"}).exit_code, 2);
}

TEST(Ctl, RequestsAreAskedForByAnyOfTheirNames) {
    LoopThread server;
    server.answer_with([](const std::string& method, const json& params) -> Result<json> {
        return answer_of("requests", {{"method", method}, {"requests", {{{"id", "a"}}}}, {"echo", params}});
    });
    const auto asked = [&](std::vector<std::string> options) {
        options.insert(options.begin(), {"--socket", server.path(), "--json"});
        const Outcome outcome = run(options);
        if (outcome.exit_code != 0) return json(outcome.err);
        const json answer = json::parse(outcome.out);
        EXPECT_EQ(answer["method"], "requests");
        return answer["echo"];
    };
    const json usual = {{"since_ns", 300'000'000'000}, {"by", "request"}};
    EXPECT_EQ(asked({"requests"}), usual);
    EXPECT_EQ(asked({"explain", "--by-request"}), usual);
    EXPECT_EQ(asked({"query", "--by-request"}), usual) << "not all that is stored, as of a statement";
    EXPECT_EQ(asked({"explain", "--by-step"}), (json{{"since_ns", 300'000'000'000}, {"by", "step"}}));
    const json chosen = {{"since_ns", 60'000'000'000},      {"by", "request"}, {"request", "a\ufffd"},
                         {"slower_than_ns", 2'500'000'000}, {"limit", 7},      {"pid", 9}};
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"requests"}, {"explain", "--by-request"}, {"query", "--by-request"}}) {
        std::vector<std::string> options = command;
        options.insert(options.end(), {"--request", "a\xff", "--slower-than", "2500ms", "--limit", "7", "--since", "1m",
                                       "--pid", "9"});
        EXPECT_EQ(asked(options), chosen) << command[0];
    }
}

TEST(Ctl, UsageErrorsAreTwoAndSayWhy) {
    const std::vector<std::vector<std::string>> wrong = {
        {},
        {"bogus"},
        {"stats", "--bogus"},
        {"stats", "--since", "5"},
        {"stats", "--since", "0s"},
        {"stats", "--since", "5m", "--from", "14:00"},
        {"stats", "--to", "14:00"},
        {"stats", "--from", "tomorrow"},
        {"stats", "--since", "5m", "--to", "14:00"},
        {"stats", "--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"},
        {"stats", "--pid", "0"},
        {"stats", "--pid", "x"},
        {"stats", "--pid"},
        {"record", "--pid", "-1", "-o", "x"},
        {"explain", "--fail-on", "awful"},
        {"explain", "--request", "a"},
        {"explain", "-n", "3"},
        {"explain", "--by-step", "--by-request"},
        {"explain", "--by-request", "--fail-on", "low"},
        {"query", "SELECT 1", "--limit", "0"},
        {"query", "SELECT 1", "--by-request"},
        {"query", "--by-request", "--csv"},
        {"requests", "--slower-than", "2"},
        {"requests", "--limit", "0"},
        {"status", "extra"}};
    for (const auto& arguments : wrong) {
        const Outcome outcome = run(arguments, {"INGERO_SOCKET=/nonexistent"});
        EXPECT_EQ(outcome.exit_code, 2) << testing::PrintToString(arguments);
        EXPECT_EQ(outcome.err.find("ingeroctl: "), 0u) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("\nhint: ")) << testing::PrintToString(arguments);
    }
}

TEST(Ctl, AMistypedWordIsToldWithWhatMayBeMeant) {
    const auto why = [](const std::vector<std::string>& arguments) {
        const std::string err = run(arguments, {"INGERO_SOCKET=/nonexistent"}).err;
        return err.substr(0, err.find('\n'));
    };
    EXPECT_EQ(why({"expain"}), "ingeroctl: usage: unknown command 'expain'; did you mean 'explain'?");
    EXPECT_EQ(why({"expain", "--since", "1h"}), "ingeroctl: usage: unknown command 'expain'; did you mean 'explain'?");
    EXPECT_EQ(why({"--db", "demo:straggler", "requests-", "-n", "3"}),
              "ingeroctl: usage: unknown command 'requests-'; did you mean 'requests'?");
    EXPECT_EQ(why({"incid"}), "ingeroctl: usage: unknown command 'incid'; did you mean 'incidents'?");
    EXPECT_EQ(why({"bogus"}), "ingeroctl: usage: unknown command 'bogus'");
    EXPECT_EQ(why({"\x1b[2J"}), "ingeroctl: usage: unknown command '\\x1b[2J'");
    EXPECT_EQ(why({"stats", "--sicne", "5m"}),
              "ingeroctl: usage: unknown option '--sicne' of 'stats'; did you mean '--since'?");
    EXPECT_EQ(why({"export", "--fromat=csv"}),
              "ingeroctl: usage: unknown option '--fromat' of 'export'; did you mean '--format'?");
    EXPECT_EQ(why({"--jsn", "status"}), "ingeroctl: usage: unknown option '--jsn' of 'status'; did you mean '--json'?");
    EXPECT_EQ(why({"stats", "--fail-on", "low"}),
              "ingeroctl: usage: unknown option '--fail-on' of 'stats'; it is one of explain");
    EXPECT_EQ(why({"annotate", "--lable", "a=b", "true"}),
              "ingeroctl: usage: unknown option '--lable' of 'annotate'; did you mean '--label'?");
    EXPECT_EQ(why({"annotate", "--kind", "bad", "--id", "a", "ls", "--colour"}),
              "ingeroctl: usage: --kind wants request, step, phase or label, not 'bad'");
}

TEST(Ctl, AWrongValueIsToldWithWhatIsWanted) {
    const auto why = [](const std::vector<std::string>& arguments) {
        const Outcome outcome = run(arguments, {"INGERO_SOCKET=/nonexistent"});
        EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
        return outcome.err.substr(0, outcome.err.find('\n'));
    };
    EXPECT_EQ(why({"stats", "-p", "abc"}), "ingeroctl: usage: --pid wants a process number, not 'abc'");
    EXPECT_EQ(why({"trace", "--pid", "4294967297"}),
              "ingeroctl: usage: --pid wants a process number, not '4294967297'");
    EXPECT_EQ(why({"waits", "-n", "0x10"}),
              "ingeroctl: usage: --limit wants a whole number from 1 to 1000, not '0x10'");
    EXPECT_EQ(why({"stacks", "--by", "\x1b[2J"}), "ingeroctl: usage: --by wants op, process or kernel, not '\\x1b[2J'");
    EXPECT_EQ(why({"waits", "-n", "010"}), "ingeroctl: usage: --limit wants a whole number from 1 to 1000, not '010'");
    EXPECT_EQ(why({"stats", "--pid"}), "ingeroctl: usage: --pid wants a value");
    EXPECT_EQ(why({"explain", "--verify", ""}), "ingeroctl: usage: --verify wants a value, not an empty one");
    EXPECT_EQ(why({"waits", "--by", "op"}), "ingeroctl: usage: --by wants thread or wait, not 'op'");
    EXPECT_EQ(why({"waits", "--tid", "x"}), "ingeroctl: usage: --tid wants a thread number, not 'x'");
    EXPECT_EQ(why({"stats", "--from", "14:00", "--since", "5m"}),
              "ingeroctl: usage: --since and --from exclude each other");
    EXPECT_EQ(why({"query", "--by-request", "-n", "10001"}), "ingeroctl: query: --limit wants at most 10000 requests");
    EXPECT_EQ(why({"stats", "--pid", "1", "-p", "2"}), "ingeroctl: usage: --pid is given more than once");
    EXPECT_EQ(why({"explain", "--diff", "5m"}), "ingeroctl: usage: --diff wants 2 values");
    EXPECT_EQ(why({"status", "extra"}), "ingeroctl: usage: unexpected word 'extra' after 'status'");
    EXPECT_EQ(why({}), "ingeroctl: usage: a command is missing");
    EXPECT_EQ(why({"stats", "--since", "soon"}), "ingeroctl: stats: --since: neither a duration nor a time: 'soon'");
    EXPECT_EQ(why({"stats", "--to", "14:00"}), "ingeroctl: stats: --to: it needs a window that begins at a time");
}

TEST(Ctl, HelpOfACommandComesBeforeOrBehindIt) {
    for (const std::string command : {"stats", "explain"}) {
        const Outcome before = run({"help", command});
        EXPECT_EQ(before.exit_code, 0);
        EXPECT_EQ(before.out, run({command, "--help"}).out);
    }
    EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
    EXPECT_EQ(run({"--no-pager", "help", "stats"}).out, run({"stats", "--help"}).out);
    for (const char* command : {"annotate", "record"}) {
        const Outcome outcome = run({"help", command, "echo", "RAN"});
        EXPECT_THAT(outcome.out, HasSubstr("Usage: ingeroctl " + std::string(command)));
        EXPECT_THAT(outcome.out, Not(HasSubstr("RAN"))) << "help runs nothing";
    }
    EXPECT_EQ(run({"help", "nope"}).exit_code, 2);
}

TEST(Ctl, ARecordingThatIsNamedAsAWordIsToldHowToAskIt) {
    for (const std::string recording : {"demo:straggler", "/tmp"})
        EXPECT_EQ(run({"explain", recording}).err,
                  "ingeroctl: usage: unexpected word '" + recording + "' after 'explain'\n" +
                      "hint: to ask a recording: ingeroctl --db " + recording + " explain\n");
}

TEST(Ctl, AMistypedScenarioIsToldWithWhatMayBeMeant) {
    const std::string why =
        "there is no recorded scenario 'cpu-contentoin'; did you mean 'cpu-contention'?\n"
        "hint: 'ingeroctl demo' lists them\n";
    EXPECT_EQ(run({"demo", "cpu-contentoin"}).err, "ingeroctl: demo: " + why);
    EXPECT_EQ(run({"--db", "demo:cpu-contentoin", "explain"}).err, "ingeroctl: explain: " + why);
    EXPECT_THAT(run({"demo", "nope"}).err, HasSubstr("there is no recorded scenario 'nope'\nhint: "));
}

// By the name that was typed.
TEST(Ctl, AStoreThatCannotBeOpenedIsToldWithWhatIsWanted) {
    const Outcome outcome = run({"--db", "/nonexistent", "explain", "--verify", "a"});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.err,
              "ingeroctl: explain: cannot open /nonexistent: No such file or directory\n"
              "hint: name the directory of a closed store, a SQLite trace, or demo:SCENARIO\n");
}

// An incident of a process whose pid another has now.
TEST(Ctl, TopChargesNoProcessWithWhatWasBeforeIt) {
    LoopThread server;
    server.on_loop([&] {
        server.backend().status_answer = answer_of("status", {{"state", "tracing"}});
        server.backend().processes_answer =
            answer_of("processes", {{"processes", {{{"pid", 10}, {"comm", "new"}, {"start_time_ns", 1'500}}}}});
    });
    server.answer_with([](const std::string& method, const json&) -> Result<json> {
        if (method == "query") return fail(ErrorCode::limit, "too much");
        if (method != "incidents") return answer_of(method, {{"ops", json::array()}});
        json incidents = json::array();
        for (const uint64_t opened_ns : {1'200u, 1'600u})
            incidents.push_back({{"id", std::to_string(opened_ns)},
                                 {"pid", 10},
                                 {"opened_ns", opened_ns},
                                 {"closed_ns", nullptr},
                                 {"lost_ns", opened_ns}});
        incidents.push_back(
            {{"id", "closed"}, {"pid", 10}, {"opened_ns", 1'700}, {"closed_ns", 1'800}, {"lost_ns", 1}});
        return answer_of(method, {{"incidents", incidents}});
    });
    const Outcome outcome = run({"--socket", server.path(), "--json", "top", "--once"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const json looked = json::parse(outcome.out);
    EXPECT_EQ(looked["processes"][0]["lost_ns"], 1'600);
    ASSERT_EQ(looked["incidents"].size(), 2u);
    EXPECT_EQ(looked["incidents"][0]["id"], "1200");
    EXPECT_EQ(looked["incidents"][0]["pid"], nullptr);
    EXPECT_EQ(looked["incidents"][1]["pid"], 10);
    EXPECT_EQ(looked["in_flight"], json::array());
    EXPECT_EQ(looked["requests"], nullptr) << "the rest stands without them";
}

TEST(Ctl, ARequestThatIsNotThereIsSaid) {
    LoopThread server;
    server.answer_with([](const std::string&, const json& params) -> Result<json> {
        const bool named = params.contains("request");
        return answer_of("requests", {{"requests", json::array()}, {"found", named ? 0 : 12}});
    });
    const Outcome outcome = run({"--socket", server.path(), "requests", "--request", "no\x1bpe"});
    EXPECT_EQ(outcome.exit_code, 5);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("there is no request no\\x1bpe in this window; it has 12 others\nhint: "));
    EXPECT_THAT(run({"--socket", server.path(), "explain", "--by-step", "--request", "a", "--slower-than", "2s"}).err,
                HasSubstr("there is no step a that took at least 2s in this window"));
    const Outcome as_json = run({"--socket", server.path(), "--json", "requests", "--request", "nope"});
    EXPECT_EQ(as_json.exit_code, 5);
    EXPECT_EQ(json::parse(as_json.out)["requests"], json::array());
    EXPECT_EQ(run({"--socket", server.path(), "requests"}).exit_code, 0);
}

TEST(Ctl, HelpAndVersionGoToStdoutAndAreDone) {
    const Outcome help = run({"--help"});
    EXPECT_EQ(help.exit_code, 0);
    for (const char* word : {"status", "processes", "stats", "explain", "--socket", "--json", "INGERO_SOCKET",
                             "/run/ingerod/control.sock", "4 no daemon or not ready"})
        EXPECT_THAT(help.out, HasSubstr(word));
    EXPECT_EQ(run({"--version"}).out, "ingeroctl " INGERO_VERSION "\n");
    EXPECT_THAT(run({"explain", "--help"}).out, HasSubstr("--fail-on"));
}

TEST(Ctl, HelpIsGroupedFitsATerminalAndHasExamples) {
    const std::string help = run({"--help"}).out;
    for (const char* title : {"\nAsk why:\n  explain ", "\nLook:\n  status ", "\nRequests and steps:\n  requests ",
                              "\nWhat is stored:\n  query ", "\nSet up and learn:\n  check ", "\nOptions:\n"})
        EXPECT_THAT(help, HasSubstr(title));
    EXPECT_LT(help.find("\nAsk why:"), help.find("\nOptions:"));
    std::istringstream lines(help + run({"explain", "--help"}).out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
    for (const char* command : {"status", "processes", "probes", "gpus", "stats", "stacks", "waits", "explain", "query",
                                "requests", "record", "export", "db", "mcp"})
        EXPECT_THAT(run({command, "--help"}).out, HasSubstr("\nExamples:\n  ")) << command;
}

TEST(Ctl, TimesAreInUtcWhereThatIsWanted) {
    LoopThread server;
    json asked;
    server.answer_with([&](const std::string& method, const json& params) -> Result<json> {
        asked = params;
        json answer = answer_of(method, {{"ops", json::array()}});
        answer["window"] = {{"from_ns", 1'700'000'000'000'000'000}, {"to_ns", 1'700'000'060'000'000'000}};
        return answer;
    });
    const auto stats = [&](std::vector<std::string> options) {
        options.insert(options.begin(), {"--socket", server.path(), "stats", "--from", "2023-11-14 22:13:20"});
        return run(options, {"TZ=XYZ-5"}).out;
    };
    EXPECT_THAT(stats({}), HasSubstr("2023-11-15T03:13:20.000+05:00"));
    EXPECT_EQ(asked["from_ns"], 1'699'982'000'000'000'000);
    EXPECT_THAT(stats({"--utc"}), HasSubstr("2023-11-14T22:13:20.000+00:00"));
    EXPECT_EQ(asked["from_ns"], 1'700'000'000'000'000'000) << "a time that is printed can be given";
}

TEST(Ctl, ExplainExitsWithThreeAtOrAboveTheGivenSeverity) {
    LoopThread server;
    const auto exit_code = [&](const json& answer, std::vector<std::string> options) {
        server.answer_with([answer](const std::string&, const json&) -> Result<json> { return answer; });
        options.insert(options.begin(), {"--socket", server.path(), "explain"});
        return run(options).exit_code;
    };
    EXPECT_EQ(exit_code(explain_with("medium"), {}), 0);
    EXPECT_EQ(exit_code(explain_with("medium"), {"--fail-on", "low"}), 3);
    EXPECT_EQ(exit_code(explain_with("medium"), {"--fail-on", "medium"}), 3);
    EXPECT_EQ(exit_code(explain_with("medium"), {"--fail-on", "high"}), 0);
    EXPECT_EQ(exit_code(explain_with("new-severity"), {"--fail-on", "high"}), 3);
    EXPECT_EQ(exit_code(explain_with(""), {"--fail-on", "low"}), 0);
    EXPECT_EQ(exit_code(explain_with("", false), {"--fail-on", "low"}), 5) << "nothing found where not all was seen";
    EXPECT_EQ(exit_code(explain_with("", false), {}), 0);
}

TEST(Ctl, AnAnswerAboutNothingCoveredIsPartial) {
    LoopThread server;
    server.answer_with([](const std::string& method, const json&) -> Result<json> {
        return answer_of(method, {{"ops", json::array()}}, false,
                         {{{"from_ns", 1000}, {"to_ns", 2000}, {"reason", "down"}}});
    });
    const Outcome outcome = run({"--socket", server.path(), "stats"});
    EXPECT_EQ(outcome.exit_code, 5);
    EXPECT_THAT(outcome.out, HasSubstr(": nothing recorded (--coverage)\n"));
}

TEST(Ctl, AnErrorOfTheDaemonIsOneAndItsTextIsEscaped) {
    LoopThread server;
    server.answer_with([](const std::string&, const json&) -> Result<json> {
        return fail(ErrorCode::not_found, "no such pid \x1b[31m", "try\nagain");
    });
    const Outcome outcome = run({"--socket", server.path(), "explain"});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.err, "ingeroctl: explain: no such pid \\x1b[31m\nhint: try\\nagain\n");
}

TEST(Ctl, AFullDiskIsAFailureAndNotSilence) {
    LoopThread server;
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full < 0) GTEST_SKIP() << "no /dev/full here";
    close(full);
    const std::string line = std::string(INGEROCTL) + " --socket " + server.path() + " status > /dev/full";
    EXPECT_EQ(WEXITSTATUS(std::system(line.c_str())), 1);
}

}  // namespace
}  // namespace ingero
