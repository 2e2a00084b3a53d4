// Mappings are reported, also after more of them than the kernel's rings hold, and on CPUs that come online later.
#include "daemon/ingerod/discovery/mmap_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/discovery/cpu_list.h"
#include "daemon/ingerod/loop/event_loop.h"

using namespace ingero;

namespace {

constexpr uint64_t ms = 1'000;  ///< in us
constexpr int more_than_a_ring_holds = 3'000;
constexpr int more_than_a_calm_turn = 200;

void map(const std::string& path, int times) {
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(file) << path;
    for (int i = 0; i < times; ++i) {
        void* page = mmap(nullptr, 4'096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file.get(), 0);
        ASSERT_NE(page, MAP_FAILED);
        munmap(page, 4'096);
    }
}

/// On one CPU, whose ring it is about.
class AnMmapWatch : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(sched_getaffinity(0, sizeof(before_), &before_), 0);
        cpu_set_t one;
        CPU_ZERO(&one);
        cpu_ = sched_getcpu();
        CPU_SET(cpu_, &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
        std::string name = testing::TempDir() + "ingero-late-XXXXXX";
        const UniqueFd file(mkstemp(name.data()));
        ASSERT_TRUE(file);
        ASSERT_EQ(ftruncate(file.get(), 4'096), 0);
        late_ = name;
        online_ = name + "-online";
    }
    void TearDown() override {
        sched_setaffinity(0, sizeof(before_), &before_);
        std::filesystem::remove(late_);
        std::filesystem::remove(online_);
    }

    /// One that it does not run on; -1 where there is none.
    int another_cpu() const {
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (cpu != cpu_ && CPU_ISSET(cpu, &before_)) return cpu;
        return -1;
    }
    void say_is_online(const std::string& list) const { std::ofstream(online_) << list << "\n"; }

    cpu_set_t before_{};
    int cpu_ = 0;
    std::string late_;
    std::string online_;
};

TEST_F(AnMmapWatch, tells_of_a_mapping_after_a_ring_was_full_while_it_rested) {
    EventLoop loop;
    int losses = 0;
    EventLoop::Source next;
    const auto watch = MmapWatch::start(
        loop, [&](std::string_view path) { return path == late_; }, [](std::string_view) { return false; },
        {.on_mapping = [&](uint32_t, const Mapping&, uint64_t) { loop.exit(0); },
         .on_executable = {},
         .on_program = [](uint32_t, const Mapping&, uint64_t) {},
         .on_lost =
             [&](uint64_t) {
                 if (losses++ != 0) return;
                 // It rests after this turn, with a ring that is full.
                 map("/proc/self/exe", more_than_a_ring_holds);
                 next = loop.add_timer(50 * ms, [&] { map(late_, 1); });
             }});
    if (!watch && watch.error().code == ErrorCode::denied) GTEST_SKIP() << "needs CAP_PERFMON";
    ASSERT_TRUE(watch) << watch.error().message;
    // The kernel tells of what it dropped with what comes next.
    map("/proc/self/exe", more_than_a_ring_holds);
    const auto more = loop.add_timer(50 * ms, [] { map("/proc/self/exe", more_than_a_calm_turn); });
    const auto limit = loop.add_timer(60'000 * ms, [&] { loop.exit(1); });
    EXPECT_EQ(loop.run(), 0) << "nothing is read any more";
    EXPECT_GE(losses, 1);
}

TEST_F(AnMmapWatch, says_of_a_loss_since_when_it_may_be) {
    EventLoop loop;
    uint64_t lost_since_ns = 0;
    const auto none = [](std::string_view) { return false; };
    const auto watch = MmapWatch::start(loop, none, none,
                                        {.on_mapping = [](uint32_t, const Mapping&, uint64_t) {},
                                         .on_executable = {},
                                         .on_program = [](uint32_t, const Mapping&, uint64_t) {},
                                         .on_lost =
                                             [&](uint64_t since_ns) {
                                                 lost_since_ns = since_ns;
                                                 loop.exit(0);
                                             }});
    if (!watch && watch.error().code == ErrorCode::denied) GTEST_SKIP() << "needs CAP_PERFMON";
    ASSERT_TRUE(watch) << watch.error().message;
    const uint64_t before_ns = monotonic_now_ns();
    map("/proc/self/exe", more_than_a_ring_holds);
    const uint64_t after_ns = monotonic_now_ns();
    // The kernel reports it with what comes next.
    const auto more = loop.add_timer(50 * ms, [] { map("/proc/self/exe", more_than_a_calm_turn); });
    const auto limit = loop.add_timer(60'000 * ms, [&] { loop.exit(1); });
    EXPECT_EQ(loop.run(), 0) << "nothing was lost";
    EXPECT_GT(lost_since_ns, before_ns);
    EXPECT_LT(lost_since_ns, after_ns);
}

TEST_F(AnMmapWatch, watches_a_cpu_that_comes_online_later_and_says_since_when_it_may_have_been) {
    const int other = another_cpu();
    if (other < 0) GTEST_SKIP() << "needs two CPUs";
    say_is_online(std::to_string(other));
    EventLoop loop;
    int mappings = 0;
    uint64_t new_since_ns = 0, came_ns = 0;
    const uint64_t start_ns = monotonic_now_ns();
    const auto watch = MmapWatch::start(
        loop, [&](std::string_view path) { return path == late_; }, [](std::string_view) { return false; },
        {.on_mapping =
             [&](uint32_t, const Mapping&, uint64_t) {
                 ++mappings;
                 loop.exit(0);
             },
         .on_executable = {},
         .on_program = [](uint32_t, const Mapping&, uint64_t) {},
         .on_lost = [](uint64_t) {},
         .on_new_cpus =
             [&](uint64_t since_ns) {
                 EXPECT_EQ(mappings, 0) << "it was watched already";
                 new_since_ns = since_ns;
                 map(late_, 1);
             }},
        {.file = online_, .period_us = 10 * ms});
    if (!watch && watch.error().code == ErrorCode::denied) GTEST_SKIP() << "needs CAP_PERFMON";
    ASSERT_TRUE(watch) << watch.error().message;
    map(late_, 1);
    const auto change = loop.add_timer(50 * ms, [&] {
        came_ns = monotonic_now_ns();
        say_is_online(std::to_string(cpu_) + "," + std::to_string(other));
    });
    const auto limit = loop.add_timer(60'000 * ms, [&] { loop.exit(1); });
    EXPECT_EQ(loop.run(), 0) << "the CPU is not watched";
    EXPECT_GE(new_since_ns, start_ns);
    EXPECT_LT(new_since_ns, came_ns) << "it may have come any time since the list was read last";
}

TEST_F(AnMmapWatch, does_not_scan_anew_where_no_cpu_came) {
    say_is_online(std::to_string(cpu_));
    EventLoop loop;
    int scans = 0;
    const auto watch = MmapWatch::start(
        loop, [](std::string_view) { return false; }, [](std::string_view) { return false; },
        {.on_mapping = [](uint32_t, const Mapping&, uint64_t) {},
         .on_executable = {},
         .on_program = [](uint32_t, const Mapping&, uint64_t) {},
         .on_lost = [](uint64_t) {},
         .on_new_cpus = [&](uint64_t) { ++scans; }},
        {.file = online_, .period_us = 100});
    if (!watch && watch.error().code == ErrorCode::denied) GTEST_SKIP() << "needs CAP_PERFMON";
    ASSERT_TRUE(watch) << watch.error().message;
    // Of a host that was not suspended its clocks say the same, up to the time between the readings of them.
    const auto after_many_looks = loop.add_timer(200 * ms, [&] { loop.exit(0); });
    EXPECT_EQ(loop.run(), 0);
    EXPECT_EQ(scans, 0);
}

TEST(TheRingOfAnMmapWatch, has_the_same_size_whatever_a_page_has) {
    constexpr size_t kib = 1'024;
    for (const size_t page : {4 * kib, 16 * kib, 64 * kib}) EXPECT_EQ(mmap_ring_bytes(page), 64 * kib);
    EXPECT_EQ(mmap_ring_bytes(256 * kib), 256 * kib) << "one page at least";
}

TEST(AListOfCpus, is_read_as_the_kernel_writes_it) {
    EXPECT_EQ(parse_cpu_list("0\n"), std::set<int>{0});
    EXPECT_EQ(parse_cpu_list("0-3,8\n"), (std::set<int>{0, 1, 2, 3, 8}));
    EXPECT_EQ(parse_cpu_list("1,3-4"), (std::set<int>{1, 3, 4}));
    for (const char* wrong : {"", "\n", "a", "-1", "3-1", "1-", "1,", "1,,2", "1 2", "0-99999999", "99999999999"})
        EXPECT_EQ(parse_cpu_list(wrong), std::nullopt) << wrong;
}

}  // namespace
