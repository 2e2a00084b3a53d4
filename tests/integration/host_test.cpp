// What the kernel does to threads between their calls: waits of known reasons and times, whom each was for, and whose
// work it comes down to in the end.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "core/model/time.h"
#include "test_paths.h"
#include "tests/support/control_groups.h"
#include "tests/support/daemon.h"
#include "tests/support/delay_accounts.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

struct Span {
    uint64_t from = 0, to = 0, busy = 0;
    uint64_t duration() const { return to - from; }
    uint64_t idle() const { return duration() - std::min(duration(), busy); }
};

/// Of a chain: when it began to wait, when its waker was about to wake it, and when it was back.
struct Link {
    uint64_t from = 0, to = 0, back = 0;
};

/// Of the network that the process is in: /proc/PID/net/netstat, whose lines are pairs of names and values.
uint64_t kernel_counter(int pid, const std::string& name) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/net/netstat");
    for (std::string names, values; std::getline(file, names) && std::getline(file, values);) {
        std::istringstream name_words(names), value_words(values);
        for (std::string one, value; name_words >> one && value_words >> value;)
            if (one == name) return std::stoull(value);
    }
    ADD_FAILURE() << "the kernel has no counter " << name;
    return 0;
}

class Host : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        start_daemon("200us");
    }

    void start_daemon(const std::string& floor) {
        std::ofstream(directory_ / "ingerod.conf")
            << "[capture]\noverhead_budget = 0\nwait_floor = \"" + floor + "\"\n";
        daemon_.reset();
        daemon_.emplace(directory_ / "run", std::vector<std::string>{"--config", directory_ / "ingerod.conf"});
    }

    void start(std::vector<std::string> arguments, const ChildOptions& options = {}) {
        arguments.insert(arguments.begin(), {HOST_PROGRAM, CUDART_LIBRARY});
        program_.emplace(arguments, options);
        ASSERT_TRUE(program_->wait_for_line("ready")) << program_->errors();
        pid_ = program_->pid();
        ASSERT_TRUE(daemon_->wait_traced(pid_));
    }
    /// Lets it go on, and returns the waits that it tells of.
    std::vector<Span> finish() {
        program_->write_line("go");
        std::vector<Span> waits;
        while (const auto line = program_->read_line()) {
            if (*line == "done") break;
            std::istringstream words(*line);
            std::string word;
            words >> word;
            if (word == "threads")
                for (int id = 0; words >> id;) threads_.push_back(id);
            Span wait;
            if (word == "chain")
                for (Link& link : chains_.emplace_back()) words >> link.from >> link.to >> link.back;
            if (word == "wait" && words >> wait.from >> wait.to >> wait.busy) waits.push_back(wait);
        }
        return waits;
    }
    void end() {
        program_->close_input();
        EXPECT_EQ(program_->wait(), 0) << program_->errors();
    }

    json query(const std::string& sql) {
        const json answer = daemon_->call("query", {{"sql", sql}});
        return answer.value("rows", json::array());
    }
    /// Its rows once there are so many: what is read from the rings is stored within a second.
    json until_there(const std::string& sql, size_t at_least = 1) {
        Patience limit;
        json found;
        while ((found = query(sql)).size() < at_least && limit.lasts()) {
        }
        EXPECT_GE(found.size(), at_least) << sql << query("SELECT op, COUNT(*) FROM events GROUP BY op").dump();
        return found;
    }
    /// Those of the main thread.
    json rows(const std::string& what, size_t at_least, const std::string& where = "1") {
        return until_there("SELECT " + what + " FROM waits WHERE tid = " + std::to_string(pid_) + " AND " + where +
                               " ORDER BY start_ns",
                           at_least);
    }
    static uint64_t total(const std::vector<Span>& spans) {
        return std::accumulate(spans.begin(), spans.end(), uint64_t{0},
                               [](uint64_t sum, const Span& span) { return sum + span.duration(); });
    }
    static uint64_t total(const json& rows, size_t column) {
        return std::accumulate(rows.begin(), rows.end(), uint64_t{0},
                               [&](uint64_t sum, const json& row) { return sum + row.at(column).get<uint64_t>(); });
    }
    /// Within 5 %, or so many ms.
    static void expect_near(uint64_t found, uint64_t expected, double within_ms = 1) {
        const double difference = std::abs(static_cast<double>(found) - static_cast<double>(expected));
        EXPECT_LE(difference, std::max(0.05 * static_cast<double>(expected), within_ms * 1e6))
            << format_duration(found) << " in place of " << format_duration(expected);
    }

    /// Of waits that began in it.
    static std::string inside(const Span& span) {
        const auto realtime = std::chrono::system_clock::now().time_since_epoch();
        const uint64_t offset = static_cast<uint64_t>(std::chrono::nanoseconds(realtime).count()) - monotonic_now_ns();
        return "start_ns BETWEEN " + std::to_string(offset + span.from) + " AND " + std::to_string(offset + span.to);
    }
    /// Whether the daemon told that it lost one in it, as it must where the kernel kept a switch from it.
    bool is_told_as_lost(const Span& wait) {
        return !query(
                    "SELECT 1 FROM host_events WHERE op = 'sched_switch_summary' AND split_uncertain AND waits = 1 "
                    "AND tid = " +
                    std::to_string(pid_) + " AND " + inside(wait))
                    .empty();
    }
    /// By a limit, which lets the first ones pass. Others may have had the CPU meanwhile, which is told apart.
    void expect_held_up(const std::vector<Span>& waits, const std::string& blocked_on) {
        uint64_t idle_ns = 0, found_ns = 0, so_blocked_ns = 0, blocked_ns = 0;
        size_t held_up = 0, so_held_up = 0;
        for (const Span& wait : waits) {
            if (wait.duration() <= 5 * ms) continue;
            json found;
            EXPECT_TRUE(wait_until([&] {
                found = rows("blocked_ns + runnable_ns, blocked_ns", 0, inside(wait));
                return !found.empty() || is_told_as_lost(wait);
            })) << "nothing is told of "
                << format_duration(wait.idle());
            if (found.empty()) continue;
            const json so = rows("blocked_ns", 0, inside(wait) + " AND blocked_on = '" + blocked_on + "'");
            ++held_up;
            so_held_up += !so.empty();
            idle_ns += wait.idle();
            found_ns += total(found, 0);
            blocked_ns += total(found, 1);
            so_blocked_ns += total(so, 0);
            std::cout << "for " << format_duration(wait.idle()) << ": " << found << ", of them " << so << "\n";
        }
        ASSERT_GE(so_held_up, 3u) << "it was not throttled";
        expect_near(found_ns, idle_ns, 1 + 0.1 * static_cast<double>(held_up));
        expect_near(so_blocked_ns, blocked_ns);
    }

    TemporaryDirectory directory_;
    std::optional<Daemon> daemon_;
    std::optional<Child> program_;
    int pid_ = 0;
    std::vector<int> threads_;  ///< as the program told
    std::vector<std::array<Link, 4>> chains_;
};

TEST_F(Host, SleepsBetweenCallsAreToldOneByOneWithTheirTime) {
    start({"sleep", "50", "5000"});
    const auto waits = finish();
    ASSERT_EQ(waits.size(), 50u);
    // A switch in a few hundred is not told to programs where others want the CPU too: such a wait may be lost.
    constexpr size_t fewest = 48;
    const json found =
        rows("blocked_ns + runnable_ns, depth, syscall, waker_pid, detail", fewest, "blocked_on = 'timer'");
    // The program's own clock is read on the CPU: before it leaves it, and after it is back.
    expect_near(total(found, 0), total(waits) * found.size() / waits.size(), emulated() ? 50 * 5 : 50 * 0.1);
    for (const json& row : found) {
        EXPECT_EQ(row.at(1), 0);
        EXPECT_EQ(row.at(2), "clock_nanosleep");
        EXPECT_TRUE(row.at(3).is_null());  // a timer is nobody
    }
    end();
}

TEST_F(Host, ShortSleepsAreSummed) {
    start({"sleep", "3000", "30"});
    const auto waits = finish();
    ASSERT_EQ(waits.size(), 3000u);
    end();
    const auto sums = [&](const char* op) {
        return query("SELECT TOTAL(waits), TOTAL(blocked_ns), TOTAL(runnable_ns) FROM host_events WHERE tid = " +
                     std::to_string(pid_) + " AND op = '" + op + "'")
            .at(0);
    };
    Patience limit;
    json summed, single;
    do {
        summed = sums("sched_switch_summary");
        single = sums("sched_switch");
    } while (summed[0].get<double>() + single[0].get<double>() < 3000 && limit.lasts());
    EXPECT_GE(summed[0].get<double>(), 1000) << single.dump();
    const auto blocked = static_cast<uint64_t>(summed[1].get<double>() + single[1].get<double>());
    const auto runnable = static_cast<uint64_t>(summed[2].get<double>() + single[2].get<double>());
    // Of each, the program's clock has what it takes to leave the CPU and come back too. On a busy host it waits for a
    // CPU between its sleeps too, which the program does not measure.
    EXPECT_LE(blocked, total(waits) + 5 * ms);
    EXPECT_GE(blocked + runnable, 3000ull * 30'000);
}

TEST_F(Host, AChainOfFourThreadsInThreeProcessesIsFollowedToItsEnd) {
    start({"chain", "8", "40000"});
    const auto waits = finish();
    ASSERT_EQ(waits.size(), 8u);
    ASSERT_EQ(threads_.size(), 4u);
    ASSERT_EQ(chains_.size(), 8u);
    const ClockTriple clocks = ClockTriple::now();
    // Who ends a wait is watched from then on: the third round knows all. Some may miss a switch, see above.
    rows("id", 6, "blocked_on = 'futex' AND duration_ns > 30000000");
    const json answer = daemon_->call("waits", {{"pid", pid_}, {"tid", pid_}, {"limit", 100}});
    size_t whole = 0, named = 0;
    for (const json& chain : answer.at("chains")) {
        const json& links = chain.at("links");
        if (links.at(0).at("blocked_on") != "futex" || links.size() < 4 ||
            std::any_of(links.begin(), links.end(), [](const json& link) {
                // Where the kernel told late that it runs again, its descriptor may be another by then.
                return link.at("did") == "not_known" || link.at("ended_by") == "unknown" ||
                       link.at("blocked_on") == "other";
            }))
            continue;
        ++whole;
        SCOPED_TRACE(chain.dump(1));
        EXPECT_EQ(links.size(), 4u);
        const uint64_t from_ns = clocks.to_monotonic(links.at(0).at("from_ns"));
        const auto told =
            std::find_if(chains_.begin(), chains_.end(), [&](const auto& round) { return from_ns < round[0].to; });
        ASSERT_NE(told, chains_.end());
        const char* const reasons[] = {"futex", "pipe", "socket", "timer"};
        const int pids[] = {threads_[0], threads_[0], threads_[2], threads_[3]};
        uint64_t began_ns = 0;  // what one waits for counts from when it waits
        for (size_t i = 0; i < 4; ++i) {
            const json& link = links.at(i);
            EXPECT_EQ(link.at("did"), "slept");
            EXPECT_EQ(link.at("blocked_on"), reasons[i]);
            EXPECT_EQ(link.at("pid"), pids[i]);
            EXPECT_EQ(link.at("tid"), threads_[i]);
            EXPECT_EQ(link.at("ended_by"), i < 3 ? "task" : "interrupt");
            began_ns = std::max(began_ns, (*told)[i].from);
            // Each may lose its CPU between reading its clock and what it does then.
            const uint64_t slack = (emulated() ? 40 : 3) * ms;
            EXPECT_GE(link.at("duration_ns").get<uint64_t>() + slack, (*told)[i].to - began_ns);
            EXPECT_LE(link.at("duration_ns").get<uint64_t>(), (*told)[i].back - began_ns + slack);
        }
        const json& made_by = links.at(2).at("detail");  // who made the pair; where its end was seen late, nobody knows
        if (made_by.is_null()) continue;
        EXPECT_EQ(made_by, "pid " + std::to_string(threads_[0]));
        ++named;
    }
    EXPECT_GE(whole, 5u) << answer.dump(1);
    EXPECT_GE(named, 4u) << answer.dump(1);
    if (emulated()) return end();  // its clock is not that of the host
    const Finished text = test::run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "waits", "--pid",
                                     std::to_string(pid_), "--between-calls", "--by", "wait"});
    EXPECT_EQ(text.status, 0) << text.errors;
    EXPECT_THAT(text.output, HasSubstr("slept 40"));
    EXPECT_THAT(text.output, HasSubstr("ended by an interrupt"));
    const Finished as_json = test::run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "--json", "waits"});
    std::ofstream(directory_ / "waits.json") << as_json.output;
    const Finished valid = test::run({"/usr/bin/python3", VALIDATE_SCHEMA,
                                      std::string(SCHEMA_DIRECTORY) + "/waits.schema.json", directory_ / "waits.json"});
    EXPECT_EQ(valid.status, 0) << valid.errors << as_json.output;
    end();
}

TEST_F(Host, AQuotaOfItsCgroupIsToldApartFromOthersOnTheCpu) {
    // Less than a busy host leaves it, in each of 15 periods.
    const CpuControlGroup group(5'000);
    if (!group.usable()) GTEST_SKIP() << "SKIPPED: no cgroup with a cpu controller";
    start({"spin", "75"});
    group.take(pid_);
    const auto waits = finish();
    ASSERT_EQ(waits.size(), 1u);
    daemon_->call_when_stored("stats", {{"since_ns", 600'000'000'000}});
    const json found = rows("runnable_ns, blocked_ns", 10, "throttled = 1");
    // Its end takes CPU time too, and may be throttled.
    const json while_it_spun = rows("runnable_ns", 10, inside(waits[0]));
    const uint64_t throttled_ns = group.throttled_ns();
    end();
    // A thread that has its quota again may still wait for a CPU: until it has one, which it tells.
    const double idle_ns = static_cast<double>(waits[0].idle()), found_ns = static_cast<double>(total(found, 0));
    std::cout << "off the CPU for " << idle_ns / 1e6 << " ms, throttled for " << static_cast<double>(throttled_ns) / 1e6
              << " ms; told " << found_ns / 1e6 << " ms, and " << static_cast<double>(total(while_it_spun, 0)) / 1e6
              << " ms of it or by others while it spun\n";
    // A switch in a few hundred is not told: one of these may be missing.
    const auto told = static_cast<double>(found.size());
    EXPECT_GE(found_ns * (told + 1) / told, 0.95 * static_cast<double>(throttled_ns));
    EXPECT_LE(static_cast<double>(total(while_it_spun, 0)), 1.05 * idle_ns + 1e6);
    EXPECT_EQ(total(found, 1), 0u);
}

TEST_F(Host, AThreadThatIsStoppedWaitsForWhoeverLetsItGoOn) {
    start({"spin", "500"});
    uint64_t stopped_ns = 0;
    const auto stop_it = [&] {
        program_->signal(SIGSTOP);
        EXPECT_TRUE(wait_until([&] { return program_->state() == 'T'; }));
        const uint64_t from = monotonic_now_ns();
        const timespec time{0, 60'000'000};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
        stopped_ns += monotonic_now_ns() - from;
        program_->signal(SIGCONT);
    };
    const auto on_cpu_ns = [&] {
        uint64_t ns = 0;
        std::ifstream("/proc/" + std::to_string(pid_) + "/schedstat") >> ns;
        return ns;
    };
    // In its own code, as it spins; and in a system call, as it reads.
    std::thread stopper([&, before = on_cpu_ns()] {
        EXPECT_TRUE(wait_until([&] { return on_cpu_ns() >= before + 250 * ms; }));
        stop_it();
    });
    finish();
    stopper.join();
    EXPECT_TRUE(wait_until([&] { return program_->is_asleep(); }));
    stop_it();
    end();
    const json found = rows("blocked_ns, syscall, waker_pid", 2, "blocked_on = 'stopped'");
    EXPECT_GE(total(found, 0), stopped_ns);
    for (const json& row : found) {
        EXPECT_TRUE(row.at(1).is_null());
        EXPECT_EQ(row.at(2), getpid());
    }
    EXPECT_EQ(rows("1", 0, "blocked_on = 'page_fault' AND blocked_ns > 30000000"), json::array());
}

TEST_F(Host, ASocketsWaitNamesTheOtherEnd) {
    const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(listening, 1), 0);
    ASSERT_EQ(getsockname(listening, reinterpret_cast<sockaddr*>(&address), &length), 0);
    const std::string port = std::to_string(ntohs(address.sin_port));
    start({"receive", port, "10"});
    std::thread server([&] {
        const int peer = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
        for (int i = 0; i < 10; ++i) {
            // It has not been held up since the one before.
            EXPECT_TRUE(wait_until([&] { return program_->is_asleep(); }));
            const timespec time{0, 20'000'000};
            clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
            EXPECT_EQ(send(peer, "x", 1, 0), 1);
        }
        close(peer);
    });
    const auto waits = finish();
    server.join();
    ASSERT_EQ(waits.size(), 10u);
    // A switch in a few hundred is not told.
    const json found = rows("blocked_ns + runnable_ns, detail", 9, "blocked_on = 'socket'");
    expect_near(total(found, 0), total(waits) * found.size() / waits.size(), 10 * 0.2);
    for (const json& row : found) EXPECT_EQ(row.at(1), "127.0.0.1:" + port);
    end();

    // Nobody listens there any more.
    close(listening);
    start({"refused", port});
    finish();
    const json errors = until_there("SELECT peer, errno FROM socket_events WHERE op = 'socket_error' AND pid = " +
                                    std::to_string(pid_));
    EXPECT_EQ(errors, json::array({json::array({"127.0.0.1:" + port, "ECONNREFUSED"})}));
    end();
}

TEST_F(Host, ReadsAndPageFaultsAreTiedToTheDiskRequestsThatTheyWaitFor) {
    const std::string path = directory_ / "data";
    struct statfs file_system {};
    statfs(directory_.path().c_str(), &file_system);
    if (file_system.f_type == 0x01021994) GTEST_SKIP() << "SKIPPED: the temporary folder is no disk";
    daemon_->stop();
    start_daemon("20us");
    constexpr size_t bytes = 64 << 10;  // one request
    std::ofstream(path) << std::string(40 * bytes, 'x');
    start({"read", path, "40", std::to_string(bytes)});
    ASSERT_EQ(test::run({"/usr/bin/sync", path}).status, 0);
    const auto waits = finish();
    ASSERT_EQ(waits.size(), 40u);
    end();
    const auto io = [&] {
        return query("SELECT op, SUM(arg0 = " + std::to_string(bytes) +
                     "), COUNT(*) FROM io_events WHERE tid = " + std::to_string(pid_) + " GROUP BY op");
    };
    Patience limit;
    json found;
    while (((found = io()).empty() || found[0][1] < 10) && limit.lasts()) {
    }
    ASSERT_EQ(found.size(), 1u) << query("SELECT * FROM waits").dump();
    EXPECT_EQ(found[0][0], "block_read");
    EXPECT_GE(found[0][1], 10);  // one that is done before its thread got to sleep is not waited for
    EXPECT_LE(found[0][2].get<int>() - found[0][1].get<int>(), 5);  // a few may be of the file's own table
    const json disk = query("SELECT SUM(blocked_ns), MAX(detail) FROM waits WHERE blocked_on = 'disk' AND tid = " +
                            std::to_string(pid_));
    EXPECT_LE(disk[0][0].get<uint64_t>(), total(waits));
    EXPECT_THAT(disk[0][1].get<std::string>(), HasSubstr("read of"));
}

TEST_F(Host, ReadsOfAThrottledDiskAreWaitsOfTheTimeThatTheyTake) {
    const std::string path = directory_ / "data";
    constexpr size_t bytes = 64 << 10;
    std::ofstream(path) << std::string(12 * bytes, 'x');
    const SlowDisk disk(path, 1 << 20);
    if (!disk.usable()) GTEST_SKIP() << "SKIPPED: no cgroup that throttles the disk of the temporary folder";
    start({"read", path, "12", std::to_string(bytes)});
    ASSERT_EQ(test::run({"/usr/bin/sync", path}).status, 0);
    disk.take(pid_);
    expect_held_up(finish(), "disk");
    end();
}

TEST_F(Host, PageFaultsOfADroppedPageCacheAreWaitsOfTheTimeThatTheyTake) {
    const std::string path = directory_ / "data";
    constexpr size_t pages = 12, stride = 1024 * 4096;
    std::ofstream(path) << std::string(pages * stride, 'x');
    const SlowDisk disk(path, 64 << 10);
    if (!disk.usable()) GTEST_SKIP() << "SKIPPED: no cgroup that throttles the disk of the temporary folder";
    ASSERT_EQ(test::run({"/usr/bin/sync", path}).status, 0);
    start({"map", path, std::to_string(pages)});
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
    disk.take(pid_);
    expect_held_up(finish(), "page_fault");
    end();
}

TEST_F(Host, ReadsOfAFileSystemThatStallsAreWaitsOfTheTimeThatTheyTake) {
    const std::string mount = directory_ / "mount";
    std::filesystem::create_directory(mount);
    constexpr int reads = 10, late_ms = 30;
    Child server({SILENT_FUSE, mount, std::to_string(late_ms)});
    if (!server.wait_for_line("mounted")) GTEST_SKIP() << "SKIPPED: no FUSE: " << server.errors();
    start({"read", mount + "/libcudart.so.12", std::to_string(reads), "4096"});
    const auto waits = finish();
    EXPECT_GE(total(waits), reads * late_ms * ms);
    const json found = rows("blocked_ns + runnable_ns, waker_pid", reads - 2, "blocked_on = 'network_fs'");
    expect_near(total(found, 0), total(waits) * found.size() / waits.size());
    for (const json& row : found) EXPECT_EQ(row.at(1), server.pid());
    end();
    server.close_input();
    umount2(mount.c_str(), MNT_DETACH);
    EXPECT_EQ(server.wait(), 0);
}

TEST_F(Host, ReadsOverNfsAreWaitsOfTheTimeThatTheServerTakes) {
    std::ifstream known("/proc/filesystems");
    const std::string file_systems(std::istreambuf_iterator<char>(known), {});
    if (file_systems.find("\tnfs\n") == std::string::npos) GTEST_SKIP() << "SKIPPED: this kernel has no NFS client";
    const std::string mounted = directory_ / "mount";
    std::filesystem::create_directory(mounted);
    constexpr int reads = 10, late_ms = 30;
    Child server({LATE_NFS, std::to_string(late_ms)});
    const auto line = server.read_line();
    ASSERT_TRUE(line && line->starts_with("port ")) << server.errors();
    const std::string port = line->substr(5);
    const std::string options = "addr=127.0.0.1,vers=3,proto=tcp,port=" + port +
                                ",mountproto=tcp,mountvers=3,mountport=" + port + ",nolock,soft,sec=sys";
    ASSERT_EQ(mount("127.0.0.1:/", mounted.c_str(), "nfs", MS_RDONLY, options.c_str()), 0) << strerror(errno);
    start({"read", mounted + "/data", std::to_string(reads), "4096"});
    const auto waits = finish();
    EXPECT_GE(total(waits), reads * late_ms * ms);
    rows("1", reads, "blocked_on = 'network_fs'");
    uint64_t idle = 0, found_ns = 0;
    for (const Span& wait : waits) {
        // What the emulated CPU of a guest needs for a read is no wait, but what held the thread up in it is.
        const json found = rows("blocked_ns + runnable_ns", 1, inside(wait));
        EXPECT_GE(total(rows("blocked_ns", 1, inside(wait) + " AND blocked_on = 'network_fs'"), 0), late_ms * ms);
        std::cout << "a read took " << format_duration(wait.duration()) << ", waited " << format_duration(wait.idle())
                  << ", found " << format_duration(total(found, 0)) << "\n";
        idle += wait.idle();
        found_ns += total(found, 0);
    }
    expect_near(found_ns, idle);  // of all: interrupts are in neither a thread's CPU time nor its waits
    end();
    EXPECT_EQ(umount2(mounted.c_str(), MNT_DETACH), 0) << strerror(errno);
    server.close_input();
    EXPECT_EQ(server.wait(), 0);
}

TEST_F(Host, RoomThatAThreadMakesInItsControlGroupIsTold) {
    const MemoryControlGroup group(24);
    if (!group.usable()) GTEST_SKIP() << "SKIPPED: no cgroup with a memory controller";
    DelayAccounting accounting;
    start({"memory", directory_ / "written", "128"});
    const auto before = accounting.usable() ? accounting.of(pid_) : std::nullopt;
    group.take(pid_);
    finish();
    const auto after = accounting.usable() ? accounting.of(pid_) : std::nullopt;
    end();
    ASSERT_TRUE(before && after) << "the kernel keeps no delay accounts";
    const uint64_t times = after->reclaims - before->reclaims, took_ns = after->reclaim_ns - before->reclaim_ns;
    EXPECT_GT(times, 50u);
    // The last of them come within a second.
    const std::string told = " FROM host_events WHERE op = 'direct_reclaim' AND tid = " + std::to_string(pid_);
    const json found =
        until_there("SELECT SUM(duration_ns), SUM(arg1), SUM(arg0)" + told +
                    " HAVING SUM(duration_ns) >= " + std::to_string(std::min(took_ns / 20 * 19, took_ns - ms)));
    ASSERT_EQ(found.size(), 1u) << query("SELECT SUM(duration_ns), SUM(arg1)" + told).dump() << " of " << took_ns;
    std::cout << times << " times " << format_duration(took_ns) << ", found "
              << format_duration(found[0][0].get<uint64_t>()) << " of " << found[0][1] << "\n";
    expect_near(found[0][0].get<uint64_t>(), took_ns);
    EXPECT_LE(found[0][1].get<uint64_t>(), times);  // the kernel counts another try of one as another
    EXPECT_GT(found[0][2].get<uint64_t>(), 100u);   // pages
}

TEST_F(Host, AProcessThatIsKilledForWantOfMemoryIsTold) {
    const MemoryControlGroup group(48);
    if (!group.usable()) GTEST_SKIP() << "SKIPPED: no cgroup with a memory controller";
    start({"fill", "256"});
    group.take(pid_);
    program_->write_line("go");
    EXPECT_EQ(program_->wait(), 128 + SIGKILL);
    const json killed = until_there("SELECT e.pid, e.comm FROM host_events e WHERE e.op = 'oom_kill' AND pid = " +
                                    std::to_string(pid_));
    EXPECT_EQ(killed, json::array({json::array({pid_, "host-program"})}));
    const json ended =
        until_there("SELECT ret_code FROM host_events WHERE op = 'process_exit' AND pid = " + std::to_string(pid_));
    EXPECT_EQ(ended, json::array({json::array({SIGKILL})}));
}

/// In a network of its own: what is sent there is nobody's.
struct Unreachable {
    const char* family;
    const char* network;
    const char* address;
    const char* peer;
};
void PrintTo(const Unreachable& unreachable, std::ostream* out) {
    *out << unreachable.family;
}

class HostUnreachable : public Host, public testing::WithParamInterface<Unreachable> {};

TEST_P(HostUnreachable, RetransmitsAreTheirSocketsOwners) {
    const Unreachable& to = GetParam();
    const std::string setup = std::string("ip link set lo up && ") + to.network + " && exec \"$@\"";
    const std::vector<std::string> command = {
        "/usr/bin/unshare", "--net",        "/bin/sh", "-c",       setup,  "sh",
        HOST_PROGRAM,       CUDART_LIBRARY, "reach",   to.address, "4567", "2500"};
    // The timer of a connection interrupts any task. A sandboxed kernel may run no BPF program in the context of the
    // task that controls the sandbox: what is sent there is not recorded, so one of several connections must be whole.
    uint64_t sent = 0;
    json rows;
    for (int attempt = 0; attempt < 3 && (attempt == 0 || rows.size() < sent); ++attempt) {
        program_.emplace(command);
        if (!program_->wait_for_line("ready")) GTEST_SKIP() << "SKIPPED: no such network: " << program_->errors();
        pid_ = program_->pid();
        ASSERT_TRUE(daemon_->wait_traced(pid_));
        const uint64_t before = monotonic_now_ns();
        const std::vector<Span> waits = finish();
        ASSERT_EQ(waits.size(), 1u);
        sent = kernel_counter(pid_, "TCPSynRetrans") - kernel_counter(pid_, "TCPRetransFail");
        ASSERT_GT(sent, 0u);
        end();
        const std::string pid = std::to_string(pid_);
        until_there("SELECT 1 FROM host_events WHERE op = 'process_exit' AND pid = " + pid);  // stored after the others
        rows = query(
            "SELECT peer, errno, timestamp, stalled_ns FROM socket_events WHERE op = 'tcp_retransmit' AND pid = " +
            pid + " ORDER BY timestamp");
        ASSERT_LE(rows.size(), sent) << rows.dump();
        for (const json& row : rows) {
            EXPECT_EQ(row[0], to.peer);
            EXPECT_TRUE(row[1].is_null());
            // All of one connection that was begun after `before`: told in us, and by two clocks.
            EXPECT_LE(row[3].get<uint64_t>(), waits[0].to - before);
            EXPECT_NEAR(row[3].get<double>() - rows[0][3].get<double>(),
                        row[2].get<double>() - rows[0][2].get<double>(), double{ms});
            // The kernel asks for a connection once more after a second (tcp(7), RFC 6298).
            EXPECT_GE(row[3].get<uint64_t>(), 950 * ms);
        }
    }
    EXPECT_EQ(rows.size(), sent) << rows.dump() << daemon_->status().dump();
}

// Of IPv6 a route over lo would be answered.
INSTANTIATE_TEST_SUITE_P(
    Of, HostUnreachable,
    testing::Values(Unreachable{"ipv4", "ip address add 10.99.99.1/32 dev lo && ip route add 10.99.99.2/32 dev lo",
                                "10.99.99.2", "10.99.99.2:4567"},
                    Unreachable{"ipv6",
                                "ip link add v0 type veth peer name v1 && ip link set v1 up && "
                                "ip address add fd00:99::1/64 dev v0 nodad && ip link set v0 up && "
                                "ip neigh add fd00:99::2 lladdr 02:00:00:00:00:01 dev v0",
                                "fd00:99::2", "[fd00:99::2]:4567"}),
    [](const auto& one) { return std::string(one.param.family); });

TEST_F(Host, WhatAnotherUserWaitsForIsNotShown) {
    if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: needs root";
    constexpr uint32_t owner = 12'401, stranger = 12'402;  // of no other test
    // A few more: a switch in a few hundred is not told.
    start({"sleep", "14", "5000"}, {.environment = {}, .uid = owner, .wanted_pid = {}});
    finish();
    rows("id", 10);
    const auto answer_to = [&](uint32_t uid, const char* command) {
        const Finished answer = test::run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "--json", command},
                                          {.environment = {}, .uid = uid, .wanted_pid = {}});
        const json told = json::parse(answer.output, nullptr, false);
        // While the daemon reads a library, of a test beside this one for example, it is not ready.
        const bool is_ready = told.value("state", "") != "starting";
        EXPECT_EQ(answer.status, is_ready ? 0 : 4) << answer.errors;
        return told;
    };
    EXPECT_EQ(answer_to(stranger, "waits").at("waits"), 0);
    EXPECT_GE(answer_to(owner, "waits").at("waits"), 10);
    // Nor how much it does.
    for (const auto& [uid, processes] : {std::pair(owner, 1), {stranger, 0}}) {
        const json status = answer_to(uid, "status");
        EXPECT_EQ(status.at("processes"), processes);
        for (const char* total : {"recorded", "committed", "waits", "sampled_out", "split_uncertain"})
            EXPECT_TRUE(status.at("events").at(total).is_null()) << total;
        EXPECT_TRUE(status.at("traces").is_null());
    }
    const json status = answer_to(0, "status");
    EXPECT_GE(status.at("processes"), 1);  // those of tests that run beside this one too
    EXPECT_GE(status.at("events").at("waits"), 10);
    end();
}

}  // namespace
