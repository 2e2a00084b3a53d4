// What is read of the host and of control groups, from files as kernels write them.
#include "daemon/ingerod/live/host_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

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

    const test::TemporaryDirectory root_;
    std::vector<StateRow> rows_;
    HostState state_{[this](StateRow row) { rows_.push_back(std::move(row)); }, root_.path()};
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

}  // namespace
}  // namespace ingero
