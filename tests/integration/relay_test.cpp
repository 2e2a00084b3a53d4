// ingero-relay beside a real ingerod: figures are those of a scripted libnvidia-ml, and one that hangs, crashes, lacks
// functions or is absent costs nothing but its own rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/wire/value.h"
#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* one_gpu =
    "gpus 1\n0.uuid GPU-11111111-2222-3333-4444-555555555555\n0.name Stand-in\n0.pci 00000000:3B:00.0\n";
constexpr const char* uuid = "GPU-11111111-2222-3333-4444-555555555555";

class RelayTest : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
        // Below folders that are root's alone, which a temporary one is not.
        std::string name = std::string(TRUSTED_DIRECTORY) + "/ingero-relay-XXXXXX";
        ASSERT_TRUE(mkdtemp(name.data()));
        trusted_ = name;
        chmod(name.c_str(), 0755);
        std::ofstream(directory_ / "ingerod.conf") << "[capture]\noverhead_budget = 0\n[relay]\ngpu_poll = \"100ms\"\n";
        daemon_.emplace(directory_ / "run", std::vector<std::string>{"--config", directory_ / "ingerod.conf"});
    }
    void TearDown() override {
        if (trusted_.empty()) return;
        fs::remove_all(trusted_);
    }

    /// A library that says what the script says.
    std::string library(const std::string& script, const char* variant = "now") {
        fs::copy_file(std::string(std::string(STANDIN_LIB) + "/nvml-") + variant + "/libnvidia-ml.so.1",
                      trusted_ / "libnvidia-ml.so.1", fs::copy_options::overwrite_existing);
        std::ofstream(trusted_ / "nvml.script") << script;
        return trusted_ / "libnvidia-ml.so.1";
    }
    void sys(const std::string& file, const std::string& text) {
        const fs::path path = trusted_ / "sys" / file;
        fs::create_directories(path.parent_path());
        std::ofstream(path) << text << "\n";
    }
    void start_relay(const std::string& library, std::vector<std::string> more = {}) {
        std::vector<std::string> command = {"/bin/sh",     "-c",       "exec \"$@\" 2>&1", "relay",
                                            RELAY_PROGRAM, "--socket", socket(),           "--library",
                                            library,       "--sysfs",  trusted_ / "sys"};
        command.insert(command.end(), more.begin(), more.end());
        relay_.emplace(command);
    }
    std::string socket() const { return directory_ / "run" + "/relay.sock"; }

    /// The first answer that has what is waited for, or the last one.
    template <class Ask, class Has>
    static json wait_for(Ask ask, Has has) {
        Patience limit;
        json answer = ask();
        for (; !has(answer) && limit.lasts(); answer = ask()) std::this_thread::yield();
        EXPECT_TRUE(has(answer)) << answer.dump(1);
        return answer;
    }
    json wait_for_gpu() {
        return wait_for([&] { return daemon_->call("gpus"); }, [](const json& a) { return !a["gpus"].empty(); });
    }
    json wait_for_source(const std::string& source, const std::string& state) {
        return wait_for([&] { return daemon_->status()["relay"]["sources"]; },
                        [&](const json& a) { return a.contains(source) && a[source]["state"] == state; });
    }
    json query(const std::string& sql) { return daemon_->call("query", {{"sql", sql}})["rows"]; }

    const TemporaryDirectory directory_;
    fs::path trusted_;
    std::optional<Daemon> daemon_;
    std::optional<Child> relay_;
};

TEST_F(RelayTest, figures_are_those_that_the_library_says) {
    Workload workload({"calls", "--count", "10", "--op", "launch"});
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    sys("bus/pci/devices/0000:3b:00.0/numa_node", "1");
    sys("bus/pci/devices/0000:3b:00.0/local_cpulist", "16-31,48-63");
    start_relay(library(std::string(one_gpu) +
                        "0.utilization 87\n0.memory_utilization 43\n0.memory_used 34359738368\n"
                        "0.memory_total 85899345920\n0.clock0 1410\n0.clock1 1400\n0.clock2 2619\n0.max_clock1 1980\n"
                        "0.throttle 68\n0.temperature 71\n0.power 654321\n0.power_limit 700000\n0.ecc0 5\n0.ecc1 1\n"
                        "0.remapped_corrected 2\n0.remapped_uncorrected 1\n0.remap_pending 1\n0.remap_failed 0\n"
                        "0.pcie0 12000\n0.pcie1 34000\n0.replays 7\n0.generation 4\n0.max_generation 5\n0.width 8\n"
                        "0.max_width 16\n0.nvlink0 1\n0.nvlink1 1\n0.nvlink2 0\n0.nvlink0_errors0 3\n"
                        "0.nvlink1_errors0 4\n0.nvlink0_errors2 10\n0.nvlink1_errors3 20\n0.nvlink1_errors1 6\n"
                        "0.xid 79\n0.processes " +
                        std::to_string(workload.pid()) + " 1073741824 999999 1024\n"));
    const json answer = wait_for([&] { return daemon_->call("gpus"); },
                                 [](const json& a) { return !a["gpus"].empty() && a["gpus"][0]["xids"] == 1; });
    const json expected = {
        {"uuid", uuid},
        {"index", 0},
        {"name", "Stand-in"},
        {"pci", "00000000:3B:00.0"},
        {"local_cpus", "16-31,48-63"},
        {"utilization_percent", 87},
        {"memory_utilization_percent", 43},
        {"memory_used_bytes", 34359738368},
        {"memory_total_bytes", 85899345920},
        {"graphics_clock_mhz", 1410},
        {"sm_clock_mhz", 1400},
        {"memory_clock_mhz", 2619},
        {"max_sm_clock_mhz", 1980},
        {"throttle_reasons", {"sw_power_cap", "hw_thermal_slowdown"}},
        {"temperature_celsius", 71},
        {"power_watts", 654.321},
        {"power_limit_watts", 700.0},
        {"ecc_corrected", 5},
        {"ecc_uncorrected", 1},
        {"remapped_rows_corrected", 2},
        {"remapped_rows_uncorrected", 1},
        {"remap_pending", 1},
        {"remap_failed", 0},
        {"pcie_sent_bytes_per_s", 12'000'000},
        {"pcie_received_bytes_per_s", 34'000'000},
        {"pcie_replays", 7},
        {"pcie_generation", 4},
        {"pcie_max_generation", 5},
        {"pcie_width", 8},
        {"pcie_max_width", 16},
        {"nvlinks_active", 2},
        {"nvlink_crc_errors", 30},
        {"nvlink_replays", 7},
        {"nvlink_recoveries", 6},
        {"numa_node", 1},
        {"processes_running", 2},
        {"processes",
         {{{"pid", workload.pid()}, {"memory_bytes", 1073741824}}, {{"pid", 999999}, {"memory_bytes", 1024}}}}};
    const json& gpu = answer["gpus"][0];
    for (const auto& [name, value] : expected.items()) EXPECT_EQ(gpu.at(name), value) << name;
    EXPECT_EQ(gpu["last_xid"]["xid"], 79);
    const json processes = daemon_->call("processes");
    json known;
    for (const json& process : processes["processes"])
        if (process["pid"] == workload.pid()) known = process;
    ASSERT_FALSE(known.is_null());
    EXPECT_EQ(known["gpu_memory_bytes"], 1073741824);
    EXPECT_EQ(known["devices"], json::array({0}));
    EXPECT_EQ(query("SELECT DISTINCT uuid, gpu_index, power_watts, throttle_reasons, nvlink_replays FROM gpu_samples"),
              (json{{uuid, 0, 654.321, 68, 7}}));
    EXPECT_EQ(query("SELECT uuid, xid FROM gpu_events"), json::array({json::array({uuid, 79})}));

    const Finished printed = run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "gpus"});
    EXPECT_EQ(printed.status, 0) << printed.errors;
    EXPECT_THAT(printed.output, testing::HasSubstr("32.0 GiB of 80.0 GiB"));
    EXPECT_THAT(printed.output, testing::HasSubstr("hw_thermal_slowdown"));
    for (const char* command : {"gpus", "status", "processes"}) {
        const std::string file = directory_ / (std::string(command) + ".json");
        std::ofstream(file) << run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "--json", command}).output;
        const std::string schema = std::string(std::string(SCHEMA_DIRECTORY) + "/") + command + ".schema.json";
        const Finished valid = run({"/usr/bin/python3", VALIDATE_SCHEMA, schema, file});
        EXPECT_EQ(valid.status, 0) << valid.output << valid.errors;
    }
    workload.open_gate();
    workload.finish();
    EXPECT_EQ(daemon_->stop(), 0);
    const Finished stored = run({INGEROCTL_PROGRAM, "--db", directory_ / "run" + "/store", "--json", "gpus"});
    ASSERT_EQ(stored.status, 0) << stored.errors;
    EXPECT_EQ(json::parse(stored.output)["gpus"][0]["sm_clock_mhz"], 1400);
}

TEST_F(RelayTest, values_follow_each_other_as_the_library_says_them) {
    start_relay(library(std::string(one_gpu) + "0.power 1000 2000 3000 4000 5000\n"));
    wait_for([&] { return query("SELECT power_watts FROM gpu_samples ORDER BY timestamp LIMIT 6"); },
             [](const json& rows) { return rows.size() == 6; });
    EXPECT_EQ(query("SELECT power_watts FROM gpu_samples ORDER BY timestamp LIMIT 6"),
              json::parse("[[1.0],[2.0],[3.0],[4.0],[5.0],[5.0]]"));
}

TEST_F(RelayTest, gpus_that_are_lost_and_those_that_come_are_told) {
    const std::string other = "GPU-22222222-2222-3333-4444-555555555555";
    start_relay(library("gpus 1 1 1 1 1 1 1 1 2\n0.uuid " + std::string(uuid) +
                        "\n0.name Stand-in\n0.pci 00000000:3B:00.0\n0.power 5000\n0.lost 0 0 0 1\n1.uuid " + other +
                        "\n1.name Stand-in\n1.power 7000\n"));
    const json gpus = wait_for([&] { return daemon_->call("gpus"); },
                               [](const json& a) {
                                   // It is measured first, and told of as found at the end of the round.
                                   return a["gpus"].size() == 2 && !a["gpus"][1]["power_watts"].is_null() &&
                                          !a["gpus"][1]["found_ns"].is_null();
                               })["gpus"];
    EXPECT_EQ(gpus[0]["uuid"], uuid);
    EXPECT_TRUE(gpus[0]["lost_ns"].is_number());
    EXPECT_EQ(gpus[1]["uuid"], other);
    EXPECT_TRUE(gpus[1]["found_ns"].is_number());
    EXPECT_EQ(query("SELECT uuid, change, xid FROM gpu_events ORDER BY timestamp"),
              (json{{uuid, "lost", nullptr}, {other, "found", nullptr}}));
    EXPECT_EQ(query("SELECT COUNT(*) FROM gpu_samples WHERE uuid = '" + std::string(uuid) + "'")[0][0], 3)
        << "what could not be asked has no rows";
    const json sources = wait_for([&] { return daemon_->status()["relay"]["sources"]; },
                                  [](const json& a) { return a["gpus"]["reason"] == "1 GPU, 1 lost"; });
    const Finished printed = run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "gpus"});
    EXPECT_THAT(printed.output, testing::HasSubstr("lost at "));
    const std::string file = directory_ / "gpus.json";
    std::ofstream(file) << run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "--json", "gpus"}).output;
    const Finished valid =
        run({"/usr/bin/python3", VALIDATE_SCHEMA, std::string(SCHEMA_DIRECTORY) + "/gpus.schema.json", file});
    EXPECT_EQ(valid.status, 0) << valid.output << valid.errors;
}

TEST_F(RelayTest, the_last_gpu_that_goes_is_told_too) {
    start_relay(library(std::string(one_gpu) + "0.power 5000\ncrash 0.power 3\n"));
    wait_for_gpu();
    // What measures begins anew, and the driver has none.
    std::ofstream(trusted_ / "nvml.script") << "gpus 0\n";
    wait_for_source("gpus", "absent");
    const json gpus =
        wait_for([&] { return daemon_->call("gpus"); },
                 [](const json& a) { return a["gpus"].size() == 1 && a["gpus"][0]["lost_ns"].is_number(); });
    EXPECT_EQ(gpus["gpus"][0]["uuid"], uuid);
}

TEST_F(RelayTest, of_more_processes_than_are_told_those_with_the_most_memory_are) {
    std::string script = std::string(one_gpu) + "0.power 5000\n0.processes";
    for (int i = 1; i <= 200; ++i)
        script += " " + std::to_string(4'000'000 + i) + " " + std::to_string(85'000'000'000 + i);
    start_relay(library(script + "\n"));
    const json gpu = wait_for_gpu()["gpus"][0];
    EXPECT_EQ(gpu["processes_running"], 200);
    ASSERT_EQ(gpu["processes"].size(), 128u);
    EXPECT_EQ(gpu["processes"][0], (json{{"pid", 4'000'200}, {"memory_bytes", 85'000'000'200}}));
    EXPECT_EQ(gpu["processes"][127]["pid"], 4'000'073);
    const json rows = query("SELECT processes, processes_running FROM gpu_samples LIMIT 1");
    EXPECT_EQ(json::parse(rows[0][0].get<std::string>()), gpu["processes"]);
    EXPECT_EQ(rows[0][1], 200);
}

TEST_F(RelayTest, of_a_library_without_some_functions_only_their_columns_are_missing) {
    start_relay(library(std::string(one_gpu) +
                            "0.memory_used 100\n0.memory_total 200\n0.power 5000\n0.power_limit 9000\n"
                            "0.nvlink0 1\n0.remapped_corrected 1\n",
                        "old"));
    const json gpu = wait_for_gpu()["gpus"][0];
    EXPECT_EQ(gpu["memory_used_bytes"], 100);
    EXPECT_EQ(gpu["power_watts"], 5.0);
    for (const char* name : {"power_limit_watts", "nvlinks_active", "remapped_rows_corrected", "utilization_percent"})
        EXPECT_EQ(gpu[name], nullptr) << name;
}

TEST_F(RelayTest, a_library_that_hangs_costs_its_own_rows_only) {
    for (const char* file : {"state", "phys_state", "link_layer"})
        sys(std::string("class/infiniband/mlx5_0/ports/1/") + file, file == std::string("state")        ? "4: ACTIVE"
                                                                    : file == std::string("phys_state") ? "5: LinkUp"
                                                                                                        : "InfiniBand");
    sys("class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)");
    sys("class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "25");
    sys("class/infiniband/mlx5_0/ports/1/counters/symbol_error", "3");
    start_relay(library(std::string(one_gpu) + "0.power 5000\nhang 0.power 3\n"), {"--patience", "1s"});
    wait_for_source("gpus", "hung");
    wait_for([&] { return query("SELECT COUNT(*) FROM gpu_samples"); },  // two rounds before it hangs
             [](const json& rows) { return rows[0][0] >= 2; });

    // Ports are told of all the while, and calls are recorded.
    const int64_t before = query("SELECT COUNT(*) FROM port_samples")[0][0];
    wait_for([&] { return query("SELECT COUNT(*) FROM port_samples"); },
             [&](const json& rows) { return rows[0][0] > before + 5; });
    EXPECT_EQ(query("SELECT DISTINCT port, state, link_layer, rate_bits_per_s, received_bytes, symbol_errors, "
                    "link_downed FROM port_samples"),
              (json{{"mlx5_0/1", "ACTIVE", "InfiniBand", 100'000'000'000, 100, 3, nullptr}}));
    Workload workload({"calls", "--count", "1000", "--op", "launch"});
    ASSERT_TRUE(daemon_->wait_traced(workload.pid()));
    const int pid = workload.pid();
    workload.open_gate();
    EXPECT_EQ(workload.finish(), 0);
    const std::string launches =
        "SELECT COUNT(*) FROM events WHERE op = 'cudaLaunchKernel' AND pid = " + std::to_string(pid);
    wait_for([&] { return query(launches); }, [](const json& rows) { return rows[0][0] >= 1000; });
    EXPECT_EQ(query(launches)[0][0], 1000);
    // It is started again, and hangs again.
    const json rows = query("SELECT COUNT(*) FROM gpu_samples");
    wait_for([&] { return query("SELECT COUNT(*) FROM gpu_samples"); }, [&](const json& now) { return now > rows; });
}

TEST_F(RelayTest, a_library_that_crashes_costs_its_own_rows_only) {
    start_relay(library(std::string(one_gpu) + "0.temperature 40\ncrash 0.temperature 2\n"));
    const json sources = wait_for_source("gpus", "crashed");
    EXPECT_THAT(sources["gpus"]["reason"].get<std::string>(), testing::HasSubstr("signal 6"));
    wait_for([&] { return query("SELECT COUNT(*) FROM gpu_samples WHERE temperature_celsius = 40"); },
             [](const json& rows) { return rows[0][0] >= 2; });
    EXPECT_EQ(daemon_->stop(), 0);
}

TEST_F(RelayTest, a_library_that_is_absent_or_fails_is_told_by_status) {
    start_relay(trusted_ / "none.so.1");
    wait_for_source("gpus", "absent");
    relay_.reset();
    start_relay(library("gpus 0\nfail init 9\n"));
    EXPECT_EQ(wait_for_source("gpus", "failed")["gpus"]["reason"], "Driver Not Loaded");
    const Finished printed = run({INGEROCTL_PROGRAM, "--socket", daemon_->socket(), "status"});
    EXPECT_THAT(printed.output, testing::HasSubstr("Driver Not Loaded"));
    EXPECT_EQ(wait_for_source("ports", "absent").size(), 2u);
    EXPECT_EQ(daemon_->call("gpus")["gpus"], json::array());
}

TEST_F(RelayTest, a_library_that_others_than_root_may_change_is_refused) {
    const std::string path = library(one_gpu);
    chmod(path.c_str(), 0666);
    start_relay(path);
    const json sources = wait_for_source("gpus", "refused");
    EXPECT_THAT(sources["gpus"]["reason"].get<std::string>(),
                testing::HasSubstr("may be changed by users other than root"));
    EXPECT_EQ(query("SELECT COUNT(*) FROM gpu_samples")[0][0], 0);
}

TEST_F(RelayTest, ingerod_itself_opens_no_device_and_maps_no_driver) {
    start_relay(library(std::string(one_gpu) + "0.power 5000\n"));
    wait_for_gpu();
    const fs::path process = "/proc/" + std::to_string(daemon_->process().pid());
    for (const auto& fd : fs::directory_iterator(process / "fd")) {
        std::error_code error;
        const std::string target = fs::read_symlink(fd, error).string();
        if (target.starts_with("/dev/")) {
            EXPECT_TRUE(target == "/dev/null" || target.starts_with("/dev/pts/")) << target;
        }
    }
    std::ostringstream maps;
    maps << std::ifstream(process / "maps").rdbuf();
    EXPECT_EQ(maps.str().find("nvidia"), std::string::npos);
    for (const char* table : {"tcp", "tcp6", "udp", "udp6"}) {
        // Of the host: none of its sockets is in a table of the network.
        std::ostringstream text;
        text << std::ifstream(process / "net" / table).rdbuf();
        for (const auto& fd : fs::directory_iterator(process / "fd")) {
            std::error_code error;
            const std::string target = fs::read_symlink(fd, error).string();
            if (!target.starts_with("socket:[")) continue;
            const std::string inode = " " + target.substr(8, target.size() - 9) + " ";
            EXPECT_EQ(text.str().find(inode), std::string::npos) << table << target;
        }
    }
}

TEST_F(RelayTest, only_the_relay_and_root_may_tell) {
    chmod(socket().c_str(), 0666);
    const uint64_t refused = daemon_->status()["relay"]["refused"];
    const std::string script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)";
    fs::permissions(directory_.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
    const Finished told = run({"/usr/bin/python3", "-c", script, socket()}, {.uid = 65534});
    EXPECT_EQ(told.status, 0) << told.errors;
    EXPECT_EQ(daemon_->status()["relay"]["refused"], refused + 1);
    EXPECT_EQ(daemon_->status()["relay"]["connected"], false);
}

TEST_F(RelayTest, bytes_that_are_no_message_are_refused_and_nothing_is_stored) {
    const UniqueFd fd = connect_to(socket());
    const std::string message =
        encode_value({{"kind", "gpu"}, {"time_ns", 5}, {"uuid", "GPU-1"}, {"values", {{"power_watts", 1.0}}}});
    ASSERT_GT(send(fd.get(), message.data(), message.size(), MSG_NOSIGNAL), 0);
    wait_for([&] { return daemon_->status()["relay"]; }, [](const json& relay) { return relay["refused"] == 1; });
    const std::string garbage(100, '\xc1');
    ASSERT_GT(send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    wait_for([&] { return daemon_->status()["relay"]; }, [](const json& relay) { return relay["connected"] == false; });
    EXPECT_EQ(query("SELECT COUNT(*) FROM states")[0][0], 0);
}

TEST_F(RelayTest, a_reload_turns_polling_off) {
    start_relay(library(std::string(one_gpu) + "0.power 5000\n"));
    wait_for_gpu();
    std::ofstream(directory_ / "ingerod.conf") << "[capture]\noverhead_budget = 0\n[relay]\ngpu_poll = \"off\"\n";
    daemon_->call("reload");
    wait_for_source("gpus", "off");
}

}  // namespace
