// What is read of the host and of control groups, from files as kernels write them.
#include "daemon/ingerod/live/host_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/daemon.h"

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(HostStateText, PressureIsTakenFromItsTotals) {
    EXPECT_THAT(parse_pressure("io",
                               "some avg10=34.02 avg60=64.16 avg300=81.77 total=35677\n"
                               "full avg10=0.00 avg60=0.00 avg300=0.00 total=12\n"),
                UnorderedElementsAre(Pair("io_some_us", 35677), Pair("io_full_us", 12)));
    EXPECT_THAT(parse_pressure("io", "some total=x\nhalf total=3\nfull\n"), IsEmpty());
}

TEST(HostStateText, TimesOfAllCpusAreMilliseconds) {
    EXPECT_THAT(parse_cpu_times("cpu  10 20 30 40 50 60 70 80 90 0\ncpu0 1 2 3\n", 100),
                UnorderedElementsAre(Pair("irq_ms", 600), Pair("softirq_ms", 700), Pair("steal_ms", 800)));
    EXPECT_THAT(parse_cpu_times("cpu0 1 2 3 4 5 6 7 8\n", 100), IsEmpty());
    EXPECT_THAT(parse_cpu_times("cpu ", 100), IsEmpty());
    EXPECT_THAT(parse_cpu_times("cpu  1 2", 100), IsEmpty());
}

TEST(HostStateText, AQuotaIsReadInBothVersions) {
    EXPECT_THAT(parse_cpu_quota("usage_usec 5\nnr_periods 7\nnr_throttled 3\nthrottled_usec 4000\n"),
                UnorderedElementsAre(Pair("periods", 7), Pair("throttled_periods", 3), Pair("throttled_us", 4000)));
    EXPECT_THAT(parse_cpu_quota("nr_periods 7\nnr_throttled 3\nthrottled_time 4000000\n"),
                UnorderedElementsAre(Pair("periods", 7), Pair("throttled_periods", 3), Pair("throttled_us", 4000)));
    EXPECT_THAT(parse_memory_events("low 0\nhigh 4\nmax 5\noom 1\noom_kill 2\n"),
                UnorderedElementsAre(Pair("memory_high", 4), Pair("memory_max", 5), Pair("oom_kills", 2)));
}

TEST(HostStateText, ControlGroupsOfBothVersionsAreFoundAndNothingAboveWhatIsMounted) {
    const ControlGroup second = find_control_group("0::/system.slice/vllm.service\n", "/m");
    EXPECT_EQ(second.cpu, "/m/system.slice/vllm.service");
    EXPECT_EQ(second.memory, second.cpu);
    const ControlGroup first =
        find_control_group("5:cpu,cpuacct:/docker/ab\n4:memory:/docker/cd\n1:name=systemd:/x\n0::/\n", "/m");
    EXPECT_EQ(first.cpu, "/m/cpu/docker/ab");
    EXPECT_EQ(first.memory, "/m/memory/docker/cd");
    EXPECT_EQ(first.path, "/docker/ab");
    EXPECT_EQ(find_control_group("0::/../../etc\n", "/m").cpu, "");
    EXPECT_EQ(find_control_group("nothing\n:\n", "/m").path, "");
}

class HostStateRows : public testing::Test {
  protected:
    void write(const std::string& path, const std::string& text) {
        std::filesystem::create_directories(std::filesystem::path(root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }

    std::string cpu(size_t number) const {
        return "sys/devices/system/cpu/cpu" + std::to_string(number) + "/cpufreq/scaling_cur_freq";
    }
    void set_mhz(size_t first_cpu, size_t end, int mhz) {
        for (size_t number = first_cpu; number < end; ++number) write(cpu(number), std::to_string(mhz) + "000\n");
    }
    /// Lowest and mean, as the next row has them.
    std::pair<double, double> clock_rates() {
        rows_.clear();
        state_.measure({{7, 1}}, 1'000);
        std::map<std::string, double> values;
        for (const StateRow& row : rows_) values.insert(row.values.begin(), row.values.end());
        return {values["cpu_mhz_lowest"], values["cpu_mhz_mean"]};
    }

    const test::TemporaryDirectory root_;
    std::vector<StateRow> rows_;
    uint64_t now_ns_ = 1'000 * test::ms;
    uint64_t round_takes_ns_ = 0;
    HostState state_{[this](StateRow row) { rows_.push_back(std::move(row)); }, root_.path(),
                     [this] { return std::exchange(now_ns_, now_ns_ + round_takes_ns_); }};
};

TEST_F(HostStateRows, SayWhatHappenedSinceTheLast) {
    write("proc/pressure/cpu", "some avg10=0 total=100\n");
    write("proc/stat", "cpu  0 0 0 0 0 0 0 10 0 0\n");
    write("proc/7/cgroup", "0::/pod\n");
    write("sys/fs/cgroup/pod/cpu.stat", "nr_periods 10\nnr_throttled 2\nthrottled_usec 5000\n");
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3000000\n");
    write("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "1000000\n");
    state_.measure({{7, 1}}, 1'000);
    ASSERT_EQ(rows_.size(), 1u);  // what was counted before is nobody's
    EXPECT_THAT(rows_[0].values, UnorderedElementsAre(Pair("cpu_mhz_lowest", 1000), Pair("cpu_mhz_mean", 2000)));
    rows_.clear();

    write("proc/pressure/cpu", "some avg10=0 total=350\n");
    write("sys/fs/cgroup/pod/cpu.stat", "nr_periods 20\nnr_throttled 5\nthrottled_usec 9000\n");
    state_.measure({{7, 1}}, 2'000);
    ASSERT_EQ(rows_.size(), 2u);
    EXPECT_EQ(rows_[0].source, "host");
    EXPECT_THAT(rows_[0].values, testing::IsSupersetOf({Pair("cpu_some_us", 250.0), Pair("steal_ms", 0.0)}));
    EXPECT_EQ(rows_[1].source, "cgroup:/pod");
    EXPECT_THAT(rows_[1].values,
                UnorderedElementsAre(Pair("periods", 10), Pair("throttled_periods", 3), Pair("throttled_us", 4000)));
    rows_.clear();
    state_.measure({{7, 1}}, 3'000);
    ASSERT_EQ(rows_.size(), 1u);  // the group's quota was not used since
    rows_.clear();
    state_.measure({}, 4'000);
    EXPECT_THAT(rows_, IsEmpty());
}

TEST_F(HostStateRows, OfAProcessThatIsMovedAreOfItsNewGroupSoonAndOfANewcomerAtOnce) {
    std::set<ProcessKey> traced;
    const auto add = [&](uint32_t pid, const std::string& group) {
        write("proc/" + std::to_string(pid) + "/cgroup", "0::/" + group + "\n");
        traced.insert({pid, 1});
    };
    int periods = 0;
    const auto measure = [&] {
        ++periods;
        for (const std::string group : {"pod", "moved", "new"})
            write("sys/fs/cgroup/" + group + "/cpu.stat", "nr_periods " + std::to_string(periods) + "\n");
        rows_.clear();
        state_.measure(traced, static_cast<uint64_t>(periods));
        std::set<std::string> sources;
        for (const StateRow& row : rows_) sources.insert(row.source);
        return sources;
    };
    for (uint32_t pid = 1; pid <= 25; ++pid) add(pid, "pod");
    measure();
    EXPECT_THAT(measure(), ElementsAre("cgroup:/pod"));
    for (uint32_t pid = 1; pid <= 25; ++pid) add(pid, "moved");
    measure();
    EXPECT_THAT(measure(), ElementsAre("cgroup:/moved", "cgroup:/pod")) << "they are looked up in turns";
    for (int i = 0; i < 8; ++i) measure();
    EXPECT_THAT(measure(), ElementsAre("cgroup:/moved"));
    add(99, "new");
    measure();
    EXPECT_THAT(measure(), ElementsAre("cgroup:/moved", "cgroup:/new"));
}

TEST_F(HostStateRows, HaveTheLatestClockRateOfEachCpuEightOfWhichAreReadAtATime) {
    set_mhz(0, 12, 2000);
    EXPECT_EQ(clock_rates(), std::pair(2000.0, 2000.0));
    set_mhz(0, 12, 1000);
    EXPECT_EQ(clock_rates(), std::pair(1000.0, (8 * 1000.0 + 4 * 2000.0) / 12)) << "the last four and the first four";
    set_mhz(8, 12, 400);
    EXPECT_EQ(clock_rates(), std::pair(400.0, (8 * 1000.0 + 4 * 400.0) / 12)) << "the last eight";
    for (size_t number = 8; number < 12; ++number) std::filesystem::remove(root_ / cpu(number));
    EXPECT_EQ(clock_rates().first, 400) << "they are as they were read last";
    EXPECT_EQ(clock_rates(), std::pair(1000.0, 1000.0)) << "those that are gone are forgotten";
    set_mhz(0, 8, 3000);
    EXPECT_EQ(clock_rates(), std::pair(3000.0, 3000.0)) << "up to eight are all read each time";
}

TEST_F(HostStateRows, HaveClockRatesOfUpToAMinuteAgoWhereItTakesLongToReadThem) {
    set_mhz(0, 4, 2000);
    round_takes_ns_ = 6 * test::ms;
    EXPECT_EQ(clock_rates(), std::pair(2000.0, 2000.0));
    set_mhz(0, 4, 1900);
    EXPECT_EQ(clock_rates(), std::pair(1900.0, 1900.0)) << "whoever reads may have been preempted once";
    round_takes_ns_ = 0;
    const uint64_t read_ns = now_ns_ - 6 * test::ms;
    set_mhz(0, 4, 1000);
    now_ns_ = read_ns + 60'000 * test::ms - 1;
    EXPECT_EQ(clock_rates(), std::pair(1900.0, 1900.0));
    now_ns_ += 1;
    EXPECT_EQ(clock_rates(), std::pair(1000.0, 1000.0));
    set_mhz(0, 4, 3000);
    EXPECT_EQ(clock_rates(), std::pair(3000.0, 3000.0)) << "it took no longer than usual";
    state_.measure({}, 1'000);
    for (size_t number = 0; number < 4; ++number) std::filesystem::remove(root_ / cpu(number));
    EXPECT_EQ(clock_rates(), std::pair(0.0, 0.0)) << "nobody was traced, and what was read before is old";
}

}  // namespace
}  // namespace ingero
