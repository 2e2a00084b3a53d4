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

#include "tests/integration/host_fixture.h"
#include "tests/support/control_groups.h"
#include "tests/support/delay_accounts.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
using testing::HasSubstr;

namespace {

/// The one that it runs on, or ran on last: proc_pid_stat(5), field 39, of which two stand before the state.
int cpu_of(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text, word;
    std::getline(file, text);
    std::istringstream words(text.substr(text.rfind(')') + 1));
    for (int field = 3; field <= 39; ++field) words >> word;
    return std::stoi(word);
}

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

TEST_F(Host, SoftInterruptsAreTheTimeThatTheyTakeOfTheirThread) {
    constexpr size_t sends = 40;
    start({"broadcast", std::to_string(sends), "900"});
    const auto sent = finish();
    ASSERT_EQ(sent.size(), sends);
    end();
    const std::string tid = std::to_string(pid_);
    until_there("SELECT 1 FROM host_events WHERE op = 'process_exit' AND pid = " + tid);  // stored after the others
    const std::string here = "interrupts WHERE tid = " + tid + " AND kind = 'soft' AND name = 'NET_RX'";
    size_t found = 0, mostly = 0;
    uint64_t found_ns = 0;
    for (const Span& one : sent) {
        const std::string column = "timestamp", times = inside(one);
        const json rows = query("SELECT duration_ns FROM " + here + " AND " + column + times.substr(times.find(' ')));
        // Where it goes on for long, or something else is to run, a thread of the kernel goes on with it.
        if (rows.size() != 1) continue;
        ++found;
        EXPECT_LE(rows[0][0].get<uint64_t>(), one.duration());
        found_ns += rows[0][0].get<uint64_t>();
        mostly += rows[0][0].get<uint64_t>() >= one.duration() / 2;
    }
    EXPECT_GE(found, sends / 2) << query("SELECT * FROM " + here).dump();
    EXPECT_GE(mostly, found / 2);  // in others something else had the CPU too
    EXPECT_GE(query("SELECT TOTAL(interrupt_ns) FROM short_waits WHERE tid = " + tid)[0][0].get<double>(),
              static_cast<double>(found_ns));
}

TEST_F(Host, MovesToOtherCpusAreCounted) {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "SKIPPED: one CPU only";
    constexpr int moves = 15;
    start({"sleep", "100000", "5000"});
    const auto move = [&](int cpu) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        ASSERT_EQ(sched_setaffinity(pid_, sizeof(one), &one), 0);
        ASSERT_TRUE(wait_until([&] { return cpu_of(pid_) == cpu; }));
    };
    // From where it is nothing moves it but this test.
    const int home = cpu_of(pid_);
    int other = 0;
    while (other == home || !CPU_ISSET(other, &allowed)) ++other;
    ASSERT_NO_FATAL_FAILURE(move(home));
    program_->write_line("go");
    // It is watched from its call on, which is over when it says that it slept.
    ASSERT_TRUE(program_->wait_for_line("wait"));
    // Its output is read, or it would wait for that in the end.
    for (int i = 1; i <= moves; ++i) {
        ASSERT_NO_FATAL_FAILURE(move(i % 2 == 1 ? other : home));
        ASSERT_TRUE(program_->wait_for_line("wait"));
    }
    program_->signal(SIGKILL);
    program_->wait();
    const std::string tid = std::to_string(pid_);
    until_there("SELECT 1 FROM host_events WHERE op = 'process_exit' AND pid = " + tid);  // stored after the others
    EXPECT_EQ(query("SELECT SUM(migrations) FROM short_waits WHERE tid = " + tid), json::parse("[[15]]"));
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
