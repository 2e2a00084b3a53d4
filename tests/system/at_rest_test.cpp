// What the daemon and its workers take from a host on which nothing is traced.
#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <fstream>

#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

/// CPU time of all threads, by the scheduler.
uint64_t cpu_ns(int pid) {
    uint64_t sum = 0;
    std::error_code error;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
        std::ifstream file(task.path() / "schedstat");
        uint64_t run = 0;
        file >> run;
        sum += run;
    }
    return sum;
}

uint64_t anonymous_bytes(int pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    std::string line;
    while (std::getline(status, line))
        if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) << 10;
    return 0;
}

TEST(AtRest, the_daemon_and_its_workers_take_next_to_nothing) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    if (sanitized) GTEST_SKIP() << "a promise of the product, not of its sanitizer build";
    const TemporaryDirectory directory;
    Daemon daemon(directory / "run");
    // A query, so that a worker lives.
    ASSERT_TRUE(daemon.try_call("stats"));
    std::vector<int> pids = daemon.workers();
    ASSERT_FALSE(pids.empty());
    pids.push_back(daemon.process().pid());

    const int seconds = long_form() ? 60 : 15;
    uint64_t before = 0, after = 0, memory = 0;
    for (const int pid : pids) before += cpu_ns(pid);
    // The measured time itself: nothing is waited for.
    EXPECT_FALSE(daemon.process().read_line(std::chrono::seconds(seconds))) << "the daemon said something or ended";
    for (const int pid : pids) {
        after += cpu_ns(pid);
        memory += anonymous_bytes(pid);
    }
    const double share = static_cast<double>(after - before) / (seconds * 1e9);
    std::cout << 100 * share << " % of one core, " << static_cast<double>(memory >> 10) / 1024 << " MiB anonymous\n";
    EXPECT_LT(share, 0.002);
    EXPECT_LT(memory, 40u << 20);
}

}  // namespace
