// What a traced process is part of, from its environment to the store; and what of it must not get there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "test_paths.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;
using nlohmann::json;

namespace {

std::string all_bytes(const std::string& directory) {
    std::ostringstream bytes;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
        if (entry.is_regular_file()) bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    return bytes.str();
}

TEST(Facts, of_a_process_are_told_and_stored_and_its_secrets_are_not) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    const TemporaryDirectory directory;
    std::ofstream(directory / "c.conf")
        << "[capture]\noverhead_budget = 0\n[processes]\nenviron_allow = [\"JOB_NAME\"]\n";
    Daemon daemon(directory / "run", {"--config", directory / "c.conf"});
    Workload workload({"calls", "--count", "100", "--op", "launch"},
                      {.environment = {{"RANK", "3"},
                                       {"LOCAL_RANK", "1"},
                                       {"WORLD_SIZE", "8"},
                                       {"SLURM_JOB_ID", "4711"},
                                       {"CUDA_VISIBLE_DEVICES", "0,1"},
                                       {"JOB_NAME", "nightly"},
                                       {"HF_TOKEN", "hf_hunter2secret"}}});
    const int pid = workload.pid();
    ASSERT_TRUE(daemon.wait_traced(pid));
    json found;
    const json processes = daemon.call("processes");
    for (const json& process : processes["processes"])
        if (process["pid"] == pid) found = process;
    ASSERT_FALSE(found.is_null());
    const json expected = {{"rank", 3},
                           {"local_rank", 1},
                           {"world_size", 8},
                           {"rank_source", "torchrun"},
                           {"slurm_job", "4711"},
                           {"cuda_visible_devices", "0,1"},
                           {"environment", {{"JOB_NAME", "nightly"}}},
                           {"parent_pid", getpid()}};
    for (const auto& [name, value] : expected.items()) EXPECT_EQ(found.at(name), value) << name;
    EXPECT_NE(found["command"].get<std::string>().find("--count 100 --op launch"), std::string::npos)
        << found["command"];
    workload.open_gate();
    EXPECT_EQ(workload.finish(), 0);
    EXPECT_EQ(daemon.stop(), 0);
    const Finished asked =
        run({INGEROCTL_PROGRAM, "--db", daemon.store(), "--json", "query",
             "SELECT DISTINCT p.rank, p.world_size, p.slurm_job, p.environment, e.rank, e.local_rank FROM processes p "
             "JOIN events e ON e.pid = p.pid WHERE p.pid = " +
                 std::to_string(pid)});
    ASSERT_EQ(asked.status, 0) << asked.errors;
    EXPECT_EQ(json::parse(asked.output)["rows"],
              json::parse(R"([[3, 8, "4711", "{\"JOB_NAME\":\"nightly\"}", 3, 1]])"));
    const std::string bytes = all_bytes(daemon.store());
    EXPECT_NE(bytes.find("nightly"), std::string::npos);
    EXPECT_EQ(bytes.find("hunter2secret"), std::string::npos);
}

}  // namespace
