// ingeroctl monitor: what it prints of what the bus tells, and how it ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "test_paths.h"
#include "tests/support/bus.h"
#include "tests/support/bus_daemon.h"

namespace ingero::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using What = IncidentChange::What;

class Monitor : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << why;
        bus_ = std::make_unique<PrivateBus>();
        start_daemon();
    }
    void start_daemon() {
        daemon_ = std::make_unique<BusDaemon>();
        ASSERT_TRUE(daemon_->wait_connected());
    }
    void open(const std::string& id, const std::string& summary = "lost 1 ms") {
        Incident incident = make_incident(id);
        incident.summary = summary;
        daemon_->tell(What::opened, incident);
    }

    std::unique_ptr<PrivateBus> bus_;
    std::unique_ptr<BusDaemon> daemon_;
};

/// The monitor with its two outputs in one, so that a test can wait for what it says on either.
class Running : public Child {
  public:
    explicit Running(std::vector<std::string> arguments = {}) : Child(command(std::move(arguments))) {
        if (!wait_for_line("ingerod is on the bus")) ADD_FAILURE() << "monitor did not get ready: " << output();
    }

  private:
    static std::vector<std::string> command(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh", INGEROCTL_PROGRAM, "monitor"});
        return arguments;
    }
};

TEST_F(Monitor, PrintsALineASignalAndEscapesIt) {
    Running monitor({"--count", "6"});
    const auto expect = [&](const std::string& text) { EXPECT_TRUE(monitor.wait_for_line(text)) << monitor.output(); };
    const Incident incident = make_incident("00000000000000aa", 1'200'000'000);
    open("00000000000000aa", "lost 1 ms to \x1b[31mred\nline");
    expect("incident-opened     high    cpu-contention: lost 1 ms to \\x1b[31mred\\nline (00000000000000aa)");
    daemon_->tell(What::updated, incident);
    expect("incident-updated    high    00000000000000aa: lost 1.2 s, 50 % explained");
    daemon_->tell(What::closed, incident);
    expect("incident-closed     high    00000000000000aa: lost 1.2 s in all");
    daemon_->on_loop([&] {
        daemon_->service().straggler_detected({"s1", "local", "rank 3 (python, pid 7)", 5'000'000, 1'000'000, 1, {}});
    });
    expect("straggler-detected  -       rank 3 (python, pid 7) (local): late by 5 ms (s1)");
    daemon_->on_loop([&] { daemon_->service().straggler_resolved("s1", 9); });
    expect("straggler-resolved  -       s1");
    daemon_->on_loop([&] {
        daemon_->backend().current.events_lost = 12;
        daemon_->service().changed();
    });
    expect("events-lost         -       12 events lost so far");
    EXPECT_EQ(monitor.wait(), 0);
}

TEST_F(Monitor, JsonLinesKeepToTheirSchema) {
    Running monitor({"--json", "--count", "2"});
    open("1");
    const auto line = monitor.read_line();
    ASSERT_TRUE(line);
    daemon_->tell(What::updated, make_incident("2"));
    const auto second = monitor.read_line();
    ASSERT_TRUE(second);
    EXPECT_EQ(monitor.wait(), 0);
    EXPECT_EQ(json::parse(*line)["event"], "incident-opened");
    TemporaryDirectory directory;
    for (const auto& one : {line, second}) {
        std::ofstream(directory / "line.json") << *one;
        const Finished valid = run({"/usr/bin/python3", VALIDATE_SCHEMA,
                                    std::string(SCHEMA_DIRECTORY) + "/monitor.schema.json", directory / "line.json"});
        if (valid.status == 77) GTEST_SKIP() << valid.errors;
        EXPECT_EQ(valid.status, 0) << *one << valid.errors;
    }
}

TEST_F(Monitor, GoesOnWhenTheDaemonComesBack) {
    Running monitor({"--count", "1"});
    daemon_.reset();
    EXPECT_TRUE(monitor.wait_for_line("ingerod is not running on the bus"));
    start_daemon();
    EXPECT_TRUE(monitor.wait_for_line("ingerod is on the bus"));
    open("bb");
    EXPECT_TRUE(monitor.wait_for_line("incident-opened"));
    EXPECT_EQ(monitor.wait(), 0);
}

TEST_F(Monitor, GoesOnWhenTheBusComesBack) {
    Running monitor({"--count", "1"});
    bus_->kill();
    EXPECT_TRUE(monitor.wait_for_line("the connection to the system bus is lost"));
    bus_->start();
    EXPECT_TRUE(monitor.wait_for_line("ingerod is on the bus"));
    open("cc");
    EXPECT_TRUE(monitor.wait_for_line("incident-opened"));
}

/// The name that a process has on the bus.
std::string unique_name(int pid) {
    std::istringstream names(busctl({"list", "--unique", "--no-legend"}).output);
    for (std::string line; std::getline(names, line);) {
        std::istringstream words(line);
        std::string name;
        int owner = 0;
        if (words >> name >> owner && owner == pid) return name;
    }
    return {};
}

TEST_F(Monitor, SignalsOfOthersAreNotBelieved) {
    Running monitor({"--count", "1"});
    // Sent to it alone, past the match rules of the bus.
    const Finished forged = busctl({"emit", "--destination=" + unique_name(monitor.pid()), "/io/ingero/Ingero1",
                                    "io.ingero.Ingero1", "IncidentClosed", "sstt", "forged", "high", "1", "1"});
    EXPECT_EQ(forged.status, 0) << forged.errors;
    open("dd");
    EXPECT_TRUE(monitor.wait_for_line("incident-opened"));
    EXPECT_THAT(monitor.output(), Not(HasSubstr("forged")));
}

TEST_F(Monitor, EndsWellOnASignal) {
    for (const int number : {SIGINT, SIGTERM}) {
        Running monitor;
        monitor.signal(number);
        EXPECT_EQ(monitor.wait(), 0);
    }
}

TEST_F(Monitor, EndsWhenNobodyReadsItAnyMore) {
    Child monitor({"/bin/sh", "-c", "(\"$@\"; echo ended $? >&2) | true", "sh", INGEROCTL_PROGRAM, "monitor"});
    EXPECT_EQ(monitor.wait(), 0);
    EXPECT_THAT(monitor.errors(), HasSubstr("ended 0"));
}

TEST(MonitorAlone, WithoutABusItSaysSo) {
    const ChildOptions nowhere{.environment = {{"DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent"}}};
    const Finished finished = run({INGEROCTL_PROGRAM, "monitor"}, nowhere);
    EXPECT_EQ(finished.status, 4);
    EXPECT_EQ(finished.output, "");
    EXPECT_THAT(finished.errors, HasSubstr("\nhint: "));
}

}  // namespace
}  // namespace ingero::test
