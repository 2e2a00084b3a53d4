// Faults that are really injected, and what the daemon says of them: the right kind with the right culprit, and nothing
// else above low. The rows go into detection-matrix.json as they are run. Healthy programs on a busy host get no
// finding at all.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <list>
#include <numeric>
#include <thread>
#include <vector>

#include "core/model/time.h"
#include "test_paths.h"
#include "tests/detection/detection.h"
#include "tests/support/others_work.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

struct Row {
    std::string name;
    std::string kind;
    std::vector<std::string> workload;
    std::string culprit;  ///< part of the first one's name
    unsigned hogs = 0;    ///< on its CPU
    /// Time is assigned: at least 0.8 of it is explained. Not where the injection itself has its part on the CPU, as
    /// handling page faults has.
    bool assigned = true;
    bool neighbour = false;  ///< its one hog is of a control group of its own
    bool quota = false;      ///< the workload's control group has a quota
    bool slow_disk = false;  ///< the same of what it may read
};

void PrintTo(const Row& row, std::ostream* out) {
    *out << row.name;
}

/// All threads of a process on one CPU.
void keep_on(int pid, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(cpu), &set);
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task"))
        sched_setaffinity(std::stoi(task.path().filename()), sizeof set, &set);
}

/// A control group of a hierarchy, as version 1 or 2 has it; goes with whoever is still in it moved back.
class ControlGroup {
  public:
    explicit ControlGroup(const std::string& controller) {
        const std::string v1 = "/sys/fs/cgroup/" + controller;
        root_ = access(v1.c_str(), F_OK) == 0 ? v1 : "/sys/fs/cgroup";
        path_ = root_ + "/ingero-detection-" + std::to_string(getpid());
        if (root_ != v1) std::ofstream(root_ + "/cgroup.subtree_control") << "+cpu";
        made_ = mkdir(path_.c_str(), 0755) == 0;
    }
    ControlGroup(const ControlGroup&) = delete;
    ControlGroup& operator=(const ControlGroup&) = delete;
    ~ControlGroup() {
        std::ifstream members(path_ + "/cgroup.procs");
        for (std::string pid; members >> pid;) std::ofstream(root_ + "/cgroup.procs") << pid;
        rmdir(path_.c_str());
    }
    /// Of each 100 ms, so many.
    bool limit_cpu(int ms) {
        std::ofstream v1(path_ + "/cpu.cfs_quota_us", std::ios::in), v2(path_ + "/cpu.max", std::ios::in);
        if (v1) return static_cast<bool>(v1 << ms * 1000 << std::flush);
        return static_cast<bool>(v2 << ms * 1000 << " 100000" << std::flush);
    }
    /// Reading from the disk that has this file.
    bool limit_reading(const std::string& file, uint64_t bytes_a_second) {
        struct stat found {};
        if (stat(file.c_str(), &found) != 0) return false;
        const std::string disk = std::to_string(major(found.st_dev)) + ":" + std::to_string(minor(found.st_dev));
        const std::string bytes = std::to_string(bytes_a_second);
        std::ofstream v1(path_ + "/blkio.throttle.read_bps_device", std::ios::in), v2(path_ + "/io.max", std::ios::in);
        if (v1) return static_cast<bool>(v1 << disk << " " << bytes << std::flush);
        return static_cast<bool>(v2 << disk << " rbps=" << bytes << std::flush);
    }
    bool add(int pid) {
        return made_ && static_cast<bool>(std::ofstream(path_ + "/cgroup.procs") << pid << std::flush);
    }

  private:
    std::string root_, path_;
    bool made_ = false;
};

class Injected : public Detection, public testing::WithParamInterface<Row> {};

TEST_P(Injected, is_found_and_nothing_else) {
    const Row& row = GetParam();
    Daemon daemon(directory_ / "run", config());
    std::list<Hog> hogs;
    std::optional<ControlGroup> group;
    while (hogs.size() < row.hogs) hogs.emplace_back(0, row.culprit);
    if (row.neighbour) {
        group.emplace("systemd");
        if (!group->add(hogs.front().pid())) GTEST_SKIP() << "SKIPPED: no control group can be made";
    }
    if (row.quota) {
        group.emplace("cpu");
        if (!group->limit_cpu(40)) GTEST_SKIP() << "SKIPPED: no control group with a CPU quota can be made";
    }
    if (row.slow_disk) {
        group.emplace("blkio");
        if (!group->limit_reading("/var/tmp", 80'000'000))
            GTEST_SKIP() << "SKIPPED: no control group that limits reading can be made";
    }
    const json found = findings(daemon, row.workload, [&](int pid) {
        if (row.quota || row.slow_disk) {
            ASSERT_TRUE(group->add(pid));
        }
    });
    hogs.clear();
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    json rows = json::array();
    for (const json& finding : found) rows.push_back(row_of(finding));
    note_in_matrix([&](json& matrix) { matrix["rows"][row.name] = rows; });
    bool right = false;
    for (const json& finding : found) {
        const bool wanted = finding["kind"] == row.kind;
        if (!wanted) {
            EXPECT_EQ(finding["severity"], "low") << finding.dump(1);
            continue;
        }
        right = true;
        std::cout << row.name << ": " << finding["summary"] << "\n";
        ASSERT_FALSE(finding["culprits"].empty()) << finding.dump(1);
        EXPECT_THAT(finding["culprits"][0]["name"].get<std::string>(), testing::HasSubstr(row.culprit));
        if (row.assigned) {
            EXPECT_EQ(finding["verdict"], "proven") << finding.dump(1);
            EXPECT_GE(finding["explained_fraction"], 0.8) << finding.dump(1);
        }
    }
    EXPECT_TRUE(right) << "no " << row.kind << ": " << found.dump(1);
}

// A program that keeps to a rate sleeps meanwhile: one that spins is on the CPU while its device waits for it.
const std::vector<std::string> train = {"train",       "--duration", "5",      "--cpu", "0",
                                        "--step-rate", "200",        "--pace", "sleep"};

std::vector<std::string> training(std::vector<std::string> more) {
    more.insert(more.begin(), train.begin(), train.end());
    return more;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, Injected,
    testing::Values(
        Row{"cpu-contention", "cpu-contention", {"train", "--duration", "5", "--cpu", "0"}, "cpu-hog", 1},
        Row{"cpu-contention, seven hogs", "cpu-contention", {"train", "--duration", "5", "--cpu", "0"}, "cpu-hog", 7},
        Row{"cpu-contention, quota",
            "cpu-contention",
            {"train", "--duration", "5", "--cpu", "0"},
            "cgroup quota",
            0,
            true,
            false,
            true},
        Row{"noisy-neighbour",
            "noisy-neighbour",
            {"train", "--duration", "5", "--cpu", "0"},
            "busy-neighbour",
            1,
            true,
            true},
        Row{"own-io-wait", "own-io-wait", training({"--standin", "at=cudaMemcpyAsync:/20:disk=16384"}), "disk", 0, true,
            false, false, true},
        Row{"own-io-wait, writes between steps",
            "own-io-wait",
            {"train", "--duration", "5", "--cpu", "0", "--checkpoint-every", "2", "--checkpoint-kib", "512"},
            "disk"},
        Row{"lock-wait", "lock-wait", training({"--standin", "at=cudaLaunchKernel:/100:mutex=4000"}), "standin-helper"},
        Row{"memory-reclaim", "memory-reclaim", training({"--standin", "at=cudaMemcpyAsync:/20:major=1024"}),
            "page_fault", 0, false},
        Row{"cold-start", "cold-start", training({"--standin", "lazy_ms=40"}), "first use of"},
        Row{"gpu-oom", "gpu-oom",
            training({"--temporary-mib", "64", "--leak-every", "1", "--standin", "memory_mb=4096"}), "cudaMalloc"},
        Row{"gpu-oom, fragmented", "gpu-oom", {"fragment", "--piece-mib", "4"}, "cudaMalloc"},
        Row{"gpu-leak", "gpu-leak", training({"--temporary-mib", "2", "--leak-every", "50"}), "cudaMalloc"},
        Row{"graph-recapture",
            "graph-recapture",
            {"serve", "--duration", "5", "--cpu", "0", "--graph", "--recapture-every", "4", "--request-rate", "100"},
            "graphs"},
        Row{"device-fault", "device-fault", training({"--standin", "at=cudaLaunchKernel:2000:sticky=700"}), "kernel", 0,
            false},
        Row{"data-starvation, workers compute",
            "data-starvation",
            {"train", "--duration", "5", "--cpu", "0", "--loader", "workers:1", "--loader-us", "15000", "--loader-cpu",
             "1"},
            "loader-worker"},
        Row{"data-starvation, workers read",
            "data-starvation",
            {"train", "--duration", "5", "--cpu", "0", "--loader", "workers:1", "--loader-us", "100", "--loader-cpu",
             "1", "--loader-kib", "2048", "--loader-cold"},
            "disk, read by loader-worker",
            0,
            true,
            false,
            false,
            true},
        Row{"data-starvation, own work",
            "data-starvation",
            {"train", "--duration", "5", "--cpu", "0", "--loader", "compute", "--loader-us", "15000"},
            "on the CPU between its calls"},
        Row{"checkpoint-stall", "checkpoint-stall",
            training({"--checkpoint-every", "100", "--checkpoint-kib", "65536"}), "disk"}),
    [](const auto& row) {
        std::string name = row.param.name;
        for (char& c : name)
            if (!isalnum(static_cast<unsigned char>(c))) c = '_';
        return name;
    });

/// A tool that takes its time, in a process of the test's own; or one that answers at once, at the end of a network
/// that loses what is sent to it.
class SlowServer {
  public:
    explicit SlowServer(bool loses = false)
        : loses_(loses), listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        // Below those that the system gives to who connects, as a service's port is.
        for (port_ = 21'000; port_ < 32'000; ++port_) {
            address.sin_port = htons(port_);
            if (bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) break;
        }
        EXPECT_EQ(listen(listening_.get(), 16), 0);
        thread_ = std::thread([this] { serve(); });
        pthread_setname_np(thread_.native_handle(), "slow-tool");
    }
    ~SlowServer() { stop(); }
    uint16_t port() const { return port_; }
    /// Serves nobody more. Of the requests that were lost on their way, how long each took from when the answer before
    /// was sent.
    const std::vector<uint64_t>& stop() {
        shutdown(listening_.get(), SHUT_RDWR);
        if (thread_.joinable()) thread_.join();
        return lost_ns_;
    }

  private:
    void serve() {
        for (;;) {
            const UniqueFd connection(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!connection) return;
            if (loses_) {
                serve_lossily(connection.get());
                continue;
            }
            char request[256];
            [[maybe_unused]] const ssize_t asked = recv(connection.get(), request, sizeof request, 0);
            poll(nullptr, 0, 30);  // it works for so long
            send(connection.get(), "done", 4, MSG_NOSIGNAL);
        }
    }

    /// Answers at once. After every third answer nothing that is sent to it arrives for a while.
    void serve_lossily(int connection) {
        sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
        const sock_fprog nothing{1, &drop};
        uint64_t loses_from_ns = 0;
        char request[256];
        for (uint64_t number = 1; recv(connection, request, sizeof request, 0) > 0; ++number) {
            // No sooner than that anything is sent again (TCP_RTO_MIN). One that came first was late.
            const uint64_t took_ns = monotonic_now_ns() - loses_from_ns;
            if (loses_from_ns != 0 && took_ns >= 200'000'000) lost_ns_.push_back(took_ns);
            loses_from_ns = 0;
            send(connection, "done", 4, MSG_NOSIGNAL);
            if (number % 3 != 0) continue;
            loses_from_ns = monotonic_now_ns();
            EXPECT_EQ(setsockopt(connection, SOL_SOCKET, SO_ATTACH_FILTER, &nothing, sizeof nothing), 0);
            poll(nullptr, 0, 150);
            const int none = 0;
            EXPECT_EQ(setsockopt(connection, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none), 0);
        }
    }

    const bool loses_;
    std::vector<uint64_t> lost_ns_;

    UniqueFd listening_;
    uint16_t port_ = 0;
    std::thread thread_;
};

/// The finding of this kind, or null; all others are to be of low severity. Their row goes into the matrix.
json only_above_low(const json& found, const std::string& kind) {
    json rows = json::array(), wanted;
    for (const json& finding : found) {
        rows.push_back(row_of(finding));
        if (finding["kind"] == kind)
            wanted = finding;
        else
            EXPECT_EQ(finding["severity"], "low") << finding.dump(1);
    }
    note_in_matrix([&](json& matrix) { matrix["rows"][kind] = rows; });
    return wanted;
}

TEST_F(Detection, waiting_for_what_is_sent_again_is_named_with_the_other_end) {
    Daemon daemon(directory_ / "run", config());
    SlowServer server(true);
    const json found =
        findings(daemon, training({"--ask-port", std::to_string(server.port()), "--ask-every", "4", "--ask-keep"}));
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const json finding = only_above_low(found, "network-retransmit");
    const std::vector<uint64_t>& lost_ns = server.stop();
    ASSERT_GE(lost_ns.size(), 5u);
    const uint64_t waited_ns = std::accumulate(lost_ns.begin(), lost_ns.end(), uint64_t{0});
    ASSERT_TRUE(finding.is_object()) << found.dump(1);
    std::cout << finding["summary"] << "; " << lost_ns.size() << " requests were lost, which took "
              << format_duration(waited_ns) << "\n";
    EXPECT_EQ(finding["verdict"], "proven") << finding.dump(1);
    EXPECT_EQ(finding["culprits"][0]["name"], "127.0.0.1:" + std::to_string(server.port()));
    // What the program itself did before it asked is in the server's time too, and is not lost.
    EXPECT_LE(finding["lost_ns"].get<uint64_t>(), waited_ns);
    EXPECT_GE(finding["lost_ns"].get<uint64_t>(), waited_ns / 10 * 8);
    EXPECT_GE(finding["explained_fraction"], 0.8);
}

TEST_F(Detection, waiting_for_a_tool_is_named_with_the_tool) {
    Daemon daemon(directory_ / "run", config());
    const SlowServer server;
    const json found = findings(daemon, training({"--ask-port", std::to_string(server.port()), "--ask-every", "4"}));
    ASSERT_EQ(daemon.stop(), 0) << daemon.process().output();
    const json finding = only_above_low(found, "idle-in-tool-call");
    ASSERT_TRUE(finding.is_object()) << found.dump(1);
    std::cout << finding["summary"] << "\n";
    EXPECT_EQ(finding["verdict"], "proven") << finding.dump(1);
    EXPECT_THAT(finding["culprits"][0]["name"].get<std::string>(),
                testing::HasSubstr("127.0.0.1:" + std::to_string(server.port())));
}

struct Healthy {
    std::string name;
    std::vector<std::string> workload;
    std::string sync;
};

void PrintTo(const Healthy& healthy, std::ostream* out) {
    *out << healthy.name << " " << healthy.sync;
}

class HealthyHost : public Detection, public testing::WithParamInterface<Healthy> {
  protected:
    /// The machine's other programs, which no test can keep away, held the workload up for as long as is blamed on
    /// them.
    bool is_of_others(const json& found) const {
        uint64_t blamed_ns = 0;
        for (const json& finding : found) {
            // A loader whose workers have no CPU is late for the same reason, by their account and not the main
            // thread's.
            const json& culprits = finding["culprits"];
            if (finding["kind"] == "data-starvation" && !culprits.empty() &&
                culprits[0]["name"].get<std::string>().find("without a CPU") != std::string::npos)
                continue;
            if (finding["kind"] != "cpu-contention" && finding["kind"] != "noisy-neighbour") return false;
            for (const json& culprit : finding["culprits"]) blamed_ns += culprit["ns"].get<uint64_t>();
        }
        return blamed_ns <= run_delay_ns_ + run_delay_ns_ / 20;
    }
};

TEST_P(HealthyHost, has_no_finding) {
    const Healthy& healthy = GetParam();
    std::vector<std::string> workload = healthy.workload;
    // Two minutes in all in the everyday form.
    for (const std::string& word :
         {std::string("--duration"), std::string(long_form() ? "600" : "13"), std::string("--cpu"), std::string("0"),
          std::string("--pace"), std::string("sleep"), std::string("--standin"), "sync=" + healthy.sync})
        workload.push_back(word);
    const auto run_it = [&](int attempt) {
        Daemon daemon(directory_ / "run" + std::to_string(attempt), config());
        keep_on(daemon.process().pid(), 1);
        Child noise({"taskset", "-c", "1", "setsid", "--wait", ORDINARY_NOISE, directory_.path()});
        const json found = findings(daemon, workload);
        noise.close_input();
        noise.wait();
        EXPECT_EQ(daemon.stop(), 0) << daemon.process().output();
        return found;
    };
    json found;
    for (int attempt = 0; attempt < 3; ++attempt) {
        found = run_it(attempt);
        if (found.empty() || !is_of_others(found)) break;
        // The host was not healthy then, as the kernel says too.
        std::cout << "others kept the workload from its CPU for " << format_duration(run_delay_ns_) << ": once more\n";
    }
    const std::string program = healthy.name + " " + healthy.sync;
    note_in_matrix([&](json& matrix) {
        json kept = json::array();
        for (const json& finding : matrix["healthy"])
            if (finding.value("program", "") != program) kept.push_back(finding);
        for (const json& finding : found) {
            kept.push_back(row_of(finding));
            kept.back()["program"] = program;
        }
        matrix["healthy"] = std::move(kept);
    });
    EXPECT_TRUE(not_others_work(found, run_delay_ns_).empty()) << found.dump(1);
}

const std::vector<std::string> training_loop = {"train", "--step-rate", "150"},
                               inference = {"serve", "--request-rate", "50"},
                               with_loader = {"train",        "--loader", "workers:2",   "--loader-us", "1000",
                                              "--loader-cpu", "1",        "--step-rate", "100"};

INSTANTIATE_TEST_SUITE_P(
    Programs, HealthyHost,
    testing::Values(Healthy{"training", training_loop, "spin"}, Healthy{"training", training_loop, "yield"},
                    Healthy{"training", training_loop, "block"}, Healthy{"inference", inference, "spin"},
                    Healthy{"inference", inference, "yield"}, Healthy{"inference", inference, "block"},
                    Healthy{"loader", with_loader, "spin"}, Healthy{"loader", with_loader, "yield"},
                    Healthy{"loader", with_loader, "block"}),
    [](const auto& one) { return one.param.name + "_" + one.param.sync; });

}  // namespace
