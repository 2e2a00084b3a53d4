// What the daemon and its workers take from a host on which nothing is traced.
#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "core/model/time.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

constexpr double most_ns_a_start = 400'000;
constexpr double tick_seconds = 5;  ///< after which it looks at what it keeps

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

/// How long it takes to read all of it once, a byte a page. A hypervisor may take the memory of a host at rest away:
/// one was seen on which each page that had not been used for five seconds took 7 us.
uint64_t read_ns(const std::vector<char>& memory) {
    const volatile char* const pages = memory.data();
    const uint64_t from_ns = monotonic_now_ns();
    for (size_t at = 0; at < memory.size(); at += 4096) (void)pages[at];
    return monotonic_now_ns() - from_ns;
}

/// Processes and threads that were started on this host since it booted.
uint64_t started() {
    std::ifstream stat("/proc/stat");
    for (std::string line; std::getline(stat, line);)
        if (line.starts_with("processes ")) return std::stoull(line.substr(10));
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
    const uint64_t started_before = started();
    const std::vector<char> as_much(8 << 20, 'm');
    for (const int pid : pids) before += cpu_ns(pid);
    // The measured time itself: nothing is waited for.
    EXPECT_FALSE(daemon.process().read_line(std::chrono::seconds(seconds))) << "the daemon said something or ended";
    for (const int pid : pids) {
        after += cpu_ns(pid);
        memory += anonymous_bytes(pid);
    }
    const auto memory_ns = static_cast<double>(read_ns(as_much));
    // Each program that starts is looked at: others' starts are no rest.
    const auto starts = static_cast<double>(started() - started_before);
    const auto took_ns = static_cast<double>(after - before), of_ns = seconds * 1e9;
    std::cout << 100 * took_ns / of_ns << " % of one core while " << starts << " tasks started, "
              << static_cast<double>(memory >> 10) / 1024 << " MiB anonymous; 8 MiB were read in " << memory_ns / 1e3
              << " us\n";
    EXPECT_LT(took_ns, 0.002 * of_ns + starts * most_ns_a_start + seconds / tick_seconds * memory_ns);
    EXPECT_LT(memory, 40u << 20);
}

}  // namespace
