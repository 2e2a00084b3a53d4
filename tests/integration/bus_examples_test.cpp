// The examples of docs/examples on a real dbus-daemon: what they do with what ingerod tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "test_paths.h"
#include "tests/support/bus.h"
#include "tests/support/bus_daemon.h"

namespace ingero::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using What = IncidentChange::What;

class BusExamples : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << why;
        if (run({"/usr/bin/python3", "-c", "import gi"}).status != 0) GTEST_SKIP() << "SKIPPED: python3-gi is missing";
        bus_ = std::make_unique<PrivateBus>();
        daemon_ =
            std::make_unique<BusDaemon>(BusOptions{.retry = milliseconds(20)}, std::function<void(FakeBusBackend&)>());
        ASSERT_TRUE(daemon_->wait_connected());
    }

    /// Incidents open until the program has said so: it may not listen from the start.
    std::optional<std::string> tell_until(Child& program, const std::string& beginning) {
        Patience limit;
        for (int number = 0; limit.lasts(); ++number) {
            const Incident incident = make_incident("00000000000000" + std::to_string(10 + number % 90));
            daemon_->on_loop([&] {
                daemon_->backend().open = {incident};
                daemon_->service().emit({What::opened, incident});
            });
            if (auto line = program.wait_for_line(beginning, std::chrono::milliseconds(100))) return line;
        }
        return std::nullopt;
    }

    std::unique_ptr<PrivateBus> bus_;
    std::unique_ptr<BusDaemon> daemon_;
};

TEST_F(BusExamples, follow_prints_each_signal_as_a_line) {
    Child follow({"/usr/bin/python3", std::string(EXAMPLES) + "/follow.py"});
    const auto line = tell_until(follow, "{\"signal\": \"IncidentOpened\"");
    ASSERT_TRUE(line) << follow.errors();
    const json told = json::parse(*line);
    EXPECT_EQ(told.at("arguments").at(1), "cpu-contention");
    EXPECT_EQ(told.at("arguments").at(3), "lost 1 ms");
    follow.signal(SIGTERM);
    follow.wait();
}

TEST_F(BusExamples, notify_shows_an_incident_on_the_desktop) {
    Child session({"dbus-daemon", "--session", "--nofork", "--print-address=1"});
    const auto address = session.wait_for_line("unix:");
    ASSERT_TRUE(address) << session.errors();
    const ChildOptions on_session{.environment = {{"DBUS_SESSION_BUS_ADDRESS", *address}}};
    Child desktop({"/usr/bin/python3", NOTIFICATIONS}, on_session);
    ASSERT_TRUE(desktop.wait_for_line("ready")) << desktop.errors();
    Child notify({"/usr/bin/python3", std::string(EXAMPLES) + "/notify.py"}, on_session);
    EXPECT_EQ(tell_until(desktop, "2 cpu-contention: lost 1 ms").value_or(notify.errors()),
              "2 cpu-contention: lost 1 ms");
    for (Child* one : {&notify, &desktop, &session}) {
        one->signal(SIGTERM);
        one->wait();
    }
}

}  // namespace
}  // namespace ingero::test
