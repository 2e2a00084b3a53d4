// ingerod on a real dbus-daemon: what the interface says, who gets what, and a bus that goes and comes. The daemon
// behind it is a stand-in, the bus service is not.

#include "tests/support/bus.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <set>
#include <sstream>

#include "test_paths.h"
#include "tests/support/bus_daemon.h"

namespace ingero::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using What = IncidentChange::What;

constexpr uint32_t nobody = 65534;
constexpr const char* query_action = "io.ingero.ingero1.query";
constexpr const char* manage_action = "io.ingero.ingero1.manage";
const ChildOptions as_nobody{.environment = {}, .uid = nobody};

PublicProcess process(uint32_t pid, uint32_t uid, const std::string& comm = "python") {
    return {{pid, pid * 1'000ull}, uid, comm, "train.service", "", "tracing"};
}

class Bus : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << why;
        bus_ = std::make_unique<PrivateBus>();
    }

    void start(const std::function<void(FakeBusBackend&)>& prepare = {}) {
        daemon_ = std::make_unique<BusDaemon>(BusOptions{.retry = milliseconds(20)}, prepare);
        ASSERT_TRUE(daemon_->wait_connected());
    }
    void start_with_processes() {
        start([](FakeBusBackend& backend) {
            backend.traced = {process(100, 0), process(200, nobody, "theirs")};
            backend.sets = {{"/usr/lib/libcudart.so", "launch", true}};
            backend.open = {make_incident("00000000000000aa")};
        });
    }

    std::unique_ptr<PrivateBus> bus_;
    std::unique_ptr<BusDaemon> daemon_;
};

#define SKIP_UNLESS_ROOT() \
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to call as another user"

/// The answer's JSON text in what busctl prints: s "…".
json json_answer(const Finished& finished) {
    if (finished.status != 0) return finished.errors;
    const size_t begin = finished.output.find('"');
    return json::parse(json::parse(finished.output.substr(begin)).get<std::string>());
}

Finished explain(std::vector<std::string> options, const ChildOptions& who = {}) {
    options.insert(options.begin(), {"Explain", "tta{sv}", "0", "0"});
    return call_manager(options, who);
}

TEST_F(Bus, IsWhatItsXmlSaysAndAnswersAPythonClient) {
    start_with_processes();
    const Finished finished = run({"/usr/bin/python3", BUS_CLIENT, DBUS_DIRECTORY});
    if (finished.status == 77) GTEST_SKIP() << finished.errors;
    EXPECT_EQ(finished.status, 0) << finished.errors << finished.output;
}

TEST_F(Bus, ObjectsComeAndGoWithProcessesAndIncidents) {
    start();
    Subscriber subscriber("interface='org.freedesktop.DBus.ObjectManager'");
    daemon_->on_loop([&] {
        daemon_->backend().traced = {process(7, 0)};
        daemon_->service().changed();
    });
    ASSERT_TRUE(subscriber.read_until("InterfacesAdded"));
    EXPECT_EQ(subscriber.signals().back().first, "/io/ingero/Ingero1/process/7_7000");
    Subscriber properties("interface='org.freedesktop.DBus.Properties'");
    daemon_->on_loop([&] {
        daemon_->backend().traced[0].state = "failed";
        daemon_->service().changed();
    });
    ASSERT_TRUE(properties.read_until("PropertiesChanged"));
    EXPECT_EQ(properties.signals().back().path, "/io/ingero/Ingero1/process/7_7000");
    daemon_->on_loop([&] {
        daemon_->backend().traced.clear();
        daemon_->service().changed();
    });
    ASSERT_TRUE(subscriber.read_until("InterfacesRemoved"));
    EXPECT_EQ(subscriber.signals().back().first, "/io/ingero/Ingero1/process/7_7000");
    EXPECT_THAT(busctl({"tree", "--list", "io.ingero.Ingero1"}).output, Not(HasSubstr("/process/7_7000")));
}

TEST_F(Bus, AnIncidentIsToldOfOnceItsObjectIsThere) {
    start();
    Subscriber objects("interface='org.freedesktop.DBus.ObjectManager'");
    Subscriber signals;
    const Incident incident = make_incident("00000000000000bb", 5'000'000);
    daemon_->on_loop([&] {
        daemon_->backend().open = {incident};
        daemon_->service().emit({What::opened, incident});
    });
    ASSERT_TRUE(signals.read_until("IncidentOpened"));
    EXPECT_EQ(signals.signals().back().first, incident.id);
    const std::string path = "/io/ingero/Ingero1/incident/" + incident.id;
    const Finished lost = busctl({"get-property", "io.ingero.Ingero1", path, "io.ingero.Ingero1.Incident", "LostUSec"});
    EXPECT_EQ(lost.output, "t 5000\n") << lost.errors;
    daemon_->on_loop([&] {
        daemon_->backend().open.clear();
        daemon_->service().emit({What::closed, incident});
    });
    ASSERT_TRUE(signals.read_until("IncidentClosed"));
    ASSERT_TRUE(objects.read_until("InterfacesRemoved"));
}

TEST_F(Bus, IncidentsInQuickSuccessionAreToldOfOnceTheirObjectsAreThere) {
    start();
    Subscriber subscriber("path_namespace='/io/ingero/Ingero1'");
    constexpr int incidents = 20;
    for (int i = 0; i < incidents; ++i)
        daemon_->on_loop([&] {
            daemon_->backend().open.push_back(make_incident(std::to_string(i)));
            daemon_->service().emit({What::opened, daemon_->backend().open.back()});
        });
    std::set<std::string> added;
    for (int told = 0; told < incidents;) {
        ASSERT_TRUE(subscriber.read_until([](const auto&) { return true; }));
        const Subscriber::Signal& signal = subscriber.signals().back();
        if (signal.member == "InterfacesAdded") added.insert(signal.first);
        if (signal.member != "IncidentOpened") continue;
        EXPECT_TRUE(added.contains("/io/ingero/Ingero1/incident/" + signal.first)) << signal.first;
        ++told;
    }
}

TEST_F(Bus, StateIsSignalledAndCountersAreNot) {
    start();
    Subscriber subscriber("interface='org.freedesktop.DBus.Properties'");
    daemon_->on_loop([&] {
        daemon_->backend().current.events_recorded = 1'000;
        daemon_->service().changed();
    });
    daemon_->on_loop([&] {
        daemon_->backend().current.state = "degraded";
        daemon_->service().changed();
    });
    ASSERT_TRUE(subscriber.read_until("PropertiesChanged"));
    EXPECT_EQ(subscriber.count("PropertiesChanged"), 1u) << "the counter came first and said nothing";
    const auto state =
        busctl({"get-property", "io.ingero.Ingero1", "/io/ingero/Ingero1", "io.ingero.Ingero1", "State"});
    EXPECT_EQ(state.output, "s \"degraded\"\n");
}

TEST_F(Bus, LossesAreToldAtMostOnceASecond) {
    start();
    Subscriber subscriber;
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 1; i <= 100; ++i)
        daemon_->on_loop([&] {
            daemon_->backend().current.events_lost = static_cast<uint64_t>(i);
            daemon_->service().changed();
        });
    ASSERT_TRUE(subscriber.read_until("EventsLostChanged"));
    ASSERT_TRUE(subscriber.read_until("EventsLostChanged"));
    EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(1'000));
    EXPECT_EQ(subscriber.count("EventsLostChanged"), 2u);
}

TEST_F(Bus, StragglersAreTold) {
    start();
    Subscriber subscriber;
    daemon_->on_loop([&] {
        daemon_->service().straggler_detected({"s1", "local", "rank 3 (a\xff, pid 7)", 5'000, 1'000, 1, {{"rank", 3}}});
        daemon_->service().straggler_resolved("s1", 9'000);
    });
    ASSERT_TRUE(subscriber.read_until("StragglerResolved"));
    EXPECT_EQ(subscriber.count("StragglerDetected"), 1u);
}

TEST_F(Bus, ANameThatIsNoTextDoesNotBreakTheAnswer) {
    start([](FakeBusBackend& backend) {
        backend.traced = {process(1, 0, std::string("\xff\xc0\0x", 4))};
        Incident incident = make_incident("cc");
        incident.summary = "\xff";
        incident.culprits[0].name = std::string("a\0b", 3);
        backend.open = {incident};
    });
    const Finished objects = busctl(
        {"call", "io.ingero.Ingero1", "/io/ingero/Ingero1", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects"});
    EXPECT_EQ(objects.status, 0) << objects.errors;
    EXPECT_THAT(objects.output, HasSubstr("\"a b\""));
}

TEST_F(Bus, OthersSeeTheirOwnAndAreToldHowToSeeMore) {
    SKIP_UNLESS_ROOT();
    start_with_processes();
    const std::string theirs = "/io/ingero/Ingero1/process/200_200000";
    const std::string roots = "/io/ingero/Ingero1/process/100_100000";
    const Finished own = call_manager({"GetProcess", "o", theirs}, as_nobody);
    EXPECT_THAT(own.output, HasSubstr("\"calls_per_s\" d 12.5")) << own.errors;
    const Finished other = call_manager({"GetProcess", "o", roots}, as_nobody);
    EXPECT_NE(other.status, 0);
    EXPECT_THAT(other.errors, HasSubstr("join group ingero, or be authorised for io.ingero.ingero1.query"));
    EXPECT_EQ(call_manager({"GetProcess", "o", roots}).status, 0);
    EXPECT_THAT(call_manager({"GetProcess", "o", roots + "1"}).errors, HasSubstr("no such process"));

    EXPECT_EQ(json_answer(explain({"0"}, as_nobody))["echo"]["sees_all"], false);
    EXPECT_EQ(json_answer(explain({"0"}, as_nobody))["echo"]["uid"], nobody);
    EXPECT_EQ(json_answer(explain({"0"}))["echo"]["sees_all"], true);
    EXPECT_THAT(explain({"1", "all", "b", "true"}, as_nobody).errors, HasSubstr("join group ingero"));
    EXPECT_EQ(json_answer(explain({"1", "all", "b", "true"}))["echo"]["sees_all"], true);
    EXPECT_EQ(json_answer(explain({"1", "all", "b", "false"}, as_nobody))["echo"]["sees_all"], false);
}

TEST_F(Bus, PolkitLetsOthersIn) {
    SKIP_UNLESS_ROOT();
    FakePolkit polkit;
    start_with_processes();
    const std::vector<std::string> get = {"GetProcess", "o", "/io/ingero/Ingero1/process/100_100000"};
    EXPECT_THAT(call_manager(get, as_nobody).errors, HasSubstr("polkit has not authorised"));
    EXPECT_THAT(call_manager({"Reload"}, as_nobody).errors, HasSubstr(manage_action));
    EXPECT_EQ(daemon_->on_loop([&] { return daemon_->backend().reloads; }), 0);
    polkit.allow({query_action});
    EXPECT_THAT(call_manager(get, as_nobody).output, HasSubstr("calls_per_s"));
    EXPECT_EQ(json_answer(explain({"1", "all", "b", "true"}, as_nobody))["echo"]["sees_all"], true);
    EXPECT_NE(call_manager({"Reload"}, as_nobody).status, 0) << "to see is not to change";
    polkit.allow({manage_action});
    EXPECT_EQ(call_manager({"Reload"}, as_nobody).status, 0);
    EXPECT_EQ(call_manager({"SetProbe", "sb", "launch", "false"}, as_nobody).status, 0);
    EXPECT_EQ(daemon_->on_loop([&] { return daemon_->backend().reloads; }), 1);
    EXPECT_FALSE(daemon_->on_loop([&] { return daemon_->backend().sets[0].attached; }));
}

TEST_F(Bus, APasswordIsAskedForOnlyWhereTheCallerAgrees) {
    SKIP_UNLESS_ROOT();
    FakePolkit polkit;
    start_with_processes();
    const auto reload = [](const char* agrees) {
        busctl({std::string("--allow-interactive-authorization=") + agrees, "call", "io.ingero.Ingero1",
                "/io/ingero/Ingero1", "io.ingero.Ingero1", "Reload"},
               as_nobody);
    };
    reload("yes");
    reload("no");
    ASSERT_EQ(polkit.questions().size(), 2u);
    EXPECT_EQ(polkit.questions()[0].flags, 1u);
    EXPECT_EQ(polkit.questions()[1].flags, 0u);
}

TEST_F(Bus, RootChangesWithoutPolkitAndNobodyElseDoes) {
    SKIP_UNLESS_ROOT();
    start_with_processes();
    EXPECT_EQ(call_manager({"Reload"}).status, 0);
    EXPECT_THAT(call_manager({"Reload"}, as_nobody).errors,
                HasSubstr("be root, or authorised for io.ingero.ingero1.manage"));
    EXPECT_THAT(call_manager({"SetProbe", "sb", "nonsense", "true"}).errors, HasSubstr("no such set"));
}

TEST_F(Bus, MembersOfTheGroupSeeAllAndChangeNothing) {
    SKIP_UNLESS_ROOT();
    const auto options = BusOptions{.group = "daemon", .retry = milliseconds(20)};
    daemon_ = std::make_unique<BusDaemon>(options, [](FakeBusBackend& backend) { backend.traced = {process(100, 0)}; });
    ASSERT_TRUE(daemon_->wait_connected());
    const auto as_member = [](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(),
                         {"setpriv", "--reuid=65534", "--regid=65534", "--groups=1", "busctl", "--system", "call",
                          "io.ingero.Ingero1", "/io/ingero/Ingero1", "io.ingero.Ingero1"});
        return run(arguments);
    };
    const Finished member = as_member({"GetProcess", "o", "/io/ingero/Ingero1/process/100_100000"});
    EXPECT_EQ(member.status, 0) << member.errors;
    EXPECT_THAT(as_member({"Reload"}).errors, HasSubstr(manage_action));
}

TEST_F(Bus, RootOfOtherNamespacesIsNobodySpecialAndPolkitIsNotAsked) {
    SKIP_UNLESS_ROOT();
    FakePolkit polkit;
    polkit.allow({query_action, manage_action});
    start_with_processes();
    const auto inside = [](std::vector<std::string> arguments) {
        // As pid 1, busctl would complain to the kernel's log.
        arguments.insert(arguments.begin(),
                         {"unshare", "-Urpf", "env", "SYSTEMD_LOG_TARGET=console", "busctl", "--system", "call",
                          "io.ingero.Ingero1", "/io/ingero/Ingero1", "io.ingero.Ingero1"});
        return run(arguments);
    };
    const Finished answer = inside({"Explain", "tta{sv}", "0", "0", "0"});
    if (answer.errors.find("unshare failed") != std::string::npos) GTEST_SKIP() << answer.errors;
    EXPECT_EQ(json_answer(answer)["echo"]["sees_all"], false) << answer.errors;
    EXPECT_THAT(inside({"Reload"}).errors, HasSubstr("other namespaces"));
    EXPECT_THAT(inside({"Explain", "tta{sv}", "0", "0", "1", "all", "b", "true"}).errors,
                HasSubstr("other namespaces"));
    EXPECT_TRUE(polkit.questions().empty());
}

TEST_F(Bus, ThePolicyKeepsOthersFromSettingPropertiesAndFromTheName) {
    SKIP_UNLESS_ROOT();
    start();
    const Finished set =
        busctl({"set-property", "io.ingero.Ingero1", "/io/ingero/Ingero1", "io.ingero.Ingero1", "State", "s", "x"});
    EXPECT_THAT(set.errors, HasSubstr("Access denied"));
    const Finished own = busctl({"call", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
                                 "RequestName", "su", "io.ingero.Ingero1", "0"},
                                as_nobody);
    EXPECT_THAT(own.errors, HasSubstr("Access denied"));
}

TEST_F(Bus, ArgumentsAreChecked) {
    start_with_processes();
    EXPECT_THAT(explain({"1", "colour", "s", "red"}).errors, HasSubstr("unknown option: colour"));
    EXPECT_THAT(explain({"1", "pid", "s", "7"}).errors, HasSubstr("wrong type: pid"));
    EXPECT_THAT(explain({"1", "pid", "u", "0"}).errors, HasSubstr("pid is out of range"));
    EXPECT_THAT(call_manager({"Explain", "tta{sv}", "5", "5", "0"}).errors, HasSubstr("window is empty"));
    EXPECT_THAT(call_manager({"Explain", "tta{sv}", "5", "18446744073709551615", "0"}).errors,
                HasSubstr("out of range"));
    EXPECT_THAT(call_manager({"DumpByFileDescriptor", "s", "secrets"}).errors, HasSubstr("cannot dump: secrets"));
    const json answer = json_answer(call_manager({"Explain", "tta{sv}", "5", "6", "1", "pid", "u", "7"}));
    EXPECT_EQ(answer["echo"]["params"], (json{{"from_ns", 5'000}, {"to_ns", 6'000}, {"pid", 7}}));
    EXPECT_EQ(json_answer(explain({"0"}))["echo"]["params"], json::object());
}

TEST_F(Bus, ErrorsKeepTheirKind) {
    start([](FakeBusBackend& backend) { backend.failure = Error{ErrorCode::busy, "a worker \xff", "try again"}; });
    using Kind = std::pair<ErrorCode, const char*>;
    for (const auto& [code, name] : {Kind{ErrorCode::busy, "Busy"}, Kind{ErrorCode::limit, "Limit"},
                                     Kind{ErrorCode::bad_request, "InvalidArgument"},
                                     Kind{ErrorCode::corrupt, "Failed"}, Kind{ErrorCode::not_found, "NotFound"}}) {
        daemon_->on_loop([&, wanted = code] { daemon_->backend().failure->code = wanted; });
        const Finished finished = run({"gdbus", "call", "--system", "-d", "io.ingero.Ingero1", "-o",
                                       "/io/ingero/Ingero1", "-m", "io.ingero.Ingero1.Explain", "0", "0", "{}"});
        EXPECT_THAT(finished.errors, HasSubstr(std::string("io.ingero.Ingero1.Error.") + name));
    }
}

TEST_F(Bus, OneConnectionWaitsForAtMostEightAnswers) {
    start([](FakeBusBackend& backend) { backend.hold = true; });
    Subscriber client;
    std::vector<std::string> errors;
    const auto on_answer = [](sd_bus_message* message, void* data, sd_bus_error*) {
        const sd_bus_error* error = sd_bus_message_get_error(message);
        static_cast<std::vector<std::string>*>(data)->push_back(error ? error->name : "");
        return 0;
    };
    for (int i = 0; i < 20; ++i)
        sd_bus_call_method_async(client.bus(), nullptr, "io.ingero.Ingero1", "/io/ingero/Ingero1", "io.ingero.Ingero1",
                                 "Explain", on_answer, &errors, "tta{sv}", uint64_t{0}, uint64_t{0}, 0);
    while (errors.size() < 12 && sd_bus_wait(client.bus(), 1'000'000) >= 0)
        while (sd_bus_process(client.bus(), nullptr) > 0) continue;
    EXPECT_THAT(errors, testing::Each("io.ingero.Ingero1.Error.Limit"));
    EXPECT_TRUE(daemon_->wait_until([&] { return daemon_->backend().held.size() == 8; }));
    daemon_->on_loop([&] {
        for (auto& query : daemon_->backend().held) query.done(json::object());
    });
    while (errors.size() < 20 && sd_bus_wait(client.bus(), 1'000'000) >= 0)
        while (sd_bus_process(client.bus(), nullptr) > 0) continue;
    EXPECT_EQ(std::count(errors.begin(), errors.end(), ""), 8);
}

TEST_F(Bus, AnAnswerThatComesAfterTheBusHasGoneHurtsNobody) {
    start([](FakeBusBackend& backend) { backend.hold = true; });
    Child caller({"busctl", "--system", "call", "io.ingero.Ingero1", "/io/ingero/Ingero1", "io.ingero.Ingero1",
                  "Explain", "tta{sv}", "0", "0", "0"});
    ASSERT_TRUE(daemon_->wait_until([&] { return daemon_->backend().held.size() == 1; }));
    bus_->kill();
    ASSERT_TRUE(daemon_->wait_until([&] { return !daemon_->service().connected(); }));
    daemon_->on_loop([&] { daemon_->backend().held[0].done(json::object()); });
    bus_->start();
    EXPECT_TRUE(daemon_->wait_connected());
}

TEST_F(Bus, ABusThatIsKilledAndComesBackFindsThingsAsTheyAre) {
    start_with_processes();
    bus_->kill();
    ASSERT_TRUE(daemon_->wait_until([&] { return !daemon_->service().connected(); }));
    daemon_->on_loop([&] {
        daemon_->backend().traced = {process(300, 0)};
        daemon_->backend().open = {make_incident("00000000000000dd")};
        daemon_->service().changed();
        daemon_->service().emit({What::opened, daemon_->backend().open[0]});
    });
    bus_->start();
    ASSERT_TRUE(daemon_->wait_connected());
    const std::string tree = busctl({"tree", "--list", "io.ingero.Ingero1"}).output;
    EXPECT_THAT(tree, HasSubstr("/process/300_300000"));
    EXPECT_THAT(tree, HasSubstr("/incident/00000000000000dd"));
    EXPECT_THAT(tree, Not(HasSubstr("/process/100_100000")));
}

TEST(BusLater, ABusThatAppearsLaterIsFound) {
    if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << why;
    PrivateBus bus(false);
    BusDaemon daemon;
    EXPECT_FALSE(daemon.on_loop([&] { return daemon.service().connected(); }));
    bus.start();
    EXPECT_TRUE(daemon.wait_connected());
}

TEST_F(Bus, ANameThatIsTakenIsWaitedForAndSaidOnce) {
    start();
    std::ostringstream log;
    spdlog::default_logger()->sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
    Subscriber names("interface='org.freedesktop.DBus'");
    {
        BusDaemon second;
        // Each attempt comes and goes under names of its own.
        for (int changes = 0; changes < 40; ++changes) ASSERT_TRUE(names.read_until("NameOwnerChanged"));
        EXPECT_FALSE(second.on_loop([&] { return second.service().connected(); }));
        daemon_.reset();
        EXPECT_TRUE(second.wait_connected());
    }
    spdlog::default_logger()->sinks().pop_back();
    const std::string text = log.str();
    const size_t told = text.find("the name io.ingero.Ingero1 is taken");
    ASSERT_NE(told, std::string::npos) << text;
    EXPECT_EQ(text.find("is taken", told + 40), std::string::npos) << text;
}

TEST_F(Bus, ABusThatDoesNotAnswerHoldsNobodysEnd) {
    bus_->process().signal(SIGSTOP);
    const auto begun = std::chrono::steady_clock::now();
    { BusDaemon daemon; }
    // An answer is waited for for five seconds, where there can be one.
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(4'900));
    bus_->process().signal(SIGCONT);
}

TEST(BusOfIngerod, TheRealDaemonAnswersAsItsSchemasSay) {
    if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << why;
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    PrivateBus bus;
    TemporaryDirectory directory;
    Subscriber names("sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='io.ingero.Ingero1'");
    Daemon daemon(directory.path(), {"--bus", "system"});
    ASSERT_TRUE(names.read_until("NameOwnerChanged")) << daemon.process().output();
    std::ofstream(directory / "explain.json") << json_answer(explain({"0"})).dump();
    const Finished valid = run({"/usr/bin/python3", VALIDATE_SCHEMA,
                                std::string(SCHEMA_DIRECTORY) + "/explain.schema.json", directory / "explain.json"});
    EXPECT_TRUE(valid.status == 0 || valid.status == 77) << valid.errors;
    EXPECT_EQ(call_manager({"Reload"}).status, 0);
    EXPECT_THAT(call_manager({"SetProbe", "sb", "nonsense", "true"}).errors, HasSubstr("Call failed"));
    EXPECT_EQ(daemon.stop(), 0);
}

}  // namespace
}  // namespace ingero::test
