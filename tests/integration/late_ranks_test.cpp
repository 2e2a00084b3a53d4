// A rank of four that is late for some time: told on the bus and in the log when it is found and when it is over, kept
// as an incident with its cause, and found again in the store. Jitter is told of by nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "test_paths.h"
#include "tests/support/bus.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

constexpr uint64_t second = 1'000 * ms;

class LateRanks : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        if (sanitized || emulated()) GTEST_SKIP() << "slow ranks are late ranks";
        // Far above what a busy machine makes of a wake-up, far below how late the late rank is.
        std::ofstream(directory_ / "exact.conf")
            << "[capture]\noverhead_budget = 0\n[diagnosis]\nstraggler_floor = \"10ms\"\n";
    }

    static std::vector<std::string> ranks(std::vector<std::string> more) {
        more.insert(more.begin(),
                    {COLLECTIVES_PROGRAM, "loop", "--gate", "--ranks", "4", "--sync-every", "1", "--compute-ms", "40"});
        return more;
    }
    json ingeroctl(const Daemon& daemon, const std::vector<std::string>& arguments, const std::string& schema) {
        std::vector<std::string> command = {INGEROCTL_PROGRAM, "--socket", daemon.socket(), "--json"};
        command.insert(command.end(), arguments.begin(), arguments.end());
        const Finished asked = run(command);
        EXPECT_EQ(asked.status, 0) << asked.errors;
        const std::string file = directory_ / "answer.json";
        std::ofstream(file) << asked.output;
        const Finished valid =
            run({"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/" + schema, file});
        EXPECT_EQ(valid.status, 0) << valid.output << valid.errors;
        return json::parse(asked.output, nullptr, false);
    }

    const TemporaryDirectory directory_;
};

TEST_F(LateRanks, are_told_of_within_seconds_with_their_cause_and_so_is_their_end) {
    if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << why;
    const PrivateBus bus;
    Subscriber signals;
    Daemon daemon(directory_ / "run", {"--bus", "system", "--config", directory_ / "exact.conf"});
    Child program(
        ranks({"--late-rank", "2", "--late-ms", "20", "--late-from", "60", "--late-until", "260", "--steps", "560"}));
    ASSERT_TRUE(program.wait_for_line("ready")) << program.errors();
    ASSERT_TRUE(daemon.wait_traced(program.pid()));
    program.write_line("go");

    ASSERT_TRUE(signals.read_until("StragglerDetected"));
    const uint64_t told_ns = ClockTriple::now().realtime_ns;
    const std::string id = signals.signals().back().first;
    json answer = ingeroctl(daemon, {"stragglers"}, "stragglers.schema.json");
    ASSERT_EQ(answer["stragglers"].size(), 1u) << answer;
    json one = answer["stragglers"][0];
    EXPECT_EQ(one["rank"], 2);
    EXPECT_EQ(one["resolved_ns"], nullptr);
    EXPECT_LT(told_ns - one["since_ns"].get<uint64_t>(), 15 * second);
    EXPECT_NEAR(one["lateness_ns"].get<double>(), 20e6, 5e6);
    ASSERT_TRUE(one["cause"].is_object()) << one;
    EXPECT_EQ(one["cause"]["kind"], "sleep") << one;
    // What other programs of the host took is no sleep.
    double had_no_cpu = 0;
    for (const json& part : one["meanwhile"])
        if (part["kind"] == "cpu-contention") had_no_cpu += part["ns"].get<double>();
    EXPECT_GE(one["cause"]["ns"].get<double>(), 0.8 * (one["lost_ns"].get<double>() - had_no_cpu)) << one;
    const int pid = one["pid"].get<int>();

    ASSERT_TRUE(signals.read_until("StragglerResolved"));
    const uint64_t over_ns = ClockTriple::now().realtime_ns;
    EXPECT_EQ(signals.signals().back().first, id);
    EXPECT_EQ(program.wait(), 0) << program.errors();
    answer = ingeroctl(daemon, {"stragglers"}, "stragglers.schema.json");
    ASSERT_EQ(answer["stragglers"].size(), 1u) << answer;
    one = answer["stragglers"][0];
    ASSERT_TRUE(one["resolved_ns"].is_number()) << one;
    EXPECT_LT(over_ns - one["resolved_ns"].get<uint64_t>(), 15 * second);
    EXPECT_NEAR(one["late_ranges"].get<double>(), 200.0, 10.0);
    uint64_t waited = 0;
    for (const json& wait : answer["communicators"][0]["waits"])
        if (wait["for_rank"] == 2) waited += wait["ns"].get<uint64_t>();
    EXPECT_NEAR(static_cast<double>(waited), 3 * 200 * 20e6, 3 * 200 * 5e6);
    EXPECT_EQ(signals.count("StragglerDetected"), 1u);
    EXPECT_EQ(signals.count("StragglerResolved"), 1u);

    const json rows = ingeroctl(
        daemon, {"query", "SELECT kind, pid, lost_ns, closed_ns, summary FROM incidents WHERE id = '" + id + "'"},
        "query.schema.json")["rows"];
    ASSERT_EQ(rows.size(), 1u) << rows;
    EXPECT_EQ(rows[0][0], "straggler");
    EXPECT_EQ(rows[0][1], pid);
    EXPECT_EQ(rows[0][2], one["lost_ns"]);
    // Each is made of the monotonic clock by what the two showed then: apart by what the wall clock was adjusted since.
    EXPECT_GE(rows[0][3].get<uint64_t>() + 1'000'000, one["resolved_ns"].get<uint64_t>());
    EXPECT_THAT(rows[0][4].get<std::string>(),
                testing::AllOf(HasSubstr("rank 2"), HasSubstr("asleep until a timer ran out")));
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    EXPECT_THAT(daemon.process().output() + daemon.process().errors(),
                testing::AllOf(HasSubstr("rank 2 (standin-collect"), HasSubstr("straggler of")));
}

TEST_F(LateRanks, are_not_those_of_healthy_jitter) {
    if (const std::string why = why_no_bus(); !why.empty()) GTEST_SKIP() << why;
    const PrivateBus bus;
    Subscriber signals;
    Daemon daemon(directory_ / "run", {"--bus", "system"});
    // A minute, or ten.
    Child program(ranks({"--jitter-ms", "20", "--steps", long_form() ? "10000" : "1000"}));
    ASSERT_TRUE(program.wait_for_line("ready")) << program.errors();
    ASSERT_TRUE(daemon.wait_traced(program.pid()));
    program.write_line("go");
    EXPECT_EQ(program.wait(milliseconds(900'000)), 0) << program.errors();
    const json answer = ingeroctl(daemon, {"stragglers", "--since", "15m"}, "stragglers.schema.json");
    EXPECT_TRUE(answer["stragglers"].empty()) << answer["stragglers"];
    ASSERT_EQ(answer["communicators"].size(), 1u);
    EXPECT_GE(answer["communicators"][0]["ranges"], 1'000);
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    EXPECT_FALSE(signals.read_until([](const Subscriber::Signal& one) { return one.member == "StragglerDetected"; },
                                    milliseconds(100)));
}

}  // namespace
