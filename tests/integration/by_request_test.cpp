// The question that brings people here, end to end: an engine serves, the plug-in tells of its requests, and
// `explain --by-request` says which were slow and what held them up.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <vector>

#include "core/model/op.h"
#include "test_paths.h"
#include "tests/support/bus.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

constexpr uint64_t requests = 200;
/// Between the clocks that the log and an answer are told by.
constexpr uint64_t margin_ns = 100'000;

/// What each of the injected faults is, by the op that it held up.
constexpr const char* faults =
    "sync=block,kernel_us=300,at=cudaMalloc:40:mutex=400000,at=cudaMalloc:90:socket=500000,"
    "at=cudaMalloc:150:timer=600000";

struct Bounds {
    uint64_t certain = 0, possible = 0;
};

class ByRequest : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        std::filesystem::create_directory(directory_ / "logs");
        std::filesystem::permissions(directory_ / "logs", std::filesystem::perms::all);
    }

    /// Serves to the end; what the server printed last.
    json serve(Daemon& daemon, uint64_t count, int completions, const std::string& standin, int& ret_engine,
               std::optional<uint32_t> uid = {}) {
        Child server({"/usr/bin/python3", "-B", SERVE, CUDART13_LIBRARY, std::to_string(count), EMITTER_SOURCE,
                      std::to_string(completions)},
                     {.environment = {{"INGERO_STANDIN", standin},
                                      {"INGERO_STANDIN_LOG", directory_ / "logs/truth-%p"},
                                      {"INGERO_SPANS_SOCKET", directory_ / "run" + "/spans.sock"}},
                      .uid = uid,
                      .drop_capabilities = false,
                      .wanted_pid = {}});
        const auto engine = server.read_line();
        if (!engine) return ADD_FAILURE() << server.errors(), json();
        ret_engine = std::stoi(*engine);
        EXPECT_TRUE(daemon.wait_traced(ret_engine));
        server.write_line("go");
        const auto last = server.read_line(milliseconds(120'000));
        EXPECT_EQ(server.wait(), 0) << server.errors();
        return last ? json::parse(*last) : (ADD_FAILURE() << server.errors(), json());
    }

    json ask(Daemon& daemon, std::vector<std::string> command, std::optional<uint32_t> uid = {}, int status = 0) {
        command.insert(command.begin(), {INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json"});
        ChildOptions who;
        who.uid = uid;
        const Finished finished = run(command, who);
        EXPECT_EQ(finished.status, status) << finished.errors << finished.output;
        return json::parse(finished.output, nullptr, false);
    }

    void validate(const json& answer) {
        std::ofstream(directory_ / "answer.json") << answer.dump();
        const Finished checked =
            run({"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/requests.schema.json",
                 directory_ / "answer.json"});
        EXPECT_EQ(checked.status, 0) << checked.errors << checked.output;
    }

    const TemporaryDirectory directory_;
};

/// Outermost calls of a class that overlap the interval. A thread may lose its CPU between a probe's clock and the
/// log's: as the probes tell it, a call begins at any time from the end of the one before, and ends by the next one's
/// start.
Bounds overlapping(const standin::GroundTruth& log, OpClass op_class, uint64_t from_ns, uint64_t to_ns) {
    std::map<uint32_t, std::vector<const standin::Record*>> threads;
    for (const standin::Record& record : log.records())
        if (standin::finished(record) && record.depth == 0) threads[record.tid].push_back(&record);
    Bounds bounds;
    for (auto& [tid, calls] : threads) {
        std::sort(calls.begin(), calls.end(), [](const auto* a, const auto* b) { return a->start_ns < b->start_ns; });
        for (size_t i = 0; i < calls.size(); ++i) {
            const auto op = op_of_function(log.name(*calls[i]));
            const Op* known = op ? find_op(*op) : nullptr;
            if (!known || known->op_class != op_class) continue;
            const uint64_t soonest = i == 0 ? 0 : calls[i - 1]->end_ns;
            const uint64_t latest = i + 1 == calls.size() ? UINT64_MAX : calls[i + 1]->start_ns;
            bounds.certain += calls[i]->start_ns + margin_ns < to_ns && calls[i]->end_ns > from_ns + margin_ns;
            bounds.possible += soonest < to_ns + margin_ns && latest > from_ns - margin_ns;
        }
    }
    return bounds;
}

TEST_F(ByRequest, the_three_slow_ones_come_first_with_what_held_them_up) {
    Daemon daemon(directory_ / "run");
    int engine = 0;
    const json result = serve(daemon, requests, 1, faults, engine);
    ASSERT_TRUE(result.is_object());
    ASSERT_EQ(result["held_up"].size(), 3u) << result;
    EXPECT_EQ(result["stats"]["rejected"], json::object()) << result;

    daemon.call_when_stored("stats", {{"since_ns", 600'000'000'000}});
    const json answer = ask(daemon, {"explain", "--by-request", "--limit", "1000"});
    validate(answer);
    EXPECT_EQ(answer["found"], requests);
    ASSERT_EQ(answer["requests"].size(), requests);
    const json& rows = answer["requests"];
    for (size_t i = 1; i < rows.size(); ++i)
        EXPECT_GE(rows[i - 1]["rank_by_ns"].get<uint64_t>(), rows[i]["rank_by_ns"].get<uint64_t>());
    std::set<std::string> first, held_up;
    for (const json& id : result["held_up"]) held_up.insert(id.get<std::string>());
    std::vector<std::string> kinds;
    for (size_t i = 0; i < 3; ++i) {
        first.insert(rows[i]["id"].get<std::string>());
        const json& stall = rows[i]["longest_stall"];
        ASSERT_FALSE(stall.is_null()) << rows[i];
        EXPECT_EQ(stall["op"], "cudaMalloc") << rows[i];
        EXPECT_GE(stall["ns"].get<uint64_t>(), 390'000'000u);
        kinds.push_back(stall["kind"].get<std::string>());
    }
    EXPECT_EQ(first, held_up);
    EXPECT_EQ(kinds, (std::vector<std::string>{"waiting for a timer, child or pipe", "network", "lock-wait"}));

    // The same are a finding, each with what stalled it.
    const json explained = ask(daemon, {"explain"});
    const json* slow = nullptr;
    for (const json& finding : explained["findings"])
        if (finding["kind"] == "slow-request") slow = &finding;
    ASSERT_NE(slow, nullptr) << explained;
    EXPECT_EQ((*slow)["verdict"], "proven") << *slow;
    // Where the host stalls others too, they come later.
    ASSERT_GE((*slow)["culprits"].size(), 3u) << *slow;
    for (size_t i = 0; i < 3; ++i) {
        const std::string name = (*slow)["culprits"][i]["name"];
        const std::string id = name.substr(sizeof("request ") - 1, name.find(':') - sizeof("request ") + 1);
        EXPECT_TRUE(held_up.contains(id)) << name;
        EXPECT_NE(name.find("in cudaMalloc"), std::string::npos) << name;
    }

    // Each count is the log's, a call that several requests share counted in each.
    const auto log = standin::GroundTruth::open(directory_ / ("logs/truth-" + std::to_string(engine)));
    ASSERT_TRUE(log);
    const ClockTriple now = ClockTriple::now();
    uint64_t launches = 0, made = 0;
    for (const standin::Record& record : log->records()) made += log->name(record) == "cudaLaunchKernel";
    for (const json& row : rows) {
        const uint64_t from = now.to_monotonic(row["start_ns"]), to = from + row["rank_by_ns"].get<uint64_t>();
        for (const auto& [name, op_class] : {std::pair<const char*, OpClass>{"launches", OpClass::launch},
                                             {"syncs", OpClass::sync},
                                             {"allocations", OpClass::alloc}}) {
            const Bounds bounds = overlapping(*log, op_class, from, to);
            const uint64_t counted = row["events"][name];
            EXPECT_GE(counted, bounds.certain) << name << " of " << row["id"];
            EXPECT_LE(counted, bounds.possible) << name << " of " << row["id"];
        }
        EXPECT_TRUE(row["events"]["collectives"].is_null());
        launches += row["events"]["launches"].get<uint64_t>();
    }
    EXPECT_GT(launches, made) << "shared ones count in each";
    std::cout << made << " launches, counted " << launches << " times; the three: " << rows[0]["rank_by_ns"] << ", "
              << rows[1]["rank_by_ns"] << ", " << rows[2]["rank_by_ns"] << " ns, then " << rows[3]["rank_by_ns"]
              << "\n";

    // In text, the notes stand once, below the rows; the short name shows the same.
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"explain", "--by-request"}, {"requests"}, {"query", "--by-request"}}) {
        std::vector<std::string> whole = {INGEROCTL_PROGRAM, "--socket", daemon.socket()};
        whole.insert(whole.end(), command.begin(), command.end());
        const Finished text = run(whole);
        EXPECT_EQ(text.status, 0) << text.errors;
        const std::string last_of_note = "Do not sum these counts across rows.";
        const size_t note = text.output.find(last_of_note), row = text.output.find(rows[0]["id"].get<std::string>());
        EXPECT_NE(note, std::string::npos) << text.output;
        EXPECT_EQ(note, text.output.rfind(last_of_note));
        EXPECT_LT(row, note) << text.output;
    }
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
}

TEST_F(ByRequest, light_ones_behind_a_heavy_one_name_it) {
    Daemon daemon(directory_ / "run");
    int engine = 0;
    ASSERT_TRUE(serve(daemon, 60, 8, "sync=block,kernel_us=300", engine).is_object());
    daemon.call_when_stored("stats", {{"since_ns", 600'000'000'000}});
    const json answer = ask(daemon, {"requests", "--limit", "1000"});
    ASSERT_EQ(answer["found"], 60u) << "the eight completions of one are one request";
    uint64_t heavy_from = 0, heavy_to = UINT64_MAX;
    for (const json& row : answer["requests"]) {
        if (row["id"] != "request-20") continue;
        heavy_from = std::max(heavy_from, row["start_ns"].get<uint64_t>());
        heavy_to = std::min(heavy_to, row["start_ns"].get<uint64_t>() + row["rank_by_ns"].get<uint64_t>());
    }
    ASSERT_LT(heavy_from, heavy_to);
    int light = 0;
    for (const json& row : answer["requests"]) {
        const uint64_t from = row["start_ns"], to = from + row["rank_by_ns"].get<uint64_t>();
        if (row["id"] == "request-20" || from < heavy_from || to > heavy_to) continue;
        ++light;
        ASSERT_FALSE(row["occupied_by"].empty()) << row;
        EXPECT_EQ(row["occupied_by"][0]["id"], "request-20") << row;
    }
    EXPECT_GT(light, 10);
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
}

TEST_F(ByRequest, each_user_sees_the_requests_of_their_own_processes_and_root_all) {
    if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << why;
    // A bus knows only users that have a name.
    constexpr uint32_t owner = 65'534, stranger = 1;
    const PrivateBus bus;
    Subscriber owners("interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='io.ingero.Ingero1'");
    Daemon daemon(directory_ / "run", {"--bus", "system"});
    ASSERT_TRUE(owners.read_until("NameOwnerChanged"));
    int engine = 0;
    ASSERT_TRUE(serve(daemon, 20, 1, "sync=block,kernel_us=300", engine, owner).is_object());
    ASSERT_TRUE(serve(daemon, 30, 1, "sync=block,kernel_us=300", engine).is_object());
    constexpr uint64_t of_owner = 20, of_all = 50;
    const auto on_the_bus = [](std::optional<uint32_t> uid) {
        ChildOptions who;
        who.uid = uid;
        const Finished finished = busctl({"--json=short", "call", "io.ingero.Ingero1", "/io/ingero/Ingero1",
                                          "io.ingero.Ingero1", "GetRequests", "tta{sv}", "0", "0", "0"},
                                         who);
        EXPECT_EQ(finished.status, 0) << finished.errors;
        const json reply = json::parse(finished.output, nullptr, false);
        return reply.is_object() ? json::parse(reply["data"][0].get<std::string>()) : json::object();
    };
    const auto rows_of = [&](const std::string& table, std::optional<uint32_t> uid) {
        return ask(daemon, {"query", "SELECT COUNT(*), COUNT(DISTINCT pid) FROM " + table}, uid)["rows"][0];
    };
    for (const auto& [uid, seen] :
         std::map<std::optional<uint32_t>, uint64_t>{{std::nullopt, of_all}, {owner, of_owner}, {stranger, 0}}) {
        SCOPED_TRACE(uid ? std::to_string(*uid) : "root");
        EXPECT_EQ(ask(daemon, {"explain", "--by-request"}, uid)["found"], seen);
        EXPECT_EQ(on_the_bus(uid)["found"], seen);
        EXPECT_EQ(rows_of("requests", uid)[0], seen);
        EXPECT_EQ(rows_of("spans WHERE kind = 'request'", uid)[0], seen);
        EXPECT_EQ(rows_of("request_events", uid)[1], seen == of_all ? 2 : seen == of_owner ? 1 : 0);
        const bool sees_it = seen == of_all;
        EXPECT_EQ(ask(daemon, {"requests", "--request", "request-25"}, uid, sees_it ? 0 : 5)["found"], sees_it ? 1 : 0);
    }
    // What tells of the others' time tells nothing of their names.
    const std::string told = ask(daemon, {"explain", "--by-request"}, owner).dump();
    EXPECT_EQ(told.find("request-25"), std::string::npos) << told;
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
}

}  // namespace
