// An incident from its beginning to its end and after: shown with what was recorded around it, verified, compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/model/time.h"
#include "test_paths.h"
#include "tests/support/bus.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

class IncidentLife : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    }

    static Finished ingeroctl(Daemon& daemon, std::vector<std::string> arguments) {
        std::vector<std::string> command = {INGEROCTL_PROGRAM, "--socket", daemon.socket()};
        command.insert(command.end(), arguments.begin(), arguments.end());
        return test::run(command);
    }
};

/// The answer, valid by its schema; `status` is the exit code that is awaited.
json valid(const Finished& asked, const std::string& schema, int status, const TemporaryDirectory& directory) {
    EXPECT_EQ(asked.status, status) << asked.errors << asked.output;
    const std::string file = directory / schema + ".json";
    std::ofstream(file) << asked.output;
    const Finished checked = test::run(
        {"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/" + schema + ".schema.json", file});
    if (checked.status != 77) {
        EXPECT_EQ(checked.status, 0) << schema << ": " << checked.errors << asked.output;
    }
    return json::parse(asked.output, nullptr, false);
}

TEST_F(IncidentLife, an_incident_is_shown_with_its_evidence_verified_and_compared) {
    if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << why;
    if (sanitized) GTEST_SKIP() << "timing";
    const TemporaryDirectory directory;
    const PrivateBus bus;
    Subscriber signals;
    std::ofstream(directory / "exact.conf") << "[capture]\noverhead_budget = 0\n[diagnosis]\nclose_after = \"3s\"\n";
    Daemon daemon(directory / "run", {"--bus", "system", "--config", directory / "exact.conf"});
    // No rate is kept: what is lost is not made up for.
    std::vector<std::string> train = {"train", "--duration", "8", "--cpu", "0", "--kernel-us", "100"};
    const std::vector<std::string> well = train;
    // Other load of the host is no lock.
    train.insert(train.end(), {"--standin", "at=cudaLaunchKernel:/500:mutex=20000"});
    Child monitor({"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh", INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json",
                   "monitor"});
    ASSERT_TRUE(monitor.wait_for_line("connected to ingerod"));
    Workload workload(train);
    ASSERT_TRUE(daemon.wait_traced(workload.pid()));
    const auto ask = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), "--json");
        return ingeroctl(daemon, std::move(arguments));
    };
    const auto incidents = [&, pid = std::to_string(workload.pid())] {
        const json all = valid(ask({"incidents", "--pid", pid}), "incidents", 0, directory);
        return all.is_object() ? all["incidents"] : json::array();
    };
    const uint64_t began_ns = ClockTriple::now().realtime_ns;
    json one;
    workload.open_gate();
    while (one.is_null()) {
        ASSERT_TRUE(signals.read_until("IncidentOpened"));
        for (const json& incident : incidents())
            if (incident["kind"] == "lock-wait") one = incident;
    }
    EXPECT_EQ(one["culprits"][0]["name"], "standin-helper");
    EXPECT_TRUE(one["closed_ns"].is_null());
    EXPECT_EQ(workload.finish(), 0) << workload.child().errors();
    const uint64_t ended_ns = ClockTriple::now().realtime_ns;
    const std::string id = one["id"];
    const Finished early = ask({"explain", "--verify", id});
    EXPECT_TRUE(early.status == 3 || early.status == 5) << "it has just ended: " << early.status << early.output;
    // It is closed after three quiet seconds, as of their beginning.
    ASSERT_TRUE(signals.read_until(
        [&](const Subscriber::Signal& signal) { return signal.member == "IncidentClosed" && signal.first == id; }));
    // It is told of before it is stored, and what was recorded around it is kept with it then.
    ASSERT_TRUE(wait_until([&] {
        const json answer = daemon.call(
            "query",
            {{"sql", "SELECT closed_ns, INSTR(finding, '\"detail\"') FROM incidents WHERE id = '" + id + "'"}});
        const json& row = answer.at("rows").at(0);
        return !row.at(0).is_null() && row.at(1) != 0;
    }));
    const json shown = valid(ask({"explain", "--incident", id.substr(0, 10)}), "incident", 0, directory);
    EXPECT_EQ(shown["incident"]["id"], id);
    // The bus, SQL and the answer say the same of it, to the digit.
    const auto& lost_and_end_us = signals.signals().back().numbers;
    ASSERT_EQ(lost_and_end_us.size(), 2u);
    const json rows = valid(ask({"query", "SELECT lost_ns, severity FROM incidents WHERE id = '" + id + "'"}), "query",
                            0, directory)["rows"];
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(shown["incident"]["lost_ns"], rows[0][0]);
    EXPECT_EQ(shown["incident"]["severity"], rows[0][1]);
    EXPECT_EQ(lost_and_end_us[0], rows[0][0].get<uint64_t>() / 1'000);
    // So does the control socket.
    std::vector<std::string> noticed;
    json notice;
    while (noticed.empty() || noticed.back() != "incident-closed") {
        const auto line = monitor.wait_for_line(id);
        ASSERT_TRUE(line) << monitor.output();
        notice = json::parse(*line, nullptr, false);
        ASSERT_TRUE(notice.is_object()) << *line;
        noticed.push_back(notice["event"]);
    }
    EXPECT_EQ(noticed.front(), "incident-opened");
    EXPECT_EQ(notice["lost_ns"], rows[0][0]);
    EXPECT_EQ(notice["at_ns"].get<uint64_t>() / 1'000, lost_and_end_us[1]);
    monitor.signal(SIGTERM);
    EXPECT_EQ(monitor.wait(), 0);
    EXPECT_FALSE(shown["detail"]["rows"].empty());
    EXPECT_FALSE(shown["detail"]["evidence"].empty());
    EXPECT_FALSE(shown["detail"]["chains"].empty());
    bool worst = false;
    for (const json& row : shown["detail"]["rows"]) worst |= row["worst"] == true;
    EXPECT_TRUE(worst) << shown["detail"]["rows"];
    const json kept =
        valid(ask({"query", "SELECT finding FROM incidents WHERE id = '" + id + "'"}), "query", 0, directory);
    const json finding = json::parse(kept["rows"][0][0].get<std::string>(), nullptr, false);
    ASSERT_TRUE(finding.is_object());
    EXPECT_FALSE(finding["detail"]["rows"].empty()) << "what was recorded around it is kept with it";

    const uint64_t again_ns = ClockTriple::now().realtime_ns;
    std::vector<std::string> longer = well;
    longer[2] = "13";
    Workload second(longer);
    ASSERT_TRUE(daemon.wait_traced(second.pid()));
    second.open_gate();
    EXPECT_EQ(second.finish(), 0) << second.child().errors();
    const json late = valid(ask({"explain", "--verify", id}), "incident-verify", 0, directory);
    EXPECT_EQ(late["state"], "fixed") << late;
    const auto window = [](uint64_t from_ns, uint64_t to_ns) {
        return format_time(from_ns) + ".." + format_time(to_ns);
    };
    const json diff =
        valid(ask({"explain", "--diff", window(began_ns, ended_ns), window(again_ns, ClockTriple::now().realtime_ns)}),
              "explain-diff", 0, directory);
    json lock;
    for (const json& cause : diff["causes"])
        if (cause["cause"] == "lock-wait") lock = cause;
    ASSERT_TRUE(lock.is_object()) << diff["causes"];
    EXPECT_LT(lock["change_ns"], 0);
    EXPECT_EQ(lock["certain"], true) << lock;
    for (const char* view : {"--per-process", "--per-gpu"}) {
        const Finished text = ingeroctl(daemon, {"explain", view});
        EXPECT_EQ(text.status, 0) << text.errors;
        EXPECT_NE(text.output.find("lock-wait"), std::string::npos) << text.output;
    }
    // On a busy host the lock's incident may have closed and another have opened: any of them is the finding's.
    const Finished told = ingeroctl(daemon, {"explain", "--since", "10m"});
    const json opened = incidents();
    EXPECT_TRUE(std::ranges::any_of(
        opened,
        [&](const json& incident) {
            const std::string check = "ingeroctl explain --verify " + incident["id"].get<std::string>().substr(0, 8);
            return incident["kind"] == "lock-wait" && told.output.find(check) != std::string::npos;
        }))
        << told.output << opened;
    EXPECT_EQ(ingeroctl(daemon, {"explain", "--incident", "nonsense"}).status, 1);
    EXPECT_EQ(ingeroctl(daemon, {"explain", "--incident", id, "--per-gpu"}).status, 2);
    EXPECT_EQ(daemon.stop(), 0);
}

}  // namespace
